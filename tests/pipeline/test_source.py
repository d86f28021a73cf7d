"""`format("unerring")`: a log's streams as Spark's own sources and sinks, found without being registered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unerring.log import EventLog, Positions, Quarantine
from unerring.model import TIME_MAX
from unerring.pipeline.session import own_sentence

from .worlds import TYPED, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_US = 800


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(EventLog(tmp_path / "log").create(TYPED, 2), random_events(1, 90, 5), [100, 200, 300, 400], END_US)
    return tmp_path


def drain(query: Any) -> list[dict[str, Any]]:
    """Run a query over what is there now; how it went, batch by batch."""
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    return [progress for progress in running.recentProgress if progress["numInputRows"]]


def test_a_stream_of_the_log_is_read_in_bounded_batches_and_written_to_another_once(
    spark: SparkSession, data: Path
) -> None:
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
    progress = drain(out)
    assert len(progress) >= 3, "admission control: about 20 rows a batch, whole segments"
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


def test_wrong_options_get_a_sentence(spark: SparkSession, data: Path) -> None:
    def refused(said: str, path: str, **options: Any) -> None:
        with pytest.raises(Exception, match="unerring") as caught:
            spark.read.format("unerring").options(**options).load(path).collect()
        assert said in (own_sentence(caught.value) or "")

    refused("needs a run's folder and a stream", str(data))
    refused("there is no stream 'Nobody'", str(data), stream="Nobody")
    refused("has no option 'colour'", str(data), stream="Typed", colour="red")
    refused("option rows is 'many'; give a whole number", str(data), stream="Typed", rows="many")
