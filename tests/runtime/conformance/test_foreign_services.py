"""What befalls a channel over services that others wrote: brokers stop, are killed, are away, are something else."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from tests.kafka import MockCluster
from tests.ports import free_port
from tests.runtime.conformance.channel import Reading, collect
from tests.runtime.conformance.servers import PROGRAMS, Broker, running
from unerring import AsyncPublisher, AsyncSubscriber
from unerring.channels import ConsumerConfig, ProducerConfig, Start
from unerring.model import ConfigError, HandshakeError, NetworkError
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet
from unerring.runtime.transports.foreign import Envelopes, seal
from unerring.runtime.transports.zmq import WELCOME

QUICK = ProducerConfig(heartbeat_idle_us=20_000, heartbeat_pause_us_max=50_000)
PATIENT = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=50_000, nack_attempts_max=10_000)
BRISK = TransportConfig(redial_min_us=5_000, redial_max_us=50_000)
BROKERS = ("nats", "redis", "mqtt", "kafka")
"""CORBA loses, evicts and refuses in ways of its own: test_corba.py has the same for it."""


@pytest.fixture(params=BROKERS)
def broker(
    request: pytest.FixtureRequest, server: Callable[[str], Path], tmp_path: Path
) -> Iterator[tuple[str, Broker | MockCluster]]:
    if request.param == "kafka":
        with MockCluster() as cluster:
            yield cluster.url("readings"), cluster
        return
    with running(request.param, server(PROGRAMS[request.param][0]), tmp_path) as started:
        yield f"{request.param}://127.0.0.1:{started.port}/readings", started


def readings(first: int, last: int) -> list[Reading]:
    return [Reading("press-1", n) for n in range(first, last)]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_that_ends_and_comes_back_costs_nothing(broker: tuple[str, Broker | MockCluster], end: str) -> None:
    """Published before, while it is away, and after: each arrives once, in order; both ends came back by themselves."""
    url, server = broker

    async def scenario() -> None:
        publisher = AsyncPublisher(url, Reading, name="press", config=QUICK, transport=BRISK)
        subscriber = AsyncSubscriber(url, Reading, config=PATIENT, transport=BRISK)
        async with publisher as out, subscriber as events:
            await out.publish_many(readings(0, 100))
            assert await collect(events, 100) == list(range(100))
            await out.publish_many(readings(100, 200))  # on their way when the broker goes
            getattr(server, end)()
            for n in range(200, 250):
                await out.publish(Reading("press-1", n))
            server.start()
            await out.publish_many(readings(250, 300))
            assert await collect(events, 200) == list(range(100, 300))
            ledger = events.ledger()
            assert ledger.balanced
            assert ledger.declared_lost == 0
            scheme = url.partition(":")[0]
            if scheme != "kafka":  # whose client connects again by itself, and shows nothing of it
                assert events.reports[f"{scheme}.connected"] >= 2
                assert events.reports[f"{scheme}.unreachable"] >= 1

    asyncio.run(scenario())


def test_a_slow_consumer_gets_everything(broker: tuple[str, Broker | MockCluster]) -> None:
    """It reads nothing while more is published than it takes in hand; whatever the service does, it catches up."""
    url, _ = broker
    few = ConsumerConfig(
        start=Start.EARLIEST,
        in_hand_max=1000,
        hold_count_max=5000,
        nack_pause_us_max=50_000,
        nack_attempts_max=10_000,
    )

    async def scenario() -> None:
        small = TransportConfig(frame_bytes_max=100_000, outbox_bytes_max=600_000)
        subscriber = AsyncSubscriber(url, Reading, config=few, transport=small)
        async with AsyncPublisher(url, Reading, name="press", config=QUICK) as out, subscriber as events:
            for first in range(0, 20_000, 500):
                await out.publish_many(readings(first, first + 500))
                await asyncio.sleep(0)
            assert await collect(events, 20_000) == list(range(20_000))
            assert events.ledger().declared_lost == 0

    asyncio.run(scenario())


def test_messages_of_other_programs_are_counted_and_not_read(broker: tuple[str, Broker | MockCluster]) -> None:
    url, _ = broker
    scheme = url.partition(":")[0]

    async def scenario() -> None:
        stranger = open_outlet(url)
        async with AsyncPublisher(url, Reading, name="press", config=QUICK) as out:
            async with AsyncSubscriber(url, Reading, config=PATIENT) as events:
                await stranger.open(lambda sender, data: None)
                for envelope in (b"", b"hello ", b"\xec\x55", b"\xec\x55\xff", b"\xec\x55\x03abc"):
                    stranger._envelope = envelope
                    stranger.push(b"")
                await stranger.close()
                await out.publish(Reading("press-1", 0))
                assert await collect(events, 1) == [0]
                assert events.reports[f"{scheme}.foreign"] >= 4

    asyncio.run(scenario())


@pytest.mark.parametrize("scheme", BROKERS)
def test_a_server_that_is_not_there_gets_a_sentence(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}/readings"

    async def scenario() -> None:
        with pytest.raises(NetworkError, match=r"cannot reach .*127\.0\.0\.1"):
            await open_outlet(url).open(lambda sender, data: None)
        inlet = open_inlet(url)
        await inlet.open(lambda sender, data: None)  # it is waited for
        assert not inlet.subscribed
        assert "cannot reach" in inlet.reports.sentences(f"{scheme}.unreachable")[0]
        await inlet.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("scheme", BROKERS)
@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff\x81\x80\x80\x80\x80garbage\r\n", b""]
)
def test_another_protocol_gets_a_sentence(scheme: str, greeting: bytes) -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read(100)
        writer.close()

    async def scenario() -> None:
        listening = await asyncio.start_server(stranger, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        url = f"{scheme}://127.0.0.1:{port}/readings?connect_us=1000000"
        for make in (open_outlet, open_inlet):
            with pytest.raises(HandshakeError, match=f"{port}.* (is not|did not)"):
                await make(url).open(lambda sender, data: None)
        listening.close()

    asyncio.run(scenario())


def test_a_subscriber_that_takes_smaller_frames_than_its_producer_sends_gets_everything() -> None:
    """An answer of a megabyte was cut off, asked for again, and cut off again, until it was declared lost."""

    async def scenario() -> None:
        url = f"zmq://127.0.0.1:{free_port()}"
        small = TransportConfig(frame_bytes_max=30_000)
        async with AsyncPublisher(url, Reading, name="press", config=QUICK) as out:
            await out.publish_many(readings(0, 3000))
            await out.publish_many(readings(3000, 6000))
            async with AsyncSubscriber(url, Reading, config=PATIENT, transport=small) as events:
                assert await collect(events, 6000) == list(range(6000))
                assert "tcp.bad_frame" not in events.reports.counts

    asyncio.run(scenario())


def test_zeromq_welcomes_a_subscriber_when_its_subscription_is_there() -> None:
    """libzmq's own welcome comes with the connection: what was pushed between it and the subscription was lost."""

    async def scenario() -> None:
        url = f"127.0.0.1:{free_port()}"
        outlet, inlet = open_outlet(f"zmq://{url}"), open_inlet(f"zmq://{url}")
        await outlet.open(lambda sender, data: None)
        with zmq.asyncio.Context() as context, context.socket(zmq.XSUB) as late:
            late.connect(f"tcp://{url}")
            await inlet.open(lambda sender, data: None)
            assert not await late.poll(100)
            await late.send(b"\x01")
            assert await late.recv() == WELCOME
            late.close(0)
        await inlet.close()
        await outlet.close()

    asyncio.run(scenario())


def test_zeromq_asks_who_is_there() -> None:
    async def scenario() -> None:
        inlet = open_inlet(f"zmq://127.0.0.1:{free_port()}")
        await inlet.open(lambda sender, data: None)
        assert not inlet.subscribed
        await inlet.close()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with pytest.raises(NetworkError, match="cannot listen at zmq://"):
                await open_outlet(f"zmq://127.0.0.1:{taken.getsockname()[1]}").open(lambda sender, data: None)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("nats://127.0.0.1:4222", "names no subject"),
        ("redis://127.0.0.1:6379/", "names no channel"),
        ("mqtt://127.0.0.1:1883/a/#", "without wildcards"),
        ("kafka://127.0.0.1", "names no topic"),
        ("kafka:///readings", "names no broker"),
        ("kafka://127.0.0.1/a/b", "is not a topic"),
        ("kafka://127.0.0.1/readings?config=/nowhere", "cannot be read"),
        ("multicast://10.0.0.1:5000", "not a multicast group"),
        ("multicast://239.255.0.1:5000?interface=10.0.0.1", "refusing to use interface 10.0.0.1 .* without TLS"),
    ],
)
def test_a_wrong_address_gets_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        open_outlet(url)


@pytest.mark.parametrize("scheme", ["udp", "multicast"])
def test_a_frame_longer_than_a_datagram_arrives_by_the_direct_way(scheme: str) -> None:
    host = "127.0.0.1" if scheme == "udp" else "239.255.79.1"
    url = f"{scheme}://{host}:{free_port(socket.SOCK_DGRAM)}"

    async def scenario() -> None:
        async with AsyncPublisher[bytes](url, name="press", config=QUICK) as out:
            async with AsyncSubscriber[bytes](url, config=PATIENT) as events:
                long = bytes(200_000)
                await out.publish_many([b"short", long, b"short again"])
                got = [(await anext(events)).value for _ in range(3)]
                assert got == [b"short", long, b"short again"]
                assert out.reports[f"{scheme}.too_large"] == 1

    asyncio.run(scenario())


def test_an_envelope_names_its_sender() -> None:
    envelopes = Envelopes()
    assert envelopes.open(seal("tcp://127.0.0.1:7000") + b"frame") == ("tcp://127.0.0.1:7000", b"frame")
    assert envelopes.open(seal("tcp://[::1]:7000")) == ("tcp://[::1]:7000", b"")
    for foreign in (b"", b"\xec", b"\xec\x55", b"\xec\x55\x05ab", b"\xec\x55\x03abc", b"\xec\x55\x02\xff\xff"):
        assert envelopes.open(foreign) is None
    for port in range(1, 3000):
        envelopes.open(seal(f"tcp://127.0.0.1:{port}"))
    assert len(envelopes._senders) <= 1024


@pytest.mark.parametrize("broker", ["nats", "redis", "mqtt"], indirect=True)
def test_the_example_loses_without_a_channel_and_not_with_one(broker: tuple[str, Broker | MockCluster]) -> None:
    path = Path(__file__).parents[3] / "examples" / "lossy_service.py"
    ran = subprocess.run([sys.executable, str(path), broker[0]], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "with a channel: 300 of 300" in ran.stdout
    assert int(ran.stdout.split()[1]) < 300
