"""`format("unerring-kafka")`: a topic in Spark without Spark's connector, batch and streaming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructType, TimestampType

from tests.kafka import MockCluster, produce
from unerring.log import EventLog, Quarantine
from unerring.model import CallerError, WorldError
from unerring.pipeline import ingest
from unerring.pipeline.kafka_source import KafkaOptions, KafkaSparkSource, KafkaStream, Span, shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

AT_MS = 1_772_352_000_500
SCHEMA = "time timestamp, machine string, number bigint"


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as brokers:
        yield brokers


def send(cluster: MockCluster, first: int, last: int) -> None:
    messages = [
        {
            "value": json.dumps({"machine": f"press-{n % 3}", "number": n}).encode(),
            "key": str(n).encode(),
            "partition": n % 2,
            "timestamp": AT_MS + n,
            "headers": {"n": b"%d" % n},
        }
        for n in range(first, last)
    ]
    produce(cluster.address, "readings", messages)


def test_a_batch_has_every_message_once(spark: SparkSession, cluster: MockCluster) -> None:
    cluster.create("readings", 2)
    send(cluster, 0, 40)
    raw = spark.read.format("unerring-kafka").load(cluster.url("readings"))
    rows = sorted(raw.selectExpr("*", "unix_millis(timestamp) AS ms").collect(), key=lambda row: int(row.key))
    assert [(int(row.key), row.partition, row.offset, row.ms) for row in rows] == [
        (n, n % 2, n // 2, AT_MS + n) for n in range(40)
    ]
    assert rows[7].headers[0].asDict() == {"key": "n", "value": bytearray(b"7")}
    decoded = spark.read.format("unerring-kafka").schema(SCHEMA).load(cluster.url("readings"))
    assert sorted(row.number for row in decoded.where("machine = 'press-1'").collect()) == list(range(1, 40, 3))


def test_a_query_goes_on_from_its_checkpoint_and_takes_bad_messages_along(
    spark: SparkSession, cluster: MockCluster, tmp_path: Path
) -> None:
    cluster.create("readings", 2)
    send(cluster, 0, 30)
    produce(cluster.address, "readings", [{"value": b"\xff", "partition": 0}, {"value": b"[]", "partition": 1}])
    seen: list[list[Any]] = []

    def run(options: dict[str, str]) -> None:
        stream = spark.readStream.format("unerring-kafka").options(**options)
        stream = stream.schema(f"{SCHEMA}, _corrupt_record string").load(cluster.url("readings"))
        query = stream.writeStream.foreachBatch(lambda frame, number: seen.append(frame.collect()))
        running = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        running.awaitTermination()

    run({"start": "earliest", "rows": "20"})
    batches = [len(batch) for batch in seen if batch]
    assert sum(batches) == 32
    assert max(batches) <= 20
    rows = [row for batch in seen for row in batch]
    assert sorted(row.number for row in rows if row.number is not None) == list(range(30))
    assert sorted(row._corrupt_record for row in rows if row.number is None) == ["[]", '{"base64": "/w=="}']
    seen.clear()
    send(cluster, 30, 50)
    run({"start": "earliest"})
    assert sorted(row.number for batch in seen for row in batch) == list(range(30, 50))


def test_a_topic_is_ingested_as_a_spark_job(spark: SparkSession, cluster: MockCluster, tmp_path: Path) -> None:
    cluster.create("readings", 2)
    send(cluster, 0, 30)
    produce(cluster.address, "readings", [{"value": b"[]", "partition": 1}])
    stream = spark.readStream.format("unerring-kafka").option("start", "earliest")
    readings = stream.schema(f"{SCHEMA}, _corrupt_record string").load(cluster.url("readings"))
    query = ingest(readings, stream="Reading", time="time", key="machine", lateness="0s", data=tmp_path, once=True)
    query.awaitTermination()
    log = EventLog(tmp_path / "log")
    chain = log.chain("Reading")
    chain.refresh()
    numbers = chain.read(chain.base.from_us, chain.through_us).column("number").to_pylist()
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 29, "the last time may not be over"
    assert [event.raw for event in Quarantine(log.store, "Reading").events()] == [b"[]"]


def test_a_query_ends_when_the_topic_lost_what_it_had_not_read_or_is_another(cluster: MockCluster) -> None:
    cluster.create("readings", 2)
    send(cluster, 0, 20)
    schema = StructType().add("time", TimestampType()).add("number", LongType())
    stream = KafkaStream(KafkaOptions(cluster.url("readings"), 100, True, False), schema)
    start = stream.initialOffset()
    cluster.delete_records("readings", 0, 4)
    with pytest.raises(WorldError, match="readings/0: offsets 0 to 3 were removed by the broker before they were read"):
        stream.latestOffset(start, ReadAllAvailable())
    skipping = KafkaStream(KafkaOptions(cluster.url("readings"), 100, True, True), schema)
    end = skipping.latestOffset(start, skipping.getDefaultReadLimit())
    spans = skipping.partitions(start, end)
    assert spans == [Span(0, 4, 10), Span(1, 0, 10)]
    numbers = [
        number for span in spans for batch in skipping.read(span) for number in batch.column("number").to_pylist()
    ]
    assert sorted(numbers) == sorted([*range(8, 20, 2), *range(1, 20, 2)])
    produce(cluster.address, "readings", [{"value": b"[]", "partition": 0}])
    with pytest.raises(WorldError, match=r"readings/0, offset 10: list where a record.*add `_corrupt_record string`"):
        list(stream.read(Span(0, 10, 11)))
    cluster.delete("readings")
    cluster.create("readings", 2)
    with pytest.raises(WorldError, match="made anew, or cut back"):
        stream.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize(
    ("options", "url", "sentence"),
    [
        ({}, "", "needs an address"),
        ({}, "kafka://x", "names no topic"),
        ({"nope": "1"}, "kafka://x/a", "no option 'nope'"),
        ({"rows": "0"}, "kafka://x/a", "at least one message"),
        ({"start": "now"}, "kafka://x/a", "latest or earliest"),
        ({"on_loss": "cry"}, "kafka://x/a", "fail or skip"),
    ],
)
def test_a_wrong_option_is_a_sentence(options: dict[str, str], url: str, sentence: str) -> None:
    with pytest.raises(CallerError, match=sentence):
        KafkaSparkSource({**options, "path": url}).schema()


def test_a_batch_is_shared_among_partitions() -> None:
    assert shared({0: 0, 1: 0}, {0: 100, 1: 3}, 20) == {0: 17, 1: 3}
    assert shared({0: 5, 1: 5, 2: 5}, {0: 5, 1: 100, 2: 100}, 10) == {0: 5, 1: 10, 2: 10}
    assert shared({}, {0: 4, 3: 9}, 100) == {0: 4, 3: 9}
