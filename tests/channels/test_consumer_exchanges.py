"""Whole exchanges of a consumer, effect for effect: what it asks, when, and what it hands over, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring.channels import Ack, Consumer, ConsumerConfig, Evicted, Frames, Gone, Heartbeat, Loss, Nack, Stale, Start
from unerring.channels.messages import SEQUENCE_MAX, Initial, Newcomer, Peer
from unerring.model import CancelTimer, Deliver, Effects, Report, Send, SetTimer

PRESS = 7
DELAY = 2_000


class Even:
    """Entropy that makes every pause as long as it is meant to be on average."""

    def random(self) -> float:
        return 0.5


def consumer_of(**config: Any) -> Consumer:
    settings: dict[str, Any] = {"start": Start.EARLIEST, "nack_delay_us": DELAY, "nack_attempts_max": 3}
    return Consumer(Even(), ConsumerConfig(**{**settings, **config}))  # type: ignore[arg-type]


def events(first: int, last: int, epoch: int = 1, producer: int = PRESS, size: int = 1) -> Frames:
    count = last - first + 1
    return Frames(producer, epoch, first, list(range(first, last + 1)), [b"x" * size] * count, None, count * size)


def beat(last: int, epoch: int = 1, **more: Any) -> Heartbeat:
    return Heartbeat(PRESS, epoch, last, "press", "press", **more)


def nack(now: int, pause: int = DELAY) -> SetTimer:
    return SetTimer(f"nack/{PRESS}", now + pause)


def due(consumer: Consumer, now: int) -> Effects:
    return consumer.timer(f"nack/{PRESS}", now)


def request(*ranges: tuple[int, int], epoch: int = 1) -> Send:
    return Send("press", Nack(PRESS, epoch, ranges, bytes_max=ConsumerConfig().answer_bytes_max))


CANCEL = CancelTimer(f"nack/{PRESS}")


def test_a_gap_is_asked_for_with_longer_and_longer_pauses_and_then_declared() -> None:
    consumer = consumer_of(nack_attempts_max=6, nack_pause_us_max=16_000)
    assert consumer.handle("press", events(3, 4), 100) == [nack(100)]
    for pause in (4_000, 8_000, 16_000, 16_000, 16_000, 16_000):
        assert due(consumer, 500) == [request((1, 2)), nack(500, pause)]
    loss = Loss(PRESS, 1, 1, 2, "the producer did not answer")
    assert due(consumer, 900) == [Deliver(loss), Deliver(events(3, 4))]
    assert consumer.accepted(PRESS, 1, 2, 900) == []
    assert consumer.handle("press", events(5, 5), 901) == [Deliver(events(5, 5))]


def test_without_a_delay_pauses_still_grow() -> None:
    consumer = consumer_of(nack_delay_us=0)
    assert consumer.handle("press", events(2, 2), 100) == [nack(100, 0)]
    assert due(consumer, 100) == [request((1, 1)), nack(100, 2_000)]
    assert due(consumer, 100) == [request((1, 1)), nack(100, 4_000)]


def test_pauses_are_jittered_around_what_they_are_meant_to_be() -> None:
    class Low:
        def random(self) -> float:
            return 0.0

    consumer = Consumer(Low(), ConsumerConfig(start=Start.EARLIEST, nack_delay_us=DELAY))  # type: ignore[arg-type]
    assert consumer.handle("press", events(2, 2), 100) == [nack(100, DELAY // 2)]
    assert due(consumer, 200) == [request((1, 1)), nack(200, DELAY)]


def test_any_repair_of_the_lowest_gap_starts_the_attempts_anew() -> None:
    consumer = consumer_of()
    consumer.handle("press", events(4, 4), 0)
    assert [due(consumer, 0)[0] for _ in range(2)] == [request((1, 3))] * 2
    assert consumer.handle("press", events(1, 1), 0) == [Deliver(events(1, 1))]
    assert [due(consumer, 0) for _ in range(3)] == [[request((2, 3)), nack(0, DELAY << n)] for n in (1, 2, 3)]
    assert due(consumer, 0)[0] == Deliver(Loss(PRESS, 1, 2, 3, "the producer did not answer"))


def test_a_gap_that_closes_by_itself_is_not_asked_for() -> None:
    consumer = consumer_of()
    consumer.handle("press", events(1, 1), 0)
    assert consumer.handle("press", events(3, 3), 10) == [nack(10)]
    assert consumer.handle("press", events(2, 2), 11) == [Deliver(events(2, 2)), Deliver(events(3, 3)), CANCEL]
    assert consumer.handle("press", beat(4), 12) == [nack(12)]
    assert consumer.handle("press", beat(3), 13) == [CANCEL], "it was a word that nobody can hold to"


def test_a_full_hold_back_asks_for_the_lowest_gap_alone() -> None:
    consumer = consumer_of(hold_count_max=2)
    consumer.handle("press", events(3, 3), 0)
    consumer.handle("press", events(5, 5), 0)
    assert consumer.handle("press", events(6, 8), 0) == [Report("channel.hold_full", count=3)]
    assert due(consumer, 0) == [request((1, 1)), nack(0, 4_000)], "room for one: one"
    answer = events(1, 2)
    assert consumer.handle("press", answer, 0) == [Deliver(answer), Deliver(events(3, 3))]
    assert due(consumer, 0) == [request((4, 4)), nack(0, 4_000)]


@pytest.mark.parametrize(("size", "held"), [(511, True), (512, False)])
def test_hold_back_is_bounded_in_bytes(size: int, held: bool) -> None:
    consumer = consumer_of(hold_bytes_max=1024)
    consumer.handle("press", events(3, 4, size=size), 0)
    refused = [Report("channel.hold_full", count=1)]
    assert consumer.handle("press", events(6, 6), 0) == ([] if held else refused)
    assert due(consumer, 0)[0] == (request((1, 2), (5, 5)) if held else request((1, 2)))


def test_a_request_names_as_many_ranges_and_events_as_are_of_use() -> None:
    consumer = consumer_of(nack_ranges_max=2, hold_count_max=10)
    for first in (4, 6, 8):
        consumer.handle("press", events(first, first), 0)
    assert due(consumer, 0)[0] == request((1, 3), (5, 5))
    roomy = consumer_of(hold_count_max=6)
    for first in (4, 9):
        roomy.handle("press", events(first, first), 0)
    assert due(roomy, 0)[0] == request((1, 3), (5, 5)), "four more have room"


def test_what_waits_for_the_application_is_not_asked_for_again() -> None:
    consumer = consumer_of(in_hand_max=1, hold_count_max=2)
    assert consumer.handle("press", events(1, 1), 0) == [Deliver(events(1, 1))]
    assert consumer.handle("press", events(2, 2), 0) == []
    assert consumer.handle("press", events(3, 3), 0) == []
    assert consumer.handle("press", events(4, 4), 0) == [Report("channel.hold_full", count=1)]
    assert consumer.handle("press", beat(4), 0) == [], "there is no room for it"
    assert consumer.accepted(PRESS, 1, 1, 5) == [Deliver(events(2, 2)), nack(5)]
    assert consumer.ledger().published == 4
    assert due(consumer, 6) == [request((4, 4)), nack(6, 4_000)]
    assert consumer.accepted(PRESS, 1, 2, 7) == [Deliver(events(3, 3))]
    assert consumer.handle("press", events(4, 4), 8) == [CANCEL]
    assert consumer.accepted(PRESS, 1, 3, 9) == [Deliver(events(4, 4))]
    assert consumer.positions() == {PRESS: (1, 3)}
    assert (consumer.position(PRESS), consumer.position(8), consumer.met()) == ((1, 3), None, [PRESS])


def test_each_of_many_producers_has_its_part_of_what_the_application_holds() -> None:
    def most(producers: int, in_hand_max: int) -> int:
        """Events of the last producer that are handed over while none is accepted."""
        consumer = consumer_of(in_hand_max=in_hand_max)
        for producer in range(1, producers + 1):
            consumer.handle("x", events(1, 1, producer=producer), 0)
        for first in range(2, 2_502, 100):
            consumer.handle("x", events(first, first + 99, producer=producers), 0)
        return sum(
            account.known_last - account.cut + 1 - kept
            for account, kept in zip(consumer.ledger().accounts[-1:], [_kept(consumer, producers)], strict=True)
        )

    assert [most(producers, 2_000) for producers in (1, 4, 5, 8, 9)] == [1_901, 1_901, 1_501, 901, 901]
    assert [most(producers, 500) for producers in (1, 9)] == [401, 401]


def _kept(consumer: Consumer, producer: int) -> int:
    return consumer._feeds[producer].kept_count


# --- epochs


def test_a_new_epoch_waits_until_the_end_of_the_old_one_is_known_or_nobody_answers() -> None:
    consumer = consumer_of()
    consumer.handle("press", events(1, 2), 0)
    consumer.accepted(PRESS, 1, 2, 0)
    assert consumer.handle("press", events(1, 1, epoch=5), 10) == [nack(10)]
    assert consumer.handle("press", events(1, 1, epoch=4), 11) == [], "the highest counts"
    for pause in (4_000, 8_000, 16_000):
        assert due(consumer, 20) == [Send("press", Nack(PRESS, 5, ())), nack(20, pause)]
    assert due(consumer, 30) == [Deliver(Loss(PRESS, 1, 3, None, "the producer restarted without its buffer"))]
    assert consumer.position(PRESS) == (1, 2)
    assert consumer.accepted(PRESS, 1, 3, 31) == []
    assert consumer.position(PRESS) == (5, 0)
    assert consumer.handle("zombie", events(3, 3), 40)[0] == Send("zombie", Stale(PRESS, 1, 5))
    assert consumer.handle("zombie", beat(3), 40) == [Send("zombie", Stale(PRESS, 1, 5))]
    assert consumer.handle("press", events(1, 1, epoch=5), 41) == [Deliver(events(1, 1, epoch=5))]


@pytest.mark.parametrize(("ended", "lost"), [(2, []), (4, [(3, 4)]), (None, [(3, None)])])
def test_a_heartbeat_ends_the_epoch_before_where_its_producer_says(
    ended: int | None, lost: list[tuple[int, int | None]]
) -> None:
    consumer = consumer_of()
    consumer.handle("press", events(1, 2), 0)
    effects = consumer.handle("press", beat(1, 2, previous_epoch=1, previous_last=ended), 10)
    told = [effect.what for effect in effects if isinstance(effect, Deliver)]
    assert [(loss.epoch, loss.first, loss.last) for loss in told] == [(1, *each) for each in lost]
    assert effects[len(told) :] == [nack(10)]
    assert due(consumer, 20)[0] == request((1, 1), epoch=2)
    other = consumer_of()
    other.handle("press", events(1, 2), 0)
    effects = other.handle("press", beat(0, 3, previous_epoch=2, previous_last=2), 10)
    assert effects == [Deliver(Loss(PRESS, 1, 3, None, "the producer restarted without its buffer"))]


# --- what is declared


def test_what_is_evicted_is_lost_as_far_as_it_is_known_to_exist() -> None:
    consumer = consumer_of()
    consumer.handle("press", events(1, 1), 0)
    consumer.handle("press", events(5, 5), 0)
    assert consumer.handle("press", Evicted(PRESS, 2, 9), 1) == []
    assert consumer.handle("press", Evicted(8, 1, 9), 1) == [], "a producer that nobody heard of"
    evicted = "evicted from the producer's buffer"
    assert consumer.handle("press", Evicted(PRESS, 1, 4), 1) == [Deliver(Loss(PRESS, 1, 2, 3, evicted))]
    last = consumer.handle("press", Evicted(PRESS, 1, 90), 2)
    assert last == [Deliver(Loss(PRESS, 1, 4, 4, evicted)), Deliver(events(5, 5)), CANCEL]
    assert consumer.ledger().published == 5
    consumer.handle("press", events(7, 7), 3)
    consumer.handle("press", events(1, 1, epoch=2), 3)
    assert consumer.handle("press", Evicted(PRESS, 1, 7), 4) == [], "first it is asked how the epoch ended"


def test_what_is_gone_is_lost_between_what_is_not() -> None:
    consumer = consumer_of()
    consumer.handle("press", events(2, 2), 0)
    consumer.handle("press", events(8, 8), 0)
    for other in (Gone(PRESS, 2, ((1, 1),)), Gone(8, 1, ((1, 1),))):
        assert consumer.handle("relay", other, 1) == []
    gone = "lost on the way to a relay"
    assert consumer.handle("relay", Gone(PRESS, 1, ((1, 2), (4, 5))), 1) == [
        Deliver(Loss(PRESS, 1, 1, 1, gone)),
        Deliver(events(2, 2)),
    ]
    assert due(consumer, 2)[0] == request((3, 3), (6, 7))
    assert consumer.handle("relay", Gone(PRESS, 1, ((3, 3), (6, 99))), 3) == [
        Deliver(Loss(PRESS, 1, 3, 3, gone)),
        Deliver(Loss(PRESS, 1, 4, 5, gone)),
        Deliver(Loss(PRESS, 1, 6, 7, gone)),
        Deliver(events(8, 8)),
        CANCEL,
    ]
    consumer.handle("press", beat(9), 4)
    consumer.handle("press", events(1, 1, epoch=2), 5)
    assert consumer.handle("relay", Gone(PRESS, 1, ((9, 9),)), 6) == []


# --- initial information


def initial(cut: int, epoch: int = 1) -> Initial:
    return Initial(PRESS, epoch, cut, b"state", "press", "press")


def stands(first: int, last: int, epoch: int = 1) -> Deliver:
    return Deliver(Loss(PRESS, epoch, first, last, "the producer's initial information stands for it", b"state"))


ASKS = Send("press", Newcomer(PRESS, 1))


def test_a_newcomer_hears_the_initial_information_first_and_answers_for_what_follows() -> None:
    consumer = consumer_of(start=Start.INITIAL)
    assert consumer.handle("press", events(5, 6), 0) == [nack(0)]
    assert due(consumer, 10) == [ASKS, nack(10, 4_000)]
    assert consumer.handle("press", events(7, 9), 11) == []
    assert consumer.handle("press", initial(7), 12) == [stands(8, 7), Deliver(events(7, 9).cut(8, 9)), CANCEL]
    (account,) = consumer.ledger().accounts
    assert (account.cut, account.published) == (8, 2)
    (report,) = consumer.handle("press", initial(9), 13)
    assert isinstance(report, Report)
    assert report.what == "channel.unexpected"


def test_a_newcomer_that_nobody_answers_goes_on_with_what_comes() -> None:
    consumer = consumer_of(start=Start.INITIAL)
    consumer.handle("press", events(5, 6), 0)
    for pause in (4_000, 8_000, 16_000):
        assert due(consumer, 10) == [ASKS, nack(10, pause)]
    assert due(consumer, 20) == [Deliver(events(5, 6))]
    later = consumer_of(start=Start.INITIAL)
    later.handle("press", events(5, 6), 0)
    assert later.handle("press", beat(2, 2), 1) == []
    assert due(later, 2)[0] == Send("press", Newcomer(PRESS, 2)), "of the old epoch it answers for nothing"
    assert later.handle("press", initial(2, epoch=2), 3) == [stands(3, 2, epoch=2), CANCEL]
    assert [(account.epoch, account.cut) for account in later.ledger().accounts] == [(2, 3)]


def test_to_recover_is_to_let_the_initial_information_stand_for_what_is_missing() -> None:
    consumer = consumer_of()
    consumer.handle("press", events(1, 3), 0)
    consumer.accepted(PRESS, 1, 3, 0)
    assert consumer.recover(PRESS, 5) == [nack(5)]
    assert consumer.handle("press", events(4, 4), 6) == [], "nothing more is handed over"
    assert due(consumer, 7) == [ASKS, nack(7, 4_000)]
    (old,) = consumer.handle("press", initial(2), 8)
    assert isinstance(old, Report)
    assert old.detail.endswith("older than what we have")
    assert consumer.handle("press", initial(3), 9) == [stands(4, 3), Deliver(events(4, 4)), CANCEL]
    assert consumer.accepted(PRESS, 1, 4, 10) == []
    assert consumer.recover(PRESS, 11) == [nack(11)]
    assert consumer.handle("press", initial(6), 12) == [stands(5, 6), CANCEL]
    assert consumer.accepted(PRESS, 1, 6, 13) == []
    assert consumer.recover(PRESS, 14) == [nack(14)]
    closed = Loss(PRESS, 1, 7, None, "the producer restarted without its buffer")
    assert consumer.handle("proxy", initial(4, epoch=2), 15) == [Deliver(closed), stands(1, 4, epoch=2), CANCEL]
    (early,) = consumer.handle("press", initial(9), 16)
    assert isinstance(early, Report)
    assert consumer.ledger().balanced


# --- registered


def test_a_registered_consumer_acknowledges_what_was_accepted() -> None:
    assert consumer_of().start(5) == []
    consumer = consumer_of(registered="log", ack_interval_us=1_000)
    assert consumer.start(5) == [SetTimer("ack", 1_005)]
    consumer.handle("press", events(1, 3), 6)
    for through in (0, 2, 3):
        if through:
            consumer.accepted(PRESS, 1, through, 7)
        acknowledged = Send("press", Ack(PRESS, 1, "log", through))
        assert consumer.timer("ack", 1_005) == [acknowledged, SetTimer("ack", 2_005)]


# --- names and places


def test_a_producer_is_answered_where_it_says_and_called_what_it_says() -> None:
    consumer = consumer_of()
    consumer.handle("relay", events(1, 1), 0)
    assert consumer.name_of(PRESS) == "0000000000000007"
    assert consumer.name_of(8) == "0000000000000008"
    consumer.handle("relay", Heartbeat(PRESS, 1, 2, "press", "elsewhere"), 1)
    assert consumer.name_of(PRESS) == "press"
    assert due(consumer, 2)[0] == Send("elsewhere", request((2, 2)).message)
    consumer.handle("relay", Heartbeat(PRESS, 1, 2, "press", ""), 3)
    assert due(consumer, 4)[0] == Send("relay", request((2, 2)).message)


# --- peers


def crowd(last: int, *peers: str, epoch: int = 1) -> Heartbeat:
    return beat(last, epoch, key=b"k" * 32, peers=peers)


def test_peers_are_asked_in_turn_once_the_producer_left_two_requests_unanswered() -> None:
    consumer = consumer_of(nack_attempts_max=9)
    consumer.peers.address = "me"
    silence = ConsumerConfig().peer_silence_us
    assert consumer.handle("press", crowd(2, "a", "b", "me", "c", "d"), 0) == [
        SetTimer(f"silence/{PRESS}", silence),
        nack(0),
    ]
    wanted = Nack(PRESS, 1, ((1, 2),), signed=True)
    for asked, pause in (("", 4_000), ("", 8_000), ("abc", 16_000), ("dab", 32_000)):
        assert due(consumer, 10) == [request((1, 2)), *(Send(peer, wanted) for peer in asked), nack(10, pause)]
    assert consumer.handle("press", crowd(2, "b"), 11) == [Send("press", Peer(PRESS, 1, "me"))], "it lists us not"


def test_a_producer_that_says_nothing_at_all_may_have_more_than_was_heard_of() -> None:
    consumer = consumer_of()
    silence = ConsumerConfig().peer_silence_us
    consumer.handle("press", events(1, 2), 0)
    consumer.handle("press", crowd(2, "a"), 0)
    again = SetTimer(f"silence/{PRESS}", 50 + silence)
    beyond = Send("a", Nack(PRESS, 1, ((3, SEQUENCE_MAX),), signed=True))
    assert consumer.timer(f"silence/{PRESS}", 50) == [again]
    assert consumer.timer(f"silence/{PRESS}", 50) == [beyond, again]
    consumer.handle("press", crowd(2, "a"), 60)
    assert consumer.timer(f"silence/{PRESS}", 50) == [again], "it is only quiet"
    consumer.handle("press", events(3, 3), 70)
    assert consumer.timer(f"silence/{PRESS}", 50) == [again]
    assert consumer.timer(f"silence/{PRESS}", 50) != [again]


def test_before_an_epoch_is_closed_peers_are_asked_for_what_they_have_of_it() -> None:
    consumer = consumer_of(peer_attempts_max=2)
    consumer.handle("press", events(1, 2), 0)
    consumer.handle("press", crowd(2, "a", "b"), 0)
    assert consumer.handle("press", beat(4, 2, key=b"k" * 32, previous_epoch=1, previous_last=5), 5) == [nack(5)]
    wanted = Nack(PRESS, 1, ((3, 5),), signed=True)
    for pause in (4_000, 8_000):
        assert due(consumer, 9) == [Send("a", wanted), Send("b", wanted), nack(9, pause)]
    lost = Loss(PRESS, 1, 3, 5, "the producer restarted without its buffer")
    assert due(consumer, 20) == [Deliver(lost), request((1, 4), epoch=2), nack(20, 4_000)]
    complete = consumer_of()
    complete.handle("press", events(1, 2), 0)
    complete.handle("press", crowd(2, "a"), 0)
    ended = beat(0, 2, key=b"k" * 32, previous_epoch=1, previous_last=2)
    assert complete.handle("press", ended, 5) == [], "nothing of it is missing"
    assert complete.ledger().declared_lost == 0


def test_a_peer_answers_with_whole_batches_within_its_bound_and_with_one_at_least() -> None:
    def kept(*sizes: int) -> Consumer:
        consumer = consumer_of(peer_answer_bytes_max=1024)
        consumer.peers.address = "me"
        for first, size in enumerate(sizes, 1):
            signed = msgspec.structs.replace(events(first, first, size=size), signature=b"s" * 64)
            consumer.handle("press", signed, 0)
        return consumer

    def served(consumer: Consumer, *ranges: tuple[int, int]) -> list[int]:
        effects = consumer.handle("a", Nack(PRESS, 1, ranges, signed=True), 5)
        sent = [effect for effect in effects if isinstance(effect, Send)]
        assert len(sent) == len(effects)
        assert all(effect.to == "a" for effect in sent)
        return [effect.message.first for effect in sent]

    assert served(kept(512, 512, 1), (1, 3)) == [1, 2]
    assert served(kept(512, 513, 1), (1, 3)) == [1]
    assert served(kept(5_000, 1), (1, 2)) == [1]
    assert served(kept(1, 1, 1, 1), (2, 2), (4, 9)) == [2, 4]
    (report,) = kept(1).handle("a", Nack(PRESS, 1, ((2, 9),), signed=True), 5)
    assert isinstance(report, Report)
    assert report.what == "channel.not_kept"
    silent = consumer_of()
    silent.handle("press", msgspec.structs.replace(events(1, 1), signature=b"s" * 64), 0)
    assert silent.handle("a", Nack(PRESS, 1, ((1, 1),), signed=True), 5)[0] == Report(
        "channel.not_kept", "a asked for frames that were never kept here"
    ), "whom nobody can reach keeps nothing for others"
