"""Why not, for every kind of rule: what came of each attempt of one key, through a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from unerring.matching.matcher import Router
from unerring.matching.operators import operator_outputs
from unerring.matching.oracle.misses import LATE, MISSING, Attempt, Misses, Reason
from unerring.matching.oracle.terms import terms_of
from unerring.matching.oracle.windows import Content, contents, join_outputs, window_outputs, window_scope
from unerring.matching.outputs import Output, Row
from unerring.matching.scopes import JoinScope
from unerring.model import Event, Key, Stamp
from unerring.rules import Emit, JoinPlan, OperatorPlan, PatternPlan, Plan, WindowPlan

HAVING: Final = "having"
SAME: Final = "no change"
COMBINATIONS_MAX: Final = 20_000
"""Combinations of a join that are looked at."""


def why_not(plan: Plan, key: Key, rows: Sequence[Row], through: int) -> tuple[list[Attempt], list[Output]]:
    """What came of each attempt, the nearest miss first after what was found; and what was found. `rows`: all events of
    the key, also those that the filter of an input takes away."""
    router = Router(plan)
    taken = [(row, tuple(source.name for source, own in router.route(row.event) if own == key)) for row in rows]
    inside = [row for row, names in taken if names]
    match plan:
        case PatternPlan():
            misses = Misses(plan, key, inside, through, [row for row, names in taken if not names])
            return misses.attempts(), misses.outputs
        case WindowPlan():
            outputs = window_outputs(plan, key, inside, through)
            return _windows(plan, key, inside, through, outputs), outputs
        case JoinPlan():
            named = [(row, names) for row, names in taken if names]
            outputs = join_outputs(plan, key, named, through)
            return _joins(plan, key, named, through), outputs
        case OperatorPlan():
            # What an operator remembers is its own affair: which events it was given is all that can be said.
            outputs = operator_outputs(plan, key, inside, through)
            given = tuple(("", row.event) for row in inside)
            found = [Attempt("found", given, 1, 1, found_at=output.time) for output in outputs]
            return found or [Attempt("missed", given, 0, 1, (Reason("operator"),))], outputs


def open_attempts(plan: Plan, key: Key, rows: Sequence[Row], through: int) -> list[Attempt]:
    """What may still become a situation of this key, by what is known at a time."""
    router = Router(plan)
    named = [
        (row, names) for row in rows if (names := tuple(s.name for s, own in router.route(row.event) if own == key))
    ]
    inside = [row for row, _ in named]
    match plan:
        case PatternPlan():
            return Misses(plan, key, inside, through).open()
        case WindowPlan():
            seen = [one for one in contents(plan, inside) if one.place[0] > through and one.rows]
            return [_window(one, "open") for one in sorted(seen, key=lambda one: one.place)]
        case JoinPlan():
            return [one for one in _joins(plan, key, named, through) if one.outcome == "open"]
    return []


# --- windows ---


def _window(one: Content, outcome: str, *reasons: Reason) -> Attempt:
    until_us = one.place[0] if outcome == "open" else None
    found_at = one.place[0] if outcome == "found" else None
    bound = tuple(("", event) for event in one.rows)
    return Attempt(outcome, bound, int(outcome == "found"), 1, reasons, found_at, until_us, one.bounds)


def _windows(plan: WindowPlan, key: Key, rows: Sequence[Row], through: int, outputs: Sequence[Output]) -> list[Attempt]:
    """Each look at each window: output, not yet closed, or why it was not output."""
    made: list[Attempt] = []
    for one in sorted(contents(plan, rows), key=lambda one: one.place, reverse=True):
        scope = window_scope(plan, key, one)
        if one.place[0] > through:
            if one.rows:
                made.append(_window(one, "open"))
            continue
        terms = terms_of(plan.having, scope)
        if any(not term.holds for term in terms):
            made.append(_window(one, "missed", Reason(HAVING, "", None, terms, decides=plan.emit is Emit.EVERY)))
        elif any((output.time, output.rank, output.ordinal) == one.place for output in outputs):
            made.append(_window(one, "found"))
        elif plan.emit is Emit.CHANGE:
            made.append(_window(one, "missed", Reason(SAME)))
    order = {"found": 0, "open": 2, "missed": 1}
    return sorted(made, key=lambda one: order[one.outcome])


# --- joins ---


def _joins(plan: JoinPlan, key: Key, rows: Sequence[tuple[Row, tuple[str, ...]]], through: int) -> list[Attempt]:
    """Of each event, the best that it came to: with the others, too far from them, or without one of them."""
    aliases = [source.name for source in plan.inputs]
    sides = {alias: [row.event for row, names in rows if alias in names] for alias in aliases}
    best: dict[tuple[str, Stamp], Attempt] = {}
    for alias in aliases:
        for event in sides[alias]:
            for attempt in _combinations(plan, key, sides, alias, event, through):
                known = best.get(_name(event))
                if known is None or _better(attempt, known):
                    best[_name(event)] = attempt
    order = {"found": 0, "open": 1, "missed": 1}
    once = {tuple(_name(event) for _, event in one.bound): one for one in best.values()}
    return sorted(once.values(), key=lambda one: (order[one.outcome], one.nearness))


def _better(one: Attempt, other: Attempt) -> bool:
    order = {"found": 0, "missed": 1, "open": 1}
    return (order[one.outcome], one.nearness) < (order[other.outcome], other.nearness)


def _combinations(
    plan: JoinPlan, key: Key, sides: dict[str, list[Event]], own: str, event: Event, through: int
) -> Iterator[Attempt]:
    """What this event came to with the others that are near."""
    near = {
        alias: [one for one in events if one is not event and _apart(one, event) <= plan.within_us]
        for alias, events in sides.items()
    } | {own: [event]}
    missing = [alias for alias, events in near.items() if not events]
    of = len(plan.inputs)
    if missing:
        alone = tuple((alias, events[-1]) for alias, events in near.items() if events)
        until = event.stamp.time + plan.within_us
        others = [one for one in sides[missing[0]] if one is not event]
        nearest = min(others, key=lambda one: _apart(one, event), default=None)
        reasons = [Reason(MISSING, missing[0], None, (), until, decides=len(missing) == 1 and plan.condition is None)]
        if nearest is not None:
            reasons.insert(0, Reason(LATE, missing[0], nearest, (), until, _apart(nearest, event) - plan.within_us))
        outcome = "open" if through < until else "missed"
        yield Attempt(outcome, alone, len(alone), of, tuple(reasons), until_us=until if outcome == "open" else None)
        return
    for number, events in enumerate(product(*near.values())):
        if number >= COMBINATIONS_MAX:
            return
        times = [one.stamp.time for one in events]
        bound = tuple(zip(near, events, strict=True))
        apart = max(times) - min(times)
        if len({_name(one) for one in events}) < of:
            continue
        if apart > plan.within_us:
            last = max(events, key=lambda one: one.stamp)
            over = Reason(LATE, "", last, (), min(times) + plan.within_us, apart - plan.within_us)
            yield Attempt("missed", bound, of - 1, of, (over,))
            continue
        terms = terms_of(plan.condition, JoinScope(dict(bound), key))
        if all(term.holds for term in terms):
            yield Attempt("found", bound, of, of, found_at=max(times))
        else:
            yield Attempt("missed", bound, of - 1, of, (Reason("condition", "", events[-1], terms, decides=True),))


def _apart(one: Event, other: Event) -> int:
    return abs(one.stamp.time - other.stamp.time)


def _name(event: Event) -> tuple[str, Stamp]:
    return event.stream, event.stamp
