"""A topic read partition by partition: from given offsets, without a consumer group, nothing committed.

Everything here waits, and belongs to one thread. What the library holds ahead is bounded by `ahead_bytes_max`; what
comes is decoded at once. While the schema registry is away, messages stay in hand in their order and are tried again.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log import Reason
from unerring.model import NetworkError, WorldError
from unerring.runtime.kafka.address import explain
from unerring.runtime.kafka.positions import Topic
from unerring.runtime.kafka.topic import KafkaSource, as_message, describe, make_consumer
from unerring.runtime.payloads import Message, PayloadDecoder, Undecodable

if TYPE_CHECKING:
    from confluent_kafka import Consumer

ENVELOPE: Final = b"\xec\x55"
"""What a channel's frames begin with on a service that others wrote."""


class TakenMessage(msgspec.Struct, frozen=True, gc=False):
    """One message of a partition: an event, or why it is none."""

    partition: int
    offset: int
    time_us: int
    payload: bytes
    """Its columns, by name, as MessagePack."""
    reason: Reason | None = None
    detail: str = ""
    raw: bytes = b""


class KafkaReader:
    """Reads one topic. `waiting` says for whom, while it can do nothing else."""

    def __init__(self, source: KafkaSource, decoder: PayloadDecoder) -> None:
        self.source = source
        self.waiting = ""
        self.at_end: set[int] = set()
        """Partitions whose last message has been read."""
        self.highs: dict[int, int] = {}
        self._decoder = decoder
        self._consumer: Consumer | None = None
        self._assigned: set[int] = set()
        self._paused: set[int] = set()
        self._in_hand: deque[Message] = deque()
        self._again_s = 0.0
        self._pause_us = source.config.pause_us_min

    def look(self) -> Topic:
        """The topic as the broker describes it now."""
        topic = describe(self._client(), self.source, not self.highs)
        self.highs = {partition: extent.high for partition, extent in topic.partitions.items()}
        return topic

    def assign(self, starts: Mapping[int, int]) -> None:
        """Read these partitions from these offsets, and nothing else."""
        from confluent_kafka import TopicPartition

        topic = self.source.address.topic
        self._in_hand.clear()
        self._paused.clear()
        self.at_end.clear()
        self._assigned = set(starts)
        self._client().assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])

    def pause(self, partitions: Iterable[int]) -> None:
        """Fetch nothing of these for now, and all others."""
        from confluent_kafka import TopicPartition

        wanted = set(partitions) & self._assigned
        topic, consumer = self.source.address.topic, self._client()
        if stop := wanted - self._paused:
            consumer.pause([TopicPartition(topic, partition) for partition in sorted(stop)])
        if go_on := self._paused - wanted:
            consumer.resume([TopicPartition(topic, partition) for partition in sorted(go_on)])
        self._paused = wanted

    def read(self, wait_s: float) -> list[TakenMessage]:
        """What has come, in each partition's order; nothing while the registry is away. WorldError: look again."""
        if not self._in_hand:
            self._fetch(wait_s)
        elif time.monotonic() < self._again_s:
            time.sleep(min(wait_s, max(self._again_s - time.monotonic(), 0.0)))
            return []
        taken: list[TakenMessage] = []
        while self._in_hand:
            try:
                taken.append(self._decode(self._in_hand[0]))
            except NetworkError as error:
                self._wait_for(str(error))
                break
            self._in_hand.popleft()
        else:
            self.waiting, self._pause_us = "", self.source.config.pause_us_min
        return taken

    def close(self) -> None:
        self._decoder.close()
        if self._consumer is not None:
            with contextlib.suppress(RuntimeError):
                self._consumer.close()
            self._consumer = None

    def _client(self) -> Consumer:
        if self._consumer is None:
            self._consumer = make_consumer(self.source)
        return self._consumer

    def _fetch(self, wait_s: float) -> None:
        from confluent_kafka import KafkaError

        consumer = self._client()
        first = consumer.poll(wait_s)  # and not `consume`, which waits until it has as many as it may take
        if first is None:
            return
        messages: list[Any] = [first, *consumer.consume(self.source.config.together_max - 1, 0)]
        for message in messages:
            error, partition = message.error(), message.partition()
            if error is None:
                self.at_end.discard(partition)
                self._in_hand.append(as_message(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self.at_end.add(partition)
            elif not error.retriable() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                why = explain(error, self.source.address)
                raise why if not isinstance(why, NetworkError) else WorldError(str(why))

    def _decode(self, message: Message) -> TakenMessage:
        at = message.partition, message.offset
        try:
            if message.value is not None and message.value.startswith(ENVELOPE):
                raise Undecodable(
                    Reason.UNDECODABLE, "a frame of a channel's publisher; write format=channel to subscribe to it"
                )
            time_us, payload = self._decoder.decode(message)
        except Undecodable as bad:
            return TakenMessage(*at, message.time_us or 0, b"", bad.reason, bad.detail, message.raw)
        return TakenMessage(*at, time_us, msgspec.msgpack.encode(payload))

    def _wait_for(self, why: str) -> None:
        self.waiting = why
        self._again_s = time.monotonic() + self._pause_us / 1e6
        self._pause_us = min(2 * self._pause_us, self.source.config.pause_us_max)
