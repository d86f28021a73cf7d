"""Feeding a compiled kernel: Arrow's buffers go in as they are, and what it found comes out as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unerring.matching import (
    Columns,
    Keep,
    Kernel,
    OutputColumns,
    Room,
    from_arrow,
    merged,
    to_arrow,
    values_to_arrow,
)
from unerring.model import Event, StreamSchema
from unerring.pipeline.feeding import columns_of, staged_schema

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnFeed:
    """Feeds a kernel a whole interval at once."""

    coded = True

    def __init__(self, kernel: Kernel, ranks: dict[str, int]) -> None:
        self._kernel = kernel
        self._ranks = ranks
        self._schemas = {source.schema.name: source.schema for source in kernel.plan.inputs}
        self.columns = columns_of(kernel.plan)
        self._staged = {schema.name: staged_schema(kernel.plan, schema) for schema in kernel.plan.outputs}
        self._nothing = {name: wanted.empty_table() for name, wanted in self._staged.items()}

    @property
    def kernel(self) -> Kernel:
        return self._kernel

    @property
    def keys(self) -> int:
        return self._kernel.keys

    @property
    def state_bytes(self) -> int:
        return self._kernel.state_bytes

    def move(self, room: Room) -> None:
        self._kernel.move(room)

    def warm(self, tables: dict[str, pa.Table]) -> None:
        self._kernel.warm(self._columns_of(tables))

    def _columns_of(self, tables: dict[str, pa.Table]) -> Columns:
        parts = [
            as_columns(tables[name], schema, self._ranks[name], number, self.columns[name])
            for number, (name, schema) in enumerate(self._schemas.items())
        ]
        return parts[0] if len(parts) == 1 else merged(parts)

    def feed(self, tables: dict[str, pa.Table], through_us: int) -> dict[str, pa.Table]:
        return self.staged(self._kernel.feed_columns(self._columns_of(tables), through_us))

    def staged(self, outputs: OutputColumns | None) -> dict[str, pa.Table]:
        """What the kernel found, by stream; None: nothing."""
        if outputs is None:
            return dict(self._nothing)
        return {**self._nothing, outputs.stream: as_staged(outputs, self._staged[outputs.stream])}

    def snapshot(self) -> bytes:
        return self._kernel.snapshot()

    def mark(self) -> None:
        self._kernel.mark()

    def delta(self) -> bytes:
        return self._kernel.delta()

    def restore_from(self, trails: Sequence[Sequence[bytes]], keep: Keep | None = None) -> None:
        self._kernel.restore_from(trails, keep)

    def take_quarantined(self) -> list[tuple[Event, str]]:
        return [(refused.event, refused.reason) for refused in self._kernel.take_quarantined()]


def as_columns(table: pa.Table, schema: StreamSchema, rank: int, number: int, names: tuple[str, ...]) -> Columns:
    """One stream's rows, already in stamp order. Numbers are not copied where Arrow has them in one piece."""
    columns = {name: from_arrow(table.column(name), schema.column(name).type) for name in names}
    ordinals = table.column("ordinal").to_numpy()
    # Where no two events have one time, one number for all of them is quicker.
    ordinal: Any = ordinals if ordinals.any() else 0
    return Columns(table.column("time").to_numpy(), columns, rank, ordinal, number)


def as_staged(outputs: OutputColumns, wanted: pa.Schema) -> pa.Table:
    """A kernel's outputs, with the columns of staged outputs."""
    import pyarrow as pa

    place = [outputs.time, outputs.rank, outputs.ordinal, outputs.index]
    arrays = [pa.array(values, pa.int64()) for values in place]
    arrays += [values_to_arrow(key, wanted.field(f"_key{number}").type) for number, key in enumerate(outputs.keys)]
    payload = wanted.names[len(arrays) :]
    arrays += [to_arrow(outputs.columns[name], wanted.field(name).type) for name in payload]
    return pa.Table.from_arrays(arrays, schema=wanted)
