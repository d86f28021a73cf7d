"""The producer machine: numbers what is published, keeps it for replay, answers NACKs, and tells of its last sequence
when it falls silent (paper, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import lt
from typing import Any, Final

from unerring.channels.buffer import ReplayBuffer
from unerring.channels.config import ChannelConfig, ProducerConfig
from unerring.channels.messages import Ack, Evicted, Frames, Heartbeat, Nack, Stale, producer_id
from unerring.model import (
    Address,
    Broadcast,
    CallerError,
    Effects,
    HandshakeError,
    Persist,
    Report,
    SchemaError,
    Send,
    SetTimer,
    StaleEpoch,
    Stop,
)

HEARTBEAT: Final = "heartbeat"
_EPOCH: Final = "channel/epoch"
_CLOSED_AT: Final = "channel/closed_at"


class Producer:
    """One incarnation of a producer.

    `records` is what an earlier incarnation left on stable storage (may be empty); `fresh_epoch` is used when it left
    nothing, and must then be higher than any epoch before (a driver without storage takes the wall clock's seconds).
    """

    def __init__(
        self,
        name: str,
        direct: Address,
        records: Mapping[str, bytes],
        fresh_epoch: int,
        config: ProducerConfig | None = None,
        channel: ChannelConfig | None = None,
    ) -> None:
        self.name = name
        self.id = producer_id(name)
        self._previous_epoch = int(records.get(_EPOCH, b"0"))
        self.epoch = max(fresh_epoch, self._previous_epoch + 1)
        self.last = 0
        self.closed = False
        self._direct = direct
        self._config = config or ProducerConfig()
        self._channel = channel or ChannelConfig()
        self._previous_last = int(records[_CLOSED_AT]) if _CLOSED_AT in records else None
        self._last_stamp: tuple[int, int] | None = None
        self._buffer = ReplayBuffer()
        self._registered: dict[str, int] = {}  # consumer → what it has accepted
        self._pause_us = self._config.heartbeat_idle_us
        self._heartbeat_at: int | None = None
        self._published_us = 0

    # --- the application's side

    def start(self, now: int) -> Effects:
        """The new epoch is on stable storage before anything of it is sent."""
        effects: Effects = [Persist(puts=((_EPOCH, b"%d" % self.epoch),), deletes=(_CLOSED_AT,))]
        if not self._config.strict_zero_overhead:
            effects.append(Broadcast(self._heartbeat()))
            effects.append(self._set_heartbeat(now + self._pause_us))
        return effects

    def publish(
        self, payloads: Sequence[bytes], times: Sequence[int], ordinals: Sequence[int] | None, now: int
    ) -> Effects | None:
        """Consecutive events, all or none. None: no room while a registered consumer is behind; try again later.

        SchemaError: a stamp that does not increase or a payload too large; nothing was published.
        """
        if self.closed:
            raise CallerError(f"producer {self.name!r} is closed: its last sequence is on record; open a new one")
        size = self._check(payloads, times, ordinals)
        if not self._make_room(len(payloads), size, now):
            return None
        frames = Frames(self.id, self.epoch, self.last + 1, times, payloads, ordinals, size)
        self._buffer.append(frames, now)
        self.last += len(payloads)
        self._last_stamp = (times[-1], ordinals[-1] if ordinals else 0)
        self._published_us = now
        self._pause_us = self._config.heartbeat_idle_us
        effects: Effects = [Broadcast(frames)]
        # One armed timer for a whole burst: it re-arms itself while the burst goes on.
        if self._heartbeat_at is not None and self._heartbeat_at > now + self._pause_us:
            effects.append(self._set_heartbeat(now + self._pause_us))
        return effects

    def close(self, now: int) -> Effects:
        """A durable mark closes the epoch, and the last heartbeat shows the tail to those who lost it."""
        self.closed = True
        effects: Effects = [Persist(puts=((_CLOSED_AT, b"%d" % self.last),))]
        if not self._config.strict_zero_overhead:
            effects.append(Broadcast(self._heartbeat()))
        return effects

    # --- the consumers' side

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        if isinstance(message, Nack):
            return self._on_nack(sender, message, now)
        if isinstance(message, Ack):
            return self._on_ack(sender, message)
        if isinstance(message, Stale):
            return self._on_stale(message)
        return [Report("channel.unexpected", f"{type(message).__name__} from {sender}: a producer has no use for it")]

    def timer(self, name: str, now: int) -> Effects:
        """The sporadic heartbeat: after the burst went idle, then with growing pauses, never quite stopped."""
        self._heartbeat_at = None
        idle_at = self._published_us + self._config.heartbeat_idle_us
        if self.last and idle_at > now:
            return [self._set_heartbeat(idle_at)]
        beat = Broadcast(self._heartbeat())
        self._pause_us = min(self._pause_us * 2, self._config.heartbeat_pause_us_max)
        return [beat, self._set_heartbeat(now + self._pause_us)]

    def _on_nack(self, sender: Address, nack: Nack, now: int) -> Effects:
        if nack.producer != self.id:
            return [Report("channel.not_mine", f"a NACK from {sender} for another producer")]
        if nack.epoch < self.epoch:
            return [Send(sender, self._heartbeat())]  # tells that epoch's end, if anyone can
        if nack.epoch > self.epoch:
            return self._succeeded(nack.epoch)
        if not nack.ranges:
            return [Send(sender, self._heartbeat())]
        self._evict_aged(now)
        lowest = self._lowest()
        effects: Effects = []
        if nack.ranges[0][0] < lowest:
            effects.append(Send(sender, Evicted(self.id, self.epoch, lowest)))
        budget = self._config.replay_bytes_max
        for first, last in nack.ranges:
            if budget <= 0:
                break
            budget = self._replay(sender, max(first, lowest), min(last, self.last), budget, effects)
        return effects

    def _replay(self, sender: Address, first: int, last: int, budget: int, effects: Effects) -> int:
        """Answer one range, many small frames merged into one, until the budget is spent."""
        times: list[int] = []
        ordinals: list[int] = []
        payloads: list[bytes] = []
        for frames in self._buffer.between(first, last):
            for at, payload in enumerate(frames.payloads):
                if payloads and budget < len(payload):
                    budget = 0
                    break
                budget -= len(payload)
                times.append(frames.times[at])
                ordinals.append(frames.ordinals[at] if frames.ordinals else 0)
                payloads.append(payload)
            if budget <= 0:
                break
        if payloads:
            kept = ordinals if any(ordinals) else None
            effects.append(
                Send(sender, Frames(self.id, self.epoch, first, times, payloads, kept, sum(map(len, payloads))))
            )
            effects.append(Report("channel.replayed", count=len(payloads)))
        return budget

    def _on_ack(self, sender: Address, ack: Ack) -> Effects:
        """The first one registers: from then on nothing behind it is evicted."""
        if ack.epoch > self.epoch:
            return self._succeeded(ack.epoch)
        accepted = min(ack.accepted, self.last) if ack.epoch == self.epoch else 0
        if ack.consumer in self._registered:
            self._registered[ack.consumer] = max(accepted, self._registered[ack.consumer])
            return []
        if len(self._registered) >= self._config.registered_max:
            return [Report("channel.register_refused", f"{ack.consumer} at {sender}: registered_max reached")]
        self._registered[ack.consumer] = accepted
        return [Send(sender, self._heartbeat())]

    def _on_stale(self, stale: Stale) -> Effects:
        return self._succeeded(stale.current) if stale.current > self.epoch else []

    def _succeeded(self, epoch: int) -> Effects:
        error = StaleEpoch(
            f"producer {self.name!r} of epoch {self.epoch} has been succeeded by epoch {epoch}; this one stops. "
            "If two programs use one producer name, give each its own"
        )
        return [Stop("succeeded by a higher epoch", error)]

    # --- bounds

    def deregister(self, consumer: str) -> None:
        """An operator's word that a registered consumer will not come back; its retention ends."""
        if consumer not in self._registered:
            known = ", ".join(self._registered) or "none"
            raise HandshakeError(f"no consumer {consumer!r} is registered; registered are: {known}")
        del self._registered[consumer]

    @property
    def registered(self) -> Mapping[str, int]:
        """Registered consumers and what each has accepted."""
        return dict(self._registered)

    @property
    def buffered(self) -> tuple[int, int]:
        """Events and bytes in the replay buffer."""
        return self._buffer.count, self._buffer.bytes

    def _lowest(self) -> int:
        lowest = self._buffer.lowest
        return self.last + 1 if lowest is None else lowest

    def _evictable(self) -> bool:
        """The oldest frames may go once every registered consumer has accepted them."""
        return bool(self._buffer) and all(
            accepted >= self._buffer.oldest.last for accepted in self._registered.values()
        )

    def _evict_aged(self, now: int) -> None:
        while self._evictable() and now - self._buffer.oldest_us > self._config.buffer_age_us_max:
            self._buffer.evict_oldest()

    def _make_room(self, count: int, size: int, now: int) -> bool:
        """Evict the oldest until the new ones fit. A batch larger than the whole buffer is kept alone."""
        config, buffer = self._config, self._buffer
        self._evict_aged(now)
        while buffer and (
            buffer.count + count > config.buffer_count_max or buffer.bytes + size > config.buffer_bytes_max
        ):
            if not self._evictable():
                return False
            buffer.evict_oldest()
        return True

    def _check(self, payloads: Sequence[bytes], times: Sequence[int], ordinals: Sequence[int] | None) -> int:
        """Refuse what cannot be published; the bytes of all payloads otherwise."""
        if not payloads or len(times) != len(payloads) or (ordinals is not None and len(ordinals) != len(payloads)):
            raise SchemaError(f"{len(payloads)} payloads with {len(times)} times: each event needs exactly one stamp")
        sizes = list(map(len, payloads))
        largest, size = max(sizes), sum(sizes)
        if largest > self._channel.payload_bytes_max:
            raise SchemaError(
                f"a payload of {largest} bytes is over payload_bytes_max={self._channel.payload_bytes_max}"
            )
        if size + 16 * len(payloads) + 64 > self._channel.frame_bytes_max:
            raise SchemaError(f"a batch over frame_bytes_max={self._channel.frame_bytes_max}; publish fewer at once")
        if ordinals is None:
            rising = times.step > 0 if isinstance(times, range) else all(map(lt, times, times[1:]))
            first = (times[0], 0)
        else:
            stamps = list(zip(times, ordinals, strict=True))
            rising = all(map(lt, stamps, stamps[1:]))
            first = stamps[0]
        if not rising or (self._last_stamp is not None and first <= self._last_stamp):
            raise SchemaError(
                f"producer {self.name!r}: stamps must strictly increase, but {first} follows {self._last_stamp}"
                if rising
                else f"producer {self.name!r}: stamps must strictly increase within a batch too"
            )
        return size

    # --- heartbeat

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self.id,
            self.epoch,
            self.last,
            self.name,
            self._direct,
            self._previous_epoch,
            self._previous_last,
        )

    def _set_heartbeat(self, at_us: int) -> SetTimer:
        self._heartbeat_at = at_us
        return SetTimer(HEARTBEAT, at_us)
