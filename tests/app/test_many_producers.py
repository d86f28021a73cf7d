"""Many producers of one stream through real channels into a log: one order, nothing lost, late events counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.runtime.conformance.servers import Broker, nats
from unerring import ProducerConfig, Publisher, SqliteStorage, Start, schema_of, stream
from unerring.app import ledgers
from unerring.app.feeds import Feeds
from unerring.log import EventLog, Quarantine
from unerring.model import SECOND_US, SchemaError

GATEWAYS = 3
EVENTS = 400


@stream(key="machine", lateness="2s")
class Gauge:
    machine: str
    bar: float


SCHEMA = schema_of(Gauge)


def until(condition: Callable[[], bool], feeds: Feeds) -> None:
    end_s = time.monotonic() + 120
    while not condition():
        assert feeds.error is None
        assert time.monotonic() < end_s, ledgers.read(feeds._scratch) if feeds._scratch else "never came true"
        threading.Event().wait(0.01)


@contextmanager
def running(folder: Path, urls: list[str], idle_after_us: int | None = None) -> Iterator[Feeds]:
    schema = msgspec.structs.replace(SCHEMA, idle_after_us=idle_after_us)
    feeds = Feeds(EventLog(folder / "log"), {"Gauge": urls}, {"Gauge": schema}, 2, folder, start=Start.EARLIEST)
    feeds.start()
    try:
        yield feeds
    finally:
        feeds.stop()


def skewed(number: int) -> list[int]:
    """Times of a gateway: out of order by up to two seconds, and behind the others by up to two."""
    random = Random(number)
    base = 1_000 * SECOND_US + number * 700_000
    return [base + step * 20_000 - random.randrange(2 * SECOND_US) for step in range(EVENTS)]


def publish_all(publishers: list[Publisher[Gauge]]) -> None:
    for first in range(0, EVENTS, 50):
        for number, out in enumerate(publishers):
            times = skewed(number)[first : first + 50]
            out.publish_many([Gauge(f"g{number}", float(at)) for at in range(first, first + 50)], at=times)


def check_log(folder: Path, publishers: int) -> None:
    chain = EventLog(folder / "log").chain("Gauge")
    rows = chain.read(chain.base.from_us, chain.refresh()).to_pylist()
    found = [(row["time"], row["_producer"], row["_sequence"]) for row in rows]
    assert found == sorted(found)
    assert len(found) == publishers * EVENTS
    assert Quarantine(chain.store, "Gauge").events() == []
    assert sorted((row["machine"], row["time"]) for row in rows) == sorted(
        (f"g{number}", at) for number in range(publishers) for at in skewed(number)
    )


@pytest.mark.parametrize("service", ["tcp", "nats"])
def test_gateways_with_skew_and_lateness_lose_nothing(
    tmp_path: Path, service: str, server: Callable[..., Path]
) -> None:
    with ExitStack() as stack:
        urls = ["tcp://127.0.0.1:0"] * GATEWAYS
        if service == "nats":
            broker = Broker(server("nats-server"), tmp_path / "nats", nats)
            broker.start()
            stack.callback(broker.stop)
            urls = [f"nats://127.0.0.1:{broker.port}/gauges"] * GATEWAYS
        publishers = [
            stack.enter_context(Publisher(url, Gauge, name=f"gateway-{number}")) for number, url in enumerate(urls)
        ]
        heard = urls[:1] if service == "nats" else [out.address for out in publishers]
        with running(tmp_path, heard) as feeds:
            writer = feeds.writers["Gauge"]
            until(lambda: writer.counts.producers == GATEWAYS, feeds)
            publish_all(publishers)
            for out in publishers:
                out.end()
            chain = EventLog(tmp_path / "log").chain("Gauge")
            until(lambda: chain.refresh() >= 2**62, feeds)
            until(lambda: all(account.pending == 0 for account in ledgers.read(tmp_path).accounts), feeds)
        accounts = ledgers.read(tmp_path).accounts
    assert sorted(account.producer for account in accounts) == [f"gateway-{number}" for number in range(GATEWAYS)]
    assert all(account.balanced and account.delivered == EVENTS for account in accounts)
    check_log(tmp_path, GATEWAYS)


def test_a_silent_producer_is_named_and_becomes_idle_when_the_stream_says_so(tmp_path: Path) -> None:
    with Publisher("tcp://127.0.0.1:0", Gauge, name="a") as a, Publisher("tcp://127.0.0.1:0", Gauge, name="b") as b:
        log = EventLog(tmp_path / "log")
        with running(tmp_path, [a.address, b.address]) as feeds:
            until(lambda: feeds.writers["Gauge"].counts.producers == 2, feeds)
            a.publish(Gauge("a", 1.0), at=10 * SECOND_US)
            until(lambda: [wait.producer for wait in ledgers.read(tmp_path).waits] == ["b"], feeds)
            assert log.chain("Gauge").through_us < 0
        with running(tmp_path, [a.address, b.address], idle_after_us=300_000) as feeds:
            a.publish(Gauge("a", 2.0), at=20 * SECOND_US)
            until(lambda: log.chain("Gauge").refresh() >= 20 * SECOND_US, feeds)
            b.publish_many([Gauge("b", 1.0), Gauge("b", 2.0)], at=[15 * SECOND_US, 16 * SECOND_US])
            until(lambda: feeds.writers["Gauge"].counts.late == 2, feeds)
            b.publish(Gauge("b", 3.0), at=30 * SECOND_US)
            until(lambda: log.chain("Gauge").refresh() >= 30 * SECOND_US, feeds)
    assert [bad.reason for bad in Quarantine(log.store, "Gauge").events()] == ["late", "late"]
    assert log.chain("Gauge").read(0, 40 * SECOND_US).column("bar").to_pylist() == [1.0, 2.0, 3.0]


def test_a_durable_producer_that_restarts_goes_on_in_its_epoch(tmp_path: Path) -> None:
    port = 0
    times = skewed(0)
    chain = None
    for first in range(0, EVENTS, 100):
        config, storage = ProducerConfig(durable=True), SqliteStorage(tmp_path / "publisher.db")
        with (
            closing(storage),
            Publisher(f"tcp://127.0.0.1:{port}", Gauge, name="g", storage=storage, config=config) as out,
        ):
            port = int(out.address.rpartition(":")[2])
            with running(tmp_path, [out.address]) as feeds:
                chain = EventLog(tmp_path / "log").chain("Gauge")
                wanted = [at for at in times[first : first + 100] if at > out._inner.last_time]
                out.publish_many([Gauge("g0", float(at)) for at in wanted], at=wanted)
                until(lambda: ledgers.read(tmp_path).accounts[-1:] != (), feeds)
                out.watermark(max(times[: first + 100]))
                until(lambda: chain.refresh() >= max(times[: first + 100]), feeds)  # noqa: B023
    assert chain is not None
    rows = chain.read(chain.base.from_us, chain.refresh()).to_pylist()
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert len({row["_epoch"] for row in rows}) == 1
    assert Quarantine(chain.store, "Gauge").events() == []


def test_a_publisher_refuses_what_is_later_than_the_lateness_and_numbers_of_its_own() -> None:
    with Publisher("tcp://127.0.0.1:0", Gauge) as out:
        out.publish_many([Gauge("g", 1.0), Gauge("g", 2.0)], at=[10 * SECOND_US, 8 * SECOND_US])
        with pytest.raises(SchemaError, match="time 7999999 is over: 10000000 was published, and the lateness is 2 s"):
            out.publish(Gauge("g", 3.0), at=8 * SECOND_US - 1)
        with pytest.raises(SchemaError, match="are numbered by the log; leave ordinals out"):
            out.publish(Gauge("g", 3.0), at=9 * SECOND_US, ordinal=1)
        out.watermark(9 * SECOND_US)
        with pytest.raises(SchemaError, match="or a watermark said so"):
            out.publish(Gauge("g", 3.0), at=9 * SECOND_US)
        assert out.publish(Gauge("g", 3.0), at=9 * SECOND_US + 1) == 3
