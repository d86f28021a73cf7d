"""A key's last events before a time, read backwards from the log: the material of witnesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unerring.audit import EVENTS_MAX
from unerring.log import Chain, events_of
from unerring.matching import Row, merge_order
from unerring.model import ColumnType, Event, Key, StreamSchema
from unerring.pipeline.level import Level
from unerring.rules import JoinPlan, PatternPlan, Plan, Session, Sliding, Trailing, Tumbling, WindowPlan

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENTS_MAX: Final = 64
"""How many segments are searched, backwards, for a quiet key's events."""


def rows_before(level: Level, plan: Plan, situation: Event, events_max: int = EVENTS_MAX) -> list[Row] | None:
    """The rows of the situation's key up to its time, latest ones last; None if its key is unknown."""
    rows: list[Row] = []
    ranks = dict(level.ranks)
    log = level.log
    for source in {source.schema.name: source for source in plan.inputs}.values():
        if len(source.key) != len(situation.key):
            return None
        chain = log.chain(source.schema.name)
        wanted = dict(zip(source.key, situation.key, strict=True))
        events = _last_events(chain, wanted, situation.stamp.time, _reach_us(plan), events_max)
        rows += [Row(ranks[source.schema.name], event) for event in events]
    return sorted(rows, key=merge_order)[-events_max:]


def rows_near(level: Level, plan: Plan, situation: Event, events_max: int = EVENTS_MAX) -> list[Row]:
    """Where a situation's key does not tell which rows made it: the last rows up to its time that agree with it in
    those key columns that both have."""
    rows: list[Row] = []
    ranks = dict(level.ranks)
    for source in {source.schema.name: source for source in plan.inputs}.values():
        wanted = {name: situation.payload[name] for name in source.key if name in situation.payload}
        events = _last_events(level.log.chain(source.schema.name), wanted, situation.stamp.time, None, events_max)
        rows += [Row(ranks[source.schema.name], event) for event in events]
    return sorted(rows, key=merge_order)[-events_max:]


def rows_between(
    level: Level, plan: Plan, key: Key | None, from_us: int, through_us: int, events_max: int
) -> tuple[list[Row], int]:
    """The rows of a key (None: of all keys) that the rule's inputs hold after a time and through another one, the last
    `events_max` of each input at most, and the time from which on nothing is left out."""
    rows: list[Row] = []
    ranks, since_us = dict(level.ranks), from_us
    for source in {source.schema.name: source for source in plan.inputs}.values():
        wanted = {} if key is None else dict(zip(source.key, key, strict=True))
        chain = level.log.chain(source.schema.name)
        chain.refresh()
        events, reached_us = _events_back_to(chain, wanted, from_us, through_us, events_max)
        since_us = max(since_us, reached_us)
        rows += [Row(ranks[source.schema.name], event) for event in events]
    return sorted((row for row in rows if row.event.stamp.time > since_us), key=merge_order), since_us


def _events_back_to(
    chain: Chain, key: dict[str, Any], from_us: int, through_us: int, events_max: int
) -> tuple[list[Event], int]:
    begun_us = max(from_us, chain.base.from_us)
    spans = chain.spans(begun_us, through_us) if begun_us < through_us else []
    events: list[Event] = []
    for last in range(len(spans), 0, -SEGMENTS_MAX):
        several = spans[max(last - SEGMENTS_MAX, 0) : last]
        after_us = max(several[0].from_us, begun_us)
        table = chain.read(after_us, min(several[-1].through_us, through_us))
        events = [*events_of(_of_key(table, chain.schema, key), chain.schema), *events]
        if len(events) > events_max:
            # Times are whole: of the first that is left out nothing is shown.
            return events[-events_max:], events[-events_max - 1].stamp.time
    return events, begun_us


def _last_events(
    chain: Chain, key: dict[str, Any], through_us: int, reach_us: int | None, events_max: int
) -> list[Event]:
    spans = [span for span in chain.spans(chain.base.from_us, through_us) if span.from_us < through_us]
    events: list[Event] = []
    for span in reversed(spans[-SEGMENTS_MAX:]):
        table = chain.read(span.from_us, min(span.through_us, through_us))
        events = [*events_of(_of_key(table, chain.schema, key), chain.schema), *events]
        if len(events) >= events_max or (reach_us is not None and span.from_us < through_us - reach_us):
            break
    return events[-events_max:]


def _of_key(table: pa.Table, schema: StreamSchema, key: dict[str, Any]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, value in key.items():
        column = table.column(name)
        if schema.column(name).type is ColumnType.TIME:
            column = column.cast(pa.int64())
        table = table.filter(column.is_null() if value is None else pc.equal(column, pa.scalar(value, column.type)))
    return table


def _reach_us(plan: Plan) -> int | None:
    """How far before a situation its first event may be; None if that has no bound."""
    match plan:
        case PatternPlan(within_us=int(within_us)) | JoinPlan(within_us=within_us):
            return 2 * within_us
        case WindowPlan(window=Tumbling() | Sliding() | Trailing() as window):
            return 2 * window.size_us
        case WindowPlan(window=Session()):
            return None
    return None
