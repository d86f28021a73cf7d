"""`format("unerring")`: a log's streams as Spark's own sources and sinks, found without being registered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from unerring.log import EventLog, LocalStore, Positions, Quarantine
from unerring.log.returning import bring_back, held
from unerring.model import TIME_MAX
from unerring.pipeline.session import own_sentence
from unerring.pipeline.sink import LogSink

from .worlds import TYPED, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_US = 800


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(EventLog(tmp_path / "log").create(TYPED, 2), random_events(1, 90, 5), [100, 200, 300, 400], END_US)
    return tmp_path


def drain(query: Any) -> None:
    """Run a query over what is there now."""
    query.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.long_over_connect
def test_a_stream_of_the_log_is_read_in_bounded_batches_and_written_to_another_once(
    any_spark: SparkSession, data: Path
) -> None:
    spark = any_spark
    events = sealed(data, TYPED.name)
    frame = spark.read.format("unerring").option("stream", "Typed").load(str(data))
    assert frame.columns == ["time", "ordinal", "key", "type", "v"]
    told = [(row.us, row.key, row.type, row.v) for row in frame.selectExpr("unix_micros(time) AS us", "*").collect()]
    assert sorted(told) == [(event.stamp.time, *event.payload.values()) for event in events]

    source = spark.readStream.format("unerring").option("stream", "Typed").option("rows", 20)
    stream = source.option("reader", "notebook").load(str(data))
    out = stream.where("type IN ('A', 'B')").writeStream.format("unerring").option("stream", "Filtered")
    out = out.option("path", str(data)).option("key", "key").option("buckets", 2)
    out = out.option("checkpointLocation", str(data / "checkpoint"))
    drain(out)
    batches = list((data / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(batches) >= 3, "admission control: about 20 rows a batch, whole segments"
    wanted = [event for event in events if event.payload["type"] in "AB"]
    found = sealed(data, "Filtered")
    assert [(event.stamp.time, event.payload) for event in found] == [(e.stamp.time, e.payload) for e in wanted]
    position = Positions(EventLog(data / "log").store, "Typed").get("notebook")
    assert 100 <= position.time < END_US, "what Spark committed is the reader's position; the last batch is not yet"

    chain = EventLog(data / "log").chain("Typed")
    chain.seal(END_US + 100, chain.read(END_US, END_US))
    drain(out)
    assert sealed(data, "Filtered") == found, "nothing new, nothing twice"
    # The same rows from another checkpoint are another writer's, and late: the log has gone past them.
    drain(out.option("checkpointLocation", str(data / "other")))
    assert sealed(data, "Filtered") == found
    assert Quarantine(EventLog(data / "log").store, "Filtered").counts() == {"late": len(wanted)}
    assert EventLog(data / "log").chain("Filtered").read(-1, TIME_MAX).num_rows == len(wanted)


class Committing:
    """A sink of one column, committed as Spark's driver does."""

    def __init__(self, data: Path, checkpoint: str) -> None:
        kinds = StructType([StructField("time", TimestampType()), StructField("v", LongType())])
        self.sink = LogSink(str(data / "log"), "Out", kinds, (), 1, checkpoint)

    def commit(self, times: list[int], batch: int) -> None:
        moments = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        table = pa.table([moments, pa.array(times, pa.int64())], names=["time", "v"])
        self.sink.commit([self.sink.write(iter(table.to_batches()))], batch)


def test_a_commit_that_was_ours_all_along_quarantines_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = Committing(tmp_path, "a"), Committing(tmp_path, "b")
    create = LocalStore.create

    def with_lost_reply(store: LocalStore, name: str, data: bytes) -> bool:
        create(store, name, data)
        return False  # the second try of the client finds the first one's

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "create", with_lost_reply)
        ours.commit(list(range(1, 11)), 0)
    ours.commit(list(range(1, 11)), 0)  # and the driver tries the whole batch again
    quarantine = Quarantine(LocalStore(tmp_path / "log"), "Out")
    assert quarantine.counts() == {}
    assert [event.stamp.time for event in sealed(tmp_path, "Out")] == list(range(1, 11))

    batch = [9, 11, 13, 15, 17]
    between = [lambda: ours.commit(batch, 1), lambda: theirs.commit([12], 0)]  # the last one first

    def slower(store: LocalStore, name: str, data: bytes) -> bool:
        if "/segments/" in name and between:
            faster = between.pop()
            monkeypatch.setattr(LocalStore, "create", create)
            faster()
            monkeypatch.setattr(LocalStore, "create", slower)
        return create(store, name, data)

    monkeypatch.setattr(LocalStore, "create", slower)
    ours.commit(batch, 1)  # and meanwhile a driver that was thought dead seals the same batch
    assert [event.stamp.time for event in sealed(tmp_path, "Out")][10:] == [12, 13, 15, 17]
    late = [(event.sequence, event.reason) for event in quarantine.events()]
    assert late == [(0, "late"), (1, "late")], "each row of the batch under a number of its own"
    back = bring_back(EventLog(tmp_path / "log").chain("Out"), held(EventLog(tmp_path / "log"), "Out"), restamp=True)
    assert (back.brought, back.stayed) == (2, ()), "and their bytes say what they were"


def test_wrong_options_get_a_sentence(any_spark: SparkSession, data: Path) -> None:
    def refused(said: str, path: str, **options: Any) -> None:
        with pytest.raises(Exception, match="unerring") as caught:
            any_spark.read.format("unerring").options(**options).load(path).collect()
        assert said in (own_sentence(caught.value) or "")

    refused("needs a run's folder and a stream", str(data))
    refused("there is no stream 'Nobody'", str(data), stream="Nobody")
    refused("has no option 'colour'", str(data), stream="Typed", colour="red")
    refused("option rows is 'many'; give a whole number", str(data), stream="Typed", rows="many")
