"""Channels into the log: one subscriber and one writer a stream, on one event loop in a thread of its own.

After a restart a subscriber goes on from what the chain holds of each producer, not from what it last heard: only the
chain is durable. So an event is accepted only once it is sealed, and producers keep what is not (registered consumers).
What a channel declares lost stands in quarantine, with its exact range.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app import ledgers
from unerring.app.metrics import Metrics
from unerring.app.parts import LoopThread, Parts, channel_part
from unerring.app.place import Place
from unerring.channels import ConsumerConfig, Start
from unerring.log import EventLog, LogWriter, Resets, WriterConfig
from unerring.model import SECOND_US, ConfigError, MessageLoss, Stamp, StreamSchema
from unerring.runtime import AsyncSubscriber, check_address, monotonic_us

if TYPE_CHECKING:
    from unerring.app.application import App


SEAL_S: Final = 0.1
"""How long an event waits at most until it is sealed, in a folder."""


def check_channels(app: App) -> None:
    """A sentence, if a channel's address cannot be right: before anything is started for it."""
    for stream, url in app.channels.items():
        try:
            check_address(url)
        except ConfigError as error:
            raise ConfigError(f"app {app.name}: the channel of {stream}: {error}") from None


def feeds_of(app: App, place: Place, parts: Parts, metrics: Metrics) -> Feeds:
    """The feeds that write what the app's channels bring into the log of a run."""
    check_channels(app)
    schemas = {schema.name: schema for schema in app.streams}
    start = Start(app.start)
    return Feeds(
        place.log,
        app.channels,
        schemas,
        app.buckets,
        place.scratch,
        WriterConfig(age_us_max=round(place.look_s(SEAL_S) * SECOND_US)),
        start,
        parts,
        metrics,
    )


class Feeds:
    """Runs until `stop`, which seals what is held. A channel that fails is subscribed to again."""

    def __init__(
        self,
        log: EventLog,
        channels: dict[str, str],
        schemas: dict[str, StreamSchema],
        buckets: int,
        scratch: Path | None = None,
        config: WriterConfig | None = None,
        start: Start = Start.LATEST,
        parts: Parts | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.writers = {name: LogWriter(log, schemas[name], config, buckets) for name in channels}
        self._parts = parts or Parts()
        self._channels = channels
        self._scratch = scratch
        self._subscribers: dict[str, AsyncSubscriber[Any]] = {}
        self._start = start
        self._metrics = metrics
        self._stopping = asyncio.Event()
        self._thread: LoopThread | None = None

    def start(self, say: Callable[[str], None] = lambda text: None) -> None:
        say("subscribing to " + ", ".join(self._channels.values()))
        self._thread = LoopThread("feeds", self._all, self._parts.end)
        self._thread.start()

    def check(self) -> None:
        """Update the metrics; parts that fail report it themselves."""
        if self._metrics is not None:
            for name, writer in self.writers.items():
                self._metrics.set("unerring_quarantined_total", writer.quarantined, stream=name)
                self._metrics.set("unerring_repeated_total", writer.repeated, stream=name)

    @property
    def error(self) -> BaseException | None:
        """What ended the run, if anything did."""
        return self._parts.error

    def stop(self) -> None:
        """Take nothing more, seal what is held, end."""
        if self._thread is not None:
            self._thread.call(self._stopping.set)
            self._thread.join()

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, url in self._channels.items():
                group.create_task(self._keep(name, url, self.writers[name]))
            group.create_task(self._tell())

    async def _tell(self) -> None:
        """Every channel's ledger, a few times a second and at the end."""
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), ledgers.TELL_S)
            ledgers.write(self._scratch, self._channels, self._subscribers)

    async def _keep(self, name: str, url: str, writer: LogWriter) -> None:
        """One channel, subscribed to again and again if it fails."""
        part = channel_part(name)
        while not self._stopping.is_set():
            self._parts.began(part)
            try:
                marks = writer.seal()  # and so what it held when it failed, before more is asked for
                await self._feed(url, writer, marks)
            except Exception as error:
                pause_s = self._parts.failed(part, error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _feed(self, url: str, writer: LogWriter, marks: Mapping[str, tuple[int, int]]) -> None:
        positions = {int(known, 16): mark for known, mark in marks.items() if _is_id(known)}
        # Of a producer that was reset nothing may be passed over: it begins with all that it still has.
        reset = bool(Resets(writer.chain.store, writer.chain.folder).all())
        start = Start.EARLIEST if reset else self._start
        subscriber: AsyncSubscriber[Any] = AsyncSubscriber(
            url,
            explicit=True,
            positions=positions,
            on_watermark=lambda time_us: writer.advance(time_us, monotonic_us()),
            config=ConsumerConfig(start=start, registered=self._name_at_producers(writer)),
        )
        self._subscribers[writer.schema.name] = subscriber
        async with subscriber:
            taking = asyncio.create_task(self._take(subscriber, writer))
            try:
                while not self._stopping.is_set() and not taking.done():
                    await self._pause(writer)
                    if writer.due(monotonic_us()):
                        self._seal(subscriber, writer)
            finally:
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
                self._seal(subscriber, writer)
                ledgers.write(self._scratch, self._channels, self._subscribers)
            if not taking.cancelled() and taking.exception() is not None:
                raise taking.exception()  # type: ignore[misc]

    def _name_at_producers(self, writer: LogWriter) -> str:
        """Two runs must not acknowledge for each other."""
        where = writer.chain.store.locate(writer.chain.folder)
        return f"log of {writer.schema.name} in {where}"

    def _seal(self, subscriber: AsyncSubscriber[Any], writer: LogWriter) -> None:
        """Accept only what is durable, and only from producers that were heard of since the start."""
        for producer, (epoch, sequence) in writer.seal().items():
            if int(producer, 16) in subscriber.met:
                subscriber.accept_through(int(producer, 16), epoch, sequence)

    async def _take(self, subscriber: AsyncSubscriber[Any], writer: LogWriter) -> None:
        while True:
            try:
                await self._take_batches(subscriber, writer)
            except MessageLoss as loss:
                mark = (loss.epoch, loss.first if loss.last is None else loss.last)
                writer.lost(f"{loss.producer_id:016x}", mark, str(loss), monotonic_us())
            else:
                return

    async def _take_batches(self, subscriber: AsyncSubscriber[Any], writer: LogWriter) -> None:
        async for batch in subscriber.batches():
            for event in batch:
                if writer.full:
                    self._seal(subscriber, writer)
                now, producer, mark = monotonic_us(), f"{event.producer:016x}", (event.epoch, event.sequence)
                payload = self._decode(event.value, writer.schema)
                if isinstance(payload, dict):
                    writer.append(producer, mark, Stamp(event.time, event.ordinal), payload, now)
                else:
                    writer.undecodable(producer, mark, event.value, payload, now)
            if not batch.more:
                writer.advance(batch[-1].time, monotonic_us())
            await asyncio.sleep(0)

    def _decode(self, raw: bytes, schema: StreamSchema) -> dict[str, Any] | str:
        """The payload by column, or why there is none."""
        try:
            record = msgspec.msgpack.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError) as error:
            return str(error)
        if isinstance(record, list) and len(record) == len(schema.columns):
            return {column.name: value for column, value in zip(schema.columns, record, strict=True)}
        return record if isinstance(record, dict) else f"{type(record).__name__} where a record was expected"

    async def _pause(self, writer: LogWriter) -> None:
        """Until the writer is due, at most a writer's age."""
        due_us = writer.due_us()
        wait_us = writer.config.age_us_max if due_us is None else max(due_us - monotonic_us(), 0)
        try:
            await asyncio.wait_for(self._stopping.wait(), min(wait_us, writer.config.age_us_max) / 4_000_000)
        except TimeoutError:
            return


def _is_id(known: str) -> bool:
    return len(known) == 16 and all(c in "0123456789abcdef" for c in known)
