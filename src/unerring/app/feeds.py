"""Channels into the log: one subscriber and one writer a stream, on one event loop in a thread of its own.

After a restart a subscriber goes on from what the chain holds of each producer, not from what it last heard: only the
chain is durable. So an event is accepted only once it is sealed, and producers keep what is not (registered consumers).
What a channel declares lost stands in quarantine, with its exact range.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from unerring.app import ledgers
from unerring.app.kafka_feed import KafkaFeed
from unerring.app.metrics import Metrics
from unerring.app.parts import LoopThread, Parts, channel_part
from unerring.app.place import Place
from unerring.channels import ConsumerConfig, Start
from unerring.log import NOTHING, EventLog, LogWriter, Mark, Resets, WriterConfig
from unerring.model import SECOND_US, ConfigError, MessageLoss, SchemaError, StreamSchema
from unerring.runtime import (
    AsyncSubscriber,
    TransportConfig,
    check_address,
    monotonic_us,
    reads_topic,
    source_of,
    without_secrets,
)
from unerring.tracing import tracer

if TYPE_CHECKING:
    from unerring.app.application import App


SEAL_S: Final = 0.1
"""How long an event waits at most until it is sealed, in a folder."""


def check_channels(app: App) -> None:
    """A sentence, if a channel's address cannot be right: before anything is started for it."""
    schemas = {schema.name: schema for schema in app.streams}
    for stream, urls in app.channels.items():
        for url in urls:
            try:
                if reads_topic(url):
                    source_of(url).payload.check_against(schemas[stream])
                else:
                    check_address(url)
            except (ConfigError, SchemaError) as error:
                raise ConfigError(f"app {app.name}: the channel of {stream}: {error}") from None


def feeds_of(app: App, place: Place, parts: Parts, metrics: Metrics, policy: str = "") -> Feeds:
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
        policy,
    )


class Feeds:
    """Runs until `stop`, which seals what is held. A channel that fails is subscribed to again."""

    def __init__(
        self,
        log: EventLog,
        channels: Mapping[str, str | Sequence[str]],
        schemas: dict[str, StreamSchema],
        buckets: int,
        scratch: Path | None = None,
        config: WriterConfig | None = None,
        start: Start = Start.LATEST,
        parts: Parts | None = None,
        metrics: Metrics | None = None,
        policy: str = "",
    ) -> None:
        """`policy`: the file with the rights of producers that show a certificate, and their keys."""
        self._policy = policy
        now = monotonic_us()
        self.writers = {name: LogWriter(log, schemas[name], config, buckets, now) for name in channels}
        self._parts = parts or Parts()
        self._channels = {name: (urls,) if isinstance(urls, str) else tuple(urls) for name, urls in channels.items()}
        self._scratch = scratch
        self._subscribers: dict[str, AsyncSubscriber[Any]] = {}
        self._start = start
        self._metrics = metrics
        self._stopping = asyncio.Event()
        self._thread: LoopThread | None = None
        self._topics: dict[str, list[KafkaFeed]] = {}
        """By stream, the topics that feed it."""
        self._joined: dict[str, int] = {}
        self._accepted: dict[str, dict[int, Mark]] = {}
        """By stream, what each producer's subscriber was last told."""
        self.turned_away: dict[str, dict[str, None]] = {}
        """By stream, the names of producers beyond the bound of the stream."""

    def start(self, say: Callable[[str], None] = lambda text: None) -> None:
        say("subscribing to " + ", ".join(without_secrets(url) for urls in self._channels.values() for url in urls))
        self._thread = LoopThread("feeds", self._all, self._parts.end)
        self._thread.start()

    def check(self) -> None:
        """Update the metrics; parts that fail report it themselves."""
        if self._metrics is not None:
            for name, writer in self.writers.items():
                counts = writer.counts
                self._metrics.set("unerring_quarantined_total", counts.quarantined, stream=name)
                self._metrics.set("unerring_repeated_total", counts.repeated, stream=name)
                self._metrics.set("unerring_late_total", counts.late, stream=name)
                self._metrics.set("unerring_producers", counts.producers, stream=name)
                self._metrics.set("unerring_held_events", writer.held, stream=name)

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
            for name, urls in self._channels.items():
                group.create_task(self._keep(name, urls, self.writers[name]))
            group.create_task(self._tell())

    async def _tell(self) -> None:
        """Every channel's ledger, a few times a second and at the end."""
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), ledgers.TELL_S)
            self._write_ledgers()

    def _write_ledgers(self) -> None:
        topics = [one for feeds in self._topics.values() for feed in feeds for one in feed.accounts()]
        ledgers.write(self._scratch, self._channels, self._subscribers, self.writers, topics)

    async def _keep(self, name: str, urls: Sequence[str], writer: LogWriter) -> None:
        """One channel, subscribed to again and again if it fails."""
        part = channel_part(name)
        while not self._stopping.is_set():
            self._parts.began(part)
            try:
                marks = writer.seal()  # and so what it held when it failed, before more is asked for
                await self._feed_all(urls, writer, marks)
            except Exception as error:
                pause_s = self._parts.failed(part, error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _feed_all(self, urls: Sequence[str], writer: LogWriter, marks: Mapping[str, Mark]) -> None:
        """Producers that publish to us, and topics of others, into one writer."""
        name = writer.schema.name
        self._topics[name] = [
            KafkaFeed(
                source_of(url),
                writer,
                self._start is Start.EARLIEST,
                lambda why: self._parts.waits(channel_part(name), why),
            )
            for url in urls
            if reads_topic(url)
        ]
        ours = [url for url in urls if not reads_topic(url)]
        async with asyncio.TaskGroup() as group:
            for feed in self._topics[name]:
                group.create_task(feed.run(self._stopping))
            if ours:
                group.create_task(self._feed(ours, writer, marks))

    async def _feed(self, urls: Sequence[str], writer: LogWriter, marks: Mapping[str, Mark]) -> None:
        positions = {int(known, 16): mark for known, mark in marks.items() if _is_id(known) and mark[0] >= 0}
        # Of a producer that was reset nothing may be passed over: it begins with all that it still has.
        reset = bool(Resets(writer.chain.store, writer.chain.folder).all())
        start = Start.EARLIEST if reset else self._start
        subscriber: AsyncSubscriber[Any] = AsyncSubscriber(
            urls,
            explicit=True,
            positions=positions,
            transport=TransportConfig(stream=writer.schema.name, policy=self._policy),
            on_watermark_of=lambda producer, time_us: writer.advance(time_us, monotonic_us(), _id_of(producer)),
            config=ConsumerConfig(
                start=start,
                registered=self._name_at_producers(writer),
                in_hand_max=writer.config.rows_held_max,
                producers_max=writer.config.producers_max,
            ),
        )
        self._subscribers[writer.schema.name] = subscriber
        self._joined[writer.schema.name] = 0
        self._accepted[writer.schema.name] = {}
        async with subscriber:
            taking = asyncio.create_task(self._take(subscriber, writer))
            try:
                while not self._stopping.is_set() and not taking.done():
                    await self._pause(writer)
                    self._join(subscriber, writer)
                    if writer.due(monotonic_us()):
                        self._seal(subscriber, writer)
            finally:
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
                self._seal(subscriber, writer)
                self._write_ledgers()
            if not taking.cancelled() and taking.exception() is not None:
                raise taking.exception()  # type: ignore[misc]

    def _name_at_producers(self, writer: LogWriter) -> str:
        """Two runs must not acknowledge for each other."""
        where = writer.chain.store.locate(writer.chain.folder)
        return f"log of {writer.schema.name} in {where}"

    def _join(self, subscriber: AsyncSubscriber[Any], writer: LogWriter) -> None:
        """The stream waits for those that were heard of, whether they have published anything or not."""
        now = monotonic_us()
        for producer in subscriber.met[self._joined.get(writer.schema.name, 0) :]:
            writer.join(_id_of(producer), now)
        self._joined[writer.schema.name] = len(subscriber.met)

    def _seal(self, subscriber: AsyncSubscriber[Any], writer: LogWriter) -> None:
        """Accept only what is durable, and only from producers that were heard of since the start."""
        self._join(subscriber, writer)
        marks = writer.seal()
        done = self._accepted[writer.schema.name]
        for producer in subscriber.met:
            mark = marks.get(_id_of(producer), NOTHING)
            if mark[0] >= 0 and mark != done.get(producer):
                subscriber.accept_through(producer, *mark)
                done[producer] = mark

    async def _take(self, subscriber: AsyncSubscriber[Any], writer: LogWriter) -> None:
        while True:
            try:
                await self._take_batches(subscriber, writer)
            except MessageLoss as loss:
                mark = (loss.epoch, loss.first if loss.last is None else loss.last)
                writer.lost(_id_of(loss.producer_id), mark, str(loss), monotonic_us(), loss.first)
            else:
                return

    async def _take_batches(self, subscriber: AsyncSubscriber[Any], writer: LogWriter) -> None:
        traces = tracer()
        async for batch in subscriber.batches():
            while writer.full:
                self._seal(subscriber, writer)
                if writer.full:  # it cannot say what it took: nothing more is taken, and the producers wait
                    await self._pause(writer)
            now, frames, producer = monotonic_us(), batch.frames, _id_of(batch.frames.producer)
            if not writer.admits(producer):
                self._turned_away(writer, subscriber.name_of(frames.producer))
                continue
            began_ns = 0 if traces is None else time.time_ns()
            writer.take(producer, frames.epoch, frames.first, frames.times, frames.payloads, frames.ordinals, now)
            if traces is not None:
                traces.received(writer.schema.name, frames.times, frames.epoch, frames.first, began_ns)
            if not frames.more:
                writer.advance(frames.times[-1], now, producer)
            await asyncio.sleep(0)

    def _turned_away(self, writer: LogWriter, name: str) -> None:
        """One producer too many. It keeps its events, since nobody accepts them, and waits once its buffer is full."""
        self.turned_away.setdefault(writer.schema.name, {})[name] = None
        if self._metrics is not None:
            count = len(self.turned_away[writer.schema.name])
            self._metrics.set("unerring_refused_producers", count, stream=writer.schema.name)

    async def _pause(self, writer: LogWriter) -> None:
        """Until the writer is due, at most a writer's age."""
        due_us = writer.due_us()
        wait_us = writer.config.age_us_max if due_us is None else max(due_us - monotonic_us(), 0)
        try:
            await asyncio.wait_for(self._stopping.wait(), min(wait_us, writer.config.age_us_max) / 4_000_000)
        except TimeoutError:
            return


def _id_of(producer: int) -> str:
    """A producer as the log knows it."""
    return f"{producer:016x}"


def _is_id(known: str) -> bool:
    return len(known) == 16 and all(c in "0123456789abcdef" for c in known)
