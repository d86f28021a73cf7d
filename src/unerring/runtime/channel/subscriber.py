"""A consumer machine on asyncio, over any event service."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from unerring.channels import (
    ChannelCodec,
    ChannelConfig,
    Consumer,
    ConsumerConfig,
    Frames,
    Ledger,
    Loss,
    Nack,
    Position,
    Watermark,
)
from unerring.model import (
    UNDECODABLE,
    Actor,
    Address,
    Inlet,
    MessageLoss,
    Policy,
    renamed_keywords,
)
from unerring.runtime.channel.driver import ChannelDriver
from unerring.runtime.channel.epochs import present_epoch
from unerring.runtime.channel.keys import BelievedKeys
from unerring.runtime.channel.records import Batch, Received, Records
from unerring.runtime.channel.vetting import own_name, vet_frames
from unerring.runtime.guard import Guard
from unerring.runtime.reports import Reports
from unerring.runtime.timers import monotonic_us
from unerring.runtime.transports import TransportConfig, for_stream, identities_at, open_inlets, open_outlet, policy_at

V = TypeVar("V")

_ROOM_BYTES: Final = 1024
"""What a frame has besides its events."""
_QUARANTINE_MAX: Final = 256


class OnLoss(StrEnum):
    """The reaction to an unrecoverable loss (channel paper, section 3.4). The ledger has it in each case."""

    RAISE = "raise"
    """`MessageLoss` is raised in the event's place; whoever goes on gets what follows it."""
    WARN = "warn"
    """A `LossWarning`, and the stream goes on."""
    IGNORE = "ignore"
    """The stream goes on."""
    QUIT = "quit"
    """`MessageLoss` is raised and the consumer closes itself: it counts as faulty."""
    RECOVER = "recover"
    """The consumer starts over as a newcomer, with the producer's initial information."""


class LossWarning(UserWarning):
    """Some information may not be up to date: events were lost for good."""


class AsyncSubscriber(Generic[V]):
    """Consumes a reliable channel: each event in order and once, or an exact report of what is lost.

    ```python
    async with AsyncSubscriber("tcp://127.0.0.1:7000", Reading) as events:
        async for event in events:
            print(event.value)
    ```

    An event counts as accepted when the next one is asked for. `positions()` is where to go on from after a restart.
    With `explicit` nothing counts as accepted before `accept_through` says so: for those who keep events durably.
    `on_initial` takes the producer's initial information: with `Start.INITIAL` at first, with `on_loss="recover"` after
    each loss. `on_watermark` hears a producer's watermarks, in their place among its events; `on_watermark_of` hears
    the producer's id too. `where` may be several addresses, whose producers are then consumed together.
    `serve` ("host:port", port 0 for any) is where other consumers reach this one when the producer is gone: what its
    producers signed is kept for them.
    """

    @renamed_keywords(on_progress="on_watermark")
    def __init__(
        self,
        where: str | Sequence[str] | Inlet,
        stream: type[V] | None = None,
        *,
        on_loss: OnLoss | str = OnLoss.RAISE,
        on_initial: Callable[[bytes], None] | None = None,
        on_watermark: Callable[[int], None] | None = None,
        on_watermark_of: Callable[[int, int], None] | None = None,
        explicit: bool = False,
        serve: str = "",
        positions: Mapping[int, Position] | None = None,
        config: ConsumerConfig | None = None,
        channel: ChannelConfig | None = None,
        transport: TransportConfig | None = None,
        seed: int | None = None,
    ) -> None:
        self.reports = Reports()
        self.on_loss = OnLoss(on_loss)
        self._on_initial = on_initial
        self._on_watermark = on_watermark
        self._on_watermark_of = on_watermark_of
        self._explicit = explicit
        self._quit: MessageLoss | None = None
        self.quarantine: deque[tuple[bytes, str]] = deque(maxlen=_QUARANTINE_MAX)
        """Payloads that are not records of the stream, with the reason; the oldest make room."""
        self._records = Records(stream)
        self._config = config or ConsumerConfig()
        places = [where] if isinstance(where, str) else where
        of = self._records.schema.name if self._records.schema is not None else ""
        transport = for_stream(transport, of)
        if isinstance(places, Sequence) and self._config.registered:
            certified = identities_at(places, transport)
            name = own_name(certified, Actor.CONSUMER, "")
            if name:  # it acknowledges for nobody else
                self._config = msgspec.structs.replace(self._config, registered=f"{name}/{self._config.registered}")
        given = getattr(getattr(places, "guard", None), "policy", Policy(()))
        policy = policy_at(places, transport) if isinstance(places, Sequence) and places else given
        self._keys = BelievedKeys(self._config, transport.secret, policy)
        transport = msgspec.structs.replace(transport, signed=self._keys.asked)
        self._inlet = open_inlets(places, transport, self.reports) if isinstance(places, Sequence) else places
        self._peer_way = open_outlet(f"tcp://{serve}", transport, self.reports) if serve else None
        takes = getattr(self._inlet, "config", TransportConfig()).frame_bytes_max - _ROOM_BYTES
        if takes < self._config.answer_bytes_max:
            self._config = msgspec.structs.replace(self._config, answer_bytes_max=max(1024, takes))
        self._guard: Guard | None = getattr(self._inlet, "guard", None)
        known = self._keys if self._keys.asked else None
        self._machine = Consumer(random.Random(seed), self._config, positions, present_epoch, known)
        codec = ChannelCodec(channel or ChannelConfig())
        self._driver = ChannelDriver(
            codec,
            self.reports,
            inlet=self._inlet,
            deliver=self._deliver,
            before_timer=self._open_inbox,
            vet=vet_frames(self._inlet, transport.stream),
        )
        self._peer_driver = _PeerDriver(codec, self.reports, outlet=self._peer_way, accepts=Nack)
        self._driver.machine = self._peer_driver.machine = self._machine
        self._queue: deque[Frames | Loss | Watermark] = deque()
        self._queued = 0
        self._inbox: deque[tuple[Address, bytes]] = deque()
        """Frames that came while the application waits: each is opened when it is asked for, so that the events of one
        batch are let go before those of the next are made."""
        self._opening_due = False
        self._waiting: list[asyncio.Future[None]] = []
        """The applications' tasks that wait for something to come."""
        self._paused = False
        self._closed = False
        self._current: Frames | Loss | None = None  # with the application; accepted when it asks for more
        self._events: Batch[V] | None = None
        self._next_event = 0

    # --- life

    async def open(self) -> Self:
        """Subscribe. Wait for a producer that is away; raise if the producer refuses."""
        if self._peer_way is not None:
            await self._peer_way.open(self._peer_driver.receive)
            self._machine.peers.address = self._peer_way.direct
        await self._inlet.open(self._receive)
        if self._guard is not None:
            self._guard.watch(self._renew_keys)
            self._renew_keys()
        self._driver.start()
        return self

    def _renew_keys(self) -> None:
        """The policy may have changed: whose key it names no more, or whom it revokes, is believed no more."""
        if self._guard is not None:
            self._keys.renew(self._guard.policy)
        if self._keys.asked:
            self._machine.believe(self._keys)

    async def close(self) -> None:
        """Unsubscribe. The last event stays unaccepted unless `accept` was called."""
        self._closed = True
        self._wake()
        await self._driver.close()
        await self._inlet.close()
        if self._peer_way is not None:
            await self._peer_driver.close()
            await self._peer_way.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- consuming

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Received[V]:
        while (event := self.take_ready()) is None:
            self._events, self._next_event = await self._take(), 0
        return event

    def take_ready(self) -> Received[V] | None:
        """The next event of the present batch, without waiting; None when the batch is used up."""
        if self._events is None or self._next_event >= len(self._events.values):
            return None
        event = self._events[self._next_event]
        self._next_event += 1
        return event

    def accept(self, event: Received[V]) -> None:
        """Accept everything up to this event, without asking for the next one."""
        self.accept_through(event.producer, event.epoch, event.sequence)

    def accept_through(self, producer: int, epoch: int, sequence: int) -> None:
        """Accept everything of this producer up to here; an open-ended loss counts by its first sequence."""
        self._driver.take(self._machine.accepted(producer, epoch, sequence, monotonic_us()))
        self._go_on_reading()

    async def batches(self) -> AsyncIterator[Batch[V]]:
        """Yield batches of events, as they arrived. A batch counts as accepted when the next one is asked for.

        After a loss was raised, call it again to continue.
        """
        while True:
            try:
                events = await self._take()
            except StopAsyncIteration:
                return
            if events is not None:
                self._events, self._next_event = None, 0
                yield events

    async def _take(self) -> Batch[V] | None:
        """The next segment's events; accepts the one before. Raises at a loss if the application wants that."""
        self._events, self._next_event = None, 0
        if self._quit is not None:
            raise self._quit
        self._accept_current()
        while not self._queue:
            if self._inbox:
                sender, data = self._inbox.popleft()
                self._driver.receive(sender, data)
            elif self._closed:
                raise StopAsyncIteration
            else:
                await self._arrival()
        self._open_soon()
        segment = self._queue.popleft()
        if isinstance(segment, Watermark):
            if self._on_watermark is not None:
                self._on_watermark(segment.watermark_us)
            if self._on_watermark_of is not None:
                self._on_watermark_of(segment.producer, segment.watermark_us)
            return None
        self._current = segment
        self._queued -= 1 if isinstance(segment, Loss) else len(segment.payloads)
        if isinstance(segment, Loss):
            await self._react(segment)
            return None
        return self._open_frames(segment)

    def _open_frames(self, frames: Frames) -> Batch[V] | None:
        try:
            return Batch(frames, range(frames.first, frames.last + 1), self._records.decode_all(frames.payloads))
        except UNDECODABLE:
            return self._open_carefully(frames)

    def _open_carefully(self, frames: Frames) -> Batch[V] | None:
        """One payload at a time: what is not a record goes to quarantine, and the stream goes on."""
        name = self.name_of(frames.producer)
        sequences: list[int] = []
        values: list[V] = []
        for sequence, payload in enumerate(frames.payloads, frames.first):
            try:
                values.append(self._records.decode(payload))
            except UNDECODABLE as error:
                self.quarantine.append((payload, str(error)))
                self.reports.note("channel.bad_record", f"{name}, epoch {frames.epoch}, sequence {sequence}: {error}")
            else:
                sequences.append(sequence)
        return Batch(frames, sequences, values) if values else None

    async def _react(self, loss: Loss) -> None:
        if loss.information is not None and self._on_initial is not None:
            self._on_initial(loss.information)
        if loss.count == 0:
            return
        name = self.name_of(loss.producer)
        error = MessageLoss(name, loss.epoch, loss.first, loss.last, loss.cause, loss.producer)
        self.reports.note("channel.lost", str(error), loss.count or 1)
        if self.on_loss is OnLoss.RAISE:
            raise error
        if self.on_loss is OnLoss.QUIT:
            self._quit = error
            await self.close()
            raise error
        if self.on_loss is OnLoss.RECOVER and loss.information is None:
            self._driver.take(self._machine.recover(loss.producer, monotonic_us()))
        if self.on_loss is OnLoss.WARN:
            warnings.warn(str(error), LossWarning, stacklevel=4)

    def _accept_current(self) -> None:
        segment, self._current = self._current, None
        if segment is None or self._explicit:
            self._go_on_reading()
            return
        through = segment.first if segment.last is None else segment.last
        effects = self._machine.accepted(segment.producer, segment.epoch, through, monotonic_us())
        if effects:
            self._driver.take(effects)
        if self._paused:
            self._go_on_reading()

    def _go_on_reading(self) -> None:
        if self._paused and self._queued <= self._config.in_hand_max // 4:
            self._paused = False
            self._inlet.resume_reading()
            self._driver.executor.hold_timers(False)

    # --- what can be seen

    def name_of(self, producer: int) -> str:
        """The producer's name, or its id in hexadecimal before its first heartbeat."""
        return self._machine.name_of(producer)

    @property
    def met(self) -> list[int]:
        """The producers heard of since the start."""
        return self._machine.met()

    def ledger(self) -> Ledger:
        """published = delivered + declared lost + pending, for every epoch of every producer."""
        self._accept_partly()
        return self._machine.ledger()

    def positions(self) -> dict[int, Position]:
        """Up to where everything is accepted. Store it with the effect, and pass it as `positions` after a restart."""
        self._accept_partly()
        return self._machine.positions()

    def _accept_partly(self) -> None:
        """Accept the batch in hand up to the event that the application still works on."""
        segment, taken = self._current, self._next_event
        if self._explicit:
            return
        if isinstance(segment, Frames) and self._events and taken >= 2:
            self._machine.accepted(segment.producer, segment.epoch, self._events[taken - 2].sequence, monotonic_us())

    # --- the machine

    async def _arrival(self) -> None:
        """Wait until something came."""
        arrival = asyncio.get_running_loop().create_future()
        self._waiting.append(arrival)
        try:
            await arrival
        except BaseException:
            self._open_soon()
            raise
        finally:
            self._waiting.remove(arrival)

    def _wake(self) -> None:
        for arrival in self._waiting:
            if not arrival.done():
                arrival.set_result(None)

    def _receive(self, sender: Address, data: bytes) -> None:
        if self._waiting:
            self._inbox.append((sender, data))
            self._wake()
            return
        self._open_inbox()
        self._driver.receive(sender, data)

    def _open_soon(self) -> None:
        """Gaps and heartbeats in the inbox do not wait for an application that is busy with something else."""
        if self._inbox and not self._opening_due:
            self._opening_due = True
            asyncio.get_running_loop().call_soon(self._open_inbox)

    def _open_inbox(self) -> None:
        self._opening_due = False
        while self._inbox:
            self._driver.receive(*self._inbox.popleft())

    def _deliver(self, segment: Frames | Loss | Watermark) -> None:
        self._queue.append(segment)
        if not isinstance(segment, Watermark):
            self._queued += 1 if isinstance(segment, Loss) else len(segment.payloads)
        if self._waiting:
            self._wake()
        if not self._paused and self._queued > self._config.in_hand_max // 2:
            # The application is slow. Answers could not be taken in either, so nothing is asked for meanwhile.
            self._paused = True
            self._inlet.pause_reading()
            self._driver.executor.hold_timers(True)


class _PeerDriver(ChannelDriver):
    """Peers may ask, and nothing else: what they have to give comes on lines that we dialled."""

    def send(self, to: Address, message: Any) -> None:
        super().send(to, message)
        self.reports.count("channel.served_to_peers", len(message.payloads))
