"""TCP against peers that break the rules: counted, named, cut off; everyone else is served as before."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct

import pytest

from tests.runtime.known import open_known_connection
from unerring.model import HandshakeError, NetworkError
from unerring.runtime.frames import framed
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import listen
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet
from unerring.runtime.transports.hello import GREETINGS, VERSION, Hello, Refused, Welcome

GREETING = framed(GREETINGS.encode(Hello(VERSION, True)))

HOSTILE = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a huge length": struct.pack(">I", 2**32 - 1),
    "a length over the greeting's limit": struct.pack(">I", 5_000) + bytes(5_000),
    "an empty greeting": framed(b""),
    "a greeting that is no message": framed(b"\xc1" * 40),
    "another kind of message": framed(GREETINGS.encode(Welcome("tcp://here:1"))),
    "deep nesting": framed(b"\x91" * 4_000),
    "a version we do not speak": framed(GREETINGS.encode(Hello(99, True))),
    "a good greeting, then a frame over the limit": GREETING + struct.pack(">I", 100_001),
    "a good greeting, then a frame that ends early": GREETING + struct.pack(">I", 50_000) + bytes(100),
    "silence cut short": b"",
    "half a header": b"\x00\x00",
}


def connection(port, known):
    return open_known_connection(port) if known else asyncio.open_connection("127.0.0.1", port)


class Service:
    """A producer with one well-behaved consumer, under attack from a third."""

    def __init__(self, wait, **config):
        self.wait = wait
        self.reports = Reports()
        self.config = TransportConfig(frame_bytes_max=100_000, redial_min_us=1_000, **config)
        self.requests = []
        self.received = []

    async def __aenter__(self):
        self.outlet = open_outlet("tcp://127.0.0.1:0", self.config, self.reports)
        await self.outlet.open(lambda sender, data: self.requests.append((sender, data)))
        self.port = int(self.outlet.direct.rpartition(":")[2])
        self.inlet = open_inlet(self.outlet.direct, self.config)
        await self.inlet.open(lambda sender, data: self.received.append(data))
        return self

    async def __aexit__(self, *_):
        await self.inlet.close()
        await self.outlet.close()

    async def still_serves(self):
        def said_and_heard():
            self.outlet.push(b"still here")  # again and again: the consumer may just be dialling once more
            self.inlet.send(self.outlet.direct, b"me too")
            return self.received and self.requests

        await self.wait.until(said_and_heard)
        assert set(self.received) == {b"still here"}
        assert b"me too" in [data for _, data in self.requests]

    def refusals(self):
        return self.reports["tcp.bad_frame"] + self.reports["tcp.refused"]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("attack", sorted(HOSTILE))
def test_hostile_bytes_are_counted_and_harm_nobody(wait, attack, known):
    async def scenario():
        async with Service(wait) as service:
            reader, writer = await connection(service.port, known)
            writer.write(HOSTILE[attack])
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read()  # until we are cut off
            writer.close()
            await wait.until(lambda: service.refusals() == 1)
            said = [*service.reports.sentences("tcp.bad_frame"), *service.reports.sentences("tcp.refused")]
            assert said[0].removeprefix("tcp://").startswith("127.0.0.1:")
            await service.still_serves()

    wait.run(scenario())


def test_a_thousand_random_attacks(wait):
    """Seeded garbage, in random pieces, after a good greeting or instead of one."""
    chance = random.Random(7)

    async def attack(port):
        reader, writer = await connection(port, known=chance.random() < 0.5)
        with contextlib.suppress(ConnectionError):
            if chance.random() < 0.5:
                writer.write(GREETING)
            for _ in range(chance.randrange(4)):
                writer.write(chance.randbytes(chance.randrange(1, 300)))
                await writer.drain()
            if chance.random() < 0.5:
                writer.transport.abort()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await reader.read()
            await writer.wait_closed()

    async def scenario():
        async with Service(wait) as service:
            for _ in range(40):
                await asyncio.gather(*(attack(service.port) for _ in range(25)))
            await service.still_serves()
            await wait.until(
                lambda: service.reports["tcp.connected"] - service.reports["tcp.disconnected"] == 1,
                "only the good consumer is left",
            )

    wait.run(scenario())


def test_a_peer_that_never_greets_is_cut_off(wait):
    async def scenario():
        async with Service(wait, handshake_us=30_000) as service:
            reader, writer = await open_known_connection(service.port)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            # On a busy machine the good one may be too slow for that too; it dials again.
            await wait.until(lambda: service.reports["tcp.bad_frame"] >= 1)
            assert "no greeting arrived in time" in service.reports.sentences("tcp.bad_frame")[0]
            await service.still_serves()

    wait.run(scenario())


def test_a_claimed_length_reserves_no_memory(wait):
    """Ten peers claim the largest frame and send nothing of it: buffers grow with what really comes."""

    async def scenario():
        async with Service(wait) as service:
            writers = []
            for _ in range(10):
                _, writer = await open_known_connection(service.port)
                writer.write(GREETING + struct.pack(">I", 100_000))
                writers.append(writer)
            await wait.until(lambda: service.reports["tcp.connected"] == 11)
            sizes = [len(consumer.connection._buffer) for consumer in service.outlet._connections]
            assert max(sizes) == 256 * 1024
            for writer in writers:
                writer.transport.abort()
            await service.still_serves()

    wait.run(scenario())


def test_connections_are_bounded(wait):
    async def scenario():
        async with Service(wait, connections_max=3) as service:
            pairs = [await open_known_connection(service.port) for _ in range(5)]
            await wait.until(lambda: service.reports["tcp.refused"] >= 3)
            assert any("too many connections" in said for said in service.reports.sentences("tcp.refused"))
            for _, writer in pairs:
                writer.transport.abort()
            await service.still_serves()

    wait.run(scenario())


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (framed(GREETINGS.encode(Refused("not today"))), HandshakeError, "refused the connection: not today"),
        (framed(GREETINGS.encode(Hello(VERSION, True))), HandshakeError, "is a consumer, not a producer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", HandshakeError, "is not a producer of a reliable channel"),
        (framed(b"\x00garbage"), HandshakeError, "is not a producer of a reliable channel"),
        (b"", None, "closed the connection before it answered"),
    ],
)
def test_a_false_producer_is_recognised(wait, answer, error, sentence):
    async def scenario():
        class Pretender(asyncio.Protocol):
            def connection_made(self, transport):
                transport.write(answer)
                transport.close()

        server = await listen(
            "127.0.0.1",
            0,
            "",
            lambda peer: Pretender(),
            handshake_us=5_000_000,
            handshakes_max=8,
            reports=Reports(),
            prefix="tcp",
        )
        reports = Reports()
        inlet = open_inlet(f"tcp://127.0.0.1:{server.port}", reports=reports)
        received = []
        if error is None:
            await inlet.open(lambda sender, data: received.append(data))
        else:
            with pytest.raises(error, match=sentence):
                await inlet.open(lambda sender, data: received.append(data))
        assert any(sentence in said for said in reports.sentences("tcp.unreachable"))
        await inlet.close()
        assert received == []
        await server.close()

    wait.run(scenario())


def test_an_address_in_use_gets_a_sentence(wait):
    async def scenario():
        async with Service(wait) as service:
            with pytest.raises(NetworkError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"):
                await open_outlet(service.outlet.direct).open(lambda sender, data: None)

    wait.run(scenario())


def test_a_consumer_reaches_a_producer_that_it_is_not_subscribed_to(wait):
    """As behind a relay: requests go straight to the producer, on a line of their own that carries no pushes."""

    async def scenario():
        async with Service(wait, direct_links_max=2) as relay, Service(wait) as producer, Service(wait) as third:
            elsewhere = producer.outlet.direct
            for n in range(3):
                relay.inlet.send(elsewhere, b"%d, please" % n)  # kept while the line is being dialled
            await wait.until(lambda: len(producer.requests) == 3)
            assert [data for _, data in producer.requests] == [b"0, please", b"1, please", b"2, please"]
            producer.outlet.push(b"not for the relay's consumer")
            producer.outlet.send(producer.requests[0][0], b"here it is")
            await wait.until(lambda: relay.received)
            assert relay.received == [b"here it is"]
            relay.inlet.send(third.outlet.direct, b"a")
            relay.inlet.send("tcp://127.0.0.1:1", b"nobody there, and the oldest line makes room")
            await wait.until(lambda: third.requests)
            assert len(relay.inlet.lines.held) <= 2

    wait.run(scenario())
