"""The relay machine: passes a channel on to another event service, so that channels can be chained.

It keeps the producers' ids, epochs and sequences: renumbering would hide loss. It repairs its own gaps as any consumer
does, caches what it passed on, answers NACKs from that cache, and asks upstream for what it has not. What is lost to it
is lost to all behind it, and they are told so exactly (`Gone`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from unerring.channels.buffer import ReplayBuffer
from unerring.channels.codec import EVENT_BYTES
from unerring.channels.config import ConsumerConfig, ProducerConfig
from unerring.channels.consumer import Consumer
from unerring.channels.heartbeat import HeartbeatPace
from unerring.channels.messages import (
    Ack,
    Evicted,
    Frames,
    Gone,
    Heartbeat,
    Initial,
    Loss,
    Nack,
    Newcomer,
    Peer,
    PresentEpoch,
    Range,
    Stale,
    Watermark,
    any_epoch,
    joined,
)
from unerring.channels.repair import RepairPace
from unerring.model import Address, Broadcast, Deliver, Effects, Entropy, Report, Send

_BEAT: Final = "beat/"
_WAITING_MAX: Final = 256
_GONE_MAX: Final = 4096


class Relay:
    """Upstream a consumer of any number of producers, downstream as each of them."""

    def __init__(
        self,
        direct: Address,
        entropy: Entropy,
        config: ProducerConfig | None = None,
        upstream: ConsumerConfig | None = None,
        present: PresentEpoch = any_epoch,
    ) -> None:
        self._direct = direct
        self._config = config or ProducerConfig()
        self._consumer = Consumer(entropy, upstream, present=present)
        self._consumer.peers.address = direct
        self._passed: dict[int, _Passed] = {}

    def start(self, now: int) -> Effects:
        return self._consumer.start(now)

    def timer(self, name: str, now: int) -> Effects:
        if not name.startswith(_BEAT):
            return self._pass_on(self._consumer.timer(name, now), now)
        passed = self._passed[int(name.removeprefix(_BEAT))]
        beat, again = passed.beat.due(now)
        return [Broadcast(passed.heartbeat(self._direct)), again] if beat else [again]

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        if isinstance(message, Nack):
            return self._on_nack(sender, message, now)
        if isinstance(message, Newcomer):
            return self._on_newcomer(sender, message)
        if isinstance(message, Peer):
            return self._on_peer(message)
        if isinstance(message, Ack | Stale):
            upstream = self._upstream(message.producer)
            return [] if upstream is None else [Send(upstream, message)]
        if isinstance(message, Initial):
            return self._on_initial(message)
        effects = self._pass_on(self._consumer.handle(sender, message, now), now)
        if isinstance(message, Heartbeat):
            self._on_heartbeat(sender, message, now, effects)
        passed = self._passed.get(message.producer)
        if passed is not None:
            effects.extend(passed.answer_waiting(message))
            if passed.watermark_us != passed.announced_us:
                effects.append(Broadcast(passed.heartbeat(self._direct)))
        return effects

    def _on_heartbeat(self, sender: Address, beat: Heartbeat, now: int, effects: Effects) -> None:
        """An epoch is passed on even while it has no events: those behind would wait for the old one's for ever."""
        position = self._consumer.position(beat.producer)
        if position is None or position[0] != beat.epoch:
            return
        passed = self._passing(beat.producer, beat.epoch, position[1] + 1, now, effects)
        passed.name = beat.name
        passed.upstream = beat.direct or sender
        passed.previous_epoch, passed.previous_last = beat.previous_epoch, beat.previous_last
        passed.key, passed.peers_above = beat.key, beat.peers

    def _on_peer(self, peer: Peer) -> Effects:
        """Consumers behind a relay repair each other too."""
        passed = self._passed.get(peer.producer)
        if passed is not None and self._config.peers_max:
            passed.peers = [*(known for known in passed.peers if known != peer.address), peer.address]
            del passed.peers[: -self._config.peers_max]
        return []

    # --- downwards

    def _pass_on(self, effects: Effects, now: int) -> Effects:
        """Pass on and accept at once what the consumer delivers; its other effects are carried out unchanged."""
        out: Effects = []
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if not isinstance(effect, Deliver):
                out.append(effect)
                continue
            segment: Frames | Loss | Watermark = effect.what
            if isinstance(segment, Watermark):
                passed = self._passing(segment.producer, segment.epoch, segment.last + 1, now, out)
                passed.watermark_us = segment.watermark_us
                continue
            passed = self._passing(segment.producer, segment.epoch, segment.first, now, out)
            if isinstance(segment, Frames):
                passed.keep(segment, now)
                out.append(Broadcast(segment))
                timer = passed.beat.published(now)
                if timer is not None:
                    out.append(timer)
            else:
                passed.lose(segment)
            through = segment.first if segment.last is None else segment.last
            pending.extend(self._consumer.accepted(segment.producer, segment.epoch, through, now))
        return out

    def _passing(self, producer: int, epoch: int, first: int, now: int, out: Effects) -> _Passed:
        passed = self._passed.get(producer)
        if passed is not None and passed.epoch == epoch:
            return passed
        fresh = _Passed(producer, epoch, first, self._config, passed)
        self._passed[producer] = fresh
        if passed is None and fresh.beat.on:
            out.append(fresh.beat.begin(now))
        return fresh

    def _on_nack(self, sender: Address, nack: Nack, now: int) -> Effects:
        passed = self._passed.get(nack.producer)
        if passed is None:
            return [Report("channel.not_mine", f"a NACK from {sender} for a producer that was never relayed")]
        if nack.epoch != passed.epoch or not nack.ranges:
            kept = self._consumer.peers.answer(sender, nack) if nack.epoch < passed.epoch else []
            return [*kept, Send(sender, passed.heartbeat(self._direct))]
        return passed.answer(sender, nack, now)

    # --- newcomers: only the producer's application knows what they must know

    def _on_newcomer(self, sender: Address, newcomer: Newcomer) -> Effects:
        passed = self._passed.get(newcomer.producer)
        if passed is None or not passed.upstream:
            return []
        if sender not in passed.newcomers and len(passed.newcomers) < _WAITING_MAX:
            passed.newcomers.append(sender)
        return [Send(passed.upstream, newcomer)]

    def _on_initial(self, initial: Initial) -> Effects:
        passed = self._passed.get(initial.producer)
        if passed is None:
            return []
        newcomers, passed.newcomers = passed.newcomers, []
        answer = Initial(initial.producer, initial.epoch, initial.cut, initial.information, initial.name, self._direct)
        return [Send(newcomer, answer) for newcomer in newcomers]

    def _upstream(self, producer: int) -> Address | None:
        passed = self._passed.get(producer)
        return passed.upstream if passed is not None and passed.upstream else None


class _Passed:
    """One producer's present epoch as far as it was passed on."""

    def __init__(self, producer: int, epoch: int, first: int, config: ProducerConfig, before: _Passed | None) -> None:
        self.producer = producer
        self.epoch = epoch
        self.last = first - 1
        self.watermark_us: int | None = None
        self.announced_us: int | None = None
        """The watermark that was passed on last."""
        self.name: str = "" if before is None else before.name
        self.upstream: Address = "" if before is None else before.upstream
        self.previous_epoch = 0
        self.previous_last: int | None = None
        self.key = b""
        self.peers_above: tuple[Address, ...] = ()
        self.peers: list[Address] = [] if before is None else before.peers
        self.newcomers: list[Address] = []
        self.beat: HeartbeatPace = HeartbeatPace(f"{_BEAT}{producer}", config) if before is None else before.beat
        self._config = config
        self._buffer = ReplayBuffer()
        self._pace = RepairPace(config)
        self._gone: deque[Range] = deque(maxlen=_GONE_MAX)
        self._waiting: deque[tuple[Address, Range]] = deque(maxlen=_WAITING_MAX)

    def keep(self, frames: Frames, now: int) -> None:
        config, buffer = self._config, self._buffer
        buffer.append(frames, now)
        self.last = frames.last
        while buffer.count > config.buffer_count_max or buffer.bytes > config.buffer_bytes_max:
            buffer.evict_oldest()

    def lose(self, loss: Loss) -> None:
        if loss.last is not None and loss.count:
            self._gone.append((loss.first, loss.last))
            self.last = loss.last

    def heartbeat(self, direct: Address) -> Heartbeat:
        # Where the epoch before ended only the producer knows: what was passed on last may not have been last.
        self.announced_us = self.watermark_us
        return Heartbeat(
            self.producer,
            self.epoch,
            self.last,
            self.name,
            direct,
            self.previous_epoch,
            self.previous_last,
            self.key,
            tuple(dict.fromkeys((*self.peers, *self.peers_above))),
            self.watermark_us,
        )

    def answer(self, sender: Address, nack: Nack, now: int) -> Effects:
        """Answer from the cache; declare what is gone; ask upstream for what is below the cache."""
        lowest = self._buffer.lowest or self.last + 1
        budget = self._pace.budget(self._config.replay_bytes_max, now)
        budget = min(budget, nack.bytes_max or budget)
        effects: Effects = []
        below: list[Range] = []
        gone: list[Range] = []
        for first, last in nack.ranges:
            gone.extend((max(first, low), min(last, high)) for low, high in self._gone if low <= last and high >= first)
            if first < lowest:
                below.append((first, min(last, lowest - 1)))
            kept = self._buffer.batches if nack.signed else self._buffer.between
            taken: list[Frames] = []
            for frames in kept(max(first, lowest), min(last, self.last)):
                if budget <= 0:
                    break
                weight = frames.size + EVENT_BYTES * len(frames.payloads)
                budget -= weight
                self._pace.spend(weight)
                taken.append(frames)
            effects.extend(Send(sender, frames) for frames in (taken if nack.signed else joined(taken)))
        if gone:
            effects.append(Send(sender, Gone(self.producer, self.epoch, tuple(gone))))
        if below:
            effects.extend(self._ask_upstream(sender, below, lowest))
        return effects

    def _ask_upstream(self, sender: Address, below: list[Range], lowest: int) -> Effects:
        if not self.upstream:
            return [Send(sender, Evicted(self.producer, self.epoch, lowest))]
        self._waiting.extend((sender, missing) for missing in below if (sender, missing) not in self._waiting)
        return [Send(self.upstream, Nack(self.producer, self.epoch, tuple(below)))]

    def answer_waiting(self, message: Any) -> Effects:
        """An answer from upstream is passed on to those who asked for it."""
        if not self._waiting or message.epoch != self.epoch:
            return []
        effects: Effects = []
        if isinstance(message, Evicted | Gone):
            effects.extend(Send(consumer, message) for consumer in dict.fromkeys(who for who, _ in self._waiting))
            self._waiting.clear()
        elif isinstance(message, Frames):
            served: deque[tuple[Address, Range]] = deque(maxlen=_WAITING_MAX)
            for consumer, (first, last) in self._waiting:
                if message.first <= last and message.last >= first:
                    effects.append(Send(consumer, message.cut(first, last)))
                if message.last < last:
                    served.append((consumer, (max(first, message.last + 1), last)))
            self._waiting = served
        return effects
