"""Streams of an event log as a Spark data source: `format("unerring")`, for reading and writing, batch and streaming.

spark.readStream.format("unerring").option("stream", "overheating").load("unerring-data")

Reading, the offset is a time: up to where the chain was contiguous. A micro-batch is the interval between two of them,
about `rows` events and whole segments. With a `reader` name, what Spark has committed is noted as that reader's
position, so that retention may remove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from unerring.log import Chain, EventLog, Positions, Span, store_at
from unerring.model import TIME_MAX, CallerError, ColumnType, Stamp, StreamSchema
from unerring.pipeline.artifacts import Sent
from unerring.pipeline.intervals import next_end
from unerring.pipeline.sink import LogSink

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 1_000_000
_OPTIONS: Final = ("path", "stream", "rows", "reader", "start_us", "secrets", "key", "buckets", "checkpointlocation")
_SECRETS: Final = ("read", "null")
_WHOLE_TIME: Final = 2**62
"""An ordinal after all others of its time."""
SPARK_TYPES: Final = {
    ColumnType.BOOL: "boolean",
    ColumnType.INT: "bigint",
    ColumnType.FLOAT: "double",
    ColumnType.TEXT: "string",
    ColumnType.BYTES: "binary",
    ColumnType.TIME: "timestamp",
}


@dataclass
class Piece(InputPartition):
    """Some of one segment: a task's partition."""

    from_us: int
    through_us: int
    span: tuple[int, int, str]


class UnerringSource(Sent, DataSource):
    """One stream of one log."""

    @classmethod
    def name(cls) -> str:
        return "unerring"

    def schema(self) -> str:
        columns = ", ".join(f"`{c.name}` {SPARK_TYPES[c.type]}" for c in self._place().chain().schema.columns)
        return f"time timestamp, ordinal bigint, {columns}"

    def reader(self, schema: Any) -> DataSourceReader:
        return LogReader(self._place())

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LogStream(self._place())

    def streamWriter(self, schema: Any, overwrite: bool) -> LogSink:
        place = self._place()
        return LogSink(
            place.folder,
            place.stream,
            schema,
            tuple(filter(None, self._option("key").replace(" ", "").split(","))),
            self._number("buckets", 0),
            self._option("checkpointLocation"),
        )

    def _place(self) -> Place:
        unknown = sorted(name for name in self.options if name.lower() not in _OPTIONS)
        if unknown:
            raise CallerError(f"format unerring has no option {unknown[0]!r}; it has {', '.join(_OPTIONS[:-1])}")
        path, stream = self._option("path"), self._option("stream")
        if not path or not stream:
            raise CallerError(
                'format unerring needs a run\'s folder and a stream: .option("stream", "Reading").load("unerring-data")'
            )
        rows = self._number("rows", ROWS)
        if rows < 1:
            raise CallerError(f"option rows is {rows}; a micro-batch takes at least one event")
        start, secrets = self._option("start_us"), self._option("secrets") or _SECRETS[0]
        if secrets not in _SECRETS:
            raise CallerError(f"option secrets is {secrets!r}; it is read (this needs their keys) or null")
        first_us = self._number("start_us", 0) if start else None
        return Place(_log_folder(path), stream, rows, self._option("reader"), first_us, secrets == "null")

    def _option(self, name: str) -> str:
        return str(self.options.get(name) or "")

    def _number(self, name: str, default: int) -> int:
        text = self._option(name)
        if text and not text.lstrip("-").isdigit():
            raise CallerError(f"option {name} is {text!r}; give a whole number")
        return int(text) if text else default


@dataclass(frozen=True)
class Place:
    """The options, checked."""

    folder: str
    stream: str
    rows: int
    reader: str
    start_us: int | None
    veiled: bool
    """Whether secret columns are NULL, for whoever has no keys."""

    def chain(self, known: list[Span] | None = None) -> Chain:
        log = EventLog(self.folder)
        chain = log.chain(self.stream) if known is None else log.known_chain(self.stream, known)
        chain.objects.veiled = self.veiled
        return chain


class LogReader(Sent, DataSourceReader):
    """Reads everything that the log holds now."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def partitions(self) -> Sequence[InputPartition]:
        chain = self._place.chain()
        from_us = chain.base.from_us if self._place.start_us is None else self._place.start_us
        return pieces(chain, from_us, TIME_MAX) or [Piece(0, 0, (0, 0, ""))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._place, partition)


class LogStream(Sent, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._chain = place.chain()
        self._target_us: int | None = None

    def initialOffset(self) -> dict[str, int]:
        start = self._place.start_us
        base_us = self._chain.base.from_us
        return {"through_us": base_us if start is None else max(start, base_us)}

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(self._place.rows)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        from_us = start["through_us"]
        through_us = self._chain.refresh() if self._target_us is None else self._target_us
        if through_us <= from_us:
            return start
        if isinstance(limit, ReadAllAvailable):
            return {"through_us": through_us}
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._place.rows
        return {"through_us": next_end({self._chain.name: self._chain}, from_us, through_us, rows)}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target_us = self._chain.refresh()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._chain.refresh()
        return pieces(self._chain, start["through_us"], end["through_us"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._place, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Spark is done with this: whoever removes old segments may know."""
        if self._place.reader:
            positions = Positions(EventLog(self._place.folder).store, self._place.stream)
            positions.commit(self._place.reader, Stamp(end["through_us"], _WHOLE_TIME))


def pieces(chain: Chain, from_us: int, through_us: int) -> list[InputPartition]:
    """A task for each segment that holds events."""
    partitions: list[InputPartition] = []
    for span in chain.spans(from_us, through_us):
        if chain.footer(span).rows:
            ends = max(span.from_us, from_us), min(span.through_us, through_us)
            partitions.append(Piece(*ends, (span.from_us, span.through_us, span.name)))
    return partitions


def read_piece(place: Place, piece: Any) -> Iterator[pa.RecordBatch]:
    """A partition's events, in stamp order."""
    if piece.from_us == piece.through_us:
        return
    chain = place.chain([Span(*piece.span)])
    columns = [column.name for column in chain.schema.columns]
    table = chain.read(piece.from_us, piece.through_us, columns=columns)
    yield from as_frame(table, chain.schema).to_batches()


def as_frame(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Rows of the log with the event time as a timestamp."""
    import pyarrow as pa

    time = table.column("time").cast(pa.timestamp("us", tz="UTC"))
    names = ["ordinal", *(column.name for column in schema.columns)]
    # By names alone: Spark wants columns that may be NULL, and no metadata.
    return pa.Table.from_arrays([time, *(table.column(name) for name in names)], names=["time", *names])


def _log_folder(path: str) -> str:
    """The log in a run's folder, or the log itself."""
    store = store_at(path)
    names = store.names("")
    return store.locate("" if names and "log" not in names else "log")
