"""The port: what a target of a sink can do, and how it fails.

A target keeps the position of the sink in the same transaction as the rows, or carries the stamp in what it takes, so
that it can be found there. So whoever lost an answer, or was killed, asks the target where it is, and goes on from
there. Errors are of three kinds: `CallerError` stops the sink, since trying again is of no use; `Overtaken` says that
another driver of the same sink was here; any other `WorldError` may go away, and is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from unerring.model import Stamp, StreamSchema, WorldError

if TYPE_CHECKING:
    import pyarrow as pa

ORDINAL_MAX: Final = 1 << 62
"""A position of a target that keeps times alone is behind every event of that time."""


class Overtaken(WorldError):
    """The target is not where this driver left it: another one of the same sink is at work, or a lost write came."""


class Target(Protocol):
    """One table, topic or service, opened for one sink. A chunk is rows of one stream in stamp order: `time` (a moment
    in UTC), `ordinal`, and the payload. It ends with the last event of a time."""

    def position(self) -> Stamp | None:
        """The last stamp of this sink that the target has; None: nothing of it came here yet."""
        ...

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        """Take a chunk as a whole, if the target is at `after`; it is there when this returns. Whoever gets an error
        other than `Overtaken` does not know whether it is there, and opens the target again to find out."""
        ...

    def read(self, from_us: int, through_us: int) -> pa.Table:
        """The rows of `(from, through]`, for an audit: in the order in which they lie, if the target has one."""
        ...

    def rewind(self, to: Stamp) -> None:
        """Let the target be as it was when it had everything up to a stamp, as far as it can."""
        ...

    def close(self) -> None:
        """Let go of connections. What was written stays."""
        ...


def target_schema(schema: StreamSchema) -> pa.Schema:
    """The columns of a chunk."""
    import pyarrow as pa

    stamp = [pa.field("time", pa.timestamp("us", tz="UTC"), False), pa.field("ordinal", pa.int64(), False)]
    return pa.schema([*stamp, *schema.arrow()])


def as_chunk(rows: pa.Table, schema: StreamSchema) -> pa.Table:
    """Rows of a log (`time` in microseconds) as a target takes them."""
    return rows.select(["time", "ordinal", *(column.name for column in schema.columns)]).cast(target_schema(schema))


def as_rows(chunk: pa.Table, schema: StreamSchema) -> pa.Table:
    """What a target holds, as rows of a log, so that the two can be compared."""
    import pyarrow as pa

    wanted = target_schema(schema)
    chunk = chunk.select(wanted.names).cast(wanted)
    return chunk.set_column(0, pa.field("time", pa.int64(), False), chunk.column("time").cast(pa.int64()))


def last_stamp(chunk: pa.Table) -> Stamp:
    """The stamp of a chunk's last row."""
    return Stamp(chunk.column("time")[-1].value, chunk.column("ordinal")[-1].as_py())
