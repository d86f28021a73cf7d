"""Debian's omniEvents, and what it does to those who trust it: laps of its ring that nobody sees, a consumer dropped
for ever by one fault, a chain that breaks. The reliable channel survives each; what happens without it is shown too."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.conformance.channel import Reading, collect
from tests.runtime.conformance.servers import Broker, omnievents, running
from unerring import AsyncPublisher, AsyncSubscriber
from unerring.channels import ConsumerConfig, ProducerConfig, Start
from unerring.model import ConfigError, HandshakeError, NetworkError
from unerring.runtime.giop import GiopClient, GiopConfig, PushConsumer
from unerring.runtime.giop.any import write_string
from unerring.runtime.giop.connection import nothing
from unerring.runtime.giop.events import channel_named, read_pulled, write_event
from unerring.runtime.reports import Reports
from unerring.runtime.transports import TransportConfig, corba, open_inlet, open_outlet
from unerring.runtime.transports.config import parse_url
from unerring.runtime.transports.corba_chain import CorbaChain

WITHIN_S = 600.0
LAP = 1024
EXAMPLES = Path(__file__).parents[3] / "examples"
QUICK = ProducerConfig(heartbeat_idle_us=20_000, heartbeat_pause_us_max=100_000)
PATIENT = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=100_000, nack_attempts_max=1000)
NEAR = TransportConfig(redial_min_us=1_000, redial_max_us=50_000)


def run(test):
    async def bounded():
        async with asyncio.timeout(WITHIN_S):
            return await test

    return asyncio.run(bounded())


async def until(condition):
    async with asyncio.timeout(WITHIN_S / 2):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.fixture
def broker(server, tmp_path_factory):
    """One for each test: omniEvents may end when a consumer leaves while it is pushed to, a moment later."""
    with running("corba", server("omniEvents"), tmp_path_factory.mktemp("omnievents")) as broker:
        yield broker


@pytest.fixture
def own_broker(server, tmp_path):
    """For those who break it."""
    broker = Broker(server("omniEvents"), tmp_path / "own", omnievents)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def url(broker, request):
    return f"corba://127.0.0.1:{broker.port}/{request.node.name.partition('[')[0]}"


@contextlib.asynccontextmanager
async def kept_up(broker):
    """omniEvents 2.6.2 sometimes locks itself for good when somebody subscribes while it writes its first checkpoint
    after a restart. Then it answers nobody, and is killed and started again, as its operator would do."""

    async def watch():
        while True:
            client = GiopClient("127.0.0.1", broker.port, GiopConfig())
            try:
                await client.connect()
                await channel_named(client, "watched")
            except (HandshakeError, NetworkError):
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.start)
            finally:
                await client.close()
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def way(url, kind):
    return url.replace("corba:", f"{kind}:")


class Bare:
    """The event service without us: a supplier, and whatever consumers a test connects."""

    def __init__(self, url):
        self.port, self.name = url.rpartition(":")[2].split("/")

    async def __aenter__(self):
        self.client = GiopClient("127.0.0.1", int(self.port), GiopConfig())
        await self.client.connect()
        self.channel = await channel_named(self.client, self.name)
        self.supplier = await self.channel.push_consumer()
        return self

    async def __aexit__(self, *_):
        await self.client.close()

    async def push(self, data):
        await self.client.call(self.supplier, "push", write_event(data))

    async def try_pull(self, proxy):
        return read_pulled(await self.client.call(proxy, "try_pull", nothing))

    async def pull_until(self, proxy, last):
        """Everything up to `last`, and it."""
        got = []
        while not got or got[-1] != last:
            data, there = await self.try_pull(proxy)
            if there:
                got.append(data)
            else:
                await asyncio.sleep(0.001)
        return got


@pytest.fixture
def servants(monkeypatch):
    """Every push consumer that the transport opens, so that a test can hurt it."""
    opened = []

    class Shaky(PushConsumer):
        """When told to, it is cut off in the midst of a push: the channel sees one fault."""

        breaks_next = False

        def __init__(self, config, reports, on_event, on_disconnect):
            def shaky(data):
                if self.breaks_next:
                    self.breaks_next = False
                    self.cut()
                else:
                    on_event(data)

            super().__init__(config, reports, shaky, on_disconnect)

        async def open(self, host):
            opened.append(self)
            return await super().open(host)

    monkeypatch.setattr(corba, "PushConsumer", Shaky)
    return opened


# The lap


def test_without_us_a_lap_of_the_ring_is_lost_and_nothing_shows(url):
    async def scenario():
        async with Bare(url) as bare:
            reader = await bare.channel.pull_supplier()
            await bare.push(b"0")
            assert await bare.pull_until(reader, b"0") == [b"0"]
            for n in range(1, LAP + 1):
                await bare.push(b"%d" % n)
            watcher = await bare.channel.pull_supplier()
            await bare.push(b"after")
            await bare.pull_until(watcher, b"after")
            assert await bare.try_pull(reader) == (b"after", True), "1024 events are gone, without a gap to be seen"

    run(scenario())


@pytest.mark.parametrize("kind", ["corba", "corba-pull"])
def test_with_us_a_lap_is_found_and_repaired(url, kind):
    """The last events are lost too: only the heartbeat tells of them."""

    async def scenario():
        async with AsyncPublisher(url + kind, Reading, name="press", config=QUICK) as out:
            inlet = open_inlet(way(url + kind, kind), NEAR)
            async with AsyncSubscriber(inlet, Reading, config=PATIENT) as events:
                await out.publish(Reading("press-1", 0))
                assert await collect(events, 1) == [0]
                inlet.pause_reading()
                for n in range(1, 2 * LAP + 1):
                    await out.publish(Reading("press-1", n))
                    await asyncio.sleep(0)  # in a turn of its own it is a message of its own
                async with Bare(url + kind) as bare:
                    # The service has taken all of it once a stranger's event behind it comes round.
                    watcher = await bare.channel.pull_supplier()
                    await until(lambda: out._outlet._emptied.is_set())
                    await bare.push(b"behind it")
                    await bare.pull_until(watcher, b"behind it")
                inlet.resume_reading()
                assert await collect(events, 2 * LAP) == list(range(1, 2 * LAP + 1))
                assert out.reports["channel.replayed"] > LAP // 2  # heartbeats were lost in the lap, too
                assert events.ledger().balanced
                assert events.ledger().declared_lost == 0

    run(scenario())


# The eviction


def test_without_us_one_fault_unsubscribes_for_ever(url):
    async def scenario():
        async with Bare(url) as bare:
            got = []

            def on_event(data):
                got.append(data)
                if data == b"the fault":
                    servant.cut()

            servant = PushConsumer(GiopConfig(), Reports(), on_event, lambda: None)
            reference = await servant.open("127.0.0.1")
            proxy = await bare.channel.push_supplier(reference)
            await bare.push(b"before")
            await bare.push(b"the fault")
            await until(lambda: got == [b"before", b"the fault"])
            watcher = await bare.channel.pull_supplier()
            for n in range(50):
                await bare.push(b"%d" % n)
            await bare.pull_until(watcher, b"49")
            assert got == [b"before", b"the fault"]
            assert not await bare.channel.still_subscribed(proxy, reference), "it had been dropped"
            await servant.close()

    run(scenario())


def test_with_us_one_fault_after_the_other_loses_nothing(url, servants):
    async def scenario():
        async with AsyncPublisher(url, Reading, name="press", config=QUICK) as out:
            async with AsyncSubscriber(url, Reading, config=PATIENT, transport=NEAR) as events:
                for fault in range(3):
                    for n in range(20):
                        await out.publish(Reading("press-1", 20 * fault + n))
                    assert await collect(events, 20) == list(range(20 * fault, 20 * fault + 20))
                    servants[0].breaks_next = True
                await out.publish(Reading("press-1", 60))
                assert await collect(events, 1) == [60]
                assert events.reports["corba.evicted"] >= 2
                assert "subscribed again" in events.reports.sentences("corba.evicted")[0]
                assert len(servants) == 1, "subscribed anew at the same proxy, without a new connection"

    run(scenario())


def test_an_eviction_that_nobody_tells_of_is_noticed(url, servants, monkeypatch):
    """The service's last call may not get through either."""

    async def scenario():
        monkeypatch.setattr(corba._PushSession, "_on_disconnect", lambda self: None)
        async with AsyncPublisher(url, Reading, name="press", config=QUICK) as out:
            async with AsyncSubscriber(url, Reading, config=PATIENT, transport=NEAR) as events:
                await out.publish(Reading("press-1", 0))
                assert await collect(events, 1) == [0]
                servants[0].breaks_next = True
                await out.publish(Reading("press-1", 1))
                assert await collect(events, 1) == [1]
                await until(lambda: events.reports["corba.evicted"])

    run(scenario())


# The service goes away


@pytest.mark.parametrize("kind", ["corba", "corba-pull"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_service_may_restart_or_be_killed_in_the_midst(own_broker, kind, end):
    async def scenario():
        url = f"corba://127.0.0.1:{own_broker.port}/hall"
        async with AsyncPublisher(url, Reading, name="press", config=QUICK, transport=NEAR) as out:
            async with AsyncSubscriber(way(url, kind), Reading, config=PATIENT, transport=NEAR) as events:
                for n in range(100):
                    await out.publish(Reading("press-1", n))
                await asyncio.to_thread(getattr(own_broker, end))
                for n in range(100, 200):
                    await out.publish(Reading("press-1", n))
                await asyncio.to_thread(own_broker.start)
                async with kept_up(own_broker):
                    for n in range(200, 300):
                        await out.publish(Reading("press-1", n))
                    assert await collect(events, 300) == list(range(300))
                assert events.ledger().balanced
                assert events.ledger().declared_lost == 0

    run(scenario())


# The demonstrations


@pytest.mark.parametrize(
    ("example", "shows"),
    [
        (
            "corba_lap.py",
            ["1025 events pushed, 1 pulled, the first is number 1025", "1025 received, in order: True", "repaired"],
        ),
        (
            "corba_eviction.py",
            ["100 events pushed, one fault, 9 received: 1 to 9", "100 received, in order: True", "subscribed again"],
        ),
    ],
)
def test_the_demonstrations_lose_without_us_and_not_with_us(server, example, shows):
    server("omniEvents")
    done = subprocess.run(
        [sys.executable, EXAMPLES / example], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    for sentence in shows:
        assert sentence in done.stdout


def test_leaving_with_a_push_under_way_leaves_the_service_alive(own_broker):
    """A push that fails after its consumer disconnected ends omniEvents 2.6.2 with SIGABRT."""

    async def never(data):
        await asyncio.Event().wait()

    async def scenario():
        url = parse_url(f"corba://127.0.0.1:{own_broker.port}/hall")
        service = corba.CorbaService(url, TransportConfig(), Reports())
        async with service.session() as supplier:
            for _ in range(5):
                async with service.session() as session:
                    ready = asyncio.Event()
                    listening = asyncio.create_task(session.listen(never, ready.set))
                    await ready.wait()
                    await supplier.publish([b"event"] * 200)
                    await until(lambda session=session: session._servant._paused)  # and one more is under way
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
                    assert session._doubtful.is_set(), "the channel's last word came: nothing is under way any more"
                await supplier.publish([b"still there?"])
                assert own_broker.process.poll() is None

    run(scenario())


# Chains


@pytest.mark.parametrize("kind", ["corba", "corba-pull"])
def test_two_channels_chained(own_broker, kind):
    """Which the paper's own implementation could not (section 4)."""

    async def scenario():
        hall, office = (f"corba://127.0.0.1:{own_broker.port}/{name}" for name in ("hall", "office"))
        async with (
            CorbaChain(hall, office, NEAR) as chain,
            AsyncPublisher(hall, Reading, name="press", config=QUICK) as out,
            AsyncSubscriber(way(office, kind), Reading, config=PATIENT) as events,
        ):
            await out.publish_many([Reading("press-1", n) for n in range(300)])
            for n in range(300, 500):
                await out.publish(Reading("press-1", n))
            assert await collect(events, 500) == list(range(500))
            assert chain.reports["corba.linked"] == 1

    run(scenario())


def test_a_chain_across_two_services_of_which_one_is_killed(broker, own_broker):
    async def scenario():
        hall = f"corba://127.0.0.1:{broker.port}/killed-chain"
        office = f"corba://127.0.0.1:{own_broker.port}/office"
        async with (
            CorbaChain(hall, office, NEAR) as chain,
            AsyncPublisher(hall, Reading, name="press", config=QUICK) as out,
            AsyncSubscriber(office, Reading, config=PATIENT, transport=NEAR) as events,
        ):
            await out.publish(Reading("press-1", 0))
            assert await collect(events, 1) == [0]
            await asyncio.to_thread(own_broker.kill)
            for n in range(1, 100):
                await out.publish(Reading("press-1", n))
            await asyncio.to_thread(own_broker.start)
            assert await collect(events, 99) == list(range(1, 100))
            assert chain.reports["corba.linked"] >= 2

    run(scenario())


def test_chains_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="feed itself"):
        CorbaChain("corba://127.0.0.1:1/a", "corba-pull://127.0.0.1:1/a")
    with pytest.raises(ConfigError, match="corba://host:port/channel"):
        CorbaChain("corba://127.0.0.1:1/a", "tcp://127.0.0.1:1")


# Strangers


@pytest.mark.parametrize("kind", ["corba", "corba-pull"])
def test_events_of_other_programs_are_counted_and_harm_nobody(url, kind):
    async def scenario():
        async with AsyncPublisher(url + kind, Reading, name="press", config=QUICK) as out:
            async with (
                AsyncSubscriber(way(url + kind, kind), Reading, config=PATIENT) as events,
                Bare(url + kind) as bare,
            ):
                await out.publish(Reading("press-1", 0))
                assert await collect(events, 1) == [0]
                await bare.client.call(bare.supplier, "push", lambda body: write_string(body, "news"))
                await bare.push(b"octets, but not in an envelope of ours")
                await out.publish(Reading("press-1", 1))
                assert await collect(events, 1) == [1]
                assert events.reports["corba.foreign_event"] == 1
                assert events.reports["corba.foreign"] == 1

    run(scenario())


def test_a_server_that_is_not_there():
    async def scenario():
        outlet = open_outlet("corba://127.0.0.1:1/hall")
        with pytest.raises(NetworkError, match="cannot reach"):
            await outlet.open(lambda sender, data: None)
        inlet = open_inlet("corba://127.0.0.1:1/hall", NEAR)
        await inlet.open(lambda sender, data: None)
        assert not inlet.subscribed
        await inlet.close()

    run(scenario())


@pytest.mark.parametrize("open_end", [open_outlet, open_inlet])
def test_a_server_that_is_another(open_end):
    async def scenario():
        async def answer(reader, writer):
            await reader.read(100)
            writer.write(b"-ERR unknown command\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        end = open_end(f"corba://127.0.0.1:{port}/hall")
        with pytest.raises(HandshakeError, match="not a CORBA server"):
            await end.open(lambda sender, data: None)
        server.close()

    run(scenario())


def test_a_name_that_is_taken_by_another_object(broker):
    async def scenario():
        inlet = open_inlet(f"corba://127.0.0.1:{broker.port}/omniEvents")
        with pytest.raises(HandshakeError, match="no event channel 'omniEvents'"):
            await inlet.open(lambda sender, data: None)

    run(scenario())


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("corba://127.0.0.1:11169", "names no channel"),
        ("corba://127.0.0.1/hall", "write host:port"),
        ("corba://127.0.0.1:11169/hall 3", "letters, digits"),
    ],
)
def test_addresses_that_cannot_be_are_refused(url, sentence):
    with pytest.raises(ConfigError, match=sentence):
        open_inlet(url)


def test_many_may_make_one_channel_at_the_same_moment(url):
    async def scenario():
        bares = [Bare(url) for _ in range(8)]
        await asyncio.gather(*(bare.__aenter__() for bare in bares))
        reader = await bares[0].channel.pull_supplier()
        await bares[-1].push(b"one channel for all")
        assert await bares[0].pull_until(reader, b"one channel for all")
        for bare in bares:
            await bare.__aexit__()

    run(scenario())


def test_who_left_leaves_nothing_behind(own_broker):
    """Subscribers that come and go do not use the service up."""

    async def scenario():
        url = f"corba://127.0.0.1:{own_broker.port}/doors"
        for kind in ("corba", "corba-pull"):
            for _ in range(40):
                inlet = open_inlet(way(url, kind))
                await inlet.open(lambda sender, data: None)
                await inlet.close()
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", own_broker.port)) == 0

    run(scenario())
