"""A partition's answer: what its rules found in an interval, on its way from a task to the driver that seals it.

A few outputs travel with the answer, as Arrow bytes. Many are written by the task as parts of the output stream's next
segment; only their times and deciding positions travel then, which is what numbering needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.log import Chain, Part, PartRows, write_part
from unerring.matching import RANK_DEADLINE
from unerring.pipeline.level import Level
from unerring.pipeline.sealing import numbered, ordinals_of, output_order

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.pipeline.partition import Partition

STAGED: Final = (
    "bucket int, from_us long, through_us long, stream string, outputs binary, found long, "
    "keys long, rows long, state_bytes long, behind_us long"
)
"""A task's answer: a row for each output stream. What is said of the whole partition (keys, rows read, bytes of state)
is in the first of them, and 0 in the others, so that sums are of all partitions."""
INLINE_BYTES_MAX: Final = 1 << 20
"""Above this, outputs are written as parts: the driver would be busier with them than the store is with more files."""
_PARTS: Final = b"parts"
_PLACE: Final = ("time", "_rank", "_ordinal")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one partition found for one stream: rows, or parts and the places of their rows."""

    parts: tuple[Part, ...]
    rows: pa.Table


def answered(
    partition: Partition, from_us: int, outputs: dict[str, pa.Table], rows: int, behind_us: int
) -> pa.RecordBatch:
    """A partition's answer for an interval, as Arrow columns of `STAGED`. `behind_us`: how far the log goes on."""
    import pyarrow as pa

    level, through_us = partition.level, partition.through_us
    staged = [stage(level, stream, table, from_us, through_us) for stream, table in outputs.items()]
    count = len(staged)
    numbers = {"from_us": from_us, "through_us": through_us, "behind_us": behind_us}
    columns = {name: pa.array([value] * count, pa.int64()) for name, value in numbers.items()}
    whole = {"keys": partition.keys, "rows": rows, "state_bytes": partition.kept_bytes}
    columns |= {name: pa.array([value, *[0] * (count - 1)][:count], pa.int64()) for name, value in whole.items()}
    columns["bucket"] = pa.array([partition.bucket] * count, pa.int32())
    columns["stream"] = pa.array(list(outputs), pa.string())
    columns["outputs"] = pa.array(staged, pa.binary())
    columns["found"] = pa.array([len(table) for table in outputs.values()], pa.int64())
    names = [field.split(" ")[0] for field in STAGED.split(", ")]
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def stage(level: Level, stream: str, table: pa.Table, from_us: int, through_us: int) -> bytes:
    """An answer as bytes; many outputs are written to the store first."""
    if table.nbytes <= INLINE_BYTES_MAX:
        return _encoded(table)
    chain = level.chain(stream, [])
    pieces = list(_by_bucket(table, chain))
    parts = [_written(chain, bucket, piece, from_us, through_us) for bucket, piece in pieces]
    return _encoded(_places([piece for _, piece in pieces]), tuple(parts))


def unstage(data: bytes) -> Answer:
    import pyarrow as pa

    rows = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    named = (rows.schema.metadata or {}).get(_PARTS)
    parts = () if named is None else msgspec.msgpack.decode(named, type=tuple[Part, ...])
    return Answer(parts, rows.replace_schema_metadata(None))


def outputs_of(chain: Chain, answers: Iterable[bytes], from_us: int, through_us: int) -> pa.Table | PartRows | None:
    """All partitions' answers for one output stream and interval, numbered; None: no event."""
    staged = [unstage(data) for data in answers]
    staged = [answer for answer in staged if len(answer.rows)]
    if not any(answer.parts for answer in staged):
        return numbered([answer.rows for answer in staged]) if staged else None
    parts: list[Part] = []
    places: list[pa.Table] = []
    for answer in staged:
        if answer.parts:
            parts += answer.parts
            places += _cut(answer.rows, [part.rows for part in answer.parts])
            continue
        pieces = list(_by_bucket(answer.rows, chain))  # a few beside many: the driver writes them
        parts += [_written(chain, bucket, piece, from_us, through_us) for bucket, piece in pieces]
        places += _cut(_places([piece for _, piece in pieces]), [len(piece) for _, piece in pieces])
    return PartRows(parts, [place.column("time").to_numpy() for place in places], ordinals_of(places))


def _by_bucket(table: pa.Table, chain: Chain) -> Iterable[tuple[int, pa.Table]]:
    """Outputs in their order, by the bucket of the output stream that they belong to."""
    import numpy as np
    import pyarrow as pa

    table = table.combine_chunks()
    order = output_order(table)
    owners = chain.spread.of_columns([table.column(name) for name in chain.schema.key], len(table))
    if (owners != owners[0]).any():
        order = order[np.argsort(owners[order], kind="stable")]
    if (np.diff(order) != 1).any():
        table = table.take(pa.array(order))
    counts = np.bincount(owners, minlength=chain.buckets).tolist()
    start = 0
    for bucket, count in enumerate(counts):
        if count:
            yield bucket, table.slice(start, count)
        start += count


def _written(chain: Chain, bucket: int, rows: pa.Table, from_us: int, through_us: int) -> Part:
    payload = rows.select([name for name in rows.column_names if not name.startswith("_")])
    return write_part(chain.store, chain.folder, chain.schema, payload, bucket, from_us, through_us)


def _cut(table: pa.Table, counts: list[int]) -> list[pa.Table]:
    return [table.slice(end - count, count) for count, end in zip(counts, accumulate(counts), strict=True)]


def _places(pieces: list[pa.Table]) -> pa.Table:
    """What decides the order of rows. One event's outputs come from one partition: if that writes one part, they lie
    there in their order, and keys are only needed for deadlines."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pa.concat_tables(pieces)
    decided = len(pieces) == 1 and not pc.any(pc.equal(table.column("_rank"), RANK_DEADLINE)).as_py()
    names = [name for name in table.column_names if name == "time" or name.startswith("_")]
    return table.select(list(_PLACE) if decided else names)


def _encoded(table: pa.Table, parts: tuple[Part, ...] = ()) -> bytes:
    import pyarrow as pa

    options = None
    if parts:
        table = table.replace_schema_metadata({_PARTS: msgspec.msgpack.encode(parts)})
        options = pa.ipc.IpcWriteOptions(compression="lz4")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
