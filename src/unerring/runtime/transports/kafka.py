"""Kafka as a transport of frames: kafka://host:port/topic. What a topic keeps is not relied on: consumers begin at its
end, and what they miss they fetch from the producer, as on any other service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from unerring.model import ConfigError, NetworkError
from unerring.runtime.kafka import CHANNEL, KafkaAddress, client_options, explain, greet, parse_kafka
from unerring.runtime.reports import Reports
from unerring.runtime.transports.config import TransportConfig, TransportUrl
from unerring.runtime.transports.foreign import MAGIC, ForeignInlet, ForeignOutlet, Session, Take

OPTIONS: Final = frozenset({"config", "format"})
"""What an address may say besides the options of all transports."""
MESSAGE_BYTES_MAX: Final = 1_000_000
"""A little less than what brokers take unless they are told otherwise."""
TOGETHER_MAX: Final = 500
POLL_S: Final = 0.1
PARTITIONS_S: Final = 5.0
"""How often a consumer looks whether the topic has more partitions."""


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(KafkaService(url, config), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(KafkaService(url, config), config, reports)


class KafkaService:
    """See `Service`."""

    scheme = "kafka"
    faults: tuple[type[Exception], ...] = (KafkaException, OSError, asyncio.TimeoutError)
    message_bytes_max = MESSAGE_BYTES_MAX

    def __init__(self, url: TransportUrl, config: TransportConfig) -> None:
        self.url = url.text
        self._address, _ = parse_kafka(url)
        if url.options.get("format", CHANNEL) != CHANNEL:
            raise ConfigError(
                f"{url.text!r}: format={url.options['format']} is how an app reads what others publish; publishers and "
                "subscribers exchange frames of their own, so leave it out"
            )
        self._config = config

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        with ThreadPoolExecutor(1, "kafka") as thread:
            session = _KafkaSession(self._address, self._config, thread)
            try:
                yield await session.greet()
            finally:
                await asyncio.shield(session.run(session.close))


class _KafkaSession:
    """One client, used in one thread: the library's calls wait."""

    def __init__(self, address: KafkaAddress, config: TransportConfig, thread: ThreadPoolExecutor) -> None:
        self._address = address
        self._config = config
        self._thread = thread
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._partitions: set[int] = set()
        self._failed: list[Any] = []

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    async def greet(self) -> _KafkaSession:
        await self.run(self._greet)
        return self

    def _greet(self) -> None:
        self._producer = Producer(
            client_options(self._address, linger_ms=0, message_timeout_ms=max(self._config.flush_us // 1_000, 1_000))
        )
        self._look(self._producer)

    def _look(self, client: Any) -> set[int]:
        """The topic's partitions. A broker that makes topics when they are asked for makes it now."""
        return greet(client, self._address, self._config.connect_us / 1e6, not self._partitions)

    async def publish(self, messages: list[bytes]) -> None:
        await self.run(self._publish, messages)

    def _publish(self, messages: list[bytes]) -> None:
        if self._producer is None:
            raise NetworkError(f"{self._address.text}: closed")
        for message in messages:
            # A producer's frames stay in their order: the envelope names it, and makes the partition.
            key = message[len(MAGIC) : len(MAGIC) + 1 + message[len(MAGIC)]] if len(message) > len(MAGIC) else None
            self._producer.produce(self._address.topic, message, key, on_delivery=self._delivered)
        self._producer.flush()
        if self._failed:
            failed, self._failed = self._failed, []
            raise explain(failed[0], self._address)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        await self.run(self._subscribe)
        listening()
        look_s = asyncio.get_running_loop().time() + PARTITIONS_S
        while True:
            for message in await self.run(self._consume):
                await take(message)
            if asyncio.get_running_loop().time() >= look_s:
                await self.run(self._assign_new)
                look_s = asyncio.get_running_loop().time() + PARTITIONS_S

    def _subscribe(self) -> None:
        self._consumer = Consumer(
            client_options(
                self._address,
                group_id="unerring",  # never joined: partitions are assigned, and nothing is committed
                enable_auto_commit=False,
                auto_offset_reset="latest",
            )
        )
        self._partitions = self._look(self._consumer)
        self._consumer.assign([self._at_end(self._consumer, partition) for partition in sorted(self._partitions)])

    def _at_end(self, consumer: Consumer, partition: int) -> TopicPartition:
        """Where a partition ends at this moment: what is pushed from now on is heard."""
        at = TopicPartition(self._address.topic, partition)
        _, at.offset = consumer.get_watermark_offsets(at, timeout=self._config.connect_us / 1e6)
        return at

    def _assign_new(self) -> None:
        if self._consumer is None:
            return
        for partition in sorted(self._look(self._consumer) - self._partitions):
            self._consumer.incremental_assign([TopicPartition(self._address.topic, partition, 0)])
            self._partitions.add(partition)

    def _consume(self) -> list[bytes]:
        if self._consumer is None:
            return []
        values: list[bytes] = []
        first = self._consumer.poll(POLL_S)  # and not `consume`, which waits until it has as many as it may take
        if first is None:
            return values
        for message in (first, *self._consumer.consume(TOGETHER_MAX, 0)):
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif not error.retriable():
                raise explain(error, self._address)
        return values

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._producer = None
