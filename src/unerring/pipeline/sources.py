"""Paths and tables as DataFrames that `ingest` can take: what `unerring ingest SOURCE --master URL` reads.

Text files are read with the stream's types, and what does not fit is kept with its bytes. The event time of a text file
stays a text until a task has read it, so that a zone is never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from unerring.log import CORRUPT, Chain, EventLog, Ingested, Intaker, Intakes, Times, join, waiting_rows
from unerring.model import CallerError, StreamSchema
from unerring.pipeline.ingesting import FILES, ingest, new_files
from unerring.pipeline.offsets import files_now
from unerring.pipeline.session import plain_errors
from unerring.pipeline.source import SPARK_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KINDS: Final = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
}
_TEXTS: Final = ("csv", "json")
_TABLES: Final = ("jdbc", "delta", "iceberg", "rate")
"""Formats that are known by a name or by options, and not by files that tell what is new."""


class Source:
    """A place that Spark reads, in a format."""

    def __init__(self, spark: SparkSession, path: str, kind: str | None, options: Mapping[str, str]) -> None:
        self.spark = spark
        # The JVM's working directory need not be this process's.
        self.path = str(Path(path).absolute()) if path and Path(path).exists() else path
        self.kind = kind or _kind_of(path)
        self.options = {**({"header": "true"} if self.kind == "csv" else {}), **options}

    def frame(
        self, times: Times, schema: StreamSchema | None, paths: Sequence[str] = (), streaming: bool = False
    ) -> DataFrame:
        """Everything, or some files of it; with the stream's columns, if they are known."""
        reader: Any = self.spark.readStream if streaming else self.spark.read
        reader = reader.format(self.kind).options(**self.options)
        if self.kind in _TEXTS:
            reader = reader.schema(self._text_schema(times, schema)).option("columnNameOfCorruptRecord", CORRUPT)
        elif streaming and self.kind in KINDS.values():
            reader = reader.schema(self._guessed())
        frame: DataFrame = reader.load(list(paths)) if paths else reader.load(self.path) if self.path else reader.load()
        return frame

    def _guessed(self) -> Any:
        guess = {"inferSchema": "true"} if self.kind == "csv" else {}
        return self.spark.read.format(self.kind).options(**{**self.options, **guess}).load(self.path).schema

    def _text_schema(self, times: Times, schema: StreamSchema | None) -> str:
        from unerring.pipeline.sql_tables import plan_type

        if schema is not None and self.kind == "json":
            kinds = {column.name: SPARK_TYPES[column.type] for column in schema.columns}
        else:  # a CSV file's columns have the order that its header gives
            known = {column.name: SPARK_TYPES[column.type] for column in schema.columns} if schema else {}
            kinds = {}
            for field in self._guessed().fields:
                guess = plan_type(field.dataType)
                kinds[field.name] = known.get(field.name) or (SPARK_TYPES[guess] if guess else "string")
        kinds[times.column] = "string"
        return ", ".join(f"`{name}` {kind}" for name, kind in [*kinds.items(), (CORRUPT, "string")])


def ingest_source(
    source: Source,
    address: str,
    stream: str | StreamSchema,
    times: Times,
    *,
    key: tuple[str, ...] | None = None,
    name: str | None = None,
    **options: Any,
) -> Ingested:
    """Bring what is new at a place into a stream of the run at an address."""
    log = EventLog(join(address, "log"))
    schema, known = _known(log, stream)
    with plain_errors(f"reading {source.path}"):
        frame = source.frame(times, schema)
        files = () if source.kind in _TABLES else files_now(source.spark, frame.inputFiles())
    if files and known:
        intaker = Intaker(log.chain(_name_of(stream)), name or FILES, times)
        fresh = new_files(intaker.chain, intaker, files)
        if 0 < len(fresh) < len(files):
            frame = source.frame(times, schema, [file.path for file in fresh])
    if source.kind in _TABLES and name is None:
        name = f"{source.kind} {source.path or source.options.get('dbtable', '')}".strip()
    done: Ingested = ingest(frame, **_given(address, stream, times), key=key, source=name, **options)
    return done


def follow_source(
    source: Source,
    address: str,
    stream: str | StreamSchema,
    times: Times,
    checkpoint: str,
    *,
    name: str | None = None,
    **options: Any,
) -> tuple[StreamingQuery, Callable[[], Ingested]]:
    """Bring what comes to a place into a stream, as long as the query runs; and what it has brought so far."""
    log = EventLog(join(address, "log"))
    schema, known = _known(log, stream)
    named = name or f"{source.kind} {source.path}"
    before = Intakes(log.store, _name_of(stream), named).newest() if known else None
    with plain_errors(f"reading {source.path}"):
        frame = source.frame(times, schema, streaming=True)
        given = _given(address, stream, times)
        query: StreamingQuery = ingest(frame, **given, source=named, checkpoint=checkpoint, **options)

    def so_far() -> Ingested:
        return _sum(log.chain(_name_of(stream)), named, before.number if before else 0)

    return query, so_far


def _sum(chain: Chain, source: str, after: int) -> Ingested:
    """What intakes brought after one of them, as far as they are kept."""
    intakes = Intakes(chain.store, chain.folder, source)
    made = [intake for number in intakes.numbers() if number > after and (intake := intakes.get(number)) is not None]
    counts: dict[str, int] = {}
    for intake in made:
        for reason, count in intake.quarantined.items():
            counts[reason] = counts.get(reason, 0) + count
    rows, added = sum(intake.rows for intake in made), sum(intake.added for intake in made)
    waiting = waiting_rows(chain, made[-1]) if made and made[-1].through_us < made[-1].newest_us else 0
    return Ingested(chain.name, rows, added, counts, chain.refresh(), False, waiting)


def _known(log: EventLog, stream: str | StreamSchema) -> tuple[StreamSchema | None, bool]:
    """The stream's columns, if anything says them; and whether the log has it."""
    known = log.declaration(_name_of(stream))
    return stream if isinstance(stream, StreamSchema) else known.schema if known else None, known is not None


def _name_of(stream: str | StreamSchema) -> str:
    return stream if isinstance(stream, str) else stream.name


def _given(address: str, stream: str | StreamSchema, times: Times) -> dict[str, Any]:
    return {
        "stream": stream,
        "time": times.column,
        "data": address,
        "zone": times.zone,
        "time_unit": times.unit,
    }


def _kind_of(path: str) -> str:
    """By the name; of a folder, by the name of something in it."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in KINDS:
        return KINDS[suffix]
    folder = Path(path)
    if folder.is_dir():
        for inside in sorted(folder.rglob("*")):
            if inside.suffix.lower() in KINDS:
                return KINDS[inside.suffix.lower()]
    raise CallerError(
        f"{path}: the format does not follow from the name; say it with --format, such as --format parquet, csv, json, "
        "orc, delta or jdbc"
    )
