"""Checks of a plan when it is built. Errors carry the rule's name, what does not fit, and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NoReturn

from unerring.model import ColumnType, RuleError
from unerring.rules.expressions import (
    HERE,
    Aggregate,
    At,
    Attribute,
    Classifier,
    EventOrdinal,
    EventTime,
    Expr,
    Literal,
    MatchNumber,
    WindowBound,
)
from unerring.rules.patterns import (
    Absence,
    AbsenceKind,
    Alternation,
    Contiguity,
    EndAnchor,
    Exclusion,
    Gap,
    Pattern,
    Permute,
    Quantified,
    Sequence,
    StartAnchor,
    Step,
    can_be_empty,
    nodes,
)
from unerring.rules.reading import depth_of, lookahead, of_row_alone, positions, walk

if TYPE_CHECKING:
    from unerring.rules.plan import Input, JoinPlan, Measure, OperatorPlan, PatternPlan, Plan, WindowPlan

DEPTH_MAX: Final = 120
"""The deepest expression: evaluation is recursive."""


def wrong(rule: str, what: str) -> NoReturn:
    raise RuleError(f"rule {rule}: {what}")


# --- all kinds -------------------------------------------------------------------------------------------------------


def _check_inputs(plan: Plan) -> None:
    if not plan.inputs:
        wrong(plan.name, "it reads nothing; give it an input stream")
    names: list[str] = []
    first = plan.inputs[0]
    for source in plan.inputs:
        if source.name in names:
            wrong(plan.name, f"input {source.name} stands twice; give one of them another alias")
        names.append(source.name)
        kinds = [source.schema.column(column).type for column in source.key]
        wanted = [first.schema.column(column).type for column in first.key]
        if kinds != wanted:
            wrong(
                plan.name,
                f"its key is {_listed(wanted)} in {first.name} but {_listed(kinds)} in {source.name}; "
                "name key columns of the same types for every input",
            )
        if source.where is not None:
            _check_condition(plan, source.where, f"the filter of {source.name}")
            if not of_row_alone(source.where):
                wrong(plan.name, f"the filter of {source.name} may look at the event alone, not at {source.where}")
            _check_attributes(plan, source.where, (source,), {}, f"the filter of {source.name}")


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "nothing"


def _check_condition(plan: Plan, condition: Expr, where: str) -> None:
    if condition.type not in (ColumnType.BOOL, None):
        wrong(plan.name, f"{where} is {condition.type}, not a condition: {condition}")


def _check_measures(plan: Plan, measures: tuple[Measure, ...]) -> None:
    seen: set[str] = set()
    for measure in measures:
        if measure.name.lower() in seen:
            wrong(plan.name, f"output column {measure.name} is defined twice; rename one")
        seen.add(measure.name.lower())
    if not measures:
        wrong(plan.name, "its output has no column; emit at least one")


def _check_attributes(
    plan: Plan, expr: Expr, here: tuple[Input, ...], streams: dict[str, tuple[Input, ...]], where: str
) -> None:
    """Every column that is read exists, with that type, in at least one stream that the row can come from."""
    if depth_of(expr) > DEPTH_MAX:
        wrong(
            plan.name,
            f"{where} is nested more than {DEPTH_MAX} deep; use .isin(...), or compute a part in a rule below",
        )
    for node in walk(expr, into_aggregates=False):
        if isinstance(node, Aggregate):
            if node.name == "array_agg" and node is not expr:
                wrong(
                    plan.name, f"{where}: array_agg gives a list, which is an output column as a whole; emit it alone"
                )
            if any(isinstance(inner, Aggregate) for argument in node.arguments for inner in walk(argument)):
                wrong(plan.name, f"{where}: an aggregate within an aggregate has no meaning here; use a second rule")
            for name in node.variables:
                if name not in streams:
                    wrong(plan.name, f"{where} names {name!r}, which is not bound; there are {_listed(streams)}")
            sources = _sources(node.variables, streams, plan.inputs)
            for argument in node.arguments:
                _check_attributes(plan, argument, sources, streams, where)
        elif isinstance(node, Attribute | EventTime | EventOrdinal | Classifier):
            for name in node.at.variables:
                if name not in streams:
                    wrong(plan.name, f"{where} names {name!r}, which is not bound; there are {_listed(streams)}")
            if isinstance(node, Attribute):
                sources = here if node.at == HERE else plan.inputs
                if node.at.variables and not node.at.shift:
                    sources = _sources(node.at.variables, streams, plan.inputs)
                _check_column(plan, node, sources, where)


def _sources(
    variables: tuple[str, ...], streams: dict[str, tuple[Input, ...]], every: tuple[Input, ...]
) -> tuple[Input, ...]:
    return tuple(source for name in variables for source in streams[name]) if variables else every


def _check_column(plan: Plan, node: Attribute, sources: tuple[Input, ...], where: str) -> None:
    types = [column.type for source in sources for column in source.schema.columns if column.name == node.name]
    if not types:
        has = "; ".join(f"{s.name} has {_listed(column.name for column in s.schema.columns)}" for s in sources)
        wrong(plan.name, f"{where} reads {node.name!r}, which is not a column ({has})")
    if any(kind is not node.column_type for kind in types):
        wrong(plan.name, f"{where} reads {node.name!r} as {node.column_type}, but it is {_listed(types)}")


# --- patterns --------------------------------------------------------------------------------------------------------


def check_pattern_plan(plan: PatternPlan) -> None:
    _check_inputs(plan)
    _check_measures(plan, plan.measures)
    bound, absent = _check_variables(plan)
    by_name = {source.name: source for source in plan.inputs}
    streams: dict[str, tuple[Input, ...]] = {}
    for variable in plan.variables:
        if variable.stream is not None and variable.stream not in by_name:
            wrong(
                plan.name,
                f"{variable.name} is to be an event of {variable.stream!r}, which it does not read; "
                f"it reads {_listed(by_name)}",
            )
        streams[variable.name] = plan.inputs if variable.stream is None else (by_name[variable.stream],)
    readable = {name: streams[name] for name in streams if name in bound or name not in absent}
    for variable in plan.variables:
        if variable.condition is not None:
            where = f"the condition of {variable.name}"
            own = {**readable, variable.name: streams[variable.name]}
            _check_pattern_condition(plan, variable.condition, where)
            if variable.name in absent:
                _check_no_lookahead(plan, variable.condition, where)
            _check_attributes(plan, variable.condition, streams[variable.name], own, where)
    for node in nodes(plan.pattern):
        gap = node if isinstance(node, Gap) else None
        if gap is not None and gap.until is not None:
            _check_pattern_condition(plan, gap.until, "until")
            _check_no_lookahead(plan, gap.until, "until")
            _check_attributes(plan, gap.until, plan.inputs, readable, "until")
    timed_out = plan.timed_out.measures if plan.timed_out else ()
    for measure in (*plan.measures, *timed_out):
        _check_attributes(plan, measure.expr, plan.inputs, readable, f"output column {measure.name}")
        if any(isinstance(node, WindowBound) for node in walk(measure.expr)):
            wrong(plan.name, f"output column {measure.name} asks for a window, which a pattern does not have")
    _check_policies(plan, bound)


def _check_variables(plan: PatternPlan) -> tuple[list[str], list[str]]:
    defined = [variable.name for variable in plan.variables]
    for name in defined:
        if defined.count(name) > 1:
            wrong(plan.name, f"variable {name} is defined twice; rename one")
    bound = [node.variable for node in nodes(plan.pattern) if isinstance(node, Step)]
    absent = [node.variable for node in nodes(plan.pattern) if isinstance(node, Absence)]
    for name in (*bound, *absent):
        if name not in defined:
            wrong(plan.name, f"the pattern names {name!r}, which is not defined; there are {_listed(defined)}")
    for name in absent:
        if name in bound:
            wrong(plan.name, f"{name} is both looked for and forbidden; give the absence a name of its own")
    return bound, absent


def _check_pattern_condition(plan: PatternPlan, condition: Expr, where: str) -> None:
    _check_condition(plan, condition, where)
    if any(at.final for at in positions(condition)) or any(
        isinstance(node, Aggregate) and node.final for node in walk(condition)
    ):
        wrong(plan.name, f"{where} looks at the whole match (FINAL), which is not known yet; use the running form")
    if any(isinstance(node, WindowBound) for node in walk(condition)):
        wrong(plan.name, f"{where} asks for a window, which a pattern does not have")


def _check_no_lookahead(plan: PatternPlan, condition: Expr, where: str) -> None:
    if lookahead(condition) > 0:
        wrong(
            plan.name, f"{where} uses NEXT, but says what must not come before that; put NEXT into a step's condition"
        )


def _check_policies(plan: PatternPlan, bound: list[str]) -> None:
    from unerring.rules.plan import OutputMode, Selection, Skip, SkipKind

    if plan.within_us is not None and plan.within_us < 0:
        wrong(plan.name, f"within {plan.within_us} µs: a length of time is 0 or more")
    if plan.skip.kind in (SkipKind.TO_FIRST, SkipKind.TO_LAST):
        missing = [name for name in plan.skip.variables if name not in bound]
        if missing or not plan.skip.variables:
            wrong(plan.name, f"skip to {_listed(missing)}: not in the pattern; it binds {_listed(bound)}")
    if plan.selection is not Selection.PREFERRED:
        if plan.skip != Skip():
            wrong(plan.name, f"selection {plan.selection} has its own consumption; leave the skip out")
        if plan.mode is not OutputMode.ONE_ROW:
            wrong(plan.name, f"all rows per match go with selection preferred, not {plan.selection}")
        if any(lookahead(measure.expr) > 0 for measure in plan.measures):
            wrong(plan.name, f"NEXT in an output column goes with selection preferred, not {plan.selection}")
        conditions = [variable.condition for variable in plan.variables if variable.condition is not None]
        if any(isinstance(node, MatchNumber) for condition in conditions for node in walk(condition)):
            wrong(plan.name, f"match_number() in a condition goes with selection preferred, not {plan.selection}")
        if can_be_empty(plan.pattern):
            wrong(
                plan.name, f"selection {plan.selection}: the pattern can match without any event; make a step required"
            )
    excluded = any(isinstance(node, Exclusion) for node in nodes(plan.pattern))
    if plan.mode is OutputMode.ALL_ROWS_UNMATCHED and excluded:
        wrong(
            plan.name, "an exclusion and unmatched rows cannot be asked for together: what is left out would come back"
        )
    gaps = [node for node in nodes(plan.pattern) if isinstance(node, Gap)]
    if plan.timed_out is not None and plan.within_us is None and all(gap.within_us is None for gap in gaps):
        wrong(plan.name, "timed-out matches need a time: add within")


def unbounded_reason(plan: PatternPlan) -> str | None:
    """Why, on a stream, an answer might never be final or state might grow for ever; None if neither can be."""
    exprs = [measure.expr for measure in plan.measures]
    exprs += [variable.condition for variable in plan.variables if variable.condition is not None]
    if any(lookahead(expr) > 0 for expr in exprs):
        return "NEXT looks at an event that may never come; compare with PREV from the later event instead"
    if any(isinstance(node, EndAnchor) for node in nodes(plan.pattern)):
        return "$ asks for the end of a stream, which has none; leave it out"
    if plan.within_us is not None:
        return None
    for node in nodes(plan.pattern):
        if isinstance(node, Quantified) and node.most is None:
            return f"{node} can go on for ever; add within(...), or an upper bound to its repetition"
        if isinstance(node, Gap) and node.contiguity is not Contiguity.STRICT and node.within_us is None:
            return "the next event may come at any time; add within(...)"
    trailing = trailing_absences(plan.pattern)
    if any(absence.within_us is None for absence in trailing):
        return f"{trailing[0]} at the end has no deadline; add within(...)"
    return None


def never_reason(plan: PatternPlan) -> str | None:
    """Why the pattern can never match, if that can be seen."""
    for name in _required(plan.pattern):
        condition = plan.variable(name).condition
        if isinstance(condition, Literal) and condition.value is not True:
            return f"the condition of {name} is always {condition}"
    flat = _required_nodes(plan.pattern)
    steps = [number for number, node in enumerate(flat) if isinstance(node, Step)]
    for number, node in enumerate(flat):
        if isinstance(node, StartAnchor) and any(step < number for step in steps):
            return "^ stands after an event, but asks for the place before the first one"
        if isinstance(node, EndAnchor) and any(step > number for step in steps):
            return "$ stands before an event, but asks for the place after the last one"
    return None


def _required_nodes(pattern: Pattern) -> list[Pattern]:
    """The steps and anchors that every match passes, in order (parts that may be left out are not among them)."""
    match pattern:
        case Step() | StartAnchor() | EndAnchor():
            return [pattern]
        case Sequence(parts):
            return [node for part in parts for node in _required_nodes(part)]
        case Quantified(part, least) if least > 0:
            return _required_nodes(part)
        case Exclusion(part):
            return _required_nodes(part)
        case Alternation((only,)):
            return _required_nodes(only)
        case _:
            return []


def _required(pattern: Pattern) -> list[str]:
    required = [node.variable for node in _required_nodes(pattern) if isinstance(node, Step)]
    if isinstance(pattern, Permute):
        required += [name for part in pattern.parts for name in _required(part)]
    return required


def trailing_absences(pattern: Pattern) -> list[Absence]:
    """The absences that may stand after the last bound row of a match."""
    match pattern:
        case Absence():
            return [pattern]
        case Sequence(parts):
            absences: list[Absence] = []
            for part in reversed(parts):
                absences += trailing_absences(part)
                if not can_be_empty(part):
                    break
            return absences
        case Alternation(options):
            return [absence for option in options for absence in trailing_absences(option)]
        case Permute(parts):
            return [absence for part in parts for absence in trailing_absences(part)]
        case Quantified(part) | Exclusion(part):
            return trailing_absences(part)
        case _:
            return []


def leading_absences(pattern: Pattern) -> list[Absence]:
    """The absences that may stand before the first bound row of a match."""
    match pattern:
        case Absence():
            return [pattern]
        case Sequence(parts):
            absences: list[Absence] = []
            for part in parts:
                absences += leading_absences(part)
                if not can_be_empty(part):
                    break
            return absences
        case Alternation(options):
            return [absence for option in options for absence in leading_absences(option)]
        case Permute(parts):
            return [absence for part in parts for absence in leading_absences(part)]
        case Quantified(part) | Exclusion(part):
            return leading_absences(part)
        case _:
            return []


def unlimited_lookback(plan: PatternPlan) -> Absence | None:
    """An absence before the first event that looks back for ever."""
    for absence in leading_absences(plan.pattern):
        if absence.kind is AbsenceKind.FOLLOWED and absence.within_us is None:
            return absence
    return None


# --- windows, joins, operators ---------------------------------------------------------------------------------------


def check_window_plan(plan: WindowPlan) -> None:
    from unerring.rules.plan import Counted, Emit

    _check_inputs(plan)
    _check_measures(plan, plan.measures)
    sizes = {name: getattr(plan.window, name) for name in plan.window.__dataclass_fields__}
    for name, size in sizes.items():
        if name != "offset_us" and size <= 0:
            wrong(plan.name, f"its window's {name} is {size}; it must be more than 0")
    if isinstance(plan.window, Counted) and plan.window.slide > plan.window.size:
        wrong(plan.name, "its count window slides by more rows than it holds; make the slide at most the size")
    exprs = [(f"output column {m.name}", m.expr) for m in plan.measures]
    if plan.having is not None:
        _check_condition(plan, plan.having, "having")
        exprs.append(("having", plan.having))
    for where, expr in exprs:
        if _bare(expr):
            wrong(plan.name, f"{where} reads one row; a window has many: aggregate it (last(...), max(...), …)")
        if any(isinstance(node, Classifier | MatchNumber) for node in walk(expr)):
            wrong(plan.name, f"{where} asks for a match, which a window does not have")
        _check_attributes(plan, expr, plan.inputs, {}, where)
    names = [measure.name for measure in plan.measures]
    for name in plan.watch:
        if name not in names:
            wrong(plan.name, f"it watches {name!r}, which is not an output column; use one of {_listed(names)}")
        watched = plan.measures[names.index(name)].expr
        if any(isinstance(node, WindowBound) for node in walk(watched)):
            wrong(plan.name, f"it watches {name!r}, which changes with every window; watch what the rows say")
    if plan.watch and plan.emit is not Emit.CHANGE:
        wrong(plan.name, "watch goes with emit on change")


def _bare(expr: Expr) -> bool:
    """Whether a leaf reads a row outside of any aggregate."""
    return next(iter(positions(expr)), None) is not None


def check_join_plan(plan: JoinPlan) -> None:
    _check_inputs(plan)
    _check_measures(plan, plan.measures)
    if len(plan.inputs) < 2:
        wrong(plan.name, "a join needs two inputs or more")
    if plan.within_us < 0:
        wrong(plan.name, f"within {plan.within_us} µs: a length of time is 0 or more")
    streams: dict[str, tuple[Input, ...]] = {source.name: (source,) for source in plan.inputs}
    exprs = [(f"output column {m.name}", m.expr) for m in plan.measures]
    if plan.condition is not None:
        _check_condition(plan, plan.condition, "the join's condition")
        exprs.append(("the join's condition", plan.condition))
    for where, expr in exprs:
        _check_attributes(plan, expr, plan.inputs, streams, where)
        if any(isinstance(node, Aggregate | Classifier | MatchNumber | WindowBound) for node in walk(expr)):
            wrong(plan.name, f"{where} asks for more than the joined events have; use a rule on the join's output")
        if any(at != At(at.variables, at.which) or len(at.variables) != 1 for at in positions(expr)):
            wrong(plan.name, f"{where}: name the input that each column comes from, without PREV or NEXT")
    for name in plan.unmatched:
        if name not in streams:
            wrong(plan.name, f"unmatched {name!r} is not an input; use one of {_listed(streams)}")


def check_operator_plan(plan: OperatorPlan) -> None:
    _check_inputs(plan)
    if plan.schema.name != plan.name:
        wrong(plan.name, f"its output stream is called {plan.schema.name}; the rule and its stream share one name")
    if ":" not in plan.operator:
        wrong(plan.name, f"{plan.operator!r} is not an address; use module:Class")
