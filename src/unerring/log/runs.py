"""Runs: rows that one task took in together, in order of time within each bucket, in one file.

A run is written before anybody knows which segments will hold its rows. Its file has pieces: rows of one bucket, at
most `PIECE_ROWS` of them, with a digest of their own, so that a segment can name some of a run's rows and a reader
reads little else. A row's ordinal in the file counts the run's rows of the same time, whatever their bucket, in the
order in which they came. Where rows of other runs have that time too, the segment says what the ordinal is.

A run is named by its times and its bytes. Whoever takes the same rows again writes the same file.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.buckets import Spread
from unerring.log.encryption import encrypted
from unerring.log.parts import PARTS, part_name
from unerring.log.segments import Footer, Part, arrow_schema, encode_buckets, file_columns
from unerring.log.store import Store
from unerring.model import LogError, StreamSchema, invariant

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

PIECE_ROWS: Final = 1 << 17
_TOKEN_HEX: Final = 16


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one bucket, in order of time."""

    bucket: int
    rows: int
    first_us: int
    last_us: int
    bytes: int


class RunFile(msgspec.Struct, frozen=True, array_like=True):
    """A run's file."""

    name: str
    digest: str
    pieces: tuple[Piece, ...]
    """As they lie in the file: bucket after bucket, each in order of time."""

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def first_us(self) -> int:
        return min(piece.first_us for piece in self.pieces)

    @property
    def last_us(self) -> int:
        return max(piece.last_us for piece in self.pieces)

    def part(self, at: int) -> Part:
        """One of its pieces, as a segment names it."""
        piece = self.pieces[at]
        return Part(
            self.name, piece.bucket, piece.rows, self.digest, piece.first_us, piece.last_us, 0, piece.bytes, (at, 1)
        )


def order_of(times: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Row numbers in order of time, as they came where that does not decide; and the ordinals in that order."""
    import numpy as np

    rising = bool((times[1:] >= times[:-1]).all())
    order = np.arange(len(times)) if rising else np.argsort(times, kind="stable")
    ordered = times if rising else times[order]
    same = np.zeros(len(times), dtype=bool)
    same[1:] = ordered[1:] == ordered[:-1]
    if not same.any():
        return order, np.zeros(len(times), np.int64)
    starts = np.maximum.accumulate(np.where(same, 0, np.arange(len(times))))
    return order, np.arange(len(times)) - starts


def write_run(store: Store, folder: str, schema: StreamSchema, spread: Spread, table: pa.Table) -> RunFile:
    """Write rows, which are given as they came, with all columns of a segment but the ordinal."""
    import numpy as np
    import pyarrow as pa

    columns = arrow_schema(schema)
    invariant(len(table) > 0, f"a run of {schema.name} has rows")
    times = table.column("time").to_numpy()
    order, ordinals = order_of(times)
    owners = spread.of_columns([table.column(name) for name in schema.key], len(table))
    counts = np.bincount(owners, minlength=spread.buckets)
    if counts.max() < len(table):
        small = owners.astype(np.uint16 if spread.buckets > 256 else np.uint8)  # NumPy sorts those by their digits
        by_bucket = np.argsort(small[order], kind="stable")
        order, ordinals = order[by_bucket], ordinals[by_bucket]
    if (order[1:] < order[:-1]).any():
        table = table.take(pa.array(order))
        times = times[order]
    table = table.add_column(columns.get_field_index("ordinal"), columns.field("ordinal"), pa.array(ordinals))
    rows = pa.Table.from_arrays(
        [table.column(field.name).cast(field.type) for field in columns], schema=columns
    ).combine_chunks()
    rows = encrypted(rows, schema)
    bounds = _bounds(counts.tolist())
    draft = Footer(schema.name, int(times.min()) - 1, int(times.max()), len(rows), (), ranges=spread.ranges)
    data, footer = encode_buckets([rows.slice(low, high - low) for _, low, high in bounds], file_columns(schema), draft)
    ends = [len(b"PAR1"), *(end for end, _ in footer.extents)]
    pieces = tuple(
        Piece(bucket, high - low, int(times[low]), int(times[high - 1]), after - before)
        for (bucket, low, high), (before, after) in zip(bounds, pairwise(ends), strict=True)
    )
    name = part_name(draft.from_us, draft.through_us, 0, footer.digest[:_TOKEN_HEX])
    if not store.create(f"{folder}/{PARTS}/{name}", data) and store.read(f"{folder}/{PARTS}/{name}") != data:
        where = store.locate(f"{folder}/{PARTS}/{name}")
        raise LogError(f"{where} is damaged: its bytes do not match its name; remove it, and start again")
    return RunFile(name, footer.digest, pieces)


def _bounds(counts: list[int]) -> list[tuple[int, int, int]]:
    """Bucket, first row and end of each piece."""
    bounds: list[tuple[int, int, int]] = []
    for bucket, (end, count) in enumerate(zip(accumulate(counts), counts, strict=True)):
        first = end - count
        bounds += [(bucket, low, min(low + PIECE_ROWS, end)) for low in range(first, end, PIECE_ROWS)]
    return bounds
