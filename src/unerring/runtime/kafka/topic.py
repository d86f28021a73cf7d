"""One topic of one cluster: what an address says about reading it, and what its broker says of it now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import SECOND_US, ConfigError, NetworkError, ProcessConfig, WorldError, check, require
from unerring.runtime.kafka.address import CHANNEL, SCHEME, KafkaAddress, client_options, explain, greet, parse_kafka
from unerring.runtime.kafka.positions import Extent, Topic
from unerring.runtime.payloads import Message, PayloadConfig
from unerring.runtime.payloads.config import payload_of
from unerring.runtime.transports.config import parse_url

if TYPE_CHECKING:
    from confluent_kafka import Consumer

NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of a topic at brokers that give none."""
_SILENT_S: Final = 60.0
"""A broker that gives nothing of what it has for so long is given up."""


class KafkaConfig(ProcessConfig, frozen=True):
    """The bounds of reading a topic, and how long it waits; options of the address set them."""

    connect_us: int = 5 * SECOND_US
    look_us: int = 5 * SECOND_US
    """How often the topic is looked at: more partitions, made anew, gone."""
    settle_us: int = 1 * SECOND_US
    """So long after the last event of a partition, no other one of the same time follows."""
    ahead_bytes_max: int = 32 << 20
    """What the client may fetch ahead of what is taken, over all partitions."""
    message_bytes_max: int = 256 << 20
    """A broker's answer may be this long: the largest message that can be read, if only to go to quarantine."""
    together_max: int = 1_000
    """Messages taken at once."""
    pause_us_min: int = 100_000
    pause_us_max: int = 10 * SECOND_US
    """The pauses between tries while the registry or the broker is away; they double."""

    def __post_init__(self) -> None:
        check(self, "connect_us", 1_000, 600 * SECOND_US)
        check(self, "look_us", 10_000, 3_600 * SECOND_US)
        check(self, "settle_us", 0, 3_600 * SECOND_US)
        check(self, "ahead_bytes_max", 1 << 20, 1 << 31)
        check(self, "message_bytes_max", 1 << 20, (1 << 31) - (1 << 20))
        check(self, "together_max", 1, 100_000)
        check(self, "pause_us_min", 1_000, 600 * SECOND_US)
        check(self, "pause_us_max", self.pause_us_min, 3_600 * SECOND_US)


class KafkaSource(msgspec.Struct, frozen=True):
    """What an address says: which topic, how its messages are read, and the bounds of doing so."""

    address: KafkaAddress
    payload: PayloadConfig
    config: KafkaConfig


def reads_topic(url: str) -> bool:
    """Whether an address of an app is a topic of events that others write, and not a channel's frames on Kafka."""
    where = parse_url(url)
    return where.scheme == SCHEME and where.options.get("format") != CHANNEL


def source_of(url: str) -> KafkaSource:
    """The source at an address of an app, or a sentence."""
    where = parse_url(url)
    address, options = parse_kafka(where)
    payload, rest = payload_of(options, where.text)
    known = KafkaConfig.__struct_fields__
    for name in rest:
        if name not in known:
            every = ", ".join((*PayloadConfig.__struct_fields__, "config", *known))
            raise ConfigError(f"{where.text!r}: there is no option {name!r}; use one of {every}")
    try:
        return KafkaSource(address, payload, msgspec.convert(rest, KafkaConfig, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where.text!r}: {error}") from None


def make_consumer(source: KafkaSource) -> Consumer:
    """A client that joins no group, commits nothing, and leaves it to us where to read on."""
    require("confluent_kafka")
    from confluent_kafka import Consumer

    config = source.config
    return Consumer(
        client_options(
            source.address,
            group_id="unerring",  # never joined: partitions are assigned
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            enable_partition_eof=True,
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            fetch_message_max_bytes=min(config.ahead_bytes_max, 8 << 20),
            queued_max_messages_kbytes=config.ahead_bytes_max >> 10,
            receive_message_max_bytes=config.message_bytes_max,
            fetch_max_bytes=min(config.ahead_bytes_max, config.message_bytes_max - 512),
        )
    )


def describe(consumer: Consumer, source: KafkaSource, new: bool = True) -> Topic:
    """The topic as the broker describes it now; the consumer is `new` if it never spoke with it."""
    from confluent_kafka import KafkaException, TopicPartition

    address, timeout_s = source.address, source.config.connect_us / 1e6
    extents: dict[int, Extent] = {}
    for partition in sorted(greet(consumer, address, timeout_s, new)):
        at = TopicPartition(address.topic, partition)
        try:
            low, high = consumer.get_watermark_offsets(at, timeout=timeout_s)
        except KafkaException as error:
            raise explain(error.args[0], address) from None
        extents[partition] = Extent(low, high)
    return Topic(_identity(source), extents)


def _identity(source: KafkaSource) -> str:
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import AdminClient

    address = source.address
    admin = AdminClient(client_options(address))
    asked = admin.describe_topics(TopicCollection([address.topic]), request_timeout=source.config.connect_us / 1e6)
    try:
        described = asked[address.topic].result()
    except KafkaException as error:
        raise explain(error.args[0], address) from None
    except Exception as error:  # a gateway that leaves the topic out of its answer
        raise NetworkError(f"Kafka at {address.brokers} does not describe {address.topic!r}: {error}") from None
    identity = str(described.topic_id)
    return "" if identity == NO_ID else identity


def topic_now(source: KafkaSource) -> Topic:
    """The topic as it is now, asked once."""
    consumer = make_consumer(source)
    try:
        return describe(consumer, source)
    finally:
        consumer.close()


def read_span(source: KafkaSource, partition: int, first: int, end: int) -> Iterator[Message]:
    """The messages of a partition from an offset up to and without another, which the broker has reached."""
    from confluent_kafka import KafkaError, TopicPartition

    if first >= end:
        return
    consumer = make_consumer(source)
    try:
        consumer.assign([TopicPartition(source.address.topic, partition, first)])
        while True:
            message: Any = consumer.poll(_SILENT_S)
            if message is None:
                raise NetworkError(
                    f"Kafka at {source.address.brokers} has given nothing of {source.address.topic}/{partition} from "
                    f"offset {first} on for {_SILENT_S:g} s, though it has reached {end}; try again"
                )
            error = message.error()
            if error is None:
                if message.offset() >= end:
                    return
                yield as_message(message)
                if message.offset() == end - 1:
                    return
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif not error.retriable() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                why = explain(error, source.address)
                raise why if not isinstance(why, NetworkError) else WorldError(str(why))
    finally:
        consumer.close()


def as_message(message: Any) -> Message:
    kind, milliseconds = message.timestamp()
    return Message(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        milliseconds * 1_000 if kind else None,
        message.topic(),
        message.partition(),
        message.offset(),
    )
