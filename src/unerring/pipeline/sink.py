"""Writing a streaming DataFrame into a stream of a log, exactly once: `writeStream.format("unerring")`.

Tasks stage their rows; the driver orders a micro-batch by time and seals it as one segment, which also says which
micro-batch it was. A batch that comes again after a crash finds that it is there. A log only goes forward in time: rows
at or before what is sealed already go to quarantine as late, so order a stream first if it needs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from unerring.log import BUCKETS, BadEvent, Chain, EventLog, Quarantine, Reason, stating, with_origin
from unerring.model import CallerError, Column, ColumnType, StreamSchema
from unerring.pipeline.artifacts import Sent
from unerring.pipeline.staging import stage, unstage

if TYPE_CHECKING:
    import pyarrow as pa

_NAMED: Final = ("time", "ordinal")


@dataclass
class Staged(WriterCommitMessage):
    """The output of one task."""

    rows: bytes


class LogSink(Sent, DataSourceStreamArrowWriter):
    """One stream as the sink of one query."""

    def __init__(
        self, folder: str, stream: str, schema: Any, key: tuple[str, ...], buckets: int, checkpoint: str
    ) -> None:
        self._folder = folder
        self._stream = stream
        declared = EventLog(folder).declaration(stream)
        wanted = _declared(stream, schema, key, declared.schema if declared else None)
        self._declaration = msgspec.json.encode(wanted)
        self._buckets = declared.buckets if declared else buckets or BUCKETS
        # Numbers of micro-batches are a checkpoint's own: another checkpoint is another writer.
        self._writer = f"spark-{hashlib.blake2b(checkpoint.encode(), digest_size=6).hexdigest()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        import pyarrow as pa

        batches = [batch for batch in iterator if batch.num_rows]
        missing = sum(batch.column("time").null_count for batch in batches)
        if missing:
            raise CallerError(
                f"writing stream {self._stream}: {missing} of a micro-batch's rows have no `time`; give them one, or "
                "leave them out (where time IS NOT NULL)"
            )
        if not batches:
            return Staged(b"")
        return Staged(stage(pa.Table.from_batches(batches), f"{self._folder}/.staging"))

    def commit(self, messages: list[Any], batchId: int) -> None:
        import pyarrow as pa

        schema = msgspec.json.decode(self._declaration, type=StreamSchema)
        log = EventLog(self._folder)
        chain = log.create(schema, self._buckets)
        parts = [unstage(message.rows) for message in messages if message is not None and message.rows]
        if not parts:
            return
        whole = rows = _ordered(pa.concat_tables(parts), schema)
        # The chain says whether this batch is in it, never the answer of a sealing: a segment that was there first
        # may be our own, sealed by an earlier try.
        while len(rows) and not self._has(chain, batchId):
            late = _count_late(rows, chain)
            if late:
                self._quarantine(log, rows.slice(0, late), batchId, len(whole) - len(rows))
                rows = rows.slice(late)
                continue
            taken = chain.taken().with_mark(self._writer, (0, batchId))
            through_us = rows.column("time")[-1].as_py()
            chain.seal(through_us, with_origin(rows, schema), **stating(taken))

    def _has(self, chain: Chain, batch: int) -> bool:
        chain.refresh()
        return chain.producers().get(self._writer, (0, -1)) >= (0, batch)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Remove what was staged: nobody will read it."""
        for message in messages:
            if message is not None and message.rows:
                unstage(message.rows)

    def _quarantine(self, log: EventLog, rows: pa.Table, batch: int, first: int) -> None:
        """`first`: the number of the first of these rows in its batch."""
        bad = [
            BadEvent(self._writer, batch, number, Reason.LATE, "at or before what was sealed", msgspec.json.encode(row))
            for number, row in enumerate(rows.to_pylist(), start=first)
        ]
        Quarantine(log.store, self._stream).add(bad)


def _declared(stream: str, frame: Any, key: tuple[str, ...], known: StreamSchema | None) -> StreamSchema:
    """The stream that a DataFrame's columns make; the one that is there, if they fit."""
    from unerring.pipeline.sql_tables import plan_type

    kinds = {field.name: plan_type(field.dataType) for field in frame.fields}
    if kinds.get("time") is not ColumnType.TIME:
        raise CallerError(f"writing stream {stream}: the DataFrame has no TIMESTAMP column `time` for the event time")
    for name, kind in kinds.items():
        if kind is None:
            raise CallerError(f"writing stream {stream}: column {name!r} has a type that a stream cannot hold; cast it")
    columns = tuple(
        Column(name, kind, name not in key) for name, kind in kinds.items() if kind is not None and name not in _NAMED
    )
    made = StreamSchema(stream, columns, key)
    if known is None:
        return made
    if {column.name: column.type for column in known.columns} != {column.name: column.type for column in columns}:
        raise CallerError(
            f"stream {stream} exists with columns {', '.join(c.name for c in known.columns)}, but the DataFrame has "
            f"{', '.join(c.name for c in columns) or 'none'} or other types; select and cast them"
        )
    return known


def _ordered(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """The rows of a micro-batch in stamp order, each with an ordinal of its own."""
    import numpy as np
    import pyarrow as pa

    time = table.column("time").cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())
    ordinal = table.column("ordinal") if "ordinal" in table.column_names else pa.array(np.zeros(len(table), np.int64))
    names = [column.name for column in schema.columns]
    made = pa.table([time, ordinal.cast(pa.int64()), *(table.column(name) for name in names)], names=[*_NAMED, *names])
    made = made.sort_by([(name, "ascending") for name in made.column_names])
    times = made.column("time").to_numpy()
    first = np.concatenate([[True], times[1:] != times[:-1]])
    starts = np.maximum.accumulate(np.where(first, np.arange(len(times)), 0))
    return made.set_column(1, "ordinal", pa.array(np.arange(len(times)) - starts))


def _count_late(rows: pa.Table, chain: Chain) -> int:
    import numpy as np

    return int(np.searchsorted(rows.column("time").to_numpy(), chain.through_us, side="right"))
