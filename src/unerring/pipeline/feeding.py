"""Between columns and matchers: a bucket's rows go in as Arrow tables, staged outputs come out as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from heapq import merge
from typing import TYPE_CHECKING, Any, Final, Protocol

from unerring.log import events_of
from unerring.matching import Keep, Matcher, Output, Room, Row, merge_order
from unerring.model import ColumnType, Event, Key, StreamSchema
from unerring.rules import Attribute, OperatorPlan, Plan, key_types

if TYPE_CHECKING:
    import pyarrow as pa

PLANS_MAX: Final = 1024
"""Plans whose columns are kept at hand."""


class Feed(Protocol):
    """One rule of a partition, fed with columns."""

    columns: dict[str, tuple[str, ...]]
    """For each input stream the columns that the rule reads."""
    coded: bool
    """Whether it would rather have texts as dictionary codes."""

    @property
    def keys(self) -> int: ...

    @property
    def state_bytes(self) -> int:
        """What `move` can move."""
        ...

    def move(self, room: Room) -> None:
        """Have the state elsewhere, if the rule is compiled."""
        ...

    def feed(self, tables: dict[str, pa.Table], through_us: int) -> dict[str, pa.Table]:
        """The rows of whole times, by stream, each in stamp order; the staged outputs, by stream."""
        ...

    def warm(self, tables: dict[str, pa.Table]) -> None:
        """Be quick from the first row on. The tables have no rows."""
        ...

    def snapshot(self) -> bytes: ...

    def mark(self) -> None: ...

    def delta(self) -> bytes: ...

    def restore_from(self, trails: Sequence[Sequence[bytes]], keep: Keep | None = None) -> None:
        """As `Matcher` says."""
        ...

    def take_quarantined(self) -> list[tuple[Event, str]]: ...


def feed_of(plan: Plan, ranks: dict[str, int]) -> Feed:
    """A fresh matcher for a plan, with its columns in and out."""
    from unerring.matching import Kernel, matcher_for
    from unerring.pipeline.columns import ColumnFeed

    matcher = matcher_for(plan)
    return ColumnFeed(matcher, ranks) if isinstance(matcher, Kernel) else RowFeed(matcher, ranks)


@lru_cache(maxsize=PLANS_MAX)
def columns_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """For each input stream, the columns that a plan can read. A user's operator may read all. Not to be changed."""
    named = {node.name for node in _attributes(plan)}
    columns: dict[str, tuple[str, ...]] = {}
    for source in plan.inputs:
        own = [column.name for column in source.schema.columns]
        read = own if isinstance(plan, OperatorPlan) else [name for name in own if name in named or name in source.key]
        columns[source.schema.name] = tuple(dict.fromkeys([*columns.get(source.schema.name, ()), *read]))
    return columns


def _attributes(value: object) -> Iterator[Attribute]:
    if isinstance(value, Attribute):
        yield value
    if isinstance(value, tuple):
        for part in value:
            yield from _attributes(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _attributes(getattr(value, field.name))


class RowFeed:
    """Feeds a matcher event by event: for interpreted rules and users' operators."""

    coded = False

    def __init__(self, matcher: Matcher, ranks: dict[str, int]) -> None:
        self._matcher = matcher
        self._ranks = ranks
        self._schemas = {source.schema.name: source.schema for source in matcher.plan.inputs}
        self.columns = columns_of(matcher.plan)

    @property
    def keys(self) -> int:
        return self._matcher.keys

    @property
    def state_bytes(self) -> int:
        """Objects of Python cannot be moved."""
        return 0

    def move(self, room: Room) -> None:
        """They stay where they are."""

    def feed(self, tables: dict[str, pa.Table], through_us: int) -> dict[str, pa.Table]:
        lanes = [self._rows(name, table) for name, table in tables.items()]
        outputs = self._matcher.feed(list(merge(*lanes, key=merge_order)), through_us)
        return staged(self._matcher.plan, outputs)

    def warm(self, tables: dict[str, pa.Table]) -> None:
        """There is nothing to compile."""

    def snapshot(self) -> bytes:
        return self._matcher.snapshot()

    def mark(self) -> None:
        self._matcher.mark()

    def delta(self) -> bytes:
        return self._matcher.delta()

    def restore_from(self, trails: Sequence[Sequence[bytes]], keep: Keep | None = None) -> None:
        self._matcher.restore_from(trails, keep)

    def take_quarantined(self) -> list[tuple[Event, str]]:
        return [(refused.event, refused.reason) for refused in self._matcher.take_quarantined()]

    def _rows(self, name: str, table: pa.Table) -> Iterator[Row]:
        schema, rank = self._schemas[name], self._ranks[name]
        for event in events_of(table, schema):
            yield Row(rank, event)


def staged_schema(plan: Plan, output: StreamSchema) -> pa.Schema:
    """The columns of staged outputs: position, key and payload."""
    import pyarrow as pa

    keys = StreamSchema("Key", ()).arrow()
    for index, kind in enumerate(key_types(plan)):
        keys = keys.append(pa.field(f"_key{index}", _arrow_type(kind)))
    place = [pa.field(name, pa.int64()) for name in ("time", "_rank", "_ordinal", "_index")]
    return pa.schema([*place, *keys, *output.arrow()])


def staged(plan: Plan, outputs: list[Output]) -> dict[str, pa.Table]:
    """Outputs of a matcher as columns, by output stream."""
    import pyarrow as pa

    tables: dict[str, pa.Table] = {}
    for schema in plan.outputs:
        own = [output for output in outputs if output.stream == schema.name]
        wanted = staged_schema(plan, schema)
        columns: list[Any] = [
            [output.time for output in own],
            [output.rank for output in own],
            [output.ordinal for output in own],
            [output.index for output in own],
        ]
        columns += [[output.key[index] for output in own] for index in range(len(key_types(plan)))]
        columns += [[output.payload[column.name] for output in own] for column in schema.columns]
        arrays = [_array(values, field.type) for values, field in zip(columns, wanted, strict=True)]
        tables[schema.name] = pa.Table.from_arrays(arrays, schema=wanted)
    return tables


def key_table(plan: Plan, keys: list[Key]) -> pa.Table:
    """Keys of a rule as columns."""
    import pyarrow as pa

    kinds = [_arrow_type(kind) for kind in key_types(plan)]
    columns = [_array(list(column), kind) for column, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
    return pa.table(columns, names=[f"_key{number}" for number in range(len(kinds))])


def _array(values: list[Any], kind: Any) -> Any:
    import pyarrow as pa

    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)


def _arrow_type(kind: ColumnType) -> Any:
    from unerring.model import Column

    return StreamSchema("Key", (Column("key", kind),)).arrow().field(0).type
