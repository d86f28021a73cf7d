"""What is fuzzed: for each decoder that sees foreign bytes, a function of bytes.

It may raise what a decoder promises to raise, errors of our own tree; anything else is a finding, and so is what a
function asserts here.
`TARGETS[NAME]()` makes the function: what it needs is made once.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.model import UnerringError, protect

Target = Callable[[bytes], object]
PEER_BYTES_MAX: Final = 4096


class Socket(asyncio.Transport):
    """A connection that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: Any) -> None:
        bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name in ("socket", "ssl_object") else default

    def getpeercert(self) -> dict[str, Any]:
        return {}

    def fileno(self) -> int:
        return -1

    def abort(self) -> None:
        self.closing = True

    close = write_eof = abort

    def can_write_eof(self) -> bool:
        return True

    def pause_reading(self) -> None: ...

    resume_reading = pause_reading


_loop = cache(asyncio.new_event_loop)
"""One for all that need it, for as long as the process lives."""


def in_a_loop(body: Callable[[bytes], Any]) -> Target:
    """A function that is a coroutine."""
    return lambda data: _loop().run_until_complete(body(data))


def pieces(data: bytes) -> list[bytes]:
    """As a socket gives them: the first byte says how long each piece is."""
    size = data[0] % 61 + 1 if data else 1
    return [data[at : at + size] for at in range(1, len(data), size)]


def frames() -> Target:
    from unerring.model import PeerError
    from unerring.processes import codec
    from unerring.runtime.frames import FramedConnection

    wire = codec(PEER_BYTES_MAX)

    async def feed(data: bytes) -> None:
        taken: list[bytes] = []

        def take(frame: bytes) -> None:
            assert len(frame) <= PEER_BYTES_MAX
            taken.append(frame)
            try:
                wire.decode(frame)
            except PeerError as error:
                connection.fail(error)

        connection = FramedConnection(PEER_BYTES_MAX, PEER_BYTES_MAX, take, lambda why: None)
        connection.connection_made(Socket())
        for piece in pieces(data):
            room = connection.get_buffer(len(piece))
            assert len(room) >= len(piece)
            room[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        connection.connection_lost(None)
        assert sum(map(len, taken)) <= len(data)

    return in_a_loop(feed)


def giop() -> Target:
    from unerring.runtime.giop.connection import GiopConfig, GiopConnection
    from unerring.runtime.giop.messages import Kind, read_reply
    from unerring.runtime.giop.servant import PushConsumer
    from unerring.runtime.reports import Reports

    async def feed(data: bytes) -> None:
        consumer = PushConsumer(GiopConfig(), Reports(), lambda event: None, lambda: None)
        consumer._key = b"k"

        def take(message: Any) -> None:
            if message.kind in (Kind.REPLY, Kind.LOCATE_REPLY):
                read_reply(message)
            else:
                consumer._on_message(connection, message)

        connection = GiopConnection(GiopConfig(), take, lambda why: None)
        connection.connection_made(Socket())
        for piece in pieces(data):
            connection.data_received(piece)

    return in_a_loop(feed)


def reference() -> Target:
    from unerring.runtime.giop.ior import parse_reference, to_text

    def parse(data: bytes) -> None:
        known = parse_reference(data.decode("utf-8", "replace"))
        assert parse_reference(to_text(known)) == known

    return parse


def channels() -> Target:
    from unerring.channels import ChannelCodec, ChannelConfig

    wire = ChannelCodec(ChannelConfig())

    def decode(data: bytes) -> None:
        message = wire.decode(data)
        assert wire.decode(wire.encode(message)) == message

    return decode


def messages(wire: Any) -> Target:
    def decode(data: bytes) -> None:
        message = wire.decode(data)
        again = wire.decode(wire.encode(message))
        assert wire.encode(again) == wire.encode(message)

    return decode


def correlation() -> Target:
    from unerring.correlation import codec

    return messages(codec(1 << 20))


def snapshots() -> Target:
    from unerring.correlation.snapshot import decode

    return decode


def processes() -> Target:
    from unerring.processes import codec

    return messages(codec())


def payloads() -> Target:
    from tests.runtime.test_payloads import SCHEMA
    from unerring.runtime.payloads import Message, PayloadConfig, PayloadDecoder, Undecodable

    # fmt: off
    readers = [
        PayloadDecoder(PayloadConfig(**options), SCHEMA)
        for options in ({}, {"format": "cloudevents"}, {"time": "at", "unit": "ms"}, {"columns": "machine:a.b"})
    ]
    # fmt: on

    def decode(data: bytes) -> None:
        reader = readers[data[0] % len(readers)] if data else readers[0]
        headers = [("content-type", b"application/cloudevents+json")] if data[1:2] == b"1" else []
        try:
            reader.decode(Message(value=data[2:], headers=tuple(headers), time_us=1))
        except Undecodable:
            return

    return decode


def sql() -> Target:
    from tests.runtime.test_payloads import Reading
    from unerring.sql import sql_rule

    return lambda data: sql_rule("r", data.decode("utf-8", "replace"), Reading)


def bpmn() -> Target:
    from unerring.processes.bpmn import look_at

    return lambda data: look_at(data)


def policy() -> Target:
    from unerring.model import Actor, Right, Who, policy_text, read_policy

    def read(data: bytes) -> None:
        known = read_policy(data.decode("utf-8", "replace"))
        known.reason(Who("any", Actor.PRODUCER, "p"), Right.PUBLISH, "s")
        assert read_policy(policy_text(known)).allows == known.allows

    return read


def certificates() -> Target:
    from unerring.audit import faults_of, read_certificate

    def read(data: bytes) -> None:
        certificate, document = read_certificate(data, "here")
        faults_of(certificate, document)

    return read


def addresses() -> Target:
    """Whatever people write into options: addresses, identities, times, schedules, costs."""
    from unerring.log.times import Times
    from unerring.model import identities, read_who
    from unerring.processes.costs import read_costs
    from unerring.runtime.kafka.address import parse_kafka
    from unerring.runtime.transports.config import parse_url
    from unerring.sinks import address_of

    readers: tuple[Callable[[str], object], ...] = (
        parse_url,
        lambda text: parse_kafka(parse_url(text)),
        address_of,
        read_who,
        lambda text: identities([text]),
        lambda text: Times("at", "us", text),
        lambda text: read_costs(text.encode()),
    )
    return lambda data: readers[data[0] % len(readers) if data else 0](data[1:].decode("utf-8", "replace"))


def segments() -> Target:
    """A segment, an index, a declaration or a position of a stream, or what stands in its place."""
    from tests.log.worlds import BURST, table
    from unerring.log import EventLog, MemoryStore, Positions

    store = MemoryStore()
    chain = EventLog(store).create(BURST, buckets=1)
    for end in (10, 20):
        chain.seal(end, table([end - 1, end], BURST), producers={"p": (0, end)})
    whole = {name: store.read(name) or b"" for name in store.names("")}
    names = sorted([*whole, "Burst/index/00000001.json", "Burst/positions/r.json", "Burst/end.json"])

    def read(data: bytes) -> None:
        other = MemoryStore()
        for name, content in whole.items():
            other.create(name, content)
        name = names[data[0] % len(names)] if data else names[0]
        other.replace(name, data[2:] if data[1:2] == b"0" else protect(data[2:]))
        log = EventLog(other)
        log.streams()
        known = log.chain("Burst")
        known.read(known.base.from_us, known.refresh())
        Positions(other, "Burst").all()

    return read


def states() -> Target:
    from unerring.model import schema_of
    from unerring.pipeline.level import levels_of
    from unerring.pipeline.partition import Partition, encoded, read_state
    from unerring.rules.workloads import W1, Typed

    folder = tempfile.mkdtemp()
    [level] = levels_of((W1.plan,), (schema_of(Typed),), folder, 1)
    partition = Partition(level, 0)
    partition.begin(20)
    assert encoded(partition.state(), level)

    def read(data: bytes) -> None:
        state = read_state(protect(data), level, 0, 1, 20, "here")
        Partition(level, 0).restore([[state]], 20)

    return read


def http_filter() -> Target:
    """Requests of anybody: headers and bodies are the fuzzer's, the status must be one of ours."""
    from unerring.runtime import IdempotencyFilter, SqliteStore

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    store = SqliteStore(":memory:")
    filtered = IdempotencyFilter(application, store, request_bytes_max=512, secret=None)

    async def ask(data: bytes) -> None:
        head, _, body = data.partition(b"\n\n")
        lines = [line.partition(b":") for line in head.split(b"\n")]
        method = "DELETE" if data[:1] == b"D" else "POST"
        scope = {
            "type": "http",
            "method": method,
            "path": "/x",
            "headers": [(name.lower(), value) for name, _, value in lines[1:]],
        }
        given = [{"type": "http.request", "body": body[:256], "more_body": len(body) > 256}]
        if len(body) > 256:
            given.insert(0, {"type": "http.request", "body": body[256:], "more_body": False})
        answered: list[int] = []

        async def receive() -> Any:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answered.append(message["status"])

        await filtered(scope, receive, send)
        assert answered in ([200], [400], [404], [409], [413], [422], [429]), answered
        assert not store.connection.in_transaction

    return in_a_loop(ask)


def http_dashboard() -> Target:
    """Requests of anybody who may look: path, query and body are the fuzzer's; no answer is 500."""
    from tests.app.small_run import make
    from unerring.app.status import RunStatus
    from unerring.dashboard import Dashboard

    folder = Path(tempfile.mkdtemp()) / "data"
    make(folder)
    app = Dashboard(RunStatus(folder), "secret-token").app

    async def ask(data: bytes) -> None:
        head, _, body = data.partition(b"\n")
        path, _, query = head[1:].partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST" if head[:1] == b"P" else "GET",
            "path": "/" + path.decode("utf-8", "replace"),
            "raw_path": b"/" + path,
            "query_string": query,
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 9),
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer secret-token")],
        }
        if scope["path"] in ("/api/stream",):
            return  # it has no end
        given = [{"type": "http.request", "body": body, "more_body": False}]
        answered: list[int] = []

        async def receive() -> Any:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answered.append(message["status"])

        await app(scope, receive, send)
        assert answered, "no answer"
        assert answered[0] < 500, answered

    return in_a_loop(ask)


TARGETS: Final[dict[str, Callable[[], Target]]] = {
    "addresses": addresses,
    "bpmn": bpmn,
    "certificates": certificates,
    "channels": channels,
    "correlation": correlation,
    "frames": frames,
    "giop": giop,
    "http-dashboard": http_dashboard,
    "http-filter": http_filter,
    "payloads": payloads,
    "policy": policy,
    "processes": processes,
    "reference": reference,
    "segments": segments,
    "snapshots": snapshots,
    "sql": sql,
    "states": states,
}
ALLOWED: Final = (UnerringError,)


def carefully(target: Target) -> Target:
    """The same, quiet about what a decoder may raise."""

    def run(data: bytes) -> None:
        try:
            target(data)
        except ALLOWED:
            return
        except msgspec.MsgspecError as error:
            raise AssertionError(f"an error of msgspec's came through: {error}") from error

    return run
