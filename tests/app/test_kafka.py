"""Topics into the log: every offset once, whatever happens to the topic, the registry or us."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from tests.kafka import (
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    MockCluster,
    produce,
)
from tests.registry import RegistryServer
from unerring import App, rule, step, stream
from unerring.app import ledgers
from unerring.app.feeds import Feeds, check_channels
from unerring.app.parts import Parts
from unerring.channels import Start
from unerring.log import EventLog, Quarantine, WriterConfig
from unerring.model import ConfigError, HandshakeError, schema_of
from unerring.runtime import without_secrets

AT_MS = 1_772_352_000_000
PATIENCE_S = 300
QUICK = "look_us=50000&settle_us=20000&pause_us_min=1000&pause_us_max=20000"


@stream(key="machine", lateness="1h")
class Reading:
    machine: str
    number: int


@stream(key="machine", lateness="1h", idle_after="1s")
class Patchy:
    machine: str
    number: int


def message(number, partition=0):
    return {
        "value": json.dumps({"machine": f"press-{number % 3}", "number": number}).encode(),
        "partition": partition,
        "timestamp": AT_MS + number,
    }


def last(partition):
    """An event so much later that all before it are sealed."""
    return {**message(999_999, partition), "timestamp": AT_MS + 100_000_000}


@pytest.fixture
def cluster():
    with MockCluster() as brokers:
        yield brokers


class Run:
    """A log that a topic feeds; it may be stopped and started again."""

    def __init__(self, folder, url, declared=Reading, start=Start.EARLIEST, config=None):
        self.folder, self.url, self.start, self.config = folder, url, start, config
        self.schema = schema_of(declared)
        self.said = []

    @contextmanager
    def running(self):
        self.parts = Parts(say=self.said.append)
        feeds = Feeds(
            EventLog(self.folder / "log"),
            {self.schema.name: (self.url,)},
            {self.schema.name: self.schema},
            2,
            self.folder,
            self.config or WriterConfig(age_us_max=5_000),
            self.start,
            self.parts,
        )
        feeds.start()
        try:
            yield self
        finally:
            feeds.stop()

    def table(self):
        chain = EventLog(self.folder / "log").chain(self.schema.name)
        chain.refresh()
        return chain.read(chain.base.from_us, chain.through_us).to_pylist()

    def numbers(self):
        return [row["number"] for row in self.table()]

    def taken(self):
        return sorted((row["_producer"], row["_epoch"], row["_sequence"]) for row in self.table())

    def bad(self):
        return Quarantine(EventLog(self.folder / "log").store, self.schema.name).events()

    def until(self, condition, why=""):
        tick, deadline = threading.Event(), PATIENCE_S
        while deadline > 0:
            if self.parts.error is not None:
                raise self.parts.error
            if condition():
                return
            tick.wait(0.02)
            deadline -= 0.02
        raise AssertionError(f"it never came true: {why}; {self.said[-3:]}")

    def there(self):
        return EventLog(self.folder / "log").declaration(self.schema.name) is not None

    def holds(self, count):
        self.until(lambda: self.there() and len(self.table()) >= count, f"{count} events")
        assert len(self.table()) == count


def test_partitions_are_merged_by_time_and_every_offset_is_taken_once(cluster, tmp_path):
    cluster.create("readings", 3)
    produce(cluster.address, "readings", [message(n, n % 3) for n in range(300)])
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"))
    for first in (300, 400, 500):  # started three times, with more in the topic each time
        with run.running():
            produce(cluster.address, "readings", [message(n, n % 3) for n in range(first, first + 100)])
            run.until(lambda first=first: run.parts.error is None and caught_up(run, first + 100))
    with run.running():
        produce(cluster.address, "readings", [last(partition) for partition in range(3)])
        run.holds(600)
    assert run.numbers() == list(range(600))
    assert run.taken() == sorted((f"readings/{n % 3}", 0, n // 3) for n in range(600))
    assert run.bad() == []


def caught_up(run, count):
    """Whether the ledger says that so many offsets are known to it."""
    accounts = ledgers.read(run.folder).accounts
    return sum(account.published for account in accounts) >= count


def test_the_log_of_a_stream_begins_at_the_topics_end_and_never_moves_that_cut(cluster, tmp_path):
    cluster.create("readings")
    produce(cluster.address, "readings", [message(n) for n in range(10)])
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"), start=Start.LATEST)
    with run.running():
        run.until(lambda: caught_up(run, 0) and ledgers.read(run.folder).accounts)
        assert ledgers.read(run.folder).accounts[0].cut == 10
    produce(cluster.address, "readings", [message(n) for n in range(10, 20)])  # while nobody is there
    with run.running():
        produce(cluster.address, "readings", [last(0)])
        run.holds(10)
    assert run.numbers() == list(range(10, 20))


def test_bad_messages_are_in_quarantine_and_the_stream_goes_on(cluster, tmp_path):
    cluster.create("readings")
    bodies = [b"{", None, b"x" * 2_000_000, b'{"machine": "m", "number": "many"}', b'{"machine": "m"}']
    bad = [{"value": body, "partition": 0, "timestamp": AT_MS} for body in bodies]
    large = {"message.max.bytes": 100_000_000}
    produce(cluster.address, "readings", [message(0), *bad, message(1), last(0)], **large)
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"))
    with run.running():
        run.holds(2)
    assert [(event.producer, event.sequence, event.reason.value) for event in run.bad()] == [
        ("readings/0", 1, "undecodable"),
        ("readings/0", 2, "undecodable"),
        ("readings/0", 3, "too large"),
        ("readings/0", 4, "schema"),
        ("readings/0", 5, "schema"),
    ]
    assert len(run.bad()[2].raw) == 1 << 20


def test_an_unknown_schema_is_quarantined_and_a_registry_that_is_down_is_waited_for(cluster, tmp_path):
    cluster.create("readings")
    fields = [{"name": "machine", "type": "string"}, {"name": "number", "type": "long"}]
    schema = {"type": "record", "name": "R", "fields": fields}
    with RegistryServer() as registry:
        known = registry.register("readings-value", json.dumps(schema))
        registry.stop()
        body = [b"\0" + number.to_bytes(4, "big") + b"\x02m\x0e" for number in (known, 77, known)]
        times = [AT_MS, AT_MS + 1, AT_MS + 100_000_000]
        sent = [{"value": one, "partition": 0, "timestamp": at} for one, at in zip(body, times, strict=True)]
        produce(cluster.address, "readings", sent)
        run = Run(tmp_path, cluster.url("readings", f"?{QUICK}&format=avro&registry={registry.url}"))
        with run.running():
            run.until(lambda: any("does not answer" in text for text in run.said))
            assert run.parts._parts["channel Reading"].state == "waiting"
            registry.start()
            run.holds(1)
            run.until(lambda: run.parts._parts["channel Reading"].state == "running")
    assert [(event.sequence, event.detail.partition(" is not")[0]) for event in run.bad()] == [(1, "schema id 77")]


def test_a_topic_made_anew_with_more_partitions_is_another_epoch(cluster, tmp_path):
    cluster.create("readings", 1)
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"), declared=Patchy)
    with run.running():
        produce(cluster.address, "readings", [message(n) for n in range(10)])
        run.until(lambda: caught_up(run, 10))
        run.until(lambda: run.there() and len(run.table()) == 10)
        cluster.delete("readings")
        run.until(lambda: any("has no topic 'readings'" in text for text in run.said))
        cluster.create("readings", 2)
        produce(
            cluster.address, "readings", [{**message(n, n % 2), "timestamp": AT_MS + 5_000_000 + n} for n in range(6)]
        )
        run.holds(16)
    assert Counter((producer, epoch) for producer, epoch, _ in run.taken()) == {
        ("readings/0", 0): 10,
        ("readings/0", 1): 3,
        ("readings/1", 1): 3,
    }
    assert [(event.producer, event.epoch, event.sequence, event.reason.value) for event in run.bad()] == [
        ("readings/0", 0, 10, "lost")
    ]
    assert "offsets 10 on are lost: the topic was deleted" in run.bad()[0].detail


def test_what_retention_removed_is_declared_with_its_exact_range(cluster, tmp_path):
    cluster.create("readings")
    produce(cluster.address, "readings", [message(n) for n in range(10)])
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"), declared=Patchy)
    with run.running():
        run.holds(10)
    produce(cluster.address, "readings", [message(n) for n in range(10, 30)])
    cluster.delete_records("readings", 0, 17)
    with run.running():
        run.holds(23)
        run.until(lambda: ledgers.read(run.folder).accounts[0].declared_lost == 7)
    assert run.numbers() == [*range(10), *range(17, 30)]
    assert [(event.producer, event.sequence, event.reason.value) for event in run.bad()] == [("readings/0", 16, "lost")]
    assert "readings/0: offsets 10 to 16 are lost" in run.bad()[0].detail


def test_brokers_that_fail_and_come_back_cost_nothing(cluster, tmp_path):
    cluster.create("readings", 2)
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"), declared=Patchy)
    with run.running():
        produce(cluster.address, "readings", [message(n, n % 2) for n in range(50)])
        cluster.fail(FETCH, 6, 5, 7, 56)
        run.until(lambda: caught_up(run, 50))
        cluster.down()
        run.until(lambda: any("cannot reach Kafka" in text for text in run.said))
        cluster.up()
        produce(cluster.address, "readings", [message(n, n % 2) for n in range(50, 100)])
        run.holds(100)
    assert run.numbers() == list(range(100))


def test_two_writers_of_one_log_take_every_offset_once_together(cluster, tmp_path):
    cluster.create("readings", 2)
    one, other = (Run(tmp_path, cluster.url("readings", f"?{QUICK}")) for _ in range(2))
    with one.running(), other.running():
        for first in range(0, 400, 100):
            sent = [{**message(n, n % 2), "timestamp": AT_MS + 20_000 * n} for n in range(first, first + 100)]
            produce(cluster.address, "readings", sent)
            one.until(lambda first=first: one.there() and len(one.table()) >= first - 190)
        produce(cluster.address, "readings", [last(partition) for partition in range(2)])
        one.holds(400)
    assert one.taken() == sorted((f"readings/{n % 2}", 0, n // 2) for n in range(400))
    assert one.bad() == []


def test_a_password_is_not_shown():
    url = "kafka://x/a?format=avro&registry=https://me:secret@host/"
    assert without_secrets(url) == "kafka://x/a?format=avro&registry=https://…@host/"
    assert without_secrets("tcp://127.0.0.1:7000?direct=a:1") == "tcp://127.0.0.1:7000?direct=a:1"


def test_consumer_groups_are_left_alone(cluster, tmp_path):
    cluster.create("readings", 2)
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"), declared=Patchy)
    cluster.watch()
    for first in (0, 20):
        with run.running():
            produce(cluster.address, "readings", [message(n, n % 2) for n in range(first, first + 20)])
            run.holds(first + 20)
    asked = cluster.asked()
    assert FETCH in asked
    assert not asked & {OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP}


def test_a_partition_that_is_ahead_is_not_fetched_while_much_is_held(cluster, tmp_path):
    """One partition holds everybody back: what waits for it stays bounded, at the broker."""
    cluster.create("readings", 2)
    produce(cluster.address, "readings", [message(n, 0) for n in range(2_000)])
    config = WriterConfig(age_us_max=5_000, rows_per_segment=400, rows_held_max=400)
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}&together_max=200"), config=config)
    with run.running():
        run.until(lambda: ledgers.read(run.folder).waits)
        run.until(lambda: ledgers.read(run.folder).waits[0].held >= 200)
        assert ledgers.read(run.folder).waits[0].producer == "readings/1"
        # Long enough for all 2000, were they fetched: the ledger is written twice a second.
        at_us = ledgers.read(run.folder).at_us
        run.until(lambda: ledgers.read(run.folder).at_us > at_us + 1_000_000)
        assert ledgers.read(run.folder).waits[0].held <= 600
        produce(cluster.address, "readings", [last(1), last(0)])
        run.holds(2_000)
    assert run.numbers() == list(range(2_000))


def test_no_right_to_read_ends_the_run_with_a_sentence(cluster, tmp_path):
    cluster.create("readings")
    cluster.fail_topic("readings", 29)
    run = Run(tmp_path, cluster.url("readings", f"?{QUICK}"))
    with run.running(), pytest.raises(HandshakeError, match="gives us no right to topic 'readings'"):
        run.until(lambda: False)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("kafka://x", "the channel of Reading: 'kafka://x' names no topic; write kafka://host:9092/topic"),
        ("kafka://x/a?format=avro", "needs the schemas"),
        ("kafka://x/a?columns=nope:a", "no column 'nope'"),
        ("kafka://x/a?format=channel&time=at", "no option 'time'"),
    ],
)
def test_a_wrong_address_is_a_sentence_before_anything_starts(url, sentence):
    hot = rule("hot").pattern(step("a", Reading, Reading.number > 5)).emit()
    with pytest.raises(ConfigError, match=sentence):
        check_channels(App("plant", rules=[hot], channels={Reading: url}))
