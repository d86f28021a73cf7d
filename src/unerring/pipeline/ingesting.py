"""`unerring.pipeline.ingest(df, ...)`: any DataFrame, batch or streaming, into a stream of the log, exactly once.

The whole intake is a Spark job: tasks check the rows, sort them and write them to the store; the driver handles
manifests. A micro-batch becomes intake n, created if absent, and what is sealed follows from the intakes alone (see
`log/intakes.py`). So a driver or a task that is killed, repeats its work or wakes up late changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from unerring.lineage import traced
from unerring.log import (
    BUCKETS,
    CORRUPT,
    Chain,
    EventLog,
    Ingested,
    Intake,
    Intaker,
    LocalStore,
    Overtaken,
    TakeConfig,
    TakenFile,
    Times,
    Watermark,
    files_taken,
    join,
    producer_of,
    store_at,
    waiting_rows,
)
from unerring.model import CallerError, Column, ColumnType, InvariantBreach, StreamSchema, schema_of, to_duration_us
from unerring.pipeline.artifacts import after, folder_of
from unerring.pipeline.connecting import check_shared, prepare
from unerring.pipeline.lineage import taken_in, trace_query
from unerring.pipeline.offsets import check_unchanged, files_now, offsets_of, words_for
from unerring.pipeline.session import own_settings, plain_errors, text_of
from unerring.pipeline.sql_tables import plan_type
from unerring.pipeline.taking import job_of, means_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILES: Final = "files"
"""The source of batches of files, unless somebody names another one."""
STREAM: Final = "stream"
"""The source of a streaming DataFrame, likewise."""
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
STARTS_MAX: Final = 12
"""How often a query is started over Spark Connect: the server gives the Python process that takes micro-batches ten
seconds to come up, which on a very busy machine is not enough."""
_NO_PROCESS: Final = "Python worker failed to connect back"
_RACES_MAX: Final = 16
"""How often a batch of files is taken anew because another program was quicker with other files."""


@dataclass(frozen=True, slots=True)
class Target:
    """A source on its way into a stream."""

    address: str
    """Of the log."""
    schema: StreamSchema
    buckets: int
    source: str
    times: Times
    watermark: Watermark
    config: TakeConfig

    def intaker(self, spark: SparkSession) -> Intaker:
        chain = EventLog(self.address).create(self.schema, self.buckets)
        return Intaker(chain, self.source, self.times, self.config, means_of(spark, self.address, chain.schema))


def ingest(
    df: DataFrame,
    *,
    stream: str | type | StreamSchema,
    time: str,
    data: str | os.PathLike[str] = "unerring-data",
    key: str | Sequence[str] | None = None,
    lateness: timedelta | int | str | None = None,
    source: str | None = None,
    end: bool = False,
    zone: str | None = None,
    time_unit: str | None = None,
    buckets: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    once: bool = False,
    config: TakeConfig | None = None,
) -> Any:
    """Bring a DataFrame into a stream of a run's log, in order of time, each row once. Bad rows go to quarantine.

    - `stream`: a declared stream class, or a name; a stream of that name that is new gets the DataFrame's columns, and
      then needs `key` (its key columns; an empty tuple for none).
    - `time`: the column with the event time: TIMESTAMP, text, or a number (`time_unit`: s, ms, us or ns). `zone` is
      that of times without one.
    - `lateness`: how much later than newer rows a row may come; by default what the stream declares. A batch without it
      is sealed up to its newest time. With it, and always with a streaming DataFrame, rows wait until the watermark
      (the newest time less the lateness) has passed them. Rows that come after that are in quarantine as late. `end`:
      nothing more will come, and all is sealed.
    - `source`: the name under which the log remembers what came. A batch of files that are in the stream adds nothing;
      any other batch needs a name, and adds nothing if that name is known.

    A batch returns an `Ingested`. A streaming DataFrame is started, and returns its query; `checkpoint` is where Spark
    keeps its offsets, `once` takes what is there now and stops.
    """
    prepare(df.sparkSession)
    address = store_at(join(str(data), "log")).locate("")
    times = Times(time, time_unit, zone)
    schema, count = declared(df, EventLog(address), stream, key, times, buckets)
    frame = fitting(df, schema, times)
    files = () if df.isStreaming else files_now(df.sparkSession, df.inputFiles())
    if source is None and not files and not df.isStreaming:
        raise CallerError(
            f"stream {schema.name}: this DataFrame reads no files, so nothing tells it from another one; name it with "
            'source="orders of January": a second ingest under that name adds nothing'
        )
    chain = EventLog(address).create(schema, count)
    late_us = to_duration_us(lateness) if lateness is not None else schema.lateness_us or None
    check_shared(df.sparkSession, address)

    def target(name: str, watermark: Watermark) -> Target:
        return Target(address, schema, count, name, times, watermark, config or TakeConfig())

    if df.isStreaming:
        if end:
            raise CallerError(
                "end=True is for batches: a streaming DataFrame has no end; ingest an empty batch with it"
            )
        where = str(checkpoint) if checkpoint is not None else _checkpoint(str(data), chain, source or STREAM)
        query = start_stream(frame, target(source or STREAM, Watermark(late_us or 0)), where, once)
        trace_query(address, schema, source or STREAM, query)
        return query
    work = target(source or FILES, Watermark(late_us, end))
    flow = lambda: taken_in(address, schema, (file.path for file in files), source or FILES)  # noqa: E731
    with (
        traced("ingest", f"ingest.{schema.name}", flow, engine="spark") as lineage,
        plain_errors(f"ingest into stream {schema.name}"),
    ):
        done = take_files(frame, work, files) if files else take_named(frame, work)
        lineage.rows = done.added
        return done


# --- batches ---


def take_files(frame: DataFrame, target: Target, files: Sequence[TakenFile]) -> Ingested:
    """A batch of files, of which the stream has none, or all."""
    spark, name = frame.sparkSession, target.schema.name
    for _ in range(_RACES_MAX):
        intaker = target.intaker(spark)
        newest = intaker.newest()
        fresh = new_files(intaker.chain, intaker, files)
        if not fresh and newest is not None:
            return _already(intaker, newest, target)
        if len(fresh) < len(files):
            known = next(file.path for file in files if file not in fresh)
            raise CallerError(
                f"{len(files) - len(fresh)} of these {len(files)} files are in stream {name} already, "
                f"such as {known}; read the others only, or use `unerring ingest`, which leaves those out"
            )
        try:
            made, _ = intaker.take(
                (newest.number if newest else 0) + 1,
                words_for(files),
                job_of(frame, target.address),
                target.watermark,
                files=files,
                unchanged=lambda: check_unchanged(spark, files),
            )
        except Overtaken:
            continue  # another program took other files meanwhile: its intake has this number
        return _ingested(made, intaker.chain, already=False)
    raise CallerError(
        f"stream {name}: other programs took files in {_RACES_MAX} times while this one tried; let one do "
        "it after the other, or give each source a name of its own"
    )


def take_named(frame: DataFrame, target: Target) -> Ingested:
    """A batch that is known by its source's name alone."""
    intaker = target.intaker(frame.sparkSession)
    newest = intaker.newest()
    if newest is not None:
        return _already(intaker, newest, target)
    made, already = intaker.take(1, "batch", job_of(frame, target.address), target.watermark)
    return _ingested(made, intaker.chain, already)


def new_files(chain: Chain, intaker: Intaker, files: Sequence[TakenFile]) -> list[TakenFile]:
    """Those that the stream does not have; a sentence if it has one that was another then."""
    intakes = (intaker.intakes.get(number) for number in intaker.intakes.numbers())
    taken = files_taken(intake for intake in intakes if intake is not None)
    for file in files:
        if file.path in taken and taken[file.path] != file:
            before = taken[file.path]
            raise CallerError(
                f"{file.path} is in stream {chain.name} with {before.bytes} bytes, and has {file.bytes} now, or was "
                "written again: its rows cannot be told from those that are there; give new rows a file of their own"
            )
    return [file for file in files if file.path not in taken]


def _already(intaker: Intaker, newest: Intake, target: Target) -> Ingested:
    """Nothing is new; but the stream may have ended now."""
    if target.watermark.end and intaker.chain.refresh() < newest.newest_us + 1:
        newest, _ = intaker.take(newest.number + 1, "end", lambda order: [], target.watermark)
    return _ingested(newest, intaker.chain, already=True)


def _ingested(intake: Intake, chain: Chain, already: bool) -> Ingested:
    added = 0 if already else intake.added
    through_us = chain.refresh()
    waiting = waiting_rows(chain, intake) if intake.through_us < intake.newest_us else 0
    return Ingested(chain.name, intake.rows, added, intake.quarantined, through_us, already, waiting)


# --- streams ---


def start_stream(frame: DataFrame, target: Target, checkpoint: str, once: bool) -> StreamingQuery:
    """A query that takes micro-batch after micro-batch in."""
    from pyspark.errors import PySparkException

    taker = _Taker(target, checkpoint, folder_of(frame.sparkSession))
    writer = frame.writeStream.foreachBatch(taker).option("checkpointLocation", checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    writer = writer.queryName(f"ingest {target.schema.name}")
    for left in range(STARTS_MAX - 1, -1, -1):
        try:
            return writer.start()
        except PySparkException as error:
            if not left or _NO_PROCESS not in text_of(error):
                raise
    raise InvariantBreach("the last try returns or raises")


class _Taker:
    """What Spark calls with each micro-batch: in this process, or, over Spark Connect, in one of the server's."""

    def __init__(self, target: Target, checkpoint: str, folder: str = "") -> None:
        """`folder`: where this package is on the host of a Spark Connect server that was sent it."""
        self._target = target
        self._checkpoint = checkpoint
        self._folder = folder
        self._intaker: Intaker | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return after(self._folder, _Taker, (self._target, self._checkpoint))

    def __call__(self, batch: DataFrame, number: int) -> None:
        own_settings(batch, {})
        spark = batch.sparkSession
        if self._intaker is None:
            self._intaker = self._target.intaker(spark)
        position, paths = offsets_of(spark, self._checkpoint, number)
        files = files_now(spark, paths)
        self._intaker.take(
            number + 1,
            position,
            job_of(batch, self._target.address),
            self._target.watermark,
            unchanged=lambda: check_unchanged(spark, files),
        )


def _checkpoint(data: str, chain: Chain, source: str) -> str:
    store = store_at(data)
    if not isinstance(store, LocalStore):
        raise CallerError(
            f"stream {chain.name}: {data} is no folder; say where Spark keeps its offsets: checkpoint=..."
        )
    return str(store.root / "ingest" / f"{chain.name}-{producer_of(source)}")


# --- columns ---


def declared(
    df: DataFrame,
    log: EventLog,
    stream: str | type | StreamSchema,
    key: str | Sequence[str] | None,
    times: Times,
    buckets: int | None,
) -> tuple[StreamSchema, int]:
    """The stream as it is declared: by its class, in the log, or after the DataFrame's own columns; and its buckets."""
    if not isinstance(stream, str):
        schema = schema_of(stream)
        known = log.declaration(schema.name)
        return schema, known.buckets if known else buckets or BUCKETS
    known = log.declaration(stream)
    if known is not None:
        return known.schema, known.buckets
    if key is None:
        raise CallerError(
            f"stream {stream} is new in {log.store.locate('')}, and its key is not known; give its key columns with "
            'key="machine", or key=() if it has none'
        )
    names = (key,) if isinstance(key, str) else tuple(key)
    columns: list[Column] = []
    for field in df.schema.fields:
        if field.name in (times.column, CORRUPT):
            continue
        kind = plan_type(field.dataType)
        if kind is None:
            raise CallerError(
                f"stream {stream}: column {field.name!r} is {field.dataType.simpleString()}, which a stream cannot "
                "hold; cast it, or leave it out"
            )
        columns.append(Column(field.name, kind, field.name not in names))
    return StreamSchema(stream, tuple(columns), names), buckets or BUCKETS


def fitting(df: DataFrame, schema: StreamSchema, times: Times) -> DataFrame:
    """The columns that the stream needs; a sentence if one is missing, or of a type that can never fit."""
    kinds = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    wanted = list(dict.fromkeys([times.column, *(column.name for column in schema.columns)]))
    for name in wanted:
        if name not in kinds:
            raise CallerError(
                f"stream {schema.name} needs column {name!r}, which the DataFrame lacks; it has {', '.join(df.columns)}"
            )
    moment = kinds[times.column]
    if moment == "timestamp_ntz" and times.zone is None:
        raise CallerError(
            f"event time {times.column!r} is TIMESTAMP_NTZ, a time without a zone; say which it is in, such as "
            'zone="UTC" or zone="Europe/Berlin"'
        )
    if moment not in ("timestamp", "timestamp_ntz", "string", *_INTEGERS):
        raise CallerError(f"event time {times.column!r} is {moment.upper()}; cast it to TIMESTAMP")
    for column in schema.columns:
        if column.name != times.column and not _can_hold(column.type, df.schema[column.name].dataType):
            raise CallerError(
                f"column {column.name!r} is {kinds[column.name].upper()}, but stream {schema.name} declares it "
                f"{column.type.value}; cast it"
            )
    corrupt = [CORRUPT] if kinds.get(CORRUPT) == "string" else []
    return df.select(*(f"`{name}`" for name in [*wanted, *corrupt]))


def _can_hold(wanted: ColumnType, kind: Any) -> bool:
    """Whether values of Spark's type can be read as the stream's; a text is tried row by row."""
    name, actual = kind.simpleString(), plan_type(kind)
    if name in ("timestamp_ntz", "date"):
        return False
    if actual is wanted or name == "string":
        return True
    return (actual, wanted) == (ColumnType.INT, ColumnType.FLOAT)
