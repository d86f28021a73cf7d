"""Topics read partition by partition, at librdkafka's mock cluster; and where to go on, as a decision of its own."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tests.kafka import FETCH, MockCluster, produce
from tests.ports import free_port
from tests.registry import RegistryServer
from unerring import stream
from unerring.log import Epochs, Incarnation, LocalStore, Reason
from unerring.model import ConfigError, HandshakeError, NetworkError, WorldError, schema_of
from unerring.runtime import (
    Extent,
    KafkaReader,
    PayloadDecoder,
    Topic,
    decide,
    kafka_url,
    source_of,
)

AT_MS = 1_772_352_000_500
PATIENCE = 2_000


@stream(key="machine")
class Reading:
    machine: str
    number: int


def number(message):
    return msgspec.msgpack.decode(message.payload)["number"]


def value(number):
    return json.dumps({"machine": f"press-{number % 3}", "number": number}).encode()


@pytest.fixture
def cluster():
    with MockCluster() as brokers:
        yield brokers


class Reader(KafkaReader):
    """A reader that is closed with the test."""

    def __init__(self, url):
        source = source_of(url)
        super().__init__(source, PayloadDecoder(source.payload, schema_of(Reading)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def collect(self, count):
        taken = []
        for _ in range(PATIENCE):
            taken += self.read(0.05)
            if len(taken) >= count:
                return taken
        raise AssertionError(f"{len(taken)} of {count} came; {self.waiting}")

    def until(self, condition):
        for _ in range(PATIENCE):
            assert self.read(0.05) == []
            if condition():
                return
        raise AssertionError("it never came true")


# Reading


def test_partitions_are_read_from_their_offsets_to_their_ends(cluster):
    cluster.create("readings", 2)
    sent = [{"value": value(n), "partition": n % 2, "timestamp": AT_MS + n} for n in range(20)]
    produce(cluster.address, "readings", sent)
    with Reader(cluster.url("readings")) as reader:
        topic = reader.look()
        assert topic.partitions == {0: Extent(0, 10), 1: Extent(0, 10)}
        assert topic.identity
        reader.assign({0: 4, 1: 0})
        taken = reader.collect(16)
        for partition, first in ((0, 4), (1, 0)):
            got = [message for message in taken if message.partition == partition]
            assert [message.offset for message in got] == list(range(first, 10))
            assert [number(message) for message in got] == [2 * n + partition for n in range(first, 10)]
            times = [(AT_MS + 2 * n + partition) * 1000 for n in range(first, 10)]
            assert [message.time_us for message in got] == times
        reader.until(lambda: reader.at_end == {0, 1})
        produce(cluster.address, "readings", [{"value": value(20), "partition": 0}])
        assert reader.collect(1)[0].offset == 10


def test_bad_messages_do_not_stop_the_good_ones(cluster):
    cluster.create("readings")
    large = {"message.max.bytes": 200_000_000}
    bodies = [value(0), b"{", None, b"x" * 3_000_000, b"\xec\x55\x0e127.0.0.1:7000", value(1)]
    produce(cluster.address, "readings", [{"value": body, "partition": 0} for body in bodies], **large)
    with Reader(cluster.url("readings")) as reader:
        reader.assign({0: 0})
        taken = reader.collect(len(bodies))
    assert [message.reason for message in taken] == [
        None,
        Reason.UNDECODABLE,
        Reason.UNDECODABLE,
        Reason.TOO_LARGE,
        Reason.UNDECODABLE,
        None,
    ]
    assert "tombstone" in taken[2].detail
    assert len(taken[3].raw) == 1 << 20
    assert "format=channel" in taken[4].detail


def test_while_the_registry_is_away_messages_wait_in_their_order(cluster):
    with RegistryServer() as registry:
        fields = [{"name": "machine", "type": "string"}, {"name": "number", "type": "long"}]
        schema = {"type": "record", "name": "R", "fields": fields}
        known = registry.register("readings-value", json.dumps(schema))
        registry.stop()
        cluster.create("readings")
        bodies = [b"\0" + known.to_bytes(4, "big") + b"\x02m" + bytes((2 * n,)) for n in range(5)]
        produce(cluster.address, "readings", [{"value": body, "partition": 0} for body in bodies])
        url = cluster.url("readings", f"?format=avro&registry={registry.url}&pause_us_min=1000&pause_us_max=20000")
        with Reader(url) as reader:
            reader.assign({0: 0})
            reader.until(lambda: "does not answer" in reader.waiting)
            registry.start()
            assert [number(message) for message in reader.collect(5)] == list(range(5))
            assert reader.waiting == ""


def test_paused_partitions_are_not_fetched_and_lose_nothing(cluster):
    cluster.create("readings", 2)
    with Reader(cluster.url("readings")) as reader:
        reader.assign({0: 0, 1: 0})
        reader.pause([0])
        produce(cluster.address, "readings", [{"value": value(n), "partition": n % 2} for n in range(10)])
        assert {message.partition for message in reader.collect(5)} == {1}
        reader.pause([])
        assert [message.offset for message in reader.collect(5)] == list(range(5))


def test_an_offset_that_retention_removed_is_told(cluster):
    cluster.create("readings")
    produce(cluster.address, "readings", [{"value": value(n), "partition": 0} for n in range(10)])
    cluster.delete_records("readings", 0, 6)
    with Reader(cluster.url("readings")) as reader:
        reader.assign({0: 2})
        with pytest.raises(WorldError, match="Offset out of range"):
            reader.collect(1)
        assert reader.look().partitions == {0: Extent(6, 10)}


def test_a_topic_made_anew_has_another_identity(cluster):
    cluster.create("readings")
    with Reader(cluster.url("readings")) as reader:
        first = reader.look().identity
        cluster.delete("readings")
        with pytest.raises(NetworkError, match="has no topic 'readings'; create it"):
            reader.look()
        cluster.create("readings")
        assert reader.look().identity not in ("", first)


def test_errors_of_a_broker_that_pass_are_waited_out(cluster):
    cluster.create("readings")
    produce(cluster.address, "readings", [{"value": value(n), "partition": 0} for n in range(10)])
    not_leader, unavailable = 6, 5
    with Reader(cluster.url("readings")) as reader:
        assert reader.look().partitions == {0: Extent(0, 10)}
        cluster.fail(FETCH, not_leader, not_leader, unavailable)
        reader.assign({0: 0})
        assert len(reader.collect(10)) == 10
        cluster.down()
        cluster.up()
        produce(cluster.address, "readings", [{"value": value(10), "partition": 0}])
        assert reader.collect(1)[0].offset == 10


def test_no_right_to_read_is_a_sentence(cluster):
    cluster.create("readings")
    cluster.fail_topic("readings", 29)
    with Reader(cluster.url("readings")) as reader, pytest.raises(HandshakeError, match="no right to topic 'readings'"):
        reader.look()


def test_a_broker_that_is_not_there_is_a_sentence():
    with Reader(f"kafka://127.0.0.1:{free_port()}/readings") as reader:
        with pytest.raises(NetworkError, match=r"cannot reach Kafka at 127\.0\.0\.1.*is the broker running"):
            reader.look()


# Addresses


def test_an_address_in_python_is_the_same_as_its_text():
    url = kafka_url(
        "a:1,b", "readings", format="json", time="at", unit="ms", columns={"machine": "@key", "number": "n.n"}
    )
    assert url == "kafka://a:1,b/readings?format=json&time=at&unit=ms&columns=machine:@key,number:n.n"
    source = source_of(url)
    assert source.address.brokers == "a:1,b:9092"
    assert source.payload.fields() == {"machine": "@key", "number": "n.n"}


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("kafka://x", "names no topic; write kafka://host:9092/topic"),
        ("kafka://x/", "names no topic"),
        ("kafka://x/a b", "is not a topic"),
        ("kafka://x/a?format=xml", "format 'xml' is not known"),
        ("kafka://x/a?nope=1", "no option 'nope'; use one of format"),
        ("kafka://x/a?settle_us=-1", "settle_us is -1"),
        ("kafka://x/a?settle_us=soon", "settle_us"),
        ("kafka://x/a?config=/nowhere", "cannot be read"),
    ],
)
def test_a_wrong_address_is_a_sentence(url, sentence):
    with pytest.raises(ConfigError, match=sentence):
        source_of(url)


def test_a_file_of_settings_may_not_change_what_exactly_once_needs(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("# ours\nsasl.username = me\n")
    assert source_of(f"kafka://x/a?config={file}").address.config == str(file)
    for line, sentence in [("group.id=theirs", "not yours to set"), ("nonsense", "is not name=value")]:
        file.write_text(line)
        with pytest.raises(ConfigError, match=sentence):
            source_of(f"kafka://x/a?config={file}")


# Where to go on


def topic(identity="one", **extents):
    return Topic(identity, {int(name[1:]): Extent(*extent) for name, extent in extents.items()})


FIRST = Incarnation("one", {"r/0": 3, "r/1": 0})


def test_a_first_epoch_begins_at_the_end_or_the_beginning_and_says_where():
    at = topic(p0=(3, 9), p1=(0, 4))
    assert decide("r", at, None, {}, True).starts == {0: 3, 1: 0}
    latest = decide("r", at, None, {}, False)
    assert (latest.epoch, latest.fresh, latest.incarnation.begin) == (0, True, {"r/0": 9, "r/1": 4})


def test_it_goes_on_after_what_was_taken_and_takes_new_partitions_whole():
    found = decide("r", topic(p0=(0, 9), p1=(0, 4), p2=(0, 7)), (0, FIRST), {"r/0": (0, 5), "x/0": (0, 9)}, False)
    assert (found.fresh, found.starts, found.losses) == (False, {0: 6, 1: 0, 2: 0}, ())


def test_what_retention_removed_is_lost_with_its_exact_range():
    found = decide("r", topic(p0=(8, 9), p1=(0, 4)), (0, FIRST), {"r/0": (0, 5)}, False)
    assert found.starts == {0: 8, 1: 0}
    assert [(loss.producer, loss.epoch, loss.first, loss.last) for loss in found.losses] == [("r/0", 0, 6, 7)]
    assert "offsets 6 to 7 are lost" in str(found.losses[0])


def test_a_topic_made_anew_is_another_epoch():
    found = decide("r", topic("two", p0=(0, 99)), (0, FIRST), {"r/0": (0, 5), "r/1": (0, 7)}, False)
    assert (found.epoch, found.fresh, found.starts) == (1, True, {0: 0})
    assert [(loss.producer, loss.epoch, loss.first, loss.last) for loss in found.losses] == [
        ("r/0", 0, 6, None),
        ("r/1", 0, 8, None),
    ]


def test_without_ids_a_topic_that_has_less_was_made_anew():
    without = Incarnation("", {"r/0": 0})
    assert not decide("r", topic("", p0=(0, 6)), (0, without), {"r/0": (0, 5)}, False).fresh
    assert decide("r", topic("", p0=(0, 5)), (0, without), {"r/0": (0, 5)}, False).starts == {0: 0}
    assert decide("r", topic(""), (0, without), {"r/0": (0, 5)}, False).fresh


def test_the_same_topic_with_less_in_it_was_cut_back():
    found = decide("r", topic(p0=(0, 4), p1=(0, 9)), (0, FIRST), {"r/0": (0, 5), "r/1": (0, 2)}, False)
    assert (found.epoch, found.fresh, found.starts) == (1, True, {0: 4, 1: 3})
    assert [(loss.producer, loss.first, loss.last) for loss in found.losses] == [("r/0", 6, None)]


@settings(max_examples=40)
@given(st.data())
def test_every_offset_is_taken_once_or_declared_lost(data):
    """A topic that grows, loses to retention and gets partitions, and a reader that stops anywhere."""
    offsets = st.integers(0, 30)
    low, high, taken, lost = {0: 0}, {0: 0}, {}, {}
    marks, known = {}, None
    begin = None
    for _ in range(data.draw(st.integers(1, 12))):
        for partition in list(high):
            high[partition] += data.draw(offsets)
            low[partition] = min(high[partition], low[partition] + data.draw(st.integers(0, 10)))
        if data.draw(st.booleans()) and len(high) < 4:
            low[len(high)] = high[len(high)] = 0
        now = Topic("one", {partition: Extent(low[partition], high[partition]) for partition in high})
        found = decide("r", now, known, marks, data.draw(st.booleans()))
        known = (found.epoch, found.incarnation)
        begin = begin or dict(found.incarnation.begin)
        for loss in found.losses:
            lost.setdefault(loss.producer, []).extend(range(loss.first, loss.last + 1))
            marks[loss.producer] = (0, loss.last)
        for partition, start in found.starts.items():
            until = data.draw(st.integers(start, max(start, high[partition])))
            if until > start:
                taken.setdefault(f"r/{partition}", []).extend(range(start, until))
                marks[f"r/{partition}"] = (0, until - 1)
    for producer, (_, last) in marks.items():
        whole = sorted([*taken.get(producer, ()), *lost.get(producer, ())])
        assert whole == list(range(begin.get(producer, 0), last + 1))


# Epochs


def test_two_writers_agree_on_an_epoch(tmp_path):
    store = LocalStore(tmp_path)
    one, other = Epochs(store, "Reading", "kafka-r"), Epochs(store, "Reading", "kafka-r")
    assert one.newest() is None
    mine, theirs = Incarnation("a", {"r/0": 1}), Incarnation("a", {"r/0": 7})
    assert one.begin(0, mine) == (0, mine)
    assert other.begin(0, theirs) == (0, mine)
    second = Incarnation("b", {})
    assert other.begin(1, second) == (1, second)
    assert one.newest() == (1, second)
    assert Epochs(store, "Reading", "kafka-other").newest() is None
