"""A Kafka topic as a Spark data source, for Spark without its own connector: `format("unerring-kafka")`.

spark.readStream.format("unerring-kafka").load("kafka://host:9092/readings")

Without a schema the columns are those of Spark's connector, with headers. With one, messages are decoded as the address
says: the schema names `time` and the columns, and may name `_corrupt_record` for messages that are none. A micro-batch
is a range of offsets for each partition, about `rows` messages, and Spark's checkpoint holds the ranges. No group is
joined.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from unerring.log import columns_of, row_type
from unerring.model import CallerError, Column, ColumnType, StreamSchema, WorldError
from unerring.pipeline.sql_tables import plan_type
from unerring.runtime import Message, PayloadDecoder, Topic, Undecodable, read_span, source_of, topic_now

if TYPE_CHECKING:
    import pyarrow as pa

ROWS: Final = 1_000_000
BATCH_ROWS: Final = 10_000
CORRUPT: Final = "_corrupt_record"
IDENTITY: Final = "topic"
_OPTIONS: Final = ("path", "rows", "start", "on_loss")
_COLUMNS: Final = (
    "key binary",
    "value binary",
    "topic string",
    "partition int",
    "offset bigint",
    "timestamp timestamp",
    "headers array<struct<key: string, value: binary>>",
)

Offsets = dict[str, Any]
"""For each partition, by its number as text, the next offset; and the topic's identity."""


@dataclass
class Span(InputPartition):
    """Offsets of one partition: a task's work."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True)
class KafkaOptions:
    """The options, checked."""

    url: str
    rows: int
    earliest: bool
    skips: bool
    """What retention removed is passed over, instead of ending the query."""


class KafkaSparkSource(DataSource):
    """One topic."""

    @classmethod
    def name(cls) -> str:
        return "unerring-kafka"

    def schema(self) -> str:
        self._checked()
        return ", ".join(_COLUMNS)

    def reader(self, schema: Any) -> DataSourceReader:
        return KafkaBatch(self._checked(batch=True), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return KafkaStream(self._checked(), schema)

    def _checked(self, batch: bool = False) -> KafkaOptions:
        unknown = sorted(name for name in self.options if name.lower() not in _OPTIONS)
        if unknown:
            raise CallerError(f"format unerring-kafka has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
        url = str(self.options.get("path") or "")
        if not url:
            raise CallerError('format unerring-kafka needs an address: .load("kafka://host:9092/topic")')
        source_of(url)
        rows = str(self.options.get("rows") or ROWS)
        if not rows.isdigit() or int(rows) < 1:
            raise CallerError(f"option rows is {rows!r}; a micro-batch takes at least one message")
        start = str(self.options.get("start") or ("earliest" if batch else "latest"))
        loss = str(self.options.get("on_loss") or "fail")
        for name, value, values in (("start", start, ("latest", "earliest")), ("on_loss", loss, ("fail", "skip"))):
            if value not in values:
                raise CallerError(f"option {name} is {value!r}; it can be {' or '.join(values)}")
        return KafkaOptions(url, int(rows), start == "earliest", loss == "skip")


class KafkaBatch(DataSourceReader):
    """Reads all that the topic has now."""

    def __init__(self, options: KafkaOptions, schema: Any) -> None:
        self._options = options
        self._rows = Rows.of(options.url, schema)

    def partitions(self) -> Sequence[InputPartition]:
        extents = topic_now(source_of(self._options.url)).partitions
        spans = [Span(partition, extent.low, extent.high) for partition, extent in extents.items()]
        return spans or [Span(0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class KafkaStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The topic as it grows."""

    def __init__(self, options: KafkaOptions, schema: Any) -> None:
        self._options = options
        self._rows = Rows.of(options.url, schema)
        self._target: Topic | None = None

    def initialOffset(self) -> Offsets:
        topic = topic_now(source_of(self._options.url))
        earliest = self._options.earliest
        return _offsets(topic, {p: extent.low if earliest else extent.high for p, extent in topic.partitions.items()})

    def getDefaultReadLimit(self) -> Any:
        return ReadMaxRows(self._options.rows)

    def latestOffset(self, start: Offsets, limit: Any) -> Offsets:
        topic = self._target or topic_now(source_of(self._options.url))
        first = self._checked(start, topic)
        highs = {partition: extent.high for partition, extent in topic.partitions.items()}
        if isinstance(limit, ReadAllAvailable):
            return _offsets(topic, highs)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows
        return _offsets(topic, shared(first, highs, rows))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = topic_now(source_of(self._options.url))

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        first = self._checked(start, topic_now(source_of(self._options.url)))
        spans = [
            Span(int(partition), first.get(int(partition), 0), until)
            for partition, until in end.items()
            if partition != IDENTITY
        ]
        return [span for span in spans if span.first < span.end]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def commit(self, end: Offsets) -> None:
        """Nothing: the checkpoint says what was read."""

    def _checked(self, start: Offsets, topic: Topic) -> dict[int, int]:
        """Where to begin in each partition; a sentence if the topic is another one, or has lost what was not read."""
        where = source_of(self._options.url).address
        firsts = {int(partition): offset for partition, offset in start.items() if partition != IDENTITY}
        shrunk = [p for p, offset in firsts.items() if p not in topic.partitions or offset > topic.partitions[p].high]
        if start.get(IDENTITY, "") != topic.identity or shrunk:
            raise WorldError(
                f"topic {where.topic} at {where.brokers} was deleted and made anew, or cut back, since this query's "
                "checkpoint: its offsets mean other messages; begin with a new checkpoint"
            )
        checked: dict[int, int] = {}
        for partition, extent in topic.partitions.items():
            first = firsts.get(partition, 0)
            if first < extent.low and not self._options.skips:
                raise WorldError(
                    f"{where.topic}/{partition}: offsets {first} to {extent.low - 1} were removed by the broker before "
                    "they were read; to go on without them, set the option on_loss to skip"
                )
            checked[partition] = max(first, extent.low)
        return checked


def shared(first: Mapping[int, int], highs: Mapping[int, int], rows: int) -> dict[int, int]:
    """The ends of a micro-batch of about so many messages: what one partition does not need, the others get."""
    ends = dict(first)
    open_ = sorted(partition for partition in highs if highs[partition] > first.get(partition, 0))
    left = rows
    for number, partition in enumerate(sorted(open_, key=lambda p: highs[p] - first.get(p, 0))):
        fair = max(left // (len(open_) - number), 1)
        taken = min(highs[partition] - first.get(partition, 0), fair)
        ends[partition] = first.get(partition, 0) + taken
        left = max(left - taken, 0)
    return ends


def _offsets(topic: Topic, ends: Mapping[int, int]) -> Offsets:
    return {IDENTITY: topic.identity, **{str(partition): ends[partition] for partition in sorted(ends)}}


@dataclass(frozen=True)
class Rows:
    """How messages become rows: as they are, or decoded."""

    url: str
    columns: bytes
    """Empty: as they are; otherwise the stream that the schema describes."""
    corrupt: bool
    """Messages that cannot be decoded are rows too."""

    @staticmethod
    def of(url: str, schema: Any) -> Rows:
        names = schema.fieldNames()
        if names == [field.split()[0] for field in _COLUMNS]:
            return Rows(url, b"", False)
        return Rows(url, msgspec.json.encode(_stream_of(schema)), CORRUPT in names)

    def read(self, span: Any) -> Iterator[pa.RecordBatch]:
        source = source_of(self.url)
        messages = read_span(source, span.partition, span.first, span.end)
        if not self.columns:
            for some in _together(messages):
                yield _plain(some)
            return
        schema = msgspec.json.decode(self.columns, type=StreamSchema)
        decoder, row = PayloadDecoder(source.payload, schema), row_type(schema)
        try:
            for some in _together(messages):
                yield self._decoded(decoder, row, some)
        finally:
            decoder.close()

    def _decoded(self, decoder: PayloadDecoder, row: type[msgspec.Struct], messages: list[Message]) -> pa.RecordBatch:
        import pyarrow as pa

        times: list[int | None] = []
        rows: list[Any] = []
        bad: list[str | None] = []
        for message in messages:
            try:
                time_us, payload = decoder.decode(message)
                rows.append(msgspec.convert(payload, row))
            except (Undecodable, msgspec.ValidationError) as error:
                if not self.corrupt:
                    raise WorldError(
                        f"{message.topic}/{message.partition}, offset {message.offset}: {error}; add `{CORRUPT} "
                        "string` to the schema to go on without it"
                    ) from None
                times.append(None)
                rows.append(row())
                bad.append(_text(message.raw))
            else:
                times.append(time_us)
                bad.append(None)
        made: dict[str, Any] = {"time": pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))}
        made |= columns_of(rows, decoder.schema)
        if self.corrupt:
            made[CORRUPT] = pa.array(bad, pa.string())
        return pa.RecordBatch.from_pydict(made)


def _stream_of(schema: Any) -> StreamSchema:
    kinds = {field.name: plan_type(field.dataType) for field in schema.fields}
    if kinds.pop("time", None) is not ColumnType.TIME:
        raise CallerError("format unerring-kafka: a schema needs the column `time timestamp` for the event time")
    kinds.pop(CORRUPT, None)
    for name, kind in kinds.items():
        if kind is None:
            raise CallerError(f"format unerring-kafka: column {name!r} has a type that messages are not decoded to")
    return StreamSchema("Kafka", tuple(Column(name, kind, True) for name, kind in kinds.items() if kind is not None))


def _plain(messages: list[Message]) -> pa.RecordBatch:
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    headers = [[{"key": key, "value": value} for key, value in message.headers] for message in messages]
    times = pa.array([message.time_us for message in messages], pa.int64())
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([message.key for message in messages], pa.binary()),
            "value": pa.array([message.value for message in messages], pa.binary()),
            "topic": pa.array([message.topic for message in messages], pa.string()),
            "partition": pa.array([message.partition for message in messages], pa.int32()),
            "offset": pa.array([message.offset for message in messages], pa.int64()),
            "timestamp": times.cast(pa.timestamp("us", tz="UTC")),
            "headers": pa.array(headers, pa.list_(pair)),
        }
    )


def _together(messages: Iterator[Message]) -> Iterator[list[Message]]:
    while some := list(islice(messages, BATCH_ROWS)):
        yield some


def _text(raw: bytes) -> str:
    """A bad message as a text: itself, or in base64 where it is none."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(raw).decode()})
