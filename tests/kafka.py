"""Kafka for tests: librdkafka's mock cluster, driven from Python, and SeaweedFS's gateway with durable topics.

The mock cluster listens on loopback and speaks Kafka's protocol to any client, also of other processes. It can do what
no broker does when asked: fail the next requests with an error of the test's choice, be down, delete records.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, Producer

from tests.ports import free_port, pairs_of_ports
from tests.registry import RegistryServer

CONF = ctypes.c_void_p
FETCH, OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 1, 8, 9, 11, 12, 13, 14
"""Kafka's numbers of requests."""


def _library() -> Any:
    """The librdkafka that comes with confluent-kafka."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka-*"))))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_get_requests.restype = ctypes.POINTER(ctypes.c_void_p)
    library.rd_kafka_mock_request_api_key.restype = ctypes.c_int16
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

    def watch(self) -> None:
        """Keep every request that comes from now on."""
        self._library.rd_kafka_mock_start_request_tracking(self._cluster)

    def asked(self) -> set[int]:
        """The kinds of requests that came since `watch`."""
        count = ctypes.c_size_t()
        requests = self._library.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        kinds = {self._library.rd_kafka_mock_request_api_key(CONF(requests[n])) for n in range(count.value)}
        self._library.rd_kafka_mock_request_destroy_array(requests, count)
        return kinds

    def stop(self) -> None:
        """All connections are cut, and nobody listens; topics stay."""
        self.down()

    kill = stop

    def start(self) -> None:
        self.up()

    def _call(self, what: str, *arguments: Any) -> None:
        error = getattr(self._library, f"rd_kafka_mock_{what}")(self._cluster, *arguments)
        assert error == 0, f"{what}: error {error}"


WEED_WITHIN_S = 300.0


class WeedBroker:
    """SeaweedFS with its Kafka gateway: topics outlive clients. It gives topics no ids, drops headers of messages, and
    stamps them by its own clock. The gateway wants a schema registry that answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._registry = RegistryServer()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = f"127.0.0.1:{free_port()}"

    def __enter__(self) -> WeedBroker:
        self._folder.mkdir(parents=True)
        self._registry.start()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._registry.stop()

    def create(self, topic: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        deadline = time.monotonic() + WEED_WITHIN_S
        while topic not in admin.list_topics(timeout=30).topics:
            made = admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=30)[topic]
            error = made.exception()  # until its brokers have found each other
            assert time.monotonic() < deadline, error

    def _start(self) -> None:
        ports = {name: port for name, (port, _) in pairs_of_ports(("master", "volume", "filer"), 10_000).items()}
        (self._folder / "data").mkdir()
        options = {
            "dir": self._folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            **{f"{name}.port": port for name, port in ports.items()},
            "filer": "true",
            "filer.localSocket": self._folder / "filer.sock",
            "mq.broker": "true",
            "mq.broker.port": free_port(),
            "master.telemetry": "false",
            "volume.max": 20,
        }
        self._run("server", options)
        gateway = {
            "ip": "",  # with one, it tells clients the port 9093, whatever its own is
            "ip.bind": "127.0.0.1",
            "port": self.address.rpartition(":")[2],
            "master": f"127.0.0.1:{ports['master']}",
            "schema-registry-url": self._registry.url,
        }
        deadline = time.monotonic() + WEED_WITHIN_S
        while True:  # it ends when the brokers have not agreed yet who balances them
            process = self._run("mq.kafka.gateway", gateway)
            while process.poll() is None:
                if self._answers():
                    return
                assert time.monotonic() < deadline, (self._folder / "mq.kafka.gateway.txt").read_text()[-2000:]

    def _run(self, what: str, options: dict[str, Any]) -> subprocess.Popen[bytes]:
        program = Path(sys.executable).with_name("weed")
        with (self._folder / f"{what}.txt").open("ab") as output:
            process = subprocess.Popen(
                [program, what, *(f"-{name}={value}" for name, value in options.items())],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        self._processes.append(process)
        return process

    def _answers(self) -> bool:
        producer = Producer({"bootstrap.servers": self.address, "log_level": 0})
        try:
            producer.list_topics(timeout=1)
        except KafkaException:
            return False
        return True


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
