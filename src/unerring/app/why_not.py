"""Why a situation was not found: what came of each attempt of a rule for a key, by what the log held at a time.

Nothing is recorded for this. The oracle, which defines what a rule means, runs over the key's events from as far back
as the rule looks, and tells where each attempt ended; what ended it is tried (`matching.why_not`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from unerring.app.past import Past
from unerring.app.place import Where
from unerring.app.why import event_document, plain
from unerring.audit import moment
from unerring.matching import Attempt, Output, Reason, why_not
from unerring.model import SECRET, RuleError, shown
from unerring.rules import OperatorPlan, Plan

if TYPE_CHECKING:
    from unerring.app.application import App

ATTEMPTS_MAX: Final = 50
"""So many attempts are given; the count is that of all."""
BOUND_MAX: Final = 30
_WORD: Final = re.compile(r"\w+")


class WhyNot:
    """Answers for the rules of one run."""

    def __init__(self, app: App, where: Where) -> None:
        self.past = Past(app, where)

    def __call__(self, rule: str, given: Sequence[str], at_us: int) -> dict[str, Any]:
        """What came of the rule's attempts for a key by a time, the nearest miss first."""
        level, plan = self.past.rule(rule)
        key = self.past.key(plan, given)
        seen = self.past.stretch(plan.name, key, at_us)
        note = ""
        attempts: list[Attempt] = []
        outputs: list[Output] = []
        try:
            attempts, outputs = why_not(plan, key, seen.rows, at_us)
        except RuleError as error:
            note = str(error)
        if not seen.rows:
            note = "the log holds no event of this key in that time"
        elif isinstance(plan, OperatorPlan):
            note = "this rule is a class of the application: which events it was given is all that can be said"
        documents = [attempt_document(one, plan, self.past) for one in attempts]
        return {
            "rule": plan.name,
            "kind": type(plan).__name__.removesuffix("Plan").lower(),
            "level": level.number,
            "key": [plain(value) for value in key],
            "at_us": at_us,
            "after_us": seen.after_us,
            "complete": seen.complete,
            "events": len(seen.rows),
            "found": [
                {"stream": one.stream, "time_us": one.time, "payload": _plainly(one.stream, one.payload)}
                for one in sorted(outputs, key=lambda one: -one.time)[:ATTEMPTS_MAX]
            ],
            "count": len(attempts),
            "attempts": documents[:ATTEMPTS_MAX],
            "note": note,
        }


def _plainly(stream: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in shown(stream, payload).items()}


def attempt_document(attempt: Attempt, plan: Plan, past: Past) -> dict[str, Any]:
    """An attempt for a page or a script."""
    attempt = _without_secrets(attempt, plan)
    return {
        "outcome": attempt.outcome,
        "steps": attempt.steps,
        "of": attempt.of,
        "found_at_us": attempt.found_at,
        "until_us": attempt.until_us,
        "window": attempt.window,
        "bound": [{"step": name} | event_document(event) for name, event in attempt.bound[-BOUND_MAX:]],
        "count": len(attempt.bound),
        "reasons": [_reason_document(reason, plan, past) for reason in attempt.reasons],
        "text": sentence(attempt),
    }


def _without_secrets(attempt: Attempt, plan: Plan) -> Attempt:
    """The same without what conditions read of secret columns."""
    hidden = {column for source in plan.inputs for column in source.schema.secret}
    if not hidden:
        return attempt
    reasons = [
        replace(reason, terms=tuple(replace(term, values=_veiled(term.values, hidden)) for term in reason.terms))
        for reason in attempt.reasons
    ]
    return replace(attempt, reasons=tuple(reasons))


def _veiled(values: tuple[tuple[str, object], ...], hidden: set[str]) -> tuple[tuple[str, object], ...]:
    return tuple((text, SECRET if hidden.intersection(_WORD.findall(text)) else value) for text, value in values)


def _reason_document(reason: Reason, plan: Plan, past: Past) -> dict[str, Any]:
    streams = _streams(plan, reason.variable)
    return {
        "kind": str(reason.kind),
        "step": reason.variable,
        "event": None if reason.event is None else event_document(reason.event),
        "terms": [
            {"text": term.text, "holds": term.holds, "values": {name: plain(value) for name, value in term.values}}
            for term in reason.terms
        ],
        "deadline_us": reason.deadline_us,
        "late_us": reason.late_us,
        "decides": reason.decides,
        # An event that is itself a situation was not found either: its rule can be asked in turn.
        "ask": next((past.makers[name] for name in streams if name in past.makers), None),
        "text": reason_text(reason),
    }


def _streams(plan: Plan, variable: str) -> list[str]:
    """Which streams a step may take its event from."""
    wanted = next((one.stream for one in getattr(plan, "variables", ()) if one.name == variable), None)
    return [one.schema.name for one in plan.inputs if wanted in (None, one.name) or one.name == variable]


def sentence(attempt: Attempt) -> str:
    """What came of an attempt, in one line."""
    match attempt.outcome:
        case "found":
            return "found" if attempt.found_at is None else f"found at {moment(attempt.found_at)}"
        case "open":
            until = "" if attempt.until_us is None else f", until {moment(attempt.until_us)}"
            waits = "closes" if attempt.window is not None else f"{attempt.steps} of {attempt.of}; waits"
            return f"open: {waits}{until}" if until else "open"
    why = reason_text(attempt.reasons[0]) if attempt.reasons else "it did not begin"
    return f"missed, {attempt.steps} of {attempt.of}: {why}"


def reason_text(reason: Reason) -> str:
    """What ended an attempt, in one line."""
    event = "" if reason.event is None else f"{reason.event.stream} at {moment(reason.event.stamp.time)}"
    before = "" if reason.deadline_us is None else f" by {moment(reason.deadline_us)}"
    failed = "; ".join(_term(term.text, term.values) for term in reason.terms if not term.holds)
    text = {
        "condition": f"{event} is not {reason.variable or 'joined'}: {failed}",
        "late": f"{event} came {_seconds(reason.late_us or 0)} too late for {reason.variable or 'the others'}",
        "missing event": f"no {reason.variable} came{before}",
        "absence": f"{event} is {reason.variable}, which must not be there",
        "contiguity": f"{event} came between, and {reason.variable} must be the very next",
        "until": f"{event} ended the search for {reason.variable}",
        "used": f"{event} was used by another match",
        "skip": "it is complete, but the match before it took its events or comes first (skip)",
        "where": f"{event} is left out by the filter of its input: {failed}",
        "anchor": f"{event} is not at the end of the key's events that the pattern asks for",
        "having": f"the window did not satisfy: {failed}",
        "no change": "the window gave what the one before it gave, and only changes are output",
        "operator": "the operator gave nothing",
    }.get(str(reason.kind), str(reason.kind))
    return text + (" (this alone decided)" if reason.decides else "")


def _term(text: str, values: tuple[tuple[str, object], ...]) -> str:
    return f"{text} with {', '.join(f'{name} = {plain(value)}' for name, value in values)}" if values else text


def _seconds(us: int) -> str:
    return f"{us / 1_000_000:g} s" if us >= 1000 else f"{us} µs"


def attempt_lines(answer: dict[str, Any], attempts_max: int = 10) -> Iterator[str]:
    """The answer for a screen."""
    key = ", ".join(map(str, answer["key"]))
    yield f"{answer['rule']} ({answer['kind']}) for {key or 'all events'}, by {moment(answer['at_us'])}"
    looked = f"{answer['events']} events after {moment(answer['after_us'])}"
    yield f"looked at {looked}" + ("" if answer["complete"] else "; what was before them may matter too")
    if answer["note"]:
        yield answer["note"]
    for one in answer["found"][:attempts_max]:
        values = "  ".join(f"{name}={value}" for name, value in one["payload"].items())
        yield f"found: {moment(one['time_us'])}  {one['stream']}  {values}"
    misses = [one for one in answer["attempts"] if one["outcome"] != "found"]
    for one in misses[:attempts_max]:
        yield ""
        yield one["text"]
        for event in one["bound"]:
            values = "  ".join(f"{name}={value}" for name, value in event["payload"].items())
            yield f"    {event['step'] or '·'}: {moment(event['time_us'])}  {event['stream']}  {values}"
        for reason in one["reasons"][1:]:
            yield f"    also: {reason['text']}"
    hidden = answer["count"] - len(answer["found"]) - min(len(misses), attempts_max)
    if hidden > 0:
        yield ""
        yield f"and {hidden} more; --json has the nearest {ATTEMPTS_MAX}"
