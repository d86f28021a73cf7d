"""`kafka://host:port,host:port/topic?option=value`: what it means to the client library; its errors as sentences."""

from __future__ import annotations

import re
import socket
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import ConfigError, HandshakeError, NetworkError, UnerringError
from unerring.runtime.sockets import join_host, split_host
from unerring.runtime.transports.config import TransportUrl, parse_url

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

SCHEME: Final = "kafka"
PORT: Final = 9092
CHANNEL: Final = "channel"
"""The format of a channel's frames; any other is that of events which others write."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_OURS: Final = frozenset(
    {
        "bootstrap.servers",
        "metadata.broker.list",
        "group.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "isolation.level",
        "enable.partition.eof",
    }
)
"""What exactly once depends on: a file of the user's may not change it."""


class KafkaAddress(msgspec.Struct, frozen=True):
    """One topic of one cluster."""

    text: str
    """The address as people wrote it, without options."""
    brokers: str
    topic: str
    config: str = ""
    """A file with further settings of librdkafka, such as those of TLS and SASL."""


def parse_kafka(where: TransportUrl) -> tuple[KafkaAddress, dict[str, str]]:
    """An address, and those of its options that say nothing of how the cluster is reached."""
    place, slash, topic = where.place.partition("/")
    if not slash or not topic:
        raise ConfigError(f"{where.text!r} names no topic; write kafka://host:{PORT}/topic")
    if not _TOPIC.match(topic) or topic in (".", ".."):
        raise ConfigError(f"{where.text!r}: {topic!r} is not a topic; use up to 249 letters, digits, '.', '_' and '-'")
    brokers = []
    for broker in place.split(","):
        if not broker:
            raise ConfigError(f"{where.text!r} names no broker; write kafka://host:{PORT}/topic")
        named = broker if re.search(r":\d+$", broker) else f"{broker}:{PORT}"
        brokers.append(join_host(*split_host(named)))
    options = dict(where.options)
    address = KafkaAddress(where.text, ",".join(brokers), topic, options.pop("config", ""))
    settings_in(address)
    return address, options


def kafka_url(brokers: str, topic: str, *, columns: Mapping[str, str] | None = None, **options: Any) -> str:
    """The address of a topic as a channel of an app: `kafka_url("host:9092", "readings", format="avro", …)`.

    `columns` maps columns to fields; the other options are those of the address, which docs/kafka.md lists.
    """
    if columns:
        options["columns"] = ",".join(f"{column}:{field}" for column, field in columns.items())
    query = urllib.parse.urlencode({name: str(value) for name, value in options.items()}, safe="/:@,")
    url = f"{SCHEME}://{brokers}/{topic}" + (f"?{query}" if query else "")
    parse_kafka(parse_url(url))
    return url


def kafka_address(url: str) -> tuple[KafkaAddress, dict[str, str]]:
    """The address of a topic that a user writes, and those of its options that say nothing of the cluster."""
    return parse_kafka(parse_url(url))


def settings_in(address: KafkaAddress) -> dict[str, str]:
    """The settings of the address's file: `name=value` lines, as Kafka's own tools read them."""
    if not address.config:
        return {}
    try:
        lines = Path(address.config).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{address.text}: the file config={address.config} cannot be read: {error}") from None
    settings: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{address.config}, line {number}: {text!r} is not name=value")
        if name.strip() in _OURS:
            raise ConfigError(f"{address.config}, line {number}: {name.strip()} is not yours to set; leave it out")
        settings[name.strip()] = value.strip()
    return settings


def client_options(address: KafkaAddress, **more: Any) -> dict[str, Any]:
    """The settings of a client, in librdkafka's names; `more` has _ where they have a dot."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {
        **settings_in(address),
        "bootstrap.servers": address.brokers,
        "client.id": "unerring",
        "log_level": 0,  # what goes wrong is in the errors that we show
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 2_000,
        **named,
    }


def explain(error: KafkaError, address: KafkaAddress) -> UnerringError:
    """An error of the client or the broker, as a sentence that says what to do."""
    from confluent_kafka import KafkaError as Code

    where = f"Kafka at {address.brokers}"
    code, text = error.code(), error.str()
    if code in (Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED):
        return HandshakeError(
            f"{where} gives us no right to topic {address.topic!r} ({text}); allow it, or name another user in a file "
            "with config=FILE"
        )
    if code in (Code._AUTHENTICATION, Code.SASL_AUTHENTICATION_FAILED, Code._SSL):
        return HandshakeError(f"{where} does not accept who we are ({text}); check the file of config=FILE")
    if code in (Code.UNKNOWN_TOPIC_OR_PART, Code._UNKNOWN_TOPIC, Code._UNKNOWN_PARTITION):
        return NetworkError(f"{where} has no topic {address.topic!r}; create it, or check the name")
    if code in (Code._TRANSPORT, Code._ALL_BROKERS_DOWN, Code._RESOLVE, Code._TIMED_OUT):
        return NetworkError(f"cannot reach {where} ({text}); is the broker running there?")
    return NetworkError(f"{where}, topic {address.topic!r}: {text}")


def greet(client: Any, address: KafkaAddress, timeout_s: float, new: bool = True) -> set[int]:
    """The partitions of the topic; the client is connected then. A sentence if nobody is there, or another server: that
    it cannot be if the client is not `new`."""
    from confluent_kafka import KafkaError, KafkaException

    _reach(address, timeout_s)  # the client would only say, after a while, that it timed out
    try:
        topic = client.list_topics(address.topic, timeout=timeout_s).topics[address.topic]
    except KafkaException as error:
        why = explain(error.args[0], address)
        if new and error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
            raise HandshakeError(
                f"Kafka at {address.brokers} did not answer as Kafka does ({error.args[0].str()}); is it another "
                "server, or does it want TLS?"
            ) from None
        raise why from None
    if topic.error is not None:
        raise explain(topic.error, address)
    return set(topic.partitions)


def _reach(address: KafkaAddress, timeout_s: float) -> None:
    """At least one broker listens."""
    why = ""
    for broker in address.brokers.split(","):
        try:
            socket.create_connection(split_host(broker), timeout_s).close()
            return
        except OSError as error:
            why = error.strerror or str(error)
    raise NetworkError(f"cannot reach Kafka at {address.brokers}: {why}; is the broker running there?")
