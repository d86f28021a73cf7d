"""Peer repair: after a producer's crash those who hold its signed batches serve them, and nobody can forge one."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from unerring.channels import (
    ChannelCodec,
    ChannelConfig,
    Consumer,
    ConsumerConfig,
    Frames,
    Loss,
    Producer,
    Relay,
    Start,
)
from unerring.channels.messages import Heartbeat, Nack, joined
from unerring.channels.peers import KeptBatches
from unerring.channels.signature import Signer, genuine
from unerring.model import Broadcast, Deliver, Effects, FrameError, Report, Send

SEED = bytes(range(32))
EARLIEST = ConsumerConfig(start=Start.EARLIEST)
CODEC = ChannelCodec(ChannelConfig())


class Crowd:
    """One signing producer and some consumers; tests decide who hears what. Direct messages always arrive."""

    def __init__(self, *names: str) -> None:
        self.now = 1_000_000
        self.disk: dict[str, bytes] = {}
        self.producer: Producer | None = None
        self.told: dict[str, list[Frames | Loss]] = {name: [] for name in names}
        self.consumers = {name: Consumer(random.Random(name), EARLIEST) for name in names}
        self.reports: list[Report] = []
        self.timers: dict[tuple[str, str], int] = {}
        self.partitioned = False  # between the consumers
        for name, consumer in self.consumers.items():
            consumer.peers.address = name
        self.boot()

    def boot(self) -> None:
        self.producer = Producer("press", "press", self.disk, 1, signing_seed=SEED)
        self._run("press", self.producer.start(self.now), hearers=())

    def publish(self, *payloads: bytes, hearers: tuple[str, ...]) -> None:
        assert self.producer is not None
        first = self.producer.last + 1
        times = range(self.now * 1000 + first, self.now * 1000 + first + len(payloads))
        self._run("press", self.producer.publish(payloads, times, None, self.now) or [], hearers)

    def beat(self, *hearers: str) -> None:
        assert self.producer is not None
        self._run("press", [Broadcast(self.producer._heartbeat())], hearers or tuple(self.consumers))

    def pass_time(self, rounds: int = 30) -> None:
        """Let the consumers' timers come, in order."""
        for _ in range(rounds):
            due = {key: at for key, at in self.timers.items() if key[1].startswith("nack/")}
            if not due:
                return
            node, name = min(due, key=lambda key: due[key])
            self.now = max(self.now, self.timers.pop((node, name)))
            self._run(node, self.consumers[node].timer(name, self.now), ())

    def payloads(self, name: str) -> list[bytes]:
        return [payload for item in self.told[name] if isinstance(item, Frames) for payload in item.payloads]

    def losses(self, name: str) -> list[tuple[int, int, int | None]]:
        return [(item.epoch, item.first, item.last) for item in self.told[name] if isinstance(item, Loss)]

    def _send(self, sender: str, to: str, message: Any) -> None:
        if to == "press":
            if self.producer is not None:
                self._run("press", self.producer.handle(sender, message, self.now), ())
        elif sender == "press" or not self.partitioned:
            self._run(to, self.consumers[to].handle(sender, message, self.now), ())

    def _run(self, node: str, effects: Effects, hearers: tuple[str, ...]) -> None:
        for effect in effects:
            name = type(effect).__name__
            if isinstance(effect, Broadcast):
                for hearer in hearers:
                    self._send("press", hearer, effect.message)
            elif isinstance(effect, Send):
                self._send(node, effect.to, effect.message)
            elif isinstance(effect, Deliver):
                self.told[node].append(effect.what)
                what = effect.what
                through = what.first if what.last is None else what.last
                self._run(node, self.consumers[node].accepted(what.producer, what.epoch, through, self.now), ())
            elif name == "SetTimer":
                self.timers[node, effect.name] = effect.at_us  # type: ignore[union-attr]
            elif name == "CancelTimer":
                self.timers.pop((node, effect.name), None)  # type: ignore[union-attr]
            elif name == "Persist":
                self.disk.update(effect.puts)  # type: ignore[union-attr]
            elif isinstance(effect, Report):
                self.reports.append(effect)


def crashed_crowd() -> Crowd:
    """North heard 1-3 and 5, south 1-2; nobody heard 6; then the producer crashed and began a new epoch."""
    crowd = Crowd("north", "south")
    crowd.beat()
    crowd.beat()  # by now everyone knows of everyone
    crowd.publish(b"1", b"2", hearers=("north", "south"))
    crowd.publish(b"3", hearers=("north",))
    crowd.publish(b"4", hearers=())
    crowd.publish(b"5", hearers=("north",))
    crowd.publish(b"6", hearers=())
    crowd.producer = None
    crowd.boot()
    return crowd


def test_what_one_consumer_holds_of_a_lost_epoch_repairs_the_others() -> None:
    crowd = crashed_crowd()
    crowd.beat()
    crowd.pass_time()
    assert crowd.payloads("south") == [b"1", b"2", b"3", b"5"]


def test_what_is_lost_to_all_is_one_and_the_same_loss_to_each() -> None:
    """DESIGN: an event lost to all becomes one loss record, so that replicas do not diverge."""
    crowd = crashed_crowd()
    crowd.beat()
    crowd.pass_time()
    assert crowd.losses("north") == crowd.losses("south") == [(1, 4, 4), (1, 6, None)]


def test_under_a_partition_each_declares_at_least_what_is_lost_to_all() -> None:
    """Nobody arbitrates: south cannot know that north holds 3 and 5. What both declare is what was lost to all."""
    crowd = crashed_crowd()
    crowd.partitioned = True
    crowd.beat()
    crowd.pass_time()
    assert crowd.losses("north") == [(1, 4, 4), (1, 6, None)]
    assert crowd.losses("south") == [(1, 3, None)]
    assert (crowd.payloads("north"), crowd.payloads("south")) == ([b"1", b"2", b"3", b"5"], [b"1", b"2"])
    crowd.partitioned = False
    crowd.beat()
    crowd.pass_time()
    assert crowd.losses("south") == [(1, 3, None)], "a declared loss stands: the stream has gone on behind it"


def test_the_last_event_of_an_epoch_that_was_closed_is_asked_for_though_it_is_the_only_one_missing() -> None:
    """South has not heard of it; it learns from the next epoch where the closed one ended."""
    crowd = Crowd("north", "south")
    crowd.beat()
    crowd.beat()
    crowd.publish(b"1", b"2", hearers=("north", "south"))
    crowd.publish(b"3", hearers=("north",))
    crowd.disk["channel/closed_at"] = b"3"
    crowd.boot()
    crowd.beat()
    crowd.pass_time()
    assert (crowd.payloads("south"), crowd.losses("south")) == ([b"1", b"2", b"3"], [])


def test_without_signatures_each_is_left_with_its_own_losses() -> None:
    crowd = Crowd("north", "south")
    crowd.producer = Producer("press", "press", {}, 1)
    crowd.publish(b"1", b"2", hearers=("north", "south"))
    crowd.publish(b"3", hearers=("north",))
    crowd.producer = Producer("press", "press", {"channel/epoch": b"1"}, 1)
    crowd.beat()
    crowd.pass_time()
    assert (crowd.losses("north"), crowd.losses("south")) == ([(1, 4, None)], [(1, 3, None)])


def test_while_the_producer_is_away_peers_are_asked_for_a_known_gap() -> None:
    crowd = Crowd("north", "south")
    crowd.beat()
    crowd.beat()
    crowd.publish(b"1", hearers=("north",))
    crowd.publish(b"2", hearers=("north", "south"))
    crowd.producer = None
    crowd.pass_time()
    assert crowd.payloads("south") == [b"1", b"2"]


def test_a_silent_producers_unknown_tail_is_asked_for() -> None:
    crowd = Crowd("north", "south")
    crowd.beat()
    crowd.beat()
    crowd.publish(b"1", hearers=("north",))
    crowd.producer = None
    south = crowd.consumers["south"]
    (name,) = [name for node, name in crowd.timers if node == "south" and name.startswith("silence/")]
    crowd._run("south", south.timer(name, crowd.now), ())
    assert crowd.payloads("south") == [], "it may only be idle"
    crowd._run("south", south.timer(name, crowd.now), ())
    assert crowd.payloads("south") == [b"1"]


@pytest.mark.parametrize(
    "forge",
    [
        lambda frames: msgspec.structs.replace(frames, payloads=[b"forged" for _ in frames.payloads]),
        lambda frames: msgspec.structs.replace(frames, first=frames.first + 1),
        lambda frames: msgspec.structs.replace(frames, times=[time + 1 for time in frames.times]),
        lambda frames: Signer(bytes(32)).signed(frames),
        lambda frames: msgspec.structs.replace(frames, signature=b"short"),
        lambda frames: msgspec.structs.replace(frames, signature=b""),
    ],
)
def test_a_forged_repair_is_refused_and_counted(forge: Any) -> None:
    crowd = crashed_crowd()
    answer = crowd.consumers["north"].peers.answer
    crowd.consumers["north"].peers.answer = lambda sender, nack: [  # type: ignore[method-assign]
        Send(effect.to, forge(effect.message)) if isinstance(effect, Send) else effect
        for effect in answer(sender, nack)
    ]
    crowd.beat()
    crowd.pass_time()
    assert crowd.payloads("south") == [b"1", b"2"]
    assert crowd.losses("south") == [(1, 3, None)], "what a forger holds back is declared like any other loss"
    assert {report.what for report in crowd.reports} & {"channel.forged", "channel.unsigned"}


def test_a_forger_is_not_asked_again_and_stays_suspect() -> None:
    crowd = crashed_crowd()
    south, (feed,) = crowd.consumers["south"], crowd.consumers["south"]._feeds.values()
    crowd.beat("south")
    south.peers.ask(feed, None, 100)
    forged = Frames(feed.producer, 1, 3, (1,), (b"forged",), None, 6, bytes(64))
    assert [effect.what for effect in south.handle("north", forged, crowd.now)] == ["channel.forged"]  # type: ignore[union-attr]
    assert feed.peers == []
    assert [effect.what for effect in south.handle("north", forged, crowd.now)] == ["channel.forged"]  # type: ignore[union-attr]


def test_a_producers_key_does_not_change_within_an_epoch() -> None:
    crowd = Crowd("north")
    crowd.beat()
    assert crowd.producer is not None
    other = msgspec.structs.replace(crowd.producer._heartbeat(), key=Signer(bytes(32)).key)
    effects = crowd.consumers["north"].handle("press", other, crowd.now)
    assert [effect.what for effect in effects if isinstance(effect, Report)] == ["channel.key_changed"]
    (feed,) = crowd.consumers["north"]._feeds.values()
    assert feed.key == Signer(SEED).key


def test_a_relay_hands_a_lost_epoch_on_to_peers() -> None:
    producer = Producer("press", "press", {}, 1, signing_seed=SEED)
    relay = Relay("relay", random.Random(1), None, EARLIEST)
    relay.handle("press", producer._heartbeat(), 5)
    (pushed,) = [
        effect.message
        for effect in producer.publish([b"1", b"2"], [1, 2], None, 10) or []
        if isinstance(effect, Broadcast)
    ]
    relay.handle("press", pushed, 10)
    asked = Nack(producer.id, 1, ((2, 9),), signed=True)
    (answer,) = [effect.message for effect in relay.handle("till", asked, 20) if isinstance(effect, Send)]
    assert answer == pushed, "whole, with its signature"
    later = Producer("press", "press", {"channel/epoch": b"1", "channel/closed_at": b"2"}, 1, signing_seed=SEED)
    relay.handle("press", later._heartbeat(), 30)
    answers = [effect.message for effect in relay.handle("till", asked, 40) if isinstance(effect, Send)]
    assert answers[0] == pushed
    assert isinstance(answers[1], Heartbeat)


def test_a_restarted_producer_signs_with_the_key_it_had() -> None:
    crowd = Crowd("north")
    assert Producer("press", "press", crowd.disk, 1)._heartbeat().key == Signer(SEED).key
    given = Producer("press", "press", crowd.disk, 1, signing_seed=bytes(32))
    assert given._heartbeat().key == Signer(bytes(32)).key, "unless it is given another"


# --- parts


payload_lists = st.lists(st.binary(max_size=20), min_size=1, max_size=5)


@given(payload_lists, st.booleans())
def test_a_signed_batch_survives_the_wire(payloads: list[bytes], with_ordinals: bool) -> None:
    count = len(payloads)
    ordinals = tuple(range(1, count + 1)) if with_ordinals else None
    frames = Signer(SEED).signed(Frames(7, 1, 3, tuple(range(count)), payloads, ordinals, sum(map(len, payloads))))
    back = CODEC.decode(CODEC.encode(frames))
    assert msgspec.structs.replace(back, size=frames.size) == frames
    assert frames.size <= back.size <= frames.size + 2 * count + 1, "the payloads' lengths count too"
    assert genuine(back, Signer(SEED).key)
    assert not genuine(back, Signer(bytes(32)).key)
    assert not genuine(back, b"no key")
    if count > 1:
        assert back.cut(back.first + 1, back.last).signature == b""


def test_a_signed_batch_cut_short_on_the_wire_is_refused() -> None:
    data = CODEC.encode(Signer(SEED).signed(Frames(7, 1, 3, (1, 2), (b"a", b"b"), None, 2)))
    for size in range(1, len(data)):
        with pytest.raises(FrameError):
            CODEC.decode(data[:size])


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 8)), max_size=30), st.integers(1, 50), st.integers(0, 10))
def test_kept_batches_are_found_by_any_of_their_sequences(spans: list[tuple[int, int]], first: int, more: int) -> None:
    kept, model = KeptBatches(1 << 20), set()
    for at, count in spans:
        kept.add(Frames(1, 1, at, tuple(range(count)), [b"x"] * count, None, count, b"s"))
        model.update(range(at, at + count))
    found = kept.batches(1, 1, first, first + more)
    covered = {n for frames in found for n in range(frames.first, frames.last + 1)}
    assert covered & set(range(first, first + more + 1)) == model & set(range(first, first + more + 1))
    assert all(frames.last >= first and frames.first <= first + more for frames in found)
    assert [frames.first for frames in found] == sorted({frames.first for frames in found})


def test_kept_batches_stay_within_their_bytes() -> None:
    kept = KeptBatches(30)
    for first in range(1, 11):
        kept.add(Frames(1, 1, first, (first,), [b"0123456789"], None, 10, b"s"))
    assert [frames.first for frames in kept.batches(1, 1, 1, 99)] == [8, 9, 10]


def test_neighbouring_frames_are_joined() -> None:
    parts = [Frames(1, 1, at, (at,), [b"x"], None if at < 3 else (4,), 1) for at in (1, 2, 3, 5)]
    one, other = joined(parts)
    assert (one.first, one.last, one.times, one.ordinals, one.size) == (1, 3, [1, 2, 3], [0, 0, 4], 3)
    assert other is parts[3]
