"""The producer machine: numbers what is published, keeps it for replay, answers NACKs, and tells of its last sequence
when it falls silent (paper, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import le, lt
from typing import Any, Final

from unerring.channels.buffer import ReplayBuffer
from unerring.channels.codec import EVENT_BYTES, ChannelCodec
from unerring.channels.config import ChannelConfig, ProducerConfig
from unerring.channels.heartbeat import HeartbeatPace
from unerring.channels.messages import (
    NAME_CHARS_MAX,
    ORDINAL_MAX,
    Ack,
    Asked,
    Evicted,
    Frames,
    Heartbeat,
    Initial,
    Nack,
    Newcomer,
    Peer,
    PresentEpoch,
    Stale,
    any_epoch,
    check_epoch,
    producer_id,
)
from unerring.channels.records import (
    CLOSED_KEY,
    LAST_KEY,
    SUCCEEDED_KEY,
    Recovered,
    closed_put,
    epoch_put,
    frame_key,
    last_put,
    recover,
    registered_key,
    registered_put,
    signing_put,
    succeeded_put,
)
from unerring.channels.registrations import Registrations
from unerring.channels.repair import MergedRepairs, RepairPace
from unerring.channels.signature import Signed, Signer
from unerring.model import (
    MILLISECOND_US,
    SECOND_US,
    TIME_MIN,
    Address,
    Broadcast,
    CallerError,
    ConfigError,
    Deliver,
    Effects,
    HandshakeError,
    Persist,
    Report,
    SchemaError,
    Send,
    StaleEpoch,
    Stop,
)

HEARTBEAT: Final = "heartbeat"


class Producer:
    """One incarnation of a producer.

    `records` is what an earlier incarnation left on stable storage (may be empty); `fresh_epoch` is used when it left
    nothing, and must then be higher than any epoch before (drivers take the clock's milliseconds). `present`: the one
    that a successor which starts at a time would take.
    """

    def __init__(
        self,
        name: str,
        direct: Address,
        records: Mapping[str, bytes],
        fresh_epoch: int,
        config: ProducerConfig | None = None,
        channel: ChannelConfig | None = None,
        signing_seed: bytes = b"",
        present: PresentEpoch = any_epoch,
    ) -> None:
        if len(name) > NAME_CHARS_MAX:
            raise ConfigError(
                f"the producer name {name[:40]!r}... exceeds the limit of {NAME_CHARS_MAX} characters; choose a "
                "shorter one"
            )
        self.name = name
        self._present = present
        self.id = producer_id(name)
        self._config = config or ProducerConfig()
        self._channel = channel or ChannelConfig()
        self._codec = ChannelCodec(self._channel)
        before = recover(records, self._codec)
        self._previous_epoch = before.epoch
        self._previous_last = before.closed_at if before.last is None else before.last
        self.epoch = max(fresh_epoch, before.epoch + 1, before.succeeded + 1)
        self.last = 0
        self.closed = False
        self._direct = direct
        self._last_stamp: tuple[int, int] | None = None
        self._newest_us = TIME_MIN
        self._watermark_us: int | None = None
        self._published_us = 0
        self.holds_time = False
        """The rest of the last time is on its way, and only waits for room: that time is not over."""
        self._buffer = ReplayBuffer()
        self._registrations = Registrations(self._config)
        self._peers: dict[Address, None] = {}  # who keeps signed batches, oldest first
        self._signing_seed = signing_seed or before.signing_seed
        self._signer = Signer(self._signing_seed) if self._signing_seed else None
        self._beat = HeartbeatPace(HEARTBEAT, self._config)
        self._pace = RepairPace(self._config)
        self._merged = MergedRepairs(self._config)
        self._forgotten: list[str] = []  # records of what was evicted, to be deleted with the next write
        if before.last is not None:
            self._resume(before)

    def _resume(self, before: Recovered) -> None:
        """An earlier incarnation was durable: go on in its epoch. If this one is not, or the epoch has been succeeded,
        clear its buffer away: its end is known."""
        if not self._config.durable or before.succeeded > before.epoch:
            self._forgotten.extend(frame_key(frames.first) for frames in before.frames)
            self._forgotten.extend(registered_key(consumer) for consumer in before.registered)
            if self._config.durable:
                self._go_on_above(before.last_stamp)
            else:
                self._forgotten.append(LAST_KEY)
            return
        self.epoch = before.epoch
        self.last = before.last or 0
        self._previous_epoch, self._previous_last = 0, None
        self._go_on_above(before.last_stamp)
        self._registrations.restore(before.registered, before.unconfirmed)
        for frames in before.frames:
            self._buffer.append(frames, 0)

    def _go_on_above(self, stamp: tuple[int, int] | None) -> None:
        """What was declared is declared again, with every heartbeat: those who were to hear it may have died, too."""
        self._last_stamp = stamp
        if stamp is not None and stamp[1] == ORDINAL_MAX:
            self._watermark_us = stamp[0]

    # --- the application's side

    @property
    def last_time(self) -> int:
        """Nothing at or before it will be published any more."""
        return TIME_MIN if self._last_stamp is None else self._last_stamp[0]

    @property
    def goes_on(self) -> bool:
        """Whether more events of the last time may be published."""
        return self._last_stamp is not None and self._last_stamp[1] < ORDINAL_MAX

    def start(self, now: int) -> Effects:
        """The new epoch is on stable storage before anything of it is sent."""
        self._buffer.restamp(now)
        self._registrations.begin(now)
        puts = [epoch_put(self.epoch)]
        if self._config.durable:
            puts.append(last_put(self.last, self._last_stamp or (0, 0)))
        if self._signing_seed:
            puts.append(signing_put(self._signing_seed))
        effects: Effects = [Persist(tuple(puts), (CLOSED_KEY, SUCCEEDED_KEY, *self._take_forgotten()))]
        if self._beat.on:
            effects.extend((Broadcast(self._heartbeat()), self._beat.begin(now)))
        return effects

    def publish(
        self,
        payloads: Sequence[bytes],
        times: Sequence[int],
        ordinals: Sequence[int] | None,
        now: int,
        size: int | None = None,
        more: bool = False,
        holds: bool = False,
    ) -> Effects | None:
        """Consecutive events, all or none. None: no room while a registered consumer is behind; try again later.

        Without `ordinals` events of one time are numbered in their order. `more`: others of the last time may follow;
        otherwise that time is over with them. With the next later event, or once no more came for a while, it is over
        all the same. `holds`: the next events are of the last time too, and it is not over before they come, however
        long they wait for room. `size` is the bytes of all payloads, if the caller has counted them; the sequences are
        kept, not copied. SchemaError: a stamp that does not increase or a payload too large; nothing was published.
        """
        if self.closed:
            raise CallerError(f"producer {self.name!r} is closed: its last sequence is on record; open a new one")
        size = sum(map(len, payloads)) if size is None else size
        self._check(payloads, times, ordinals, size)
        if self._config.lateness_us:
            more = True  # of its last time, and of those before
        elif ordinals is None:
            ordinals = self._ordinals(times)
        expired: Effects = []
        if not self._make_room(len(payloads), size, now):
            expired = self._expire(now)
            if not expired or not self._make_room(len(payloads), size, now):
                return None
        frames = self._signed(Frames(self.id, self.epoch, self.last + 1, times, payloads, ordinals, size, more=more))
        self._buffer.append(frames, now)
        self.last += len(payloads)
        self._last_stamp = self._stamp_after(times, ordinals, more)
        self._published_us = now
        self.holds_time = holds
        effects: Effects = [*expired, *self._kept(frames), Broadcast(frames)]
        timer = self._beat.published(now)
        if timer is not None:
            effects.append(timer)
        return effects

    def _stamp_after(self, times: Sequence[int], ordinals: Sequence[int] | None, more: bool) -> tuple[int, int]:
        """Nothing at or before this stamp is published any more."""
        if not self._config.lateness_us:
            return times[-1], (ordinals[-1] if ordinals else 0) if more else ORDINAL_MAX
        self._newest_us = max(self._newest_us, *times)
        over_us = self._newest_us - self._config.lateness_us - 1
        return max((over_us, ORDINAL_MAX), self._last_stamp or (over_us, ORDINAL_MAX))

    def advance(self, time_us: int, now: int) -> Effects:
        """A watermark: nothing more is published at or before this time, so that others move on in a quiet stream.

        A durable producer keeps it before it tells it, and goes on above it after a restart.
        """
        if self.closed:
            raise CallerError(f"producer {self.name!r} is closed: it sends no more watermarks; open a new one")
        if self._last_stamp is not None and (time_us, ORDINAL_MAX) <= self._last_stamp:
            return []
        self._last_stamp = (time_us, ORDINAL_MAX)
        self._watermark_us = time_us
        kept = [Persist((last_put(self.last, self._last_stamp),), self._take_forgotten())]
        return [*(kept if self._config.durable else []), Broadcast(self._heartbeat())]

    def close(self, now: int) -> Effects:
        """A durable mark closes the epoch, and the last heartbeat shows the tail to those who lost it. Nothing more of
        the last time will come."""
        self.closed = True
        puts = [closed_put(self.last)]
        if self._newest_us > self.last_time:
            self._last_stamp = (self._newest_us, 0)
        if self._last_stamp is not None and self.goes_on:
            self._watermark_us = self._last_stamp[0]
            self._last_stamp = (self._watermark_us, ORDINAL_MAX)
            puts += [last_put(self.last, self._last_stamp)] if self._config.durable else []
        effects: Effects = [Persist(tuple(puts), self._take_forgotten())]
        if self._beat.on:
            effects.append(Broadcast(self._heartbeat()))
        return effects

    def welcome(self, consumer: Address, information: bytes, now: int) -> Effects:
        """The application's answer to `Asked`: the cut is now, between two publishes."""
        cut = Initial(self.id, self.epoch, self.last, information, self.name, self._direct)
        return [Send(consumer, self._signed(cut))]

    def _signed(self, message: Signed) -> Signed:
        return message if self._signer is None else self._signer.signed(message)

    def _kept(self, frames: Frames) -> Effects:
        """Durable: on disk before it is sent, so that a restart neither forgets it nor gives its number away again."""
        if not self._config.durable:
            return []
        stamp = self._last_stamp or (0, 0)
        puts = ((frame_key(frames.first), self._codec.encode(frames)), last_put(self.last, stamp))
        return [Persist(puts, self._take_forgotten())]

    def _take_forgotten(self) -> tuple[str, ...]:
        forgotten, self._forgotten = self._forgotten, []
        return tuple(forgotten)

    def _evict(self) -> None:
        first = self._buffer.evict_oldest()
        if self._config.durable:
            self._forgotten.append(frame_key(first))

    # --- the consumers' side

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        """ProtocolError: what the sender cannot mean; nothing of it was believed."""
        kind = type(message)
        if kind not in (Nack, Ack, Newcomer, Stale, Peer):
            return [Report("channel.unexpected", f"{kind.__name__} from {sender}: a producer has no use for it")]
        if message.producer != self.id:
            return [Report("channel.not_mine", f"{kind.__name__} from {sender} for another producer")]
        epoch = message.current if kind is Stale else message.epoch
        if epoch > self.epoch and kind is not Peer:
            return self._succeeded(epoch, now)
        if kind is Nack:
            return self._on_nack(sender, message, now)
        if kind is Ack:
            return self._on_ack(sender, message, now)
        if kind is Newcomer:
            return [Deliver(Asked(sender))]
        return self._on_peer(message) if kind is Peer else []

    def timer(self, name: str, now: int) -> Effects:
        beat, again = self._beat.due(now)
        expired = self._expire(now)
        if not beat:
            return [*expired, again]
        # The heartbeat that follows a burst declares the burst's last time over: no message is added for that.
        return [*expired, *(self._settled(now) or [Broadcast(self._heartbeat())]), again]

    def _settled(self, now: int) -> Effects:
        """The last time is over if nothing more of it came for a while; a clock that counts seconds takes a second."""
        if self.closed or self._last_stamp is None or self.holds_time or self._config.lateness_us:
            return []
        if self._last_stamp[0] % SECOND_US == 0 and now - self._published_us < SECOND_US:
            return []
        return self.advance(self._last_stamp[0], now)

    def _on_nack(self, sender: Address, nack: Nack, now: int) -> Effects:
        if nack.epoch < self.epoch or not nack.ranges or nack.ranges[-1][1] > self.last:
            # It tells the end of the epoch before, if anyone can; or that there is no such thing as is asked for.
            return [Send(sender, self._heartbeat())]
        self._evict_aged(now)
        lowest = self._lowest()
        effects: Effects = []
        if nack.ranges[0][0] < lowest:
            effects.append(Send(sender, self._signed(Evicted(self.id, self.epoch, lowest))))
        budget = self._pace.budget(self._config.replay_bytes_max, now)
        for first, last in nack.ranges:
            missing = (max(first, lowest), min(last, self.last))
            if budget <= 0 or missing[0] > missing[1]:
                continue
            how = self._merged.ask(missing, sender, now)
            if how != "done":
                budget = self._answer(None if how == "all" else sender, missing, budget, nack.bytes_max, effects)
        return effects

    def _answer(
        self, to: Address | None, missing: tuple[int, int], budget: int, bytes_max: int, effects: Effects
    ) -> int:
        """Answer a range until the budget is spent, in frames that whoever asks takes; what is left of the budget."""
        at, last = missing
        whole = False
        while not whole and at <= last and budget > 0:
            whole = not 0 < bytes_max < budget
            count, weight = self._replay(to, at, last, budget if whole else bytes_max, effects)
            at += count
            budget -= weight
        return budget

    def _replay(self, to: Address | None, first: int, last: int, bytes_max: int, effects: Effects) -> tuple[int, int]:
        """Answer the beginning of a range in one frame, many small ones merged into it. None: to all. How many events
        that were, and their weight."""
        times: list[int] = []
        ordinals: list[int] = []
        payloads: list[bytes] = []
        size = weight = 0
        more = True
        for frames in self._buffer.between(first, last):
            for at, payload in enumerate(frames.payloads):
                if payloads and weight + len(payload) + EVENT_BYTES > bytes_max:
                    break
                size += len(payload)
                weight += len(payload) + EVENT_BYTES
                times.append(frames.times[at])
                ordinals.append(frames.ordinals[at] if frames.ordinals else 0)
                payloads.append(payload)
            else:
                more = frames.more
                continue
            more = True
            break
        if payloads:
            kept = ordinals if any(ordinals) else None
            answer = self._signed(Frames(self.id, self.epoch, first, times, payloads, kept, size, more=more))
            effects.append(Broadcast(answer) if to is None else Send(to, answer))
            effects.append(Report("channel.replayed", count=len(payloads)))
            self._pace.spend(weight)
        return max(len(payloads), 1), max(weight, 1)

    def _on_ack(self, sender: Address, ack: Ack, now: int) -> Effects:
        """The first one registers: from then on nothing behind it is evicted."""
        accepted = min(ack.accepted, self.last) if ack.epoch == self.epoch else 0
        known = ack.consumer in self._registrations.accepted
        if known and not self._registrations.hear(ack.consumer, accepted, now):
            return []
        expired = self._expire(now)
        if not known and self._registrations.full:
            why = f"{ack.consumer} at {sender}: registered_max reached"
            return [*expired, Report("channel.register_refused", why)]
        if not known:
            self._registrations.add(ack.consumer, accepted, now)
        # A durable producer that restarts must not evict before its consumers have said again what they have.
        kept: Effects = [Persist((registered_put(ack.consumer, known),))] if self._config.durable else []
        return [*expired, *kept, *([] if known else [Send(sender, self._heartbeat())])]

    def _expire(self, now: int) -> Effects:
        """What is kept for nobody any more makes room with the next event; who comes back is told what it lost."""
        expired = self._registrations.expire(now)
        if self._config.durable:
            self._forgotten.extend(map(registered_key, expired))
        silent = "has not been heard of again, and its registration is forgotten"
        return [Report("channel.registration_expired", f"{consumer} {silent}") for consumer in expired]

    def _on_peer(self, peer: Peer) -> Effects:
        """The next heartbeats tell the others of it."""
        if self._signer is not None and self._config.peers_max:
            self._peers.pop(peer.address, None)
            while len(self._peers) >= self._config.peers_max:
                del self._peers[next(iter(self._peers))]
            self._peers[peer.address] = None
        return []

    def _succeeded(self, epoch: int, now: int) -> Effects:
        check_epoch(epoch, self._present(now) + self._config.epoch_ahead_us_max // MILLISECOND_US)
        error = StaleEpoch(
            f"producer {self.name!r} of epoch {self.epoch} has been succeeded by epoch {epoch}; this one stops. "
            "If two programs use one producer name, give each its own. If its clock was ahead, stop it and the "
            f"run, run `unerring channel reset STREAM {self.name} --data RUN`, and start both again"
        )
        # Should it be started again, it begins above that epoch: nobody would hear it otherwise.
        return [Persist((succeeded_put(epoch),)), Stop("succeeded by a higher epoch", error)]

    # --- bounds

    def deregister(self, consumer: str) -> None:
        """An operator's word that a registered consumer will not come back; its retention ends."""
        if consumer not in self._registrations.accepted:
            known = ", ".join(self._registrations.accepted) or "none"
            raise HandshakeError(f"no consumer {consumer!r} is registered; registered are: {known}")
        self._registrations.remove(consumer)
        if self._config.durable:
            self._forgotten.append(registered_key(consumer))

    @property
    def registered(self) -> Mapping[str, int]:
        """Registered consumers and what each has accepted."""
        return dict(self._registrations.accepted)

    @property
    def buffered(self) -> tuple[int, int]:
        """Events and bytes in the replay buffer."""
        return self._buffer.count, self._buffer.bytes

    def _lowest(self) -> int:
        lowest = self._buffer.lowest
        return self.last + 1 if lowest is None else lowest

    def _evictable(self) -> bool:
        """The oldest frames may go once every registered consumer has accepted them."""
        accepted = self._registrations.lowest
        if not self._buffer or accepted is None:
            return bool(self._buffer)
        return accepted >= self._buffer.oldest.last

    def _evict_aged(self, now: int) -> None:
        buffer, age_us_max = self._buffer, self._config.buffer_age_us_max
        while buffer and now - buffer.oldest_us > age_us_max and self._evictable():
            self._evict()

    def _make_room(self, count: int, size: int, now: int) -> bool:
        """Evict the oldest until the new ones fit. A batch larger than the whole buffer is kept alone."""
        config, buffer = self._config, self._buffer
        self._evict_aged(now)
        while buffer and (
            buffer.count + count > config.buffer_count_max or buffer.bytes + size > config.buffer_bytes_max
        ):
            if not self._evictable():
                # The oldest reach into the time that goes on, and nobody can acknowledge a part of a time.
                return self.goes_on and buffer.oldest.times[-1] == self.last_time
            self._evict()
        return True

    def _check(
        self, payloads: Sequence[bytes], times: Sequence[int], ordinals: Sequence[int] | None, size: int
    ) -> None:
        """Refuse what cannot be published."""
        if not payloads or len(times) != len(payloads) or (ordinals is not None and len(ordinals) != len(payloads)):
            raise SchemaError(f"{len(payloads)} payloads with {len(times)} times: each event needs exactly one stamp")
        if size > self._channel.payload_bytes_max:
            largest = max(map(len, payloads))
            if largest > self._channel.payload_bytes_max:
                raise SchemaError(
                    f"a payload of {largest} bytes exceeds payload_bytes_max={self._channel.payload_bytes_max}; "
                    "send a reference"
                )
        if size + EVENT_BYTES * len(payloads) + 128 > self._channel.frame_bytes_max:
            raise SchemaError(
                f"the batch exceeds frame_bytes_max={self._channel.frame_bytes_max}; publish fewer events at once"
            )
        if self._config.lateness_us:
            self._check_late(times, ordinals)
            return
        if ordinals is None:
            rising = times.step > 0 if isinstance(times, range) else all(map(le, times, times[1:]))
        else:
            stamps = list(zip(times, ordinals, strict=True))
            rising = all(map(lt, stamps, stamps[1:]))
        if not rising:
            raise SchemaError(f"producer {self.name!r}: stamps must increase within a batch too")
        if self._last_stamp is None or times[0] > self._last_stamp[0]:
            return
        time_us, ordinal = self._last_stamp
        if times[0] < time_us:
            raise SchemaError(f"producer {self.name!r}: stamps must increase, but {times[0]} follows {time_us}")
        if ordinal == ORDINAL_MAX:
            raise SchemaError(
                f"producer {self.name!r}: time {time_us} is over: it was declared so, or nothing more of it came for a "
                "while; publish events of one time together, or give this one a later time"
            )
        if ordinals is not None and ordinals[0] <= ordinal:
            raise SchemaError(
                f"producer {self.name!r}: stamps must increase, but {(times[0], ordinals[0])} follows "
                f"{self._last_stamp}; leave the ordinal out, and the producer numbers the event"
            )

    def _check_late(self, times: Sequence[int], ordinals: Sequence[int] | None) -> None:
        """Refuse what is too far behind what was published before it."""
        if ordinals is not None:
            raise SchemaError(
                f"producer {self.name!r}: events of a stream with lateness are numbered by the log; leave ordinals out"
            )
        newest_us, lateness_us = self._newest_us, self._config.lateness_us
        for time_us in times:
            newest_us = max(newest_us, time_us)
            if time_us < newest_us - lateness_us or time_us <= self.last_time:
                raise SchemaError(
                    f"producer {self.name!r}: time {time_us} is over: {newest_us} was published, and the lateness is "
                    f"{lateness_us / SECOND_US:g} s, or a watermark said so; give the event a later time, or declare "
                    "the stream with more lateness"
                )

    def _ordinals(self, times: Sequence[int]) -> Sequence[int] | None:
        """Events of one time are numbered in their order; None where each has a time of its own."""
        time_us, ordinal = self._last_stamp or (TIME_MIN, 0)
        if times[0] > time_us and (isinstance(times, range) or all(map(lt, times, times[1:]))):
            return None
        ordinals: list[int] = []
        for time in times:
            ordinal = ordinal + 1 if time == time_us else 0
            time_us = time
            ordinals.append(ordinal)
        return ordinals

    # --- heartbeat

    def _heartbeat(self) -> Heartbeat:
        beat = Heartbeat(
            self.id,
            self.epoch,
            self.last,
            self.name,
            self._direct,
            self._previous_epoch,
            self._previous_last,
            b"" if self._signer is None else self._signer.key,
            tuple(self._peers),
            self._watermark_us,
        )
        return self._signed(beat)
