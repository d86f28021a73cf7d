"""Kafka for tests: librdkafka's mock cluster, driven from Python, and SeaweedFS's gateway with durable topics.

The mock cluster listens on loopback and speaks Kafka's protocol to any client, also of other processes. It can do what
no broker does when asked: fail the next requests with an error of the test's choice, be down, delete records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Producer

CONF = ctypes.c_void_p
FETCH, LIST_OFFSETS, METADATA, PRODUCE = 1, 2, 3, 0
"""Kafka's numbers of requests."""


def _library() -> Any:
    """The librdkafka that comes with confluent-kafka."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


class MockCluster:
    """Brokers until the block ends. A topic that nobody made has four partitions as soon as it is asked for."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        text = ctypes.create_string_buffer(512)
        conf = CONF(self._library.rd_kafka_conf_new())
        self._library.rd_kafka_conf_set(conf, b"log_level", b"0", text, 512)
        self._handle = CONF(self._library.rd_kafka_new(0, conf, text, 512))
        assert self._handle, text.value
        self._cluster = CONF(self._library.rd_kafka_mock_cluster_new(self._handle, brokers))
        self._call("set_controller_id", 1)
        self.address = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)

    def url(self, topic: str, options: str = "") -> str:
        return f"kafka://{self.address}/{topic}{options}"

    def create(self, topic: str, partitions: int = 1) -> None:
        self._call("topic_create", topic.encode(), partitions, 1)

    def delete(self, topic: str) -> None:
        self._call("topic_delete", topic.encode())

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """As retention does."""
        self._call("partition_delete_records", topic.encode(), partition, ctypes.c_int64(before))

    def fail_topic(self, topic: str, error: int) -> None:
        """Whoever asks for the topic is told this."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), error)

    def fail(self, request: int, *errors: int) -> None:
        """The next requests of this kind fail, one after the other."""
        self._library.rd_kafka_mock_push_request_errors(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), *errors
        )

    def down(self, broker: int = 1) -> None:
        self._call("broker_set_down", broker)

    def up(self, broker: int = 1) -> None:
        self._call("broker_set_up", broker)

    def stop(self) -> None:
        """All connections are cut, and nobody listens; topics stay."""
        self.down()

    kill = stop

    def start(self) -> None:
        self.up()

    def _call(self, what: str, *arguments: Any) -> None:
        error = getattr(self._library, f"rd_kafka_mock_{what}")(self._cluster, *arguments)
        assert error == 0, f"{what}: error {error}"


Sent = tuple[int, int]
"""Partition and offset."""


def produce(address: str, topic: str, messages: list[dict[str, Any]], **config: Any) -> list[Sent]:
    """Send messages (`value`, `key`, `partition`, `headers`, `timestamp`); where each is, in their order."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0, **config})
    where: dict[int, Sent] = {}

    def delivered(number: int) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            assert error is None, error
            where[number] = (message.partition(), message.offset())

        return note

    for number, message in enumerate(messages):
        producer.produce(topic, on_delivery=delivered(number), **message)
    assert producer.flush(60) == 0
    return [where[number] for number in range(len(messages))]
