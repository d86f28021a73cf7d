"""Whole exchanges of a relay, word for word: what it sends upwards and downwards for each message, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from unerring.channels import (
    Ack,
    ConsumerConfig,
    Evicted,
    Frames,
    Gone,
    Heartbeat,
    Nack,
    ProducerConfig,
    Relay,
    Stale,
    Start,
)
from unerring.channels.messages import Initial, Newcomer, Peer
from unerring.model import SECOND_US, Broadcast, Effects, Report, Send, SetTimer

PRESS = 7
EARLIEST = ConsumerConfig(start=Start.EARLIEST)


def events(first: int, last: int, payload: bytes = b"x", epoch: int = 1, signature: bytes = b"") -> Frames:
    payloads = [payload] * (last - first + 1)
    times = list(range(first, last + 1))
    return Frames(PRESS, epoch, first, times, payloads, None, len(payload) * len(payloads), signature)


def beat(last: int, epoch: int = 1, **more: Any) -> Heartbeat:
    return Heartbeat(PRESS, epoch, last, "press", "press", **more)


def relay_of(config: ProducerConfig | None = None, upstream: ConsumerConfig = EARLIEST) -> Relay:
    return Relay("relay", random.Random(1), config, upstream)


def sends(effects: Effects) -> list[tuple[str, Any]]:
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def pushed(effects: Effects) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, Broadcast)]


def asked(relay: Relay, *ranges: tuple[int, int], by: str = "till", now: int = 50, **more: Any) -> list[Any]:
    return sends(relay.handle(by, Nack(PRESS, 1, ranges, **more), now))


def relay_with_a_loss() -> Relay:
    """It lost 2 and 3, passed on 1 and 4 to 8, and keeps the last three of them."""
    relay = relay_of(ProducerConfig(buffer_count_max=3))
    relay.handle("press", beat(8), 10)
    relay.handle("press", events(1, 1), 11)
    relay.handle("press", Evicted(PRESS, 1, 4), 12)
    for n in range(4, 9):
        assert pushed(relay.handle("press", events(n, n), 13)) == [events(n, n)]
    return relay


def test_a_request_gets_what_is_kept_what_is_gone_and_the_rest_is_asked_for_upstream() -> None:
    relay = relay_with_a_loss()
    assert asked(relay, (1, 4), (6, 7)) == [
        ("till", Frames(PRESS, 1, 6, [6, 7], [b"x", b"x"], None, 2)),
        ("till", Gone(PRESS, 1, ((2, 3),))),
        ("press", Nack(PRESS, 1, ((1, 4),))),
    ]
    assert asked(relay, (6, 99)) == [("till", Frames(PRESS, 1, 6, [6, 7, 8], [b"x"] * 3, None, 3))]
    assert asked(relay, (5, 6)) == [("till", events(6, 6)), ("press", Nack(PRESS, 1, ((5, 5),)))]


@pytest.mark.parametrize(
    ("first", "last", "gone"),
    [(1, 1, None), (1, 2, (2, 2)), (2, 2, (2, 2)), (3, 3, (3, 3)), (3, 5, (3, 3)), (1, 5, (2, 3)), (4, 4, None)],
)
def test_of_what_is_lost_to_it_exactly_what_was_asked_for_is_told(
    first: int, last: int, gone: tuple[int, int] | None
) -> None:
    told = [message.ranges for to, message in asked(relay_with_a_loss(), (first, last)) if isinstance(message, Gone)]
    assert told == ([] if gone is None else [(gone,)])


def test_an_answer_from_upstream_goes_to_all_who_wait_for_it_and_only_once() -> None:
    relay = relay_with_a_loss()
    for consumer in ("till", "booth", "till"):
        asked(relay, (1, 4), by=consumer)
    assert sends(relay.handle("press", events(1, 2), 60)) == [("till", events(1, 2)), ("booth", events(1, 2))]
    assert sends(relay.handle("press", events(1, 2), 60)) == [], "what is left to come is 3 and 4"
    rest = [(3, 4), (3, 4)]
    served = sends(relay.handle("press", events(3, 6), 61))
    assert [(to, (part.first, part.last)) for to, part in served] == list(zip(("till", "booth"), rest, strict=True))
    assert sends(relay.handle("press", events(3, 6), 62)) == []
    asked(relay, (1, 2))
    asked(relay, (1, 1), by="booth")
    assert sends(relay.handle("press", events(5, 5, epoch=2), 63)) == [], "another epoch answers nobody"
    gone = Evicted(PRESS, 1, 4)
    assert sends(relay.handle("press", gone, 64)) == [("till", gone), ("booth", gone)]
    assert sends(relay.handle("press", gone, 65)) == []


def test_without_an_upstream_what_is_below_the_cache_is_evicted() -> None:
    relay = relay_of(ProducerConfig(buffer_count_max=2))
    for n in range(1, 6):
        relay.handle("press", events(n, n), 10)
    assert asked(relay, (1, 4)) == [("till", events(4, 4)), ("till", Evicted(PRESS, 1, 4))]
    assert asked(relay, (4, 4)) == [("till", events(4, 4))]
    large = relay_of(ProducerConfig(buffer_bytes_max=1024))
    for n in range(1, 4):
        large.handle("press", events(n, n, b"x" * 512), 10)
    assert [message.first for _, message in asked(large, (2, 3))] == [2], "as many bytes as the bound are kept"


def test_an_answer_weighs_what_the_bounds_and_the_asking_allow() -> None:
    def relay() -> Relay:
        made = relay_of(ProducerConfig(replay_bytes_max=1024, repair_bytes_per_s=2048))
        for n in range(1, 7):
            made.handle("press", events(n, n, b"x" * 400), 10)  # 420 bytes with what an event takes besides
        return made

    def last(answers: list[Any]) -> int:
        ((_, frames),) = answers
        assert frames.first == 1
        return frames.last  # type: ignore[no-any-return]

    assert last(asked(relay(), (1, 6))) == 3, "replay_bytes_max is reached with the third"
    assert last(asked(relay(), (1, 6), bytes_max=420)) == 1
    assert last(asked(relay(), (1, 6), bytes_max=421)) == 2
    tired = relay()
    assert [last(asked(tired, (1, 6))) for _ in range(3)] == [3, 2, 1], "a second's repairs are used up; then one each"
    assert last(asked(tired, (1, 6), now=50 + SECOND_US // 4)) == 2, "512 bytes later"
    whole = asked(relay(), (2, 3), signed=True)
    assert [(to, frames.first, frames.last) for to, frames in whole] == [("till", 2, 2), ("till", 3, 3)]


def test_its_heartbeat_names_what_was_passed_on_and_whom_to_ask() -> None:
    relay = relay_of(ProducerConfig(peers_max=2))
    news = beat(5, 3, previous_epoch=2, previous_last=9, key=b"k" * 32, peers=("a", "till", "b"))
    effects = relay.handle("press", news, 10)
    assert sends(effects) == [("press", Peer(PRESS, 3, "relay"))]
    timer = next(effect for effect in effects if isinstance(effect, SetTimer) and effect.name.startswith("beat/"))
    assert timer == SetTimer(f"beat/{PRESS}", 10 + ProducerConfig().heartbeat_idle_us)
    relay.handle("till", Peer(PRESS, 3, "till"), 11)
    relay.handle("press", events(1, 2, epoch=3), 12)
    effects = relay.timer(timer.name, timer.at_us)
    assert pushed(effects) == [], "the burst goes on"
    (again,) = effects
    assert isinstance(again, SetTimer)
    assert pushed(relay.timer(timer.name, again.at_us)) == [
        Heartbeat(PRESS, 3, 2, "press", "relay", 2, 9, b"k" * 32, ("till", "a", "b"))
    ]


def test_a_relay_that_begins_now_says_so() -> None:
    relay = relay_of(upstream=ConsumerConfig())
    relay.handle("press", beat(5), 10)
    ((to, answer),) = sends(relay.handle("till", Nack(PRESS, 1, ()), 20))
    assert (to, answer) == ("till", Heartbeat(PRESS, 1, 5, "press", "relay"))
    late = relay_of(upstream=ConsumerConfig())
    effects = late.handle("press", beat(5, watermark_us=50), 10)
    assert pushed(effects) == [Heartbeat(PRESS, 1, 5, "press", "relay", watermark_us=50)]
    assert pushed(late.handle("press", beat(5, watermark_us=50), 11)) == [], "a watermark is told once"
    assert pushed(late.handle("press", events(6, 6), 12)) == [events(6, 6)]


def test_newcomers_each_get_the_initial_information_once() -> None:
    relay = relay_of()
    newcomer = Newcomer(PRESS, 1)
    assert relay.handle("till", newcomer, 5) == [], "a producer that it does not know"
    relay.handle("press", events(1, 1), 6)
    assert relay.handle("till", newcomer, 7) == [], "nor where it is"
    relay.handle("press", beat(1), 8)
    for consumer in ("till", "booth", "till"):
        assert relay.handle(consumer, newcomer, 9) == [Send("press", newcomer)]
    initial = Initial(PRESS, 1, 1, b"state", "press", "press")
    handed_on = Initial(PRESS, 1, 1, b"state", "press", "relay")
    assert relay.handle("press", initial, 10) == [Send("till", handed_on), Send("booth", handed_on)]
    assert relay.handle("press", initial, 11) == []
    assert relay.handle("press", Initial(8, 1, 1, b"state", "other", "other"), 12) == []


@pytest.mark.parametrize("message", [Ack(PRESS, 1, "log", 3), Stale(PRESS, 1, 2)])
def test_what_is_for_the_producer_goes_up_once_it_is_known_where(message: Any) -> None:
    relay = relay_of()
    assert relay.handle("till", message, 5) == []
    relay.handle("press", events(1, 1), 6)
    assert relay.handle("till", message, 7) == []
    relay.handle("proxy", beat(1), 8)
    assert relay.handle("till", message, 9) == [Send("press", message)]


def test_a_request_of_another_epoch_gets_the_heartbeat_of_this_one() -> None:
    relay = relay_of()
    (report,) = relay.handle("till", Nack(PRESS, 1, ((1, 1),)), 5)
    assert isinstance(report, Report)
    assert report.what == "channel.not_mine"
    relay.handle("press", beat(0, 4), 6)
    present = Heartbeat(PRESS, 4, 0, "press", "relay")
    for request in (Nack(PRESS, 5, ((1, 1),)), Nack(PRESS, 4, ())):
        assert relay.handle("till", request, 7) == [Send("till", present)]
    *_, answer = relay.handle("till", Nack(PRESS, 3, ((1, 1),)), 7)
    assert answer == Send("till", present)


def test_a_relay_without_overhead_sends_events_alone() -> None:
    relay = relay_of(ProducerConfig(strict_zero_overhead=True))
    assert relay.handle("press", events(1, 1), 5) == [Broadcast(events(1, 1))]
    assert relay.handle("press", beat(1), 6) == []


def test_where_an_epoch_ended_that_nobody_knows_nothing_is_gone() -> None:
    relay = relay_of()
    relay.handle("press", beat(2), 5)
    relay.handle("press", events(1, 2), 6)
    relay.handle("press", beat(0, 2, previous_epoch=1), 7)
    relay.handle("press", events(1, 1, epoch=2), 8)
    assert sends(relay.handle("till", Nack(PRESS, 2, ((1, 9),)), 9)) == [("till", events(1, 1, epoch=2))]
