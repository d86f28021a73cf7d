"""Feeding a compiled kernel: Arrow's buffers go in as they are, and what it found comes out as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unerring.matching import Column, Columns, Keep, Kernel, Numbers, OutputColumns, Texts
from unerring.model import ColumnType, Event, StreamSchema
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
    columns = {name: _column(table.column(name), schema.column(name).type) for name in names}
    ordinals = table.column("ordinal").to_numpy()
    # Where no two events have one time, one number for all of them is quicker.
    ordinal: Any = ordinals if ordinals.any() else 0
    return Columns(table.column("time").to_numpy(), columns, rank, ordinal, number)


def _column(column: Any, kind: ColumnType) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind in (ColumnType.TEXT, ColumnType.BYTES):
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        coded = coded.unify_dictionaries().combine_chunks()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.chunk(0) if coded.num_chunks else pa.array([], coded.type)
        codes = coded.indices.fill_null(-1) if coded.indices.null_count else coded.indices
        return Texts(codes.to_numpy().astype(np.int32, copy=False), tuple(coded.dictionary.to_pylist()))
    if kind is ColumnType.TIME:
        column = column.cast(pa.int64())
    null = column.is_null().to_numpy() if column.null_count else None
    if null is not None:
        column = pc.fill_null(column, False if kind is ColumnType.BOOL else 0)
    return Numbers(column.to_numpy(), null)


def merged(parts: list[Columns]) -> Columns:
    """Several streams' rows in merge order: time, rank, ordinal."""
    sizes = [len(part) for part in parts]
    time = np.concatenate([part.time for part in parts])
    rank = np.concatenate([_spread(part.rank, size) for part, size in zip(parts, sizes, strict=True)])
    ordinal = np.concatenate([_spread(part.ordinal, size) for part, size in zip(parts, sizes, strict=True)])
    source = np.concatenate([_spread(part.source, size, np.int8) for part, size in zip(parts, sizes, strict=True)])
    order = np.lexsort((ordinal, rank, time))
    names = list(dict.fromkeys(name for part in parts for name in part.columns))
    columns = {name: _merged_column([part.columns.get(name) for part in parts], sizes, order) for name in names}
    return Columns(time[order], columns, rank[order], ordinal[order], source[order])


def _spread(value: Any, size: int, kind: Any = np.int64) -> Any:
    return np.full(size, value, kind) if isinstance(value, int) else value


def _merged_column(parts: list[Column | None], sizes: list[int], order: Any) -> Column:
    first = next(part for part in parts if part is not None)
    if isinstance(first, Texts):
        texts: dict[str | bytes, int] = {}
        codes = []
        for part, size in zip(parts, sizes, strict=True):
            if not isinstance(part, Texts):
                codes.append(np.full(size, -1, np.int32))
                continue
            anew = np.array([texts.setdefault(text, len(texts)) for text in part.values] + [-1], np.int32)
            codes.append(anew[part.codes])
        return Texts(np.concatenate(codes)[order], tuple(texts))
    values, nulls = [], []
    for part, size in zip(parts, sizes, strict=True):
        known = isinstance(part, Numbers)
        values.append(part.values if isinstance(part, Numbers) else np.zeros(size, first.values.dtype))
        given = part.null if isinstance(part, Numbers) else None
        nulls.append(given if given is not None else np.full(size, not known))
    null = np.concatenate(nulls)[order]
    return Numbers(np.concatenate(values)[order], null if null.any() else None)


def as_staged(outputs: OutputColumns, wanted: pa.Schema) -> pa.Table:
    """A kernel's outputs, with the columns of staged outputs."""
    import pyarrow as pa

    place = [outputs.time, outputs.rank, outputs.ordinal, outputs.index]
    arrays = [pa.array(values, pa.int64()) for values in place]
    arrays += [_key(key, wanted.field(f"_key{number}").type) for number, key in enumerate(outputs.keys)]
    payload = wanted.names[len(arrays) :]
    arrays += [_array(outputs.columns[name], wanted.field(name).type) for name in payload]
    return pa.Table.from_arrays(arrays, schema=wanted)


def _key(values: Any, kind: Any) -> Any:
    import pyarrow as pa

    if values.dtype == object:
        return pa.array(values.tolist(), pa.int64() if pa.types.is_timestamp(kind) else kind).cast(kind)
    return pa.array(values).cast(kind)


def _array(column: Column, kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, Texts):
        codes = pa.array(column.codes, pa.int32(), mask=column.codes < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(column.values, kind)).cast(kind)
    if column.values.dtype == object:
        return _key(column.values, kind)
    return pa.array(column.values, mask=column.null).cast(kind)
