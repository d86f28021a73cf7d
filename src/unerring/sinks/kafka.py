"""Kafka: each chunk is one transaction; the stamp of an event is its message's key.

Whoever opens the topic for a sink begins its transactions anew, which takes them from every other driver of that sink:
the broker refuses what those still send. Then it reads the last message of the sink back from the topic's end, and goes
on after its stamp. So nothing is kept outside the topic, and a transaction whose answer was lost is found there or not.
All messages go to one partition, since there is no order between partitions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from unerring.log import table_of
from unerring.model import CallerError, ConfigError, HandshakeError, NetworkError, Stamp, StreamSchema, require
from unerring.runtime import client_options, explain, greet, kafka_address
from unerring.sinks.documents import documents, event_in, key_of, stamp_in
from unerring.sinks.port import Overtaken, as_chunk, as_rows, last_stamp, target_schema
from unerring.sinks.record import SinkRecord
from unerring.sinks.refusals import somebody_elses

if TYPE_CHECKING:
    import pyarrow as pa

SINK: Final = "unerring-sink"
"""The header with the sink's id; by it its messages are told from those of others."""
REWOUND: Final = "unerring-rewound"
"""The header of a message without value, which says where the sink went on from: its key is that stamp."""
_TIMEOUT_S: Final = 30.0
_QUIET_S: Final = 10.0
_POLL_EVERY: Final = 100
"""The library is asked for news after so many messages."""
_BACK_MAX: Final = 1 << 20
"""Messages at the end of the topic among which one of the sink's must be."""


class KafkaTarget:
    """One partition of a topic."""

    def __init__(self, url: str, schema: StreamSchema, record: SinkRecord) -> None:
        require("confluent_kafka")
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._schema = schema
        self._record = record
        self._address, options = kafka_address(url)
        partition = options.pop("partition", "0")
        if options or not partition.isdigit():
            raise ConfigError(f"{record.to}: a sink's topic takes config= and partition= only")
        self._at: Stamp | None = None
        self._end = 0
        """Up to this offset the partition was looked at, or written by us."""
        self._mark: list[Any] = [(SINK, record.id.encode())]
        self._place = TopicPartition(self._address.topic, int(partition))
        with self._told():
            self._consumer = Consumer(
                client_options(
                    self._address,
                    group_id=record.id,
                    isolation_level="read_committed",
                    enable_partition_eof=True,
                    fetch_wait_max_ms=10,
                    enable_auto_commit=False,
                )
            )
            try:
                if self._place.partition not in greet(self._consumer, self._address, _TIMEOUT_S):
                    raise ConfigError(f"sink {record.name}: {record.to} has no partition {partition}; create it")
                self._producer = Producer(
                    client_options(self._address, transactional_id=f"unerring-{record.id}", linger_ms=5)
                )
                self._producer.init_transactions(_TIMEOUT_S)
            except BaseException:
                self._consumer.close()
                raise

    def position(self) -> Stamp | None:
        with self._told():
            self._at = self._last()
        return self._at

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        if self._at != after:
            raise Overtaken(f"{self._record.to} is at {self._at}, not at {after}")
        rows = as_rows(chunk, self._schema)
        last = last_stamp(chunk)
        with self._told():
            self._look_for_others()
            self._producer.begin_transaction()
            self._send_all(documents(rows, self._schema), len(rows))
            self._producer.commit_transaction(_TIMEOUT_S)
        self._at = last

    def read(self, from_us: int, through_us: int) -> pa.Table:
        """In the order of the topic. It is read from its beginning each time."""
        with self._told():
            low, high = self._extent()
            events = [
                event
                for message in self._messages(low, high)
                if message.value() is not None
                and self._is_ours(message)
                and from_us < (event := event_in(message.value(), self._schema)).stamp.time <= through_us
            ]
        return as_chunk(table_of(events, self._schema), self._schema) if events else self._nothing()

    def rewind(self, to: Stamp) -> None:
        """A message says that the sink goes on from there; what is after it comes again. Nothing can be taken back."""
        with self._told():
            self._producer.begin_transaction()
            self._send(key_of(to), None, [*self._mark, (REWOUND, b"")], on_delivery=self._note_end)
            self._producer.commit_transaction(_TIMEOUT_S)
        self._at = to

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()

    def _nothing(self) -> pa.Table:
        return target_schema(self._schema).empty_table()

    def _send_all(self, messages: Iterator[tuple[str, bytes]], count: int) -> None:
        """What is done for each message is done for all situations: it is kept short."""
        produce, poll = self._producer.produce, self._producer.poll
        topic, partition, mark = self._address.topic, self._place.partition, self._mark
        for number, (key, value) in enumerate(islice(messages, count - 1)):
            try:
                produce(topic, value, key, partition, None, None, 0, mark)
            except BufferError:
                self._send(key, value, mark)
            if number % _POLL_EVERY == 0:
                poll(0)
        for key, value in messages:
            self._send(key, value, mark, on_delivery=self._note_end)

    def _send(self, key: str, value: bytes | None, headers: list[Any], **noted: Any) -> None:
        """Hand a message to the library; when its queue is full, the topic takes no more now."""
        while True:
            try:
                self._producer.produce(
                    self._address.topic, value, key, partition=self._place.partition, headers=headers, **noted
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _note_end(self, error: Any, message: Any) -> None:
        if error is None:
            self._end = message.offset() + 1

    def _look_for_others(self) -> None:
        """A broker refuses a driver that was overtaken. One that does not would take its messages: so whoever sees a
        message of the sink after its own stops before it sends."""
        _, high = self._extent()
        if high > self._end + 1:  # one is the mark of our own transaction's end
            if any(self._is_ours(message) for message in self._messages(self._end, high)):
                raise Overtaken(f"another driver of sink {self._record.name} writes to {self._record.to}")
            self._end = high

    def _last(self) -> Stamp | None:
        """The stamp of the sink's newest message, looked for from the end in steps that grow."""
        low, high = self._extent()
        self._end = high
        start, back, others = high, 4, False
        while start > low and back <= _BACK_MAX:
            start, back = max(low, high - back), back * 8
            newest: Any = None
            for message in self._messages(start, high):
                newest, others = (message, others) if self._is_ours(message) else (newest, True)
            if newest is not None:
                return stamp_in(newest.key().decode())
        if start == low == 0 and not others:  # what there may be was aborted
            return None
        if low > 0 or start > low:
            raise CallerError(
                f"sink {self._record.name}: {self._record.to} has no message of this sink among its last ones: they "
                "were removed, or others write there; say where to go on with --rewind, or deliver into a topic of its "
                "own"
            )
        raise somebody_elses(self._record)

    def _extent(self) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(self._place, timeout=_TIMEOUT_S)
        return int(low), int(high)

    def _messages(self, start: int, end: int) -> Iterator[Any]:
        """What the partition has of `[start, end)`: some offsets are those of transactions' ends, or were aborted."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        self._consumer.assign([TopicPartition(self._place.topic, self._place.partition, start)])
        while True:
            message: Any = self._consumer.poll(_QUIET_S)
            if message is None:
                raise NetworkError(f"{self._record.to} says nothing of its messages from {start} on")
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(message.error())
            if message.offset() >= end:
                return
            yield message

    def _is_ours(self, message: Any) -> bool:
        return self._mark[0] in (message.headers() or [])

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the library as ours. After each of them the driver opens the topic again."""
        from confluent_kafka import KafkaError, KafkaException

        name, to = self._record.name, self._record.to
        try:
            yield
        except HandshakeError as error:
            raise ConfigError(f"sink {name} may not write to {to}: {error}") from None
        except KafkaException as error:
            code = error.args[0].code()
            if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                raise Overtaken(f"another driver of sink {name} writes to {to}") from None
            why = explain(error.args[0], self._address)
            if isinstance(why, HandshakeError):
                raise ConfigError(f"sink {name} may not write to {to}: {why}") from None
            raise why from None
