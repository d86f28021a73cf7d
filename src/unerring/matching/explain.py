"""Describes a rule and how it will run, for people and for scripts."""

from __future__ import annotations

from typing import Any, Final

from unerring.matching.choice import compilation_fault, why_interpreted
from unerring.matching.interpreter.matching import PatternRules
from unerring.matching.looking_back import look_back
from unerring.model import ColumnType
from unerring.rules import (
    expressions as ex,
    expressions_of,
    of_row_alone,
    patterns as pt,
    plan as pl,
    trailing_absences,
    unbounded_reason,
    walk,
)

TIMES_COMPILED: Final = {"pattern": 300, "window": 80, "join": 200}
"""How many times the CPU time of the compiled kernel the interpreter takes for an event of such a rule, rounded: the
figures `pattern.over_interpreter`, … of `unerring bench kernel`."""


def kind_of(plan: pl.Plan) -> str:
    return {
        pl.PatternPlan: "pattern",
        pl.WindowPlan: "window",
        pl.JoinPlan: "join",
        pl.OperatorPlan: "operator",
    }[type(plan)]


def describe(plan: pl.Plan) -> dict[str, Any]:
    """Everything `unerring explain` says, as plain data."""
    reason = why_interpreted(plan)
    return {
        "rule": plan.name,
        "kind": kind_of(plan),
        "version": plan.version,
        "inputs": [
            {
                "stream": source.schema.name,
                "alias": source.name,
                "key": list(source.key),
                "where": None if source.where is None else str(source.where),
            }
            for source in plan.inputs
        ],
        **_details(plan),
        "outputs": [
            {"stream": schema.name, "columns": {c.name: f"{c.type}{'?' if c.nullable else ''}" for c in schema.columns}}
            for schema in plan.outputs
        ],
        "null_where": _faults(plan),
        "certain": _certain(plan),
        "state": _state(plan),
        "looks_back": str(look_back(plan)),
        "shards": _shards(plan),
        "matcher": "compiled" if reason is None else "interpreted",
        "why": reason or "",
        "cost": "" if reason is None else _cost(plan),
        "compilation_fault": compilation_fault(plan) if reason is None else "",
    }


def _cost(plan: pl.Plan) -> str:
    """The cost of running a rule interpreted."""
    times = TIMES_COMPILED.get(kind_of(plan))
    if times is None:
        return "the operator's own"
    return (
        f"interpreting a {kind_of(plan)} takes about {times} times the CPU time of compiled code for each event "
        "(measure it with: unerring bench kernel)"
    )


def _details(plan: pl.Plan) -> dict[str, Any]:
    match plan:
        case pl.PatternPlan():
            return {
                "pattern": str(plan.pattern),
                "variables": {
                    v.name: {
                        "stream": v.stream,
                        "condition": "true" if v.condition is None else str(v.condition),
                        "of_event_alone": v.condition is None or of_row_alone(v.condition),
                    }
                    for v in plan.variables
                },
                "within_us": plan.within_us,
                "selection": str(plan.selection),
                "skip": " ".join((str(plan.skip.kind), "|".join(plan.skip.variables))).strip(),
                "mode": str(plan.mode),
                "measures": {measure.name: str(measure.expr) for measure in plan.measures},
            }
        case pl.WindowPlan():
            return {
                "window": str(plan.window),
                "emit": str(plan.emit),
                "having": None if plan.having is None else str(plan.having),
                "measures": {measure.name: str(measure.expr) for measure in plan.measures},
            }
        case pl.JoinPlan():
            return {
                "within_us": plan.within_us,
                "condition": None if plan.condition is None else str(plan.condition),
                "unmatched": list(plan.unmatched),
                "measures": {measure.name: str(measure.expr) for measure in plan.measures},
            }
        case pl.OperatorPlan():
            return {
                "operator": plan.operator,
                "parameters": dict(plan.parameters),
                "class_version": plan.operator_version,
            }


def _faults(plan: pl.Plan) -> list[str]:
    """The arithmetic that can fail on values that are not NULL: it is NULL then, and the stream goes on."""
    faults = [_fault(node) for expr in expressions_of(plan) for node in walk(expr)]
    return list(dict.fromkeys(fault for fault in faults if fault))


def _fault(node: ex.Expr) -> str:
    if node.type not in (ColumnType.INT, ColumnType.TIME):
        return ""
    match node:
        case ex.Arithmetic("-", ex.EventTime(), ex.EventTime()):
            return ""  # no two times are so far apart
        case ex.Arithmetic("div" | "%"):
            return f"{node}: divided by zero"
        case ex.Arithmetic() | ex.Negate() | ex.Aggregate("sum"):
            return f"{node}: does not fit 64 bits"
        case ex.Cast(operand) if operand.type in (ColumnType.FLOAT, ColumnType.TEXT):
            return f"{node}: is not a 64-bit number"
    return ""


def _certain(plan: pl.Plan) -> str:
    """When an output becomes certain, and so what its stamp is."""
    match plan:
        case pl.PatternPlan():
            if trailing_absences(plan.pattern):
                return "at the deadline of the absence at its end"
            if plan.selection is not pl.Selection.PREFERRED:
                return "at the last event of the match"
            if any(isinstance(n, pt.Quantified) and n.least != n.most for n in pt.nodes(plan.pattern)) or any(
                isinstance(n, pt.Alternation | pt.Permute) for n in pt.nodes(plan.pattern)
            ):
                return "at the event or deadline that ends every match preferred to it"
            return "at the last event of the match"
        case pl.WindowPlan(window=pl.Counted()):
            return "at the event that fills the window"
        case pl.WindowPlan(window=pl.Trailing()):
            return "at each event, and when an event leaves the window"
        case pl.WindowPlan():
            return "when the window closes"
        case pl.JoinPlan():
            return "at the last event of the combination"
        case pl.OperatorPlan():
            return "when the operator gives it"


def _state(plan: pl.Plan) -> str:
    """The state of a key, and when it is forgotten."""
    match plan:
        case pl.PatternPlan():
            rules = PatternRules(plan)
            endless = unbounded_reason(plan)
            if endless is not None:
                kept = f"unbounded: {endless}"
            elif plan.within_us is not None:
                kept = f"the events of at most {plan.within_us} µs since the first undecided one"
            else:
                kept = "the events since the first undecided one"
            return kept + (_forever(rules) if rules.keeps_every_key else "; a key without an open match is forgotten")
        case pl.WindowPlan(window=window):
            lasting = isinstance(window, pl.Session | pl.Counted) and plan.emit is pl.Emit.CHANGE
            return "the events of open windows" + (
                "; the last values of every key, for ever" if lasting else "; a key without an open window is forgotten"
            )
        case pl.JoinPlan():
            return f"the events of the last {plan.within_us} µs; a key without one is forgotten"
        case pl.OperatorPlan():
            return "the operator's own; a key whose state is that of a fresh operator is forgotten"


def _shards(plan: pl.Plan) -> str:
    """Whether a live run may spread its keys over several processes."""
    keys: dict[str, tuple[str, ...]] = {}
    for source in plan.inputs:
        if not source.key:
            return "one at most: the rule has no key"
        if keys.setdefault(source.schema.name, source.key) != source.key:
            return f"one at most: it reads {source.schema.name} by two keys"
    return "by " + ", ".join(f"{stream}({', '.join(key)})" for stream, key in keys.items())


def _forever(rules: PatternRules) -> str:
    why = [
        *([f"PREV may ask for the last {rules.lookback} events"] if rules.lookback else []),
        *(["the event before a start may be forbidden"] if rules.row_before else []),
        *(["match numbers count on"] if rules.numbered else []),
        *(["^ asks which event was the first"] if rules.anchored else []),
    ]
    return "; every key is kept for ever, because " + " and ".join(why or ["an absence looks back without a limit"])


def printed(described: dict[str, Any], indent: int = 0) -> str:
    """The description as text."""
    lines: list[str] = []
    pad = "  " * indent
    for name, value in described.items():
        if isinstance(value, dict):
            lines += [f"{pad}{name}:", printed(value, indent + 1)]
        elif isinstance(value, list) and value:
            lines.append(f"{pad}{name}:")
            for item in value:
                text = printed(item, indent + 2).lstrip() if isinstance(item, dict) else str(item)
                lines.append(f"{pad}  - {text}")
        elif value not in (None, "", []):
            lines.append(f"{pad}{name}: {value}")
    return "\n".join(line for line in lines if line)
