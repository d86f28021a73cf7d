"""A producer machine on asyncio, over any event service."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, Generic, Self, TypeVar

import msgspec

from unerring.channels import (
    EVENT_BYTES,
    ORDINAL_MAX,
    Asked,
    ChannelCodec,
    ChannelConfig,
    Producer,
    ProducerConfig,
)
from unerring.model import (
    TIME_MAX,
    Actor,
    Address,
    CallerError,
    ConfigError,
    Outlet,
    SchemaError,
    StableStorage,
    renamed_keywords,
    to_time_us,
)
from unerring.runtime.channel.driver import ChannelDriver
from unerring.runtime.channel.epochs import fresh_epoch, present_epoch
from unerring.runtime.channel.keys import signing_seed
from unerring.runtime.channel.records import Records
from unerring.runtime.channel.vetting import own_name, vet_requests
from unerring.runtime.reports import Reports
from unerring.runtime.storage import MemoryStorage
from unerring.runtime.timers import monotonic_us
from unerring.runtime.transports import TransportConfig, for_stream, identities_at, open_outlet
from unerring.tracing import tracer

V = TypeVar("V")

_BATCH_COUNT_MAX: Final = 1024
_ROOM_POLL_S: Final = 1.0


class AsyncPublisher(Generic[V]):
    """Publishes events on a reliable channel.

    ```python
    async with AsyncPublisher("tcp://127.0.0.1:7000", Reading) as out:
        await out.publish(Reading("press-1", 81.5))
    ```

    `storage` keeps the epoch and, after a clean close, the last sequence; with `ProducerConfig(durable=True)` also the
    replay buffer, so that a restart continues. Without it every start is a new epoch whose predecessor's end nobody
    knows. `initial` gives the information that a newcomer needs; it is called between two publishes.

    `watermark_every_us`: events are stamped by this clock, and a watermark of its time goes out so often.
    """

    @renamed_keywords(progress_every_us="watermark_every_us")
    def __init__(
        self,
        where: str | Outlet,
        stream: type[V] | None = None,
        *,
        name: str = "",
        storage: StableStorage | None = None,
        initial: Callable[[], bytes] | None = None,
        watermark_every_us: int | None = None,
        config: ProducerConfig | None = None,
        channel: ChannelConfig | None = None,
        transport: TransportConfig | None = None,
    ) -> None:
        self.reports = Reports()
        self._records = Records(stream)
        self._name = name or (stream.__name__ if stream is not None else "producer")
        self._storage = storage
        self._initial = initial
        self._watermark_every_us = watermark_every_us
        self._watermarks: asyncio.Task[None] | None = None
        self._config = config or ProducerConfig()
        if self._records.schema is not None and self._records.schema.lateness_us:
            self._config = msgspec.structs.replace(self._config, lateness_us=self._records.schema.lateness_us)
        if self._config.durable and storage is None:
            raise ConfigError("a durable producer needs storage=, such as SqliteStorage(path)")
        self._channel = channel or ChannelConfig()
        self._codec = ChannelCodec(self._channel)
        if isinstance(where, str):
            of = self._records.schema.name if self._records.schema is not None else self._name
            transport = for_stream(transport, of, signed=self._config.signed)
            certified = identities_at([where], transport)
            self._name = own_name(certified, Actor.PRODUCER, name) or self._name
        self._secret = "" if transport is None else transport.secret
        self._outlet = open_outlet(where, transport, self.reports) if isinstance(where, str) else where
        self._room = asyncio.Event()
        self._driver = ChannelDriver(
            self._codec,
            self.reports,
            outlet=self._outlet,
            storage=storage or MemoryStorage(),
            sync_inline=storage is None,
            deliver=self._welcome,
            on_change=self._room.set,
            vet=vet_requests(self._outlet),
        )
        self._machine: Producer | None = None
        self._last_time = 0
        self._traces = tracer()
        self._traced_as = self._records.schema.name if self._records.schema is not None else self._name
        # Several tasks may publish at once; a batch must not be numbered while another one waits for room.
        self._turn = asyncio.Lock()

    # --- life

    async def open(self) -> Self:
        """Start listening and make the new epoch durable."""
        await self._outlet.open(self._receive)
        records = {} if self._storage is None else self._storage.load("channel/")
        seed = signing_seed(self._config.signing_key, self._secret, self._name) if self._config.signed else b""
        self._machine = Producer(
            self._name, self._outlet.direct, records, fresh_epoch(), self._config, self._channel, seed, present_epoch
        )
        self._driver.machine = self._machine
        self._driver.start()
        await self._settled()
        if self._watermark_every_us is not None:
            self._watermarks = asyncio.create_task(self._send_watermarks(self._watermark_every_us))
        return self

    async def close(self) -> None:
        """Record the last sequence, send it to all consumers, and flush within a bound."""
        if self._watermarks is not None:
            self._watermarks.cancel()
            await asyncio.gather(self._watermarks, return_exceptions=True)
        if self._machine is not None and not self._machine.closed:
            if self._failure is None:
                self._driver.take(self._machine.close(monotonic_us()))
                await self._settled()
            self._machine.closed = True
        await self._driver.close()
        self._room.set()
        await self._outlet.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- publishing

    async def publish(self, value: V, *, at: datetime | int | None = None, ordinal: int | None = None) -> int:
        """Publish one event; wait while there is no room. Return its sequence. `at` is its event time, by default now.

        Events of one time are numbered as they come; `ordinal` is a number of your own, higher than those before.
        """
        payload = self._records.encode(value)
        ordinals = None
        if ordinal is not None:
            self._check_ordinal(at, ordinal)
            ordinals = [ordinal]
        async with self._turn:
            return await self._publish([payload], [self._stamp(at)], ordinals, len(payload), self._more(at))

    async def publish_many(self, values: Iterable[V], *, at: Sequence[datetime | int] | None = None) -> int:
        """Publish many events, in order; wait while there is no room. Return the last one's sequence.

        Times in `at` may be equal: events of one time are numbered in their order."""
        payloads = self._records.encode_all(values)
        if at is not None and len(at) != len(payloads):
            raise SchemaError(f"{len(payloads)} events with {len(at)} times; give each its own, or none")
        if at is not None and self._strict and len(set(at)) < len(at):
            raise SchemaError(f"stream {self._name} is strict, and two of these events have one time; nudge them apart")
        async with self._turn:
            machine = self._running()
            last = machine.last
            first = 0
            try:
                for chunk, size in self._chunks(payloads):
                    first += len(chunk)
                    # A clock may give one moment twice; the second event is then a microsecond later.
                    times: Sequence[int] = self._now(len(chunk))
                    if at is not None:
                        times = [to_time_us(moment) for moment in at[first - len(chunk) : first]]
                    self._check_ahead(max(times) if self._config.lateness_us else times[-1])
                    # The rest of a time may wait for room: the time is not over meanwhile.
                    holds = at is not None and first < len(at) and to_time_us(at[first]) == times[-1]
                    last = await self._publish(chunk, times, None, size, self._more(at), holds)
            finally:
                machine.holds_time = False
            return last

    def try_publish(self, value: V, *, at: datetime | int | None = None) -> bool:
        """Publish one event without waiting; return False if there is no room. A durable one may not be on disk yet."""
        machine = self._running()
        payload = self._records.encode(value)
        if self._turn.locked():
            return False
        times, began_ns = [self._stamp(at)], 0 if self._traces is None else time.time_ns()
        effects = machine.publish([payload], times, None, monotonic_us(), more=self._more(at))
        if effects is None:
            return False
        self._driver.take(effects)
        if self._traces is not None:
            self._traces.published(self._traced_as, times, machine.epoch, machine.last, began_ns)
        return True

    async def watermark(self, at: datetime | int | None = None) -> None:
        """Send a watermark: nothing more is published at or before this time, by default now."""
        async with self._turn:
            machine = self._running()
            time_us = max(time.time_ns() // 1000, self._last_time) if at is None else to_time_us(at)
            if time_us < TIME_MAX:
                self._check_ahead(time_us)
            self._last_time = max(self._last_time, time_us)
            self._driver.take(machine.advance(time_us, monotonic_us()))
            await self._settled()

    async def progress(self, at: datetime | int | None = None) -> None:
        """The old name of `watermark`, for one release."""
        warnings.warn("progress() is now watermark(); rename it", DeprecationWarning, stacklevel=2)
        await self.watermark(at)

    async def end(self) -> None:
        """End the stream: nothing will ever follow."""
        await self.watermark(TIME_MAX)

    async def _send_watermarks(self, every_us: int) -> None:
        """While nothing is published, say that time passes."""
        while True:
            await asyncio.sleep(every_us / 1e6)
            if self._failure is not None:
                return
            await self.watermark()

    async def _publish(
        self,
        payloads: list[bytes],
        times: Sequence[int],
        ordinals: list[int] | None,
        size: int,
        more: bool,
        holds: bool = False,
    ) -> int:
        began_ns = 0 if self._traces is None else time.time_ns()
        while True:
            await self._outlet.ready()
            machine = self._running()
            effects = machine.publish(payloads, times, ordinals, monotonic_us(), size, more, holds)
            if effects is not None:
                self._last_time = max(self._last_time, times[-1]) if self._config.lateness_us else times[-1]
                last = machine.last
                self._driver.take(effects)
                if not self._driver.executor.idle:
                    await self._settled()
                if self._traces is not None:
                    self._traces.published(self._traced_as, times, machine.epoch, last, began_ns)
                return last
            self.reports.count("channel.publish_waited")
            self._room.clear()
            try:
                async with asyncio.timeout(_ROOM_POLL_S):  # aged frames make room without any message
                    await self._room.wait()
            except TimeoutError:
                continue

    def _chunks(self, payloads: list[bytes]) -> Iterable[tuple[list[bytes], int]]:
        """Batches that fit a frame with room to spare, and the bytes of each one's payloads."""
        # A service that carries less at once says so; the rest of its frame is for headers.
        limit = min(self._channel.frame_bytes_max // 2, getattr(self._outlet, "push_bytes_max", 1 << 30) - 64)
        count = len(payloads)
        if 0 < count <= _BATCH_COUNT_MAX and count * (len(payloads[0]) + EVENT_BYTES) <= limit:  # it may fit as it is
            size = self._codec.weigh(payloads)
            if size + EVENT_BYTES * count <= limit:
                yield payloads, size
                return
        first = size = 0
        for at, payload in enumerate(payloads):
            if at > first and (
                at - first >= _BATCH_COUNT_MAX or size + len(payload) + EVENT_BYTES * (at - first + 1) > limit
            ):
                yield payloads[first:at], size
                first, size = at, 0
            size += len(payload)
        if first < len(payloads):
            yield payloads[first:], size

    def _more(self, at: object) -> bool:
        """Times by our own clock are all different, and those of a strict stream too; of a time that is given more may
        follow, and with lateness of any."""
        return bool(self._config.lateness_us) or (at is not None and not self._strict)

    @property
    def _strict(self) -> bool:
        return self._records.schema is not None and self._records.schema.strict

    def _check_ordinal(self, at: object, ordinal: int) -> None:
        if self._strict:
            raise SchemaError(
                f"stream {self._name} is strict: no two of its events have one time, so none has an ordinal; leave it "
                "out, or declare the stream without strict=True"
            )
        if at is None:
            raise SchemaError("an ordinal is a number among events of one time; give that time with at=...")
        if not 0 <= ordinal < ORDINAL_MAX:
            raise SchemaError(f"ordinal {ordinal} does not fit; take one from 0 to {ORDINAL_MAX - 1}")

    def _stamp(self, at: datetime | int | None) -> int:
        if at is None:
            return self._now(1)[0]
        time_us = to_time_us(at)
        self._check_ahead(time_us)
        return time_us

    def _now(self, count: int) -> range:
        first = max(time.time_ns() // 1000, self._last_time + 1)
        return range(first, first + count)

    def _check_ahead(self, time_us: int) -> None:
        schema = self._records.schema
        if schema is None or schema.max_ahead_us is None:
            return
        ahead_us = time_us - time.time_ns() // 1000
        if ahead_us > schema.max_ahead_us:
            raise SchemaError(
                f"stream {schema.name}: a stamp {ahead_us / 1e6:g} s ahead of this clock is refused "
                f"(max_ahead is {schema.max_ahead_us / 1e6:g} s); correct the clock or the stamp"
            )

    # --- what can be seen

    @property
    def last_time(self) -> int:
        """The time up to which everything is published or excluded by a watermark: where a durable one goes on."""
        return self._running().last_time

    @property
    def last(self) -> int:
        """The last published sequence."""
        return self._running().last

    @property
    def epoch(self) -> int:
        return self._running().epoch

    @property
    def address(self) -> Address:
        """Where consumers reach this producer."""
        return self._outlet.direct

    @property
    def registered(self) -> dict[str, int]:
        """Registered consumers and what each has accepted."""
        return dict(self._running().registered)

    def deregister(self, consumer: str) -> None:
        """Stop keeping events for a registered consumer that will not come back."""
        self._running().deregister(consumer)
        self._room.set()

    def _running(self) -> Producer:
        if self._driver.executor.stopping is not None and self._failure is not None:
            raise self._failure
        if self._machine is None:
            raise CallerError("this publisher is not open yet; use it in a with block, or call open() first")
        return self._machine

    @property
    def _failure(self) -> BaseException | None:
        """The error that ended it: of the disk, or a successor with a higher epoch."""
        stop = self._driver.executor.stopping
        return self._driver.executor.error or (None if stop is None else stop.error)

    async def _settled(self) -> None:
        """Wait until everything asked for so far is on disk and sent."""
        await self._driver.executor.settled()
        if self._failure is not None:
            raise self._failure

    # --- the machine

    def _receive(self, sender: Address, data: bytes) -> None:
        if self._machine is not None and not self._machine.closed:
            self._driver.receive(sender, data)
            self._room.set()

    def _welcome(self, asked: Asked) -> None:
        information = b"" if self._initial is None else self._initial()
        executor, machine = self._driver.executor, self._running()
        executor.take(executor.call(machine.welcome, asked.consumer, information, monotonic_us()))
