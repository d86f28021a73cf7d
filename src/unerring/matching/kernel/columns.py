"""Merged rows as columns: what a kernel is fed, and how rows become it.

Numbers are arrays; texts are codes into a dictionary of the batch. NULL is a flag beside a number and the code -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from unerring.matching.outputs import Row
from unerring.model import ColumnType, StreamSchema

Array = npt.NDArray[Any]

DTYPES = {
    ColumnType.BOOL: np.bool_,
    ColumnType.INT: np.int64,
    ColumnType.FLOAT: np.float64,
    ColumnType.TIME: np.int64,
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Bools, integers, floats or times."""

    values: Array
    null: Array | None = None
    """True where the value is NULL; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts or bytes, each a code: an index into `values`."""

    codes: Array
    values: tuple[str | bytes, ...]
    places: dict[str | bytes, int] = field(default_factory=dict, repr=False, compare=False)
    """The code of each text, once somebody asked."""

    def code(self, text: str | bytes) -> int:
        """The code of a text; -2 where it is not among the values."""
        if not self.places and self.values:
            self.places.update(zip(self.values, range(len(self.values)), strict=True))
        return self.places.get(text, -2)


Column = Numbers | Texts


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows in merge order. A column stands for all streams that have it; elsewhere it is NULL."""

    time: Array
    columns: dict[str, Column]
    rank: Array | int = 0
    ordinal: Array | int = 0
    source: Array | int = 0
    """Which of the plan's distinct streams a row is of."""

    def __len__(self) -> int:
        return len(self.time)

    def taken(self, rows: Array, names: Iterable[str]) -> Columns:
        """Some rows, and some columns of them. Who compiles for these arrays has compiled for the whole ones: a copy of
        what cannot be written cannot be written either."""

        def take(array: Array) -> Array:
            some = array[rows]
            some.flags.writeable = array.flags.writeable
            return some

        columns: dict[str, Column] = {}
        for name in names:
            column = self.columns[name]
            if isinstance(column, Texts):
                columns[name] = Texts(take(column.codes), column.values, column.places)
            else:
                columns[name] = Numbers(take(column.values), None if column.null is None else take(column.null))
        rest = (array if isinstance(array, int) else take(array) for array in (self.rank, self.ordinal, self.source))
        return Columns(take(self.time), columns, *rest)

    def part(self, first: int, end: int) -> Columns:
        """Some rows in between, without a copy."""

        def cut(array: Array) -> Array:
            return array[first:end]

        columns: dict[str, Column] = {}
        for name, column in self.columns.items():
            if isinstance(column, Texts):
                columns[name] = Texts(cut(column.codes), column.values, column.places)
            else:
                columns[name] = Numbers(cut(column.values), None if column.null is None else cut(column.null))
        rest = (array if isinstance(array, int) else cut(array) for array in (self.rank, self.ordinal, self.source))
        return Columns(cut(self.time), columns, *rest)


def column_types(schemas: Sequence[StreamSchema]) -> dict[str, ColumnType] | None:
    """The type of every column by name; None if two streams disagree."""
    types: dict[str, ColumnType] = {}
    for schema in schemas:
        for column in schema.columns:
            if types.setdefault(column.name, column.type) is not column.type:
                return None
    return types


def from_rows(rows: Sequence[Row], types: dict[str, ColumnType], streams: Sequence[str]) -> Columns:
    """Columns of event objects, for a plan that reads `streams`; rows of others must not be among them."""
    count = len(rows)
    events = [row.event for row in rows]
    stamps = [event.stamp for event in events]
    payloads = [event.payload for event in events]
    columns: dict[str, Column] = {}
    for name, kind in types.items():
        values = [payload.get(name) for payload in payloads]
        columns[name] = column_of(values, kind)
    numbers = {name: number for number, name in enumerate(streams)}
    return Columns(
        np.array([stamp.time for stamp in stamps], np.int64),
        columns,
        np.array([row.rank for row in rows], np.int64),
        np.array([stamp.ordinal for stamp in stamps], np.int64),
        np.zeros(count, np.int8) if len(numbers) == 1 else np.array([numbers[e.stream] for e in events], np.int8),
    )


def column_of(values: list[Any], kind: ColumnType) -> Column:
    """A column of Python values."""
    return _texts(values) if kind not in DTYPES else _numbers(values, kind)


def _numbers(values: list[Any], kind: ColumnType) -> Numbers:
    dtype = DTYPES[kind]
    if None not in values:
        return Numbers(np.array(values, dtype))
    null = np.fromiter((value is None for value in values), np.bool_, len(values))
    return Numbers(np.array([0 if value is None else value for value in values], dtype), null)


def _texts(values: list[Any]) -> Texts:
    codes: dict[Any, int] = {}
    coded = [-1 if value is None else codes.setdefault(value, len(codes)) for value in values]
    return Texts(np.array(coded, np.int32), tuple(codes))


def merged(parts: list[Columns]) -> Columns:
    """Several streams' rows in merge order: time, rank, ordinal."""
    sizes = [len(part) for part in parts]
    time = np.concatenate([part.time for part in parts])
    rank = np.concatenate([spread(part.rank, size) for part, size in zip(parts, sizes, strict=True)])
    ordinal = np.concatenate([spread(part.ordinal, size) for part, size in zip(parts, sizes, strict=True)])
    source = np.concatenate([spread(part.source, size, np.int8) for part, size in zip(parts, sizes, strict=True)])
    order = np.lexsort((ordinal, rank, time))
    names = list(dict.fromkeys(name for part in parts for name in part.columns))
    columns = {name: _merged_column([part.columns.get(name) for part in parts], sizes, order) for name in names}
    return Columns(time[order], columns, rank[order], ordinal[order], source[order])


def joined(parts: list[Columns]) -> Columns:
    """Rows of one stream one after the other: always a copy."""
    sizes = [len(part) for part in parts]
    time = np.concatenate([part.time for part in parts])
    ordinal = np.concatenate([spread(part.ordinal, size) for part, size in zip(parts, sizes, strict=True)])
    columns = {name: _merged_column([part.columns[name] for part in parts], sizes) for name in parts[0].columns}
    return Columns(time, columns, parts[0].rank, ordinal, parts[0].source)


def spread(value: Array | int, size: int, kind: Any = np.int64) -> Array:
    """One value for each row."""
    return np.full(size, value, kind) if isinstance(value, int) else value


def _merged_column(parts: Sequence[Column | None], sizes: list[int], order: Any = slice(None)) -> Column:
    first = next(part for part in parts if part is not None)
    if isinstance(first, Texts):
        if all(isinstance(part, Texts) and part.values == first.values for part in parts):
            same = np.concatenate([part.codes for part in parts if isinstance(part, Texts)])
            return Texts(same[order], first.values, first.places)
        texts: dict[str | bytes, int] = {}
        codes = []
        for part, size in zip(parts, sizes, strict=True):
            if not isinstance(part, Texts):
                codes.append(np.full(size, -1, np.int32))
                continue
            anew = np.array([texts.setdefault(text, len(texts)) for text in part.values] + [-1], np.int32)
            codes.append(anew[part.codes])
        return Texts(np.concatenate(codes)[order], tuple(texts))
    if all(isinstance(part, Numbers) and part.null is None for part in parts):
        return Numbers(np.concatenate([part.values for part in parts if isinstance(part, Numbers)])[order])
    values, nulls = [], []
    for part, size in zip(parts, sizes, strict=True):
        known = isinstance(part, Numbers)
        values.append(part.values if isinstance(part, Numbers) else np.zeros(size, first.values.dtype))
        given = part.null if isinstance(part, Numbers) else None
        nulls.append(given if given is not None else np.full(size, not known))
    null = np.concatenate(nulls)[order]
    return Numbers(np.concatenate(values)[order], null if null.any() else None)
