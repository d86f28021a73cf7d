"""Windows and joins of one key, worked out from all its rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from unerring.matching.oracle.search import prepared
from unerring.matching.outputs import RANK_DEADLINE, Output, Row
from unerring.matching.scopes import JoinScope, WindowScope
from unerring.matching.windows import changed, watched
from unerring.model import Event, Key
from unerring.rules import Counted, Emit, JoinPlan, Session, Sliding, Trailing, Tumbling, WindowPlan

Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Content:
    """A window's content, seen at a position."""

    place: Place
    rows: tuple[Event, ...]
    bounds: tuple[int, int]


def place_of(row: Row) -> Place:
    return row.event.stamp.time, row.rank, row.event.stamp.ordinal


def deadline(time: int) -> Place:
    return time, RANK_DEADLINE, 0


def window_outputs(plan: WindowPlan, key: Key, rows: Sequence[Row], through: int) -> list[Output]:
    seen = sorted(
        (content for content in contents(plan, rows) if content.place[0] <= through), key=lambda content: content.place
    )
    outputs: list[Output] = []
    names = watched(plan)
    last: dict[str, object] = {}
    for content in [Content((0, 0, 0), (), (0, 0)), *seen]:
        scope = window_scope(plan, key, content)
        payload = {measure.name: prepared(measure.expr)(scope) for measure in plan.measures}
        first = not last and plan.emit is Emit.CHANGE
        differs = changed(names, last, payload) if not first else False
        if plan.emit is Emit.CHANGE:
            last = payload
        elif content.bounds == (0, 0):
            continue
        if (plan.emit is Emit.EVERY or differs) and (plan.having is None or prepared(plan.having)(scope) is True):
            index = sum(output.time == content.place[0] and output.rank == content.place[1] for output in outputs)
            outputs.append(Output(plan.name, *content.place, key, index, payload))
    return outputs


def window_of(
    plan: WindowPlan, key: Key, rows: Sequence[Row], time: int, payload: dict[str, object]
) -> tuple[Event, ...] | None:
    """The content of the window that gave this payload at this time; None if none of these rows' windows did."""
    for content in contents(plan, rows):
        if content.place[0] == time:
            scope = window_scope(plan, key, content)
            if {measure.name: prepared(measure.expr)(scope) for measure in plan.measures} == payload:
                return content.rows
    return None


def window_scope(plan: WindowPlan, key: Key, content: Content) -> WindowScope:
    return WindowScope(content.rows, key, content.bounds, exact_sums=isinstance(plan.window, Trailing))


def contents(plan: WindowPlan, rows: Sequence[Row]) -> Iterator[Content]:
    """Every look at every window of these rows, in no order."""
    match plan.window:
        case Tumbling(size, offset):
            yield from _aligned(plan, rows, size, size, offset)
        case Sliding(size, slide):
            yield from _aligned(plan, rows, size, slide, 0)
        case Session(gap):
            yield from _sessions(rows, gap)
        case Counted(size, slide):
            for n in range(size, len(rows) + 1, slide):
                events = tuple(row.event for row in rows[n - size : n])
                bounds = events[0].stamp.time, events[-1].stamp.time + 1
                yield Content(place_of(rows[n - 1]), events, bounds)
        case Trailing(size):
            yield from _trailing(rows, size)


def _aligned(plan: WindowPlan, rows: Sequence[Row], size: int, slide: int, offset: int) -> Iterator[Content]:
    numbers: dict[int, None] = {}
    for row in rows:
        time = row.event.stamp.time - offset
        for number in range((time - size) // slide + 1, time // slide + 1):
            numbers[number] = None
            if plan.emit is Emit.CHANGE:
                numbers[number + 1] = None
    for number in numbers:
        start = number * slide + offset
        events = tuple(row.event for row in rows if start <= row.event.stamp.time < start + size)
        yield Content(deadline(start + size - 1), events, (start, start + size))


def _sessions(rows: Sequence[Row], gap: int) -> Iterator[Content]:
    events = [row.event for row in rows]
    first = 0
    for n, event in enumerate(events):
        closes = event.stamp.time + gap
        if n + 1 == len(events) or events[n + 1].stamp.time > closes:
            yield Content(deadline(closes), tuple(events[first : n + 1]), (events[first].stamp.time, closes))
            first = n + 1


def _trailing(rows: Sequence[Row], size: int) -> Iterator[Content]:
    for n, row in enumerate(rows):
        now = row.event.stamp.time
        seen = tuple(r.event for r in rows[: n + 1] if r.event.stamp.time > now - size)
        yield Content(place_of(row), seen, (now - size + 1, now + 1))
    for now in dict.fromkeys(row.event.stamp.time + size for row in rows):
        seen = tuple(r.event for r in rows if now - size < r.event.stamp.time <= now)
        yield Content(deadline(now), seen, (now - size + 1, now + 1))


def join_outputs(plan: JoinPlan, key: Key, rows: Sequence[tuple[Row, tuple[str, ...]]], through: int) -> list[Output]:
    """`rows`: each with the inputs (aliases) that take it."""
    outputs: list[Output] = []
    joined: set[tuple[str, int]] = set()
    aliases = [source.name for source in plan.inputs]
    for n, (row, taken) in enumerate(rows):
        index = 0
        for own in (alias for alias in aliases if alias in taken):
            sides = [[n] if alias == own else [m for m in range(n) if alias in rows[m][1]] for alias in aliases]
            for combination in product(*sides):
                times = [rows[m][0].event.stamp.time for m in combination]
                events = {alias: rows[m][0].event for alias, m in zip(aliases, combination, strict=True)}
                if len(set(combination)) < len(aliases) or max(times) - min(times) > plan.within_us:
                    continue
                scope = JoinScope(dict(events), key)
                if plan.condition is not None and prepared(plan.condition)(scope) is not True:
                    continue
                joined.update(zip(aliases, combination, strict=True))
                payload = {measure.name: prepared(measure.expr)(scope) for measure in plan.measures}
                outputs.append(Output(plan.name, *place_of(row), key, index, payload))
                index += 1
    alone: dict[int, int] = {}
    for n, (row, taken) in enumerate(rows):
        closes = row.event.stamp.time + plan.within_us
        for alias in (name for name in aliases if name in taken and name in plan.unmatched):
            if (alias, n) not in joined and closes <= through:
                scope = JoinScope({alias: row.event}, key)
                payload = {measure.name: prepared(measure.expr)(scope) for measure in plan.measures}
                index = alone[closes] = alone.get(closes, -1) + 1
                outputs.append(Output(plan.name, *deadline(closes), key, index, payload))
    return outputs
