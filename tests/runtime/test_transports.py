"""One conformance body for every transport: what an Outlet and its Inlets owe to whoever stands on them.

A further transport adds one line to PLACES. Event services that others wrote promise less: they take the tests whose
fixture is `any_ends`, with their real servers. What only one transport can show (hostile bytes on a socket, TLS) stands
in its own file.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket

import pytest

from tests.kafka import MockCluster
from tests.ports import free_port
from tests.runtime.conformance.servers import PROGRAMS, running
from unerring.model import ConfigError, FrameError
from unerring.runtime.reports import Reports
from unerring.runtime.transports import Faults, TransportConfig, lossy_inlet, lossy_outlet, open_inlet, open_outlet

_NAMES = itertools.count()

PLACES = {
    "inprocess": lambda: f"inprocess://conformance-{next(_NAMES)}",
    "tcp": lambda: "tcp://127.0.0.1:0",
    "tcp-tls": lambda: "tcp://127.0.0.1:0",
}
FOREIGN = {
    "udp": lambda: f"udp://127.0.0.1:{free_port(socket.SOCK_DGRAM)}",
    "multicast": lambda: f"multicast://239.255.78.{1 + next(_NAMES) % 250}:{free_port(socket.SOCK_DGRAM)}",
    "zmq": lambda: f"zmq://127.0.0.1:{free_port()}",
    "kafka": lambda: BROKERS["kafka"].url(f"conformance-{next(_NAMES)}"),
    "nats-tls": lambda: f"nats://127.0.0.1:{BROKERS['nats'].port}/conformance-{next(_NAMES)}",
    **{
        name: lambda name=name: f"{name}://127.0.0.1:{BROKERS[name].port}/conformance-{next(_NAMES)}"
        for name in PROGRAMS
    },
}
BROKERS = {}
"""Servers of this module's run, by scheme."""


class Ends:
    """One service under test: an outlet, inlets, and what each of them received."""

    def __init__(self, name, certificates, **config):
        tls = certificates if name.endswith("-tls") else ""
        self.config = TransportConfig(**{"redial_min_us": 1_000, "redial_max_us": 20_000, "tls": tls, **config})
        self.url = {**PLACES, **FOREIGN}[name]()
        self.burst = 900 if name.startswith("corba") else 5_000
        """What the service itself keeps for one who reads: CORBA's channel has a ring of 1023."""
        self.reports = Reports()
        self.requests = []
        self.outlet = None
        self.inlets = []

    async def produce(self, outlet=None):
        self.outlet = outlet or open_outlet(self.url, self.config, self.reports)
        await self.outlet.open(lambda sender, data: self.requests.append((sender, data)))
        if self.url.endswith(":0"):
            self.url = self.outlet.direct
        return self.outlet

    async def consume(self, inlet=None):
        inlet = inlet or open_inlet(self.url, self.config, self.reports)
        received = []
        await inlet.open(lambda sender, data: received.append((sender, data)))
        self.inlets.append(inlet)
        return inlet, received

    async def __aenter__(self):
        return self

    async def __aexit__(self, failure, *_):
        if failure is not None:
            print(f"what {self.url} reported: {self.reports.counts} {list(self.reports.details)}")
        for inlet in self.inlets:
            inlet.resume_reading()
        closing = [self.outlet.close()] if self.outlet else []
        await asyncio.gather(*closing, *(inlet.close() for inlet in self.inlets))


@pytest.fixture(params=sorted(PLACES))
def ends(request, certificates):
    return lambda **config: Ends(request.param, certificates, **config)


@pytest.fixture(scope="module")
def broker(server, tmp_path_factory):
    """Starts a scheme's server when it is first asked for; all of them stop when the module is done."""
    with contextlib.ExitStack() as stopping:

        def start(scheme):
            if scheme == "kafka" and scheme not in BROKERS:
                BROKERS[scheme] = stopping.enter_context(MockCluster())
            # CORBA's may end when a consumer leaves while it is pushed to: no test inherits it from the one before.
            if scheme in PROGRAMS and (scheme not in BROKERS or scheme.startswith("corba")):
                program = server(PROGRAMS[scheme][0])
                BROKERS[scheme] = stopping.enter_context(running(scheme, program, tmp_path_factory.mktemp(scheme)))

        yield start
    BROKERS.clear()


@pytest.fixture(params=sorted({**PLACES, **FOREIGN}))
def any_ends(request, certificates, broker):
    broker(request.param.removesuffix("-tls"))
    return lambda **config: Ends(request.param, certificates, **config)


def bodies(received):
    return [data for _, data in received]


def test_a_push_reaches_every_subscriber_in_order(any_ends, wait):
    async def scenario():
        async with any_ends() as service:
            outlet = await service.produce()
            consumers = [(await service.consume())[1] for _ in range(3)]
            sent = [b"event %d" % n for n in range(500)]
            for data in sent:
                outlet.push(data)
            for received in consumers:
                await wait.until(lambda received=received: len(received) == len(sent))
                assert bodies(received) == sent

    wait.run(scenario())


def test_direct_frames_go_both_ways_and_to_one_consumer_only(any_ends, wait):
    async def scenario():
        async with any_ends() as service:
            outlet = await service.produce()
            asking, answers = await service.consume()
            _, others = await service.consume()
            outlet.push(b"hello")
            await wait.until(lambda: answers and others)
            asking.send(answers[0][0], b"again, please")
            await wait.until(lambda: service.requests)
            who, request = service.requests[0]
            assert request == b"again, please"
            outlet.send(who, b"hello again")
            await wait.until(lambda: len(answers) == 2)
            assert bodies(answers) == [b"hello", b"hello again"]
            outlet.push(b"to all")
            await wait.until(lambda: len(others) == 2 and len(answers) == 3)
            assert bodies(others) == [b"hello", b"to all"]

    wait.run(scenario())


def test_the_direct_address_reaches_the_producer(any_ends, wait):
    async def scenario():
        async with any_ends() as service:
            outlet = await service.produce()
            inlet, _ = await service.consume()
            inlet.send(outlet.direct, b"straight to you")
            await wait.until(lambda: service.requests)
            assert bodies(service.requests) == [b"straight to you"]

    wait.run(scenario())


def test_pushes_and_direct_frames_keep_their_order(ends, wait):
    async def scenario():
        async with ends() as service:
            outlet = await service.produce()
            inlet, received = await service.consume()
            inlet.send(outlet.direct, b"here I am")
            await wait.until(lambda: service.requests)
            who = service.requests[0][0]
            for n in range(100):
                outlet.push(b"push %d" % n)
                outlet.send(who, b"direct %d" % n)
            await wait.until(lambda: len(received) == 200)
            expected = [word % n for n in range(100) for word in (b"push %d", b"direct %d")]
            assert bodies(received) == expected

    wait.run(scenario())


def test_nobody_there_is_harmless(ends, wait):
    async def scenario():
        async with ends() as service:
            outlet = await service.produce()
            outlet.push(b"to nobody")
            await outlet.ready()
            inlet, received = await service.consume()
            address = service.url + "9" if service.url.startswith("tcp") else service.url + "#nobody"
            outlet.send(address, b"to a stranger")
            inlet.send("not an address", b"lost")
            await wait.until(lambda: sum(service.reports[w + ".undeliverable"] for w in ("tcp", "inprocess")) == 2)
            outlet.push(b"to one")
            await wait.until(lambda: received)
            assert bodies(received) == [b"to one"]

    wait.run(scenario())


def test_frames_of_every_size_arrive_whole(ends, wait):
    async def scenario():
        async with ends(frame_bytes_max=3_000_000, outbox_bytes_max=6_300_000) as service:
            outlet = await service.produce()
            _, received = await service.consume()
            sizes = [0, 1, 3, 4, 199, 65_535, 65_536, 262_140, 262_144, 700_001, 3_000_000, 5, 131_072, 2_999_999, 1]
            sent = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
            for data in sent:
                await outlet.ready()
                outlet.push(data)
            await wait.until(lambda: len(received) == len(sent))
            assert bodies(received) == sent

    wait.run(scenario())


def test_large_frames_that_the_kernel_takes_in_parts_arrive_whole(ends, wait):
    """A reader that paused leaves no room: a write ends inside a frame, and the rest of it waits in the outbox."""

    async def scenario():
        async with ends(outbox_bytes_max=256 << 20) as service:
            outlet = await service.produce()
            consumers = [await service.consume() for _ in range(2)]
            consumers[0][0].pause_reading()
            sent = [bytes([n]) * (n % 3 * 70_000 + 40_000) for n in range(200)]
            for data in sent[:150]:
                outlet.push(data)
                await asyncio.sleep(0)
            assert len(consumers[0][1]) < 150
            consumers[0][0].resume_reading()
            for data in sent[150:]:
                outlet.push(data)
                await asyncio.sleep(0)
            for _, received in consumers:
                await wait.until(lambda received=received: len(received) == len(sent))
                assert bodies(received) == sent

    wait.run(scenario())


def test_a_frame_over_the_limit_is_refused_at_the_sender(any_ends, wait):
    async def scenario():
        async with any_ends(frame_bytes_max=2_000) as service:
            outlet = await service.produce()
            inlet, received = await service.consume()
            with pytest.raises(FrameError, match="limit of 2000"):
                outlet.push(bytes(2_001))
            with pytest.raises(FrameError, match="limit of 2000"):
                inlet.send(outlet.direct, bytes(2_001))
            outlet.push(bytes(2_000))
            await wait.until(lambda: received)
            assert bodies(received) == [bytes(2_000)]

    wait.run(scenario())


def test_consumers_come_back_by_themselves_when_the_producer_restarts(any_ends, wait):
    async def scenario():
        async with any_ends() as service:
            await service.produce()
            consumers = [(await service.consume())[1] for _ in range(2)]
            service.outlet.push(b"before")
            for received in consumers:
                await wait.until(lambda received=received: bodies(received) == [b"before"])
            await service.outlet.close()
            outlet = await service.produce()

            def all_have_the_new_ones():
                outlet.push(b"after")
                return all(b"after" in bodies(received) for received in consumers)

            await wait.until(all_have_the_new_ones)

    wait.run(scenario())


def test_a_consumer_may_come_before_its_producer(ends, wait):
    async def scenario():
        async with ends() as service:
            first = await service.produce()
            await first.close()  # only now is a free port known
            inlet, received = await service.consume()
            assert not inlet.subscribed
            outlet = await service.produce()
            await wait.until(lambda: inlet.subscribed)

            def it_came():
                outlet.push(b"at last")
                return received

            await wait.until(it_came)

    wait.run(scenario())


def test_close_flushes_what_was_pushed(any_ends, wait):
    async def scenario():
        async with any_ends() as service:
            outlet = await service.produce()
            inlet, received = await service.consume()
            sent = [b"%d" % n * 100 for n in range(service.burst)]
            for n, data in enumerate(sent):
                outlet.push(data)
                if n % 500 == 0:
                    inlet.send(outlet.direct, b"requests under way must not destroy the tail")
                    await outlet.ready()
            await outlet.close()
            await wait.until(lambda: len(received) == len(sent))
            assert bodies(received) == sent

    wait.run(scenario())


def test_a_stalled_consumer_costs_bounded_memory_and_only_its_own_frames(ends, wait):
    """`ready` waits for it up to the patience; then frames for it alone are dropped, counted, and reported by name."""

    async def scenario():
        async with ends(frame_bytes_max=60_000, outbox_bytes_max=1_000_000, patience_us=500_000) as service:
            outlet = await service.produce()
            stalled, late = await service.consume()
            _, quick = await service.consume()
            stalled.pause_reading()
            kind = service.url.partition(":")[0]
            frame = bytes(50_000)
            pushed = 0
            # The kernel's own socket buffers come on top of ours and are bounded too.
            while service.reports[f"{kind}.dropped"] < 100:
                await outlet.ready()
                outlet.push(b"%08d" % pushed + frame)
                pushed += 1
                assert pushed < 2_000, "an outbox without a bound"
            assert service.reports[f"{kind}.stalled"] == 1
            assert (
                "does not read" in (said := service.reports.sentences(f"{kind}.stalled")[0]) or "has not read" in said
            )
            await wait.until(lambda: len(quick) == pushed)
            assert [int(data[:8]) for data in bodies(quick)] == list(range(pushed))

            stalled.resume_reading()
            await wait.until(lambda: service.reports[f"{kind}.resumed"] == 1)
            outlet.push(b"%08d" % pushed)
            await wait.until(lambda: late and int(late[-1][1][:8]) == pushed)
            numbers = [int(data[:8]) for data in bodies(late)]
            assert numbers == sorted(set(numbers)), "what did come, came once and in order"
            assert len(numbers) == pushed + 1 - service.reports[f"{kind}.dropped"]

    wait.run(scenario())


def test_a_slow_consumer_that_is_waited_for_loses_nothing(ends, wait):
    async def scenario():
        async with ends(frame_bytes_max=60_000, outbox_bytes_max=400_000, patience_us=20_000_000) as service:
            outlet = await service.produce()
            inlet, received = await service.consume()
            loop = asyncio.get_running_loop()

            def breathe(pause):
                (inlet.pause_reading if pause else inlet.resume_reading)()
                nonlocal timer
                timer = loop.call_later(0.004, breathe, not pause)

            timer = loop.call_soon(breathe, True)
            for n in range(300):
                await outlet.ready()
                outlet.push(b"%08d" % n + bytes(40_000))
            await wait.until(lambda: len(received) == 300)
            timer.cancel()
            assert [int(data[:8]) for data in bodies(received)] == list(range(300))

    wait.run(scenario())


def test_closing_twice_and_closing_unopened_are_harmless(any_ends, wait):
    async def scenario():
        async with any_ends() as service:
            await open_outlet(service.url, service.config).close()
            await open_inlet(service.url, service.config).close()
            outlet = await service.produce()
            inlet, _ = await service.consume()
            for _ in range(2):
                await inlet.close()
                await outlet.close()
            outlet.push(b"too late")
            inlet.send(outlet.direct, b"too late")
            await outlet.ready()

    wait.run(scenario())


def test_faults_over_any_transport_are_the_same_for_the_same_seed(ends, wait):
    faults = Faults(loss=0.2, duplication=0.1, reordering=0.2, delay_us_max=10_000_000)

    async def run(seed):
        async with ends() as service:
            outlet = await service.produce()
            inlet, received = await service.consume(lossy_inlet(open_inlet(service.url, service.config), faults, seed))
            for n in range(400):
                outlet.push(b"%d" % n)
            outlet.push(b"end of the run" * 100)
            plain = open_inlet(service.url, service.config)
            _, seen = await service.consume(plain)
            await wait.until(lambda: outlet.push(b"mark") or seen)
            await wait.until(lambda: len(received) + inlet.lost > 350)
            await outlet.close()
            return bodies(received)[:300]

    first, again, other = wait.run(run(1)), wait.run(run(1)), wait.run(run(2))
    assert first == again
    assert first != other
    numbers = [int(data) for data in first if data.isdigit()]
    assert numbers != sorted(numbers), "reordered"
    assert len(set(numbers)) < len(numbers), "repeated"
    assert set(range(max(numbers))) - set(numbers), "lost"


def test_without_faults_the_wrapper_is_transparent_and_a_cut_stops_everything(ends, wait):
    async def scenario():
        async with ends() as service:
            outlet = lossy_outlet(open_outlet(service.url, service.config), Faults(), 1)
            await service.produce(outlet)
            inlet, received = await service.consume(lossy_inlet(open_inlet(service.url, service.config), Faults(), 2))
            outlet.push(b"one")
            inlet.send(outlet.direct, b"ask")
            await wait.until(lambda: received and service.requests)
            inlet.cut(True)
            outlet.push(b"two")
            inlet.send(outlet.direct, b"unheard")
            await wait.until(lambda: inlet.lost == 2)
            inlet.cut(False)
            outlet.push(b"three")
            await wait.until(lambda: len(received) == 2)
            assert bodies(received) == [b"one", b"three"]
            assert bodies(service.requests) == [b"ask"]

    wait.run(scenario())


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("tcp:/127.0.0.1:1", "write scheme://place"),
        ("carrier-pigeon://roof", "there is no transport 'carrier-pigeon'; use one of inprocess, tcp"),
        ("tcp://127.0.0.1", "write host:port"),
        ("tcp://127.0.0.1:70000", "write host:port"),
        ("tcp://127.0.0.1:1?colour=red", "no option 'colour'"),
        ("tcp://127.0.0.1:1?patience_us=soon", "patience_us"),
        ("tcp://127.0.0.1:1?patience_us=-1", "must be between"),
        ("tcp://127.0.0.1:1?frame_bytes_max=16000000", "outbox_bytes_max"),
    ],
)
def test_a_wrong_url_gets_a_sentence(url, sentence):
    for make in (open_outlet, open_inlet):
        with pytest.raises(ConfigError, match=sentence):
            make(url)


def test_a_url_sets_bounds():
    outlet = open_outlet("tcp://127.0.0.1:1?patience_us=7&frame_bytes_max=5000")
    assert (outlet.config.patience_us, outlet.config.frame_bytes_max) == (7, 5000)
