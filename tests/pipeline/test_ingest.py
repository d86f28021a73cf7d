"""`pipeline.ingest`: DataFrames of any kind, batch and streaming, become the stream that `unerring ingest` makes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unerring.log import Chain, EventLog, IngestConfig, Quarantine, TakeConfig, Times, ingest as ingest_file
from unerring.model import TIME_MAX, CallerError, Column, ColumnType, StreamSchema, WorldError
from unerring.pipeline import ingest, judge_intake
from unerring.pipeline.connecting import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = StreamSchema(
    "Reading", (Column("machine", ColumnType.TEXT), Column("value", ColumnType.FLOAT, nullable=True)), ("machine",)
)


def rows_of(chain: Chain) -> list[tuple[Any, ...]]:
    chain.refresh()
    table = chain.read(chain.base.from_us, TIME_MAX, columns=["machine", "value"])
    return list(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def chain_in(data: Path) -> Chain:
    return EventLog(data / "log").chain("Reading")


def write(path: Path, seed: int, rows: int, first: int = 0) -> list[tuple[int, str, float]]:
    draw = random.Random(seed)
    made = [(first + 1 + i // 3, draw.choice("abcdefgh"), float(i)) for i in range(rows)]
    at, machine, value = zip(*made, strict=True)
    pq.write_table(pa.table({"at": pa.array(at, pa.int64()), "machine": machine, "value": value}), path)
    return made


def test_a_file_gives_the_rows_that_one_process_gives(any_spark: SparkSession, tmp_path: Path) -> None:
    spark = any_spark
    write(tmp_path / "a.parquet", 1, 1000)
    log = EventLog(tmp_path / "one" / "log")
    ingest_file(log, tmp_path / "a.parquet", SCHEMA, Times("at", "us"), IngestConfig())
    df = spark.read.parquet(str(tmp_path / "a.parquet"))
    done = ingest(
        df, stream=SCHEMA, time="at", time_unit="us", data=tmp_path / "two", config=TakeConfig(rows_per_run=70)
    )
    assert (done.rows, done.added, done.quarantined, done.already) == (1000, 1000, {}, False)
    assert rows_of(chain_in(tmp_path / "two")) == rows_of(log.chain("Reading"))
    again = ingest(df, stream="Reading", time="at", time_unit="us", data=tmp_path / "two")
    assert (again.added, again.already) == (0, True)
    assert len(rows_of(chain_in(tmp_path / "two"))) == 1000


def test_seams_between_files_make_nothing_late(spark: SparkSession, tmp_path: Path) -> None:
    made = []
    for number in range(4):  # each begins before the one before it ends
        made += write(tmp_path / f"{number}.parquet", number, 300, first=number * 80)
    df = spark.read.parquet(*(str(tmp_path / f"{number}.parquet") for number in range(4)))
    done = ingest(df, stream="Reading", key="machine", time="at", time_unit="us", data=tmp_path / "run")
    assert done.quarantined == {}
    assert sorted(row[0] for row in rows_of(chain_in(tmp_path / "run"))) == sorted(row[0] for row in made)


def test_lateness_reaches_over_batches(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 1, 300)
    write(tmp_path / "b.parquet", 2, 300, first=80)
    options: dict[str, Any] = {"stream": SCHEMA, "time": "at", "time_unit": "us", "data": tmp_path / "run"}
    first = ingest(spark.read.parquet(str(tmp_path / "a.parquet")), lateness=15, **options)
    assert first.waiting == 48
    second = ingest(spark.read.parquet(str(tmp_path / "b.parquet")), lateness=15, end=True, **options)
    assert (second.waiting, second.through_us) == (0, TIME_MAX)
    assert second.quarantined == {"late": 12}  # up to 100 - 15 - 1
    assert len(rows_of(chain_in(tmp_path / "run"))) == 588


def test_bad_rows_of_text_files_keep_their_bytes(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        '{"at": "2026-03-01T08:00:00Z", "machine": "m1", "value": 1.5}',
        '{"at": "2026-03-01T08:00:01Z", "machine": "m1", "value": "much"}',
        '{"at": "2026-03-01T08:00:02Z", "machi',
        '{"at": null, "machine": "m1", "value": 1.5}',
        '{"at": "2026-03-01T08:00:03Z", "machine": null, "value": 1.5}',
        '{"at": "2026-03-01T09:00:04+01:00", "machine": "m2", "value": null}',
    ]
    (tmp_path / "a.json").write_text("\n".join(lines))
    df = spark.read.schema("at string, machine string, value double, _corrupt_record string").json(
        str(tmp_path / "a.json")
    )
    done = ingest(df, stream=SCHEMA, time="at", data=tmp_path / "run")
    assert done.quarantined == {"schema": 3, "undecodable": 1}
    assert [row[2:] for row in rows_of(chain_in(tmp_path / "run"))] == [("m1", 1.5), ("m2", None)]
    raw = [bad.raw.decode() for bad in Quarantine(EventLog(tmp_path / "run" / "log").store, "Reading").events()]
    assert raw[:2] == lines[1:3]
    assert json.loads(raw[3]) == json.loads(lines[4])


def test_what_cannot_be_taken_is_refused_with_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    def refused(sql: str, match: str, **more: Any) -> None:
        options = {"stream": "S", "time": "at", "key": "k", "data": tmp_path / "run", "source": "s", **more}
        with pytest.raises(CallerError, match=match):
            ingest(spark.sql(sql), **options)

    now = "SELECT timestamp'2026-03-01 08:00:00' AS at, 'a' AS k"
    refused(now, "name it with source=", source=None)
    refused(now, "its key is not known", key=None)
    refused("SELECT timestamp_ntz'2026-03-01 08:00:00' AS at, 'a' AS k", "a time without a zone")
    refused("SELECT date'2026-03-01' AS at, 'a' AS k", "cast it to TIMESTAMP")
    refused(f"SELECT *, array(1) AS v FROM ({now})", "which a stream cannot hold")
    refused("SELECT 'a' AS k", "needs column 'at'")
    refused(now, "needs column 'machine'", stream=SCHEMA)
    refused(f"SELECT *, 'm' AS machine, true AS value FROM ({now})", "declares it float", stream=SCHEMA)
    refused(now, "time unit 'week' is not known", time_unit="week")


def test_a_named_batch_is_taken_once(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(10).selectExpr(
        "timestamp_seconds(id) AS at", "CAST(id AS string) AS machine", "CAST(id AS float) AS value"
    )
    options: dict[str, Any] = {"stream": SCHEMA, "time": "at", "data": tmp_path / "run", "source": "numbers"}
    assert ingest(df, **options).added == 10
    assert ingest(df, **options).already
    assert [row[0] for row in rows_of(chain_in(tmp_path / "run"))] == [i * 1_000_000 for i in range(10)]


def test_a_file_that_changes_while_it_is_read_is_refused(
    any_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = any_spark
    from unerring.pipeline import ingesting

    path = tmp_path / "a.parquet"
    write(path, 1, 100)
    job_of = ingesting.job_of

    def and_touch(frame: Any, address: str) -> Any:
        job = job_of(frame, address)

        def run(order: Any) -> Any:
            answers = job(order)
            os.utime(path, (1, 1))
            return answers

        return run

    options: dict[str, Any] = {"stream": SCHEMA, "time": "at", "time_unit": "us", "data": tmp_path / "run"}
    monkeypatch.setattr(ingesting, "job_of", and_touch)
    with pytest.raises(CallerError, match="has changed while it was read"):
        ingest(spark.read.parquet(str(path)), **options)
    monkeypatch.undo()
    assert chain_in(tmp_path / "run").refresh() < 0
    assert ingest(spark.read.parquet(str(path)), **options).added == 100
    write(path, 2, 101)
    with pytest.raises(CallerError, match="cannot be told from those that are there"):
        ingest(spark.read.parquet(str(path)), **options)
    write(tmp_path / "b.parquet", 2, 101, first=1000)
    (tmp_path / "c.parquet").write_bytes((tmp_path / "b.parquet").read_bytes())
    assert ingest(spark.read.parquet(str(tmp_path / "b.parquet")), **options).added == 101
    with pytest.raises(CallerError, match="1 of these 2 files are in stream Reading already"):
        ingest(spark.read.parquet(str(tmp_path / "b.parquet"), str(tmp_path / "c.parquet")), **options)


def test_a_stream_of_files_is_taken_exactly_once(any_spark: SparkSession, tmp_path: Path) -> None:
    spark = any_spark
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    made = []

    def run(checkpoint: Path = tmp_path / "checkpoint") -> None:
        df = (
            spark.readStream.schema("at bigint, machine string, value double")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(incoming))
        )
        query = ingest(
            df,
            stream=SCHEMA,
            time="at",
            time_unit="us",
            lateness=30,
            data=tmp_path / "run",
            checkpoint=checkpoint,
            once=True,
        )
        query.awaitTermination()

    for number in range(4):
        path = incoming / f"{number}.parquet"
        made += write(path, number, 300, first=number * 80)
        os.utime(path, (1_000 + number, 1_000 + number))
        if number > 1 and not is_connect(spark):  # a Connect server starts a Python process for each run
            run()
    run()
    chain = chain_in(tmp_path / "run")
    times = [row[0] for row in rows_of(chain)]
    assert times == sorted(time for time, _, _ in made if time < 340 - 30)
    assert chain.through_us == 340 - 30 - 1
    accounts, wrong, events = judge_intake(spark, EventLog(tmp_path / "run" / "log"), "Reading")
    assert (wrong, events) == ([], len(times))
    assert sum(account.in_stream for account in accounts) == len(times)
    offsets = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(offsets) == 4
    # Spark lost what it had noted, and repeats its last micro-batch.
    offsets[-1].unlink()
    (tmp_path / "checkpoint" / "commits" / f".{offsets[-1].name}.crc").unlink()
    run()
    assert [row[0] for row in rows_of(chain)] == times
    # A checkpoint that is not this source's.
    from pyspark.errors import StreamingQueryException

    (incoming / "0.parquet").unlink()
    with pytest.raises(StreamingQueryException, match="in the log with other offsets"):
        run(tmp_path / "other")
    assert [row[0] for row in rows_of(chain)] == times


def test_an_error_of_spark_is_one_sentence(any_spark: SparkSession, tmp_path: Path) -> None:
    spark = any_spark
    (tmp_path / "a.parquet").write_bytes(b"PAR1 this is no Parquet file PAR1")
    df = spark.read.schema("at bigint, machine string, value double").parquet(str(tmp_path / "a.parquet"))
    with pytest.raises(WorldError, match="ingest into stream Reading stopped"):
        ingest(df, stream=SCHEMA, time="at", time_unit="us", data=tmp_path / "run")
