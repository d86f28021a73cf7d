"""Publishing and consuming as a user does it."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import unerring
from unerring.channels import ConsumerConfig, ProducerConfig, Start, producer_id
from unerring.model import CallerError, ConfigError, SchemaError
from unerring.runtime.channel.subscriber import LossWarning
from unerring.runtime.storage import SqliteStorage

EARLIEST = ConsumerConfig(start=Start.EARLIEST)


@unerring.stream(key="machine")
class Reading:
    machine: str
    celsius: float


@unerring.stream(key="machine", name="Reading")
class OtherReading:
    machine: str
    volts: str


@pytest.fixture
def out() -> Iterator[unerring.Publisher[Reading]]:
    with unerring.Publisher("tcp://127.0.0.1:0", Reading) as publisher:
        yield publisher


def test_blocking_one_event_at_a_time(out: unerring.Publisher[Reading]) -> None:
    with unerring.Subscriber(out.address, Reading, config=EARLIEST) as events:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        assert out.publish(Reading("press-1", 81.5), at=moment) == 1
        assert out.publish(Reading("press-2", 79.0), at=moment + timedelta(seconds=1)) == 2
        first, second = next(events), next(events)
    assert first.value == Reading("press-1", 81.5)
    assert (first.producer, first.sequence, first.time) == (producer_id("Reading"), 1, 1_767_225_600_000_000)
    assert second.stamp > first.stamp


def test_blocking_batches(out: unerring.Publisher[Reading]) -> None:
    with unerring.Subscriber(out.address, Reading, config=EARLIEST) as events:
        assert out.publish_many(Reading("press-1", float(n)) for n in range(5000)) == 5000
        got: list[float] = []
        for batch in events.batches():
            got.extend(event.value.celsius for event in batch)
            if len(got) == 5000:
                break
        assert got == [float(n) for n in range(5000)]
        assert events.ledger().balanced


def test_asynchronous() -> None:
    async def main() -> list[float]:
        async with (
            unerring.AsyncPublisher("inprocess://plant", Reading) as publisher,
            unerring.AsyncSubscriber("inprocess://plant", Reading, config=EARLIEST) as events,
        ):
            await publisher.publish(Reading("press-1", 1.0))
            await publisher.publish_many([Reading("press-1", 2.0), Reading("press-1", 3.0)])
            return [(await anext(events)).value.celsius for _ in range(3)]

    assert asyncio.run(main()) == [1.0, 2.0, 3.0]


def test_plain_bytes() -> None:
    with unerring.Publisher("tcp://127.0.0.1:0") as publisher:
        with unerring.Subscriber(publisher.address, config=EARLIEST) as events:
            publisher.publish(b"anything")
            assert next(events).value == b"anything"


def test_what_does_not_fit_the_stream_is_refused_at_the_source(out: unerring.Publisher[Reading]) -> None:
    with pytest.raises(SchemaError, match="carries Reading records"):
        out.publish(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="no time zone"):
        out.publish(Reading("press-1", 1.0), at=datetime(2026, 1, 1))
    out.publish(Reading("press-1", 1.0), at=1000)
    with pytest.raises(SchemaError, match="must increase"):
        out.publish(Reading("press-1", 1.0), at=999)


def test_a_stamp_far_ahead_of_the_clock_is_refused_at_the_source() -> None:
    @unerring.stream(max_ahead=timedelta(seconds=1))
    class Tick:
        n: int

    with unerring.Publisher("tcp://127.0.0.1:0", Tick) as publisher:
        with pytest.raises(SchemaError, match="ahead of this clock"):
            publisher.publish(Tick(1), at=datetime.now(UTC) + timedelta(minutes=1))
        assert publisher.publish(Tick(1)) == 1


def test_a_record_of_another_schema_goes_to_quarantine_and_the_stream_goes_on(out: unerring.Publisher[Reading]) -> None:
    with unerring.Subscriber(out.address, OtherReading, config=EARLIEST) as events:
        out.publish(Reading("press-1", 1.0))

        async def wait_for_quarantine() -> None:
            while not events._inner.quarantine:
                await asyncio.sleep(0)

        waiting = threading.Thread(target=lambda: next(events, None), daemon=True)
        waiting.start()
        from unerring.runtime.channel.blocking import _LoopThread

        _LoopThread.run(asyncio.wait_for(wait_for_quarantine(), 600))
        (raw, reason), *_ = events._inner.quarantine
        assert b"press-1" in raw
        assert "volts" in reason
        assert events.reports["channel.bad_record"] == 1
    waiting.join(600)
    assert not waiting.is_alive(), "closing ends the iteration"


def lose_some(on_loss: str) -> tuple[unerring.Publisher[Reading], unerring.Subscriber[Reading]]:
    """A consumer that comes when the first events are evicted already."""
    publisher = unerring.Publisher("tcp://127.0.0.1:0", Reading, config=ProducerConfig(buffer_count_max=2))
    publisher.open()
    for n in range(5):
        publisher.publish(Reading("press-1", float(n)))
    subscriber = unerring.Subscriber(publisher.address, Reading, on_loss=on_loss, config=EARLIEST)
    return publisher, subscriber.open()


def test_3_4_raise_is_the_default_and_names_exactly_what_is_lost() -> None:
    publisher, events = lose_some("raise")
    with pytest.raises(unerring.MessageLoss) as caught:
        next(events)
    loss = caught.value
    assert (loss.producer, loss.epoch, loss.first, loss.last) == ("Reading", publisher._inner.epoch, 1, 3)
    assert "evicted" in loss.cause
    assert next(events).value.celsius == 3.0, "whoever goes on gets what follows the loss"
    assert events.ledger().declared_lost == 3
    events.close()
    publisher.close()


def test_3_4_ignore_goes_on_and_the_ledger_knows() -> None:
    publisher, events = lose_some("ignore")
    assert next(events).value.celsius == 3.0
    assert (events.ledger().declared_lost, events.ledger().balanced) == (3, True)
    events.close()
    publisher.close()


def test_3_4_warn_warns() -> None:
    publisher, events = lose_some("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert next(events).value.celsius == 3.0
    assert [warning.category for warning in caught] == [LossWarning]
    events.close()
    publisher.close()


def test_an_unknown_reaction_is_refused() -> None:
    with pytest.raises(ValueError, match="shrug"):
        unerring.Subscriber("tcp://127.0.0.1:1", on_loss="shrug")


def test_a_consumer_goes_on_where_it_stopped(out: unerring.Publisher[Reading]) -> None:
    with unerring.Subscriber(out.address, Reading, config=EARLIEST) as events:
        out.publish_many(Reading("press-1", float(n)) for n in range(10))
        assert [next(events).value.celsius for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]
        positions = events.positions()
    with unerring.Subscriber(out.address, Reading, positions=positions) as events:
        out.publish(Reading("press-1", 10.0))
        assert next(events).value.celsius == 3.0, "asked for, but not accepted by asking for the next one"
        assert [next(events).value.celsius for _ in range(7)] == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]


def test_try_publish_says_no_while_a_registered_consumer_is_behind() -> None:
    config = ConsumerConfig(start=Start.EARLIEST, registered="writer", ack_interval_us=1000)
    with unerring.Publisher("tcp://127.0.0.1:0", Reading, config=ProducerConfig(buffer_count_max=10)) as publisher:
        with unerring.Subscriber(publisher.address, Reading, config=config) as events:
            publisher.publish(Reading("press-1", 0.0))
            next(events)
            unread = 0
            while not publisher._inner.registered:
                unread += publisher.try_publish(Reading("press-1", 0.0))
            said = [publisher.try_publish(Reading("press-1", 1.0)) for _ in range(20)]
            assert said[-1] is False
            unread += sum(said)
            while not publisher.try_publish(Reading("press-1", 2.0)):
                if unread:  # the acknowledgement may come a while after the last of them was read
                    next(events)
                    unread -= 1


def test_a_publisher_that_is_not_open_says_so() -> None:
    publisher = unerring.Publisher("tcp://127.0.0.1:0", Reading)
    with pytest.raises(CallerError, match="not open yet"):
        publisher.publish(Reading("press-1", 1.0))


def test_a_slow_application_loses_nothing_and_slows_the_producer_down() -> None:
    small = ConsumerConfig(start=Start.EARLIEST, in_hand_max=64, hold_count_max=100)
    with unerring.Publisher("tcp://127.0.0.1:0", Reading) as publisher:
        with unerring.Subscriber(publisher.address, Reading, config=small) as events:
            publishing = threading.Thread(
                target=lambda: publisher.publish_many(Reading("press-1", float(n)) for n in range(20_000))
            )
            publishing.start()
            assert [next(events).value.celsius for _ in range(20_000)] == [float(n) for n in range(20_000)]
            publishing.join()
            assert events.ledger().declared_lost == 0


def test_3_4_quit_ends_the_consumer() -> None:
    publisher, events = lose_some("quit")
    for _ in range(2):
        with pytest.raises(unerring.MessageLoss):
            next(events)
    assert events._inner._closed
    publisher.close()


def test_3_4_recover_gets_the_initial_information_and_goes_on() -> None:
    known: list[bytes] = []
    config = ProducerConfig(buffer_count_max=2)
    with unerring.Publisher("tcp://127.0.0.1:0", Reading, initial=lambda: b"the state so far", config=config) as out:
        for n in range(5):
            out.publish(Reading("press-1", float(n)))
        with unerring.Subscriber(
            out.address, Reading, on_loss="recover", on_initial=known.append, config=EARLIEST
        ) as events:
            done = threading.Event()

            def go_on_publishing() -> None:
                while not done.is_set():
                    out.publish(Reading("press-1", 5.0))

            publishing = threading.Thread(target=go_on_publishing)
            publishing.start()
            while not known:
                next(events)
            after = next(events)
            done.set()
            publishing.join()
            assert known[0] == b"the state so far"
            assert after.sequence > 5
            assert events.ledger().balanced
            assert events.ledger().declared_lost >= 3


def test_a_newcomer_starts_from_the_initial_information() -> None:
    known: list[bytes] = []
    with unerring.Publisher("tcp://127.0.0.1:0", Reading, initial=lambda: b"two so far") as out:
        out.publish(Reading("press-1", 1.0))
        out.publish(Reading("press-1", 2.0))
        initial = ConsumerConfig(start=Start.INITIAL)
        with unerring.Subscriber(out.address, Reading, on_initial=known.append, config=initial) as events:
            reading = threading.Thread(target=lambda: known.append(repr(next(events).value.celsius).encode()))
            reading.start()
            n = 2
            while reading.is_alive():
                n += 1
                out.publish(Reading("press-1", float(n)))
    assert known[0] == b"two so far"
    assert float(known[1]) >= 3.0


def test_a_durable_publisher_goes_on_after_a_restart(tmp_path: Path) -> None:
    durable = ProducerConfig(durable=True)
    storage = SqliteStorage(tmp_path / "press.sqlite")
    with unerring.Publisher("tcp://127.0.0.1:0", Reading, storage=storage, config=durable) as out:
        out.publish_many(Reading("press-1", float(n)) for n in range(10))
    storage.close()
    storage = SqliteStorage(tmp_path / "press.sqlite")
    with unerring.Publisher("tcp://127.0.0.1:0", Reading, storage=storage, config=durable) as out:
        assert out.publish(Reading("press-1", 10.0)) == 11
        with unerring.Subscriber(out.address, Reading, config=EARLIEST) as events:
            assert [next(events).value.celsius for _ in range(11)] == [float(n) for n in range(11)]
    storage.close()


def test_a_durable_publisher_needs_storage() -> None:
    with pytest.raises(ConfigError, match="needs storage="):
        unerring.Publisher("tcp://127.0.0.1:0", Reading, config=ProducerConfig(durable=True))


def test_a_publisher_brought_back_at_once_is_a_new_epoch_and_its_events_are_no_duplicates() -> None:
    with unerring.Publisher("tcp://127.0.0.1:0", Reading) as out:
        address = out.address
        with unerring.Subscriber(address, Reading, on_loss="ignore", config=EARLIEST) as events:
            out.publish(Reading("press-1", 1.0))
            first = next(events)
            positions = {first.producer: (first.epoch, first.sequence)}
    with (
        unerring.Publisher(address, Reading) as out,
        unerring.Subscriber(address, Reading, on_loss="ignore", positions=positions) as events,
    ):
        out.publish(Reading("press-1", 2.0))
        again = next(events)
    assert (again.value.celsius, again.sequence) == (2.0, 1)
    assert again.epoch > first.epoch


def test_a_time_that_needs_several_batches_is_held_between_them() -> None:
    """What is left of it may wait for room for longer than a time without events lasts."""

    async def play() -> tuple[list[bool], bool]:
        async with unerring.AsyncPublisher("tcp://127.0.0.1:0", Reading) as out:
            machine, ready = out._running(), out._outlet.ready
            held: list[bool] = []

            async def waiting() -> None:
                held.append(machine.holds_time)
                await ready()

            out._outlet.ready = waiting  # type: ignore[method-assign]
            await out.publish_many([Reading("m", 1.0)] * 40_001, at=[7] * 40_000 + [8])
            return held, machine.holds_time

    held, after = asyncio.run(play())
    assert len(held) > 2
    assert held == [False, *[True] * (len(held) - 1)]
    assert not after
