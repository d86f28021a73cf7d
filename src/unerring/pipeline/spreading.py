"""How the rows of a rule's inputs are spread over the partitions of its level: by the hash of the rule's key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unerring.log import BUCKETS_MAX, Spread
from unerring.model import StreamSchema
from unerring.pipeline.feeding import columns_of
from unerring.pipeline.level import Level, keys_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Lane = tuple[str, tuple[str, ...]]
"""A stream, and the columns by which its rows are spread."""


def lanes_of(level: Level) -> tuple[Lane, ...]:
    """What the rules of a level read, each once."""
    return tuple(dict.fromkeys(lane for plan in level.plans for lane in keys_of(plan).items()))


def shuffled_lanes(level: Level) -> tuple[Lane, ...]:
    """What is read by another key than the stream's own, which its segments are bucketed by."""
    own = {schema.name: schema.key for schema in level.inputs}
    return tuple(lane for lane in lanes_of(level) if level.buckets > 1 and lane[1] and lane[1] != own[lane[0]])


def finer(level: Level, tasks: int) -> Level:
    """The level in as many partitions as there may be tasks, if it has fewer: each of its partitions in several, which
    are ranges of its range. Rules without a key stay in one."""
    if not level.ranges or level.unkeyed or tasks <= level.buckets:
        return level
    return replace(level, buckets=min(-(-tasks // level.buckets) * level.buckets, BUCKETS_MAX))


def columns_read(level: Level) -> dict[str, list[str]]:
    """For each stream the columns that some rule of the level reads, in the stream's order."""
    read: dict[str, set[str]] = {schema.name: set() for schema in level.inputs}
    for plan in level.plans:
        for name, columns in columns_of(plan).items():
            read[name] |= set(columns)
    return {schema.name: _ordered(schema, read[schema.name]) for schema in level.inputs}


def owners_of(table: pa.Table, key: tuple[str, ...], spread: Spread) -> np.ndarray[Any, Any]:
    """The partition of each row."""
    return spread.of_columns([_without_nulls(table.column(name)) for name in key], len(table))


def _ordered(schema: StreamSchema, names: set[str]) -> list[str]:
    return [column.name for column in schema.columns if column.name in names]


def _without_nulls(column: Any) -> Any:
    """A NULL key belongs to some partition, whichever: the rule refuses the event there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not column.null_count:
        return column
    blank = {pa.string(): "", pa.binary(): b"", pa.bool_(): False}.get(column.type, 0)
    return pc.fill_null(column, pa.scalar(0).cast(column.type) if blank == 0 else pa.scalar(blank, column.type))
