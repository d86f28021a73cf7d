"""The oracle: slow, short, obviously right. It takes complete inputs and is the definition of every rule.

`run(plan, events, ranks, through)` gives the outputs that are certain when time `through` is complete: TIME_MAX for a
query on a file (time is then +∞), the log's `through` for an audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unerring.matching.matcher import Router, schemas_of
from unerring.matching.operators import operator_outputs
from unerring.matching.oracle.matching import KeyMatches
from unerring.matching.oracle.search import ATTEMPTS_MAX
from unerring.matching.oracle.windows import join_outputs, window_outputs
from unerring.matching.outputs import Output, Row, key_order, merge_order, number
from unerring.model import TIME_MAX, Event, Key
from unerring.rules import JoinPlan, OperatorPlan, PatternPlan, Plan, WindowPlan

__all__ = ["ATTEMPTS_MAX", "merged", "outputs_of", "run", "run_tree"]


def merged(events: Iterable[Event], ranks: Mapping[str, int], through: int = TIME_MAX) -> list[Row]:
    """The merged order of all events up to `through`."""
    rows = [Row(ranks[event.stream], event) for event in events if event.stamp.time <= through]
    return sorted(rows, key=merge_order)


def outputs_of(
    plan: Plan, rows: Iterable[Row], through: int = TIME_MAX, attempts_max: int = ATTEMPTS_MAX
) -> list[Output]:
    """The outputs of merged rows, key by key."""
    router = Router(plan)
    keys: dict[Key, list[tuple[Row, tuple[str, ...]]]] = {}
    for row in rows:
        taken: dict[Key, list[str]] = {}
        for source, key in router.route(row.event):
            taken.setdefault(key, []).append(source.name)
        for key, aliases in taken.items():
            keys.setdefault(key, []).append((row, tuple(aliases)))
    outputs: list[Output] = []
    for key in sorted(keys, key=key_order):
        plain = [row for row, _ in keys[key]]
        match plan:
            case PatternPlan():
                outputs += KeyMatches(plan, key, attempts_max).run(plain, through)
            case WindowPlan():
                outputs += window_outputs(plan, key, plain, through)
            case JoinPlan():
                outputs += join_outputs(plan, key, keys[key], through)
            case OperatorPlan():
                outputs += operator_outputs(plan, key, plain, through)
    return outputs


def run(plan: Plan, events: Iterable[Event], ranks: Mapping[str, int], through: int = TIME_MAX) -> list[Event]:
    """The perfect outputs of one rule, numbered, in order."""
    return number(outputs_of(plan, merged(events, ranks, through), through), schemas_of(plan))


def run_tree(
    plans: Iterable[Plan], events: Iterable[Event], ranks: Mapping[str, int], through: int = TIME_MAX
) -> list[Event]:
    """The outputs of a whole query tree: rules in an order in which inputs come before those who read them."""
    every = list(events)
    outputs: list[Event] = []
    for plan in plans:
        names = {source.schema.name for source in plan.inputs}
        made = run(plan, [event for event in every if event.stream in names], ranks, through)
        outputs += made
        every += made
    return outputs
