"""A kernel's outputs as columns, and as the outputs that every matcher gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unerring.matching.kernel.columns import Array, Column, Columns, Numbers, Texts
from unerring.matching.outputs import RANK_DEADLINE, Output, key_order

OUTPUTS_MIN = 256
"""Room for so many outputs at least before a batch is interrupted to make more."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches as a kernel leaves them: where each became certain, and the registers of its run."""

    time: Array
    row: Array
    """The deciding row in the batch; -1 for a deadline."""
    key: Array
    """The key's number."""
    index: Array
    integers: Array
    floats: Array
    states: Array


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """Outputs as columns, in the order they were found. A key column is an array of values."""

    stream: str
    time: Array
    rank: Array
    ordinal: Array
    keys: tuple[Array, ...]
    index: Array
    columns: dict[str, Column]

    def __len__(self) -> int:
        return len(self.time)

    def outputs(self) -> list[Output]:
        """The same as objects."""
        names = tuple(self.columns)
        payloads = zip(*(values_of(column) for column in self.columns.values()), strict=True)
        keys = zip(*(key.tolist() for key in self.keys), strict=True) if self.keys else ((),) * len(self)
        places = zip(
            self.time.tolist(), self.rank.tolist(), self.ordinal.tolist(), keys, self.index.tolist(), strict=True
        )
        return [
            Output(self.stream, *place, dict(zip(names, payload, strict=True)))
            for place, payload in zip(places, payloads, strict=True)
        ]


def places(matches: Matches, batch: Columns) -> tuple[Array, Array]:
    """The rank and ordinal at which each was decided."""
    count, rows = len(matches.time), matches.row
    if rows.strides == (0,) and count:  # one value for all: a kernel that ends in deadlines
        return constant(RANK_DEADLINE, count), constant(0, count)
    if isinstance(batch.rank, int) and isinstance(batch.ordinal, int) and (count == 0 or int(rows.min()) >= 0):
        return constant(batch.rank, count), constant(batch.ordinal, count)
    return tuple(  # type: ignore[return-value]
        np.where(rows >= 0, beside if isinstance(beside, int) else _taken(beside, rows), otherwise)
        for beside, otherwise in ((batch.rank, RANK_DEADLINE), (batch.ordinal, 0))
    )


def constant(value: int, count: int) -> Array:
    """One value many times, without the memory."""
    return np.broadcast_to(np.int64(value), (count,))


def _taken(values: Array, rows: Array) -> Array:
    return values[rows] if len(values) else np.zeros(len(rows), np.int64)


def values_of(column: Column) -> list[Any]:
    """A column as Python values."""
    if isinstance(column, Texts):
        return [None if code < 0 else column.values[code] for code in column.codes.tolist()]
    values: list[Any] = column.values.tolist()
    if column.null is None:
        return values
    return [None if null else value for value, null in zip(values, column.null.tolist(), strict=True)]


def output_order(outputs: OutputColumns) -> Array:
    """Their places in the order in which they are numbered. Keys are only looked at where positions tie."""
    if (outputs.time[1:] > outputs.time[:-1]).all():
        return np.arange(len(outputs))
    where = (outputs.time, outputs.rank, outputs.ordinal)
    order = np.lexsort(where[::-1])
    ties = np.ones(max(len(outputs) - 1, 0), np.bool_)
    for column in where:
        ordered = column[order]
        ties &= ordered[1:] == ordered[:-1]
    if not ties.any():
        return order
    keys = [_key_ranks(key) for key in outputs.keys]
    return np.lexsort((outputs.index, *keys[::-1], *where[::-1]))


def _key_ranks(values: Array) -> Array:
    """Numbers in the order of `key_order`."""
    if values.dtype != object:
        return values
    different = sorted(dict.fromkeys(values.tolist()), key=lambda value: key_order((value,)))
    ranks = {value: rank for rank, value in enumerate(different)}
    return np.fromiter((ranks[value] for value in values.tolist()), np.int64, len(values))


def joined(parts: list[Matches], first_rows: list[int]) -> Matches:
    """Several in a row; `first_rows`: where each part's batch began."""
    rows = [np.where(part.row < 0, -1, part.row + first) for part, first in zip(parts, first_rows, strict=True)]
    return Matches(
        np.concatenate([part.time for part in parts]),
        np.concatenate(rows),
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.index for part in parts]),
        np.concatenate([part.integers for part in parts]),
        np.concatenate([part.floats for part in parts]),
        np.concatenate([part.states for part in parts]),
    )


def registers_as_column(values: Array, states: Array | None) -> Numbers:
    if states is None:
        return Numbers(values)
    null = states != 0
    return Numbers(values, null if null.any() else None)
