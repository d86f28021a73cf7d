"""Links between nodes: reliable and FIFO while they last, and both sides see when they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import re
import socket
import struct
import time
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from tests.runtime.known import open_known_connection
from unerring.model import (
    Codec,
    ConfigError,
    Connected,
    Disconnected,
    FrameError,
    Message,
    ProtocolError,
    Send,
    SetTimer,
    Stop,
)
from unerring.runtime.certificates import make_certificates
from unerring.runtime.frames import READ_BYTES, framed
from unerring.runtime.greeting import VERSION, Accepted, Greeting, Identity
from unerring.runtime.links import Links, LinksConfig, seal, unseal
from unerring.runtime.loop import Driver, DriverConfig
from unerring.runtime.sockets import join_host, split_host

CLUSTER = "00ff00ff"


class Note(Message, frozen=True):
    number: int
    text: str = ""


class Node:
    """A node with one machine that writes down what it is told."""

    def __init__(self, name, incarnation=1, cluster=CLUSTER, codec=None, right_of=None, **config):
        config = LinksConfig(**{"redial_min_us": 1_000, "redial_max_us": 20_000, **config})
        rights = {} if right_of is None else {"right_of": right_of}
        self.links = Links(Identity(name, incarnation, cluster), codec or Codec(Note, 1_000_000), config, **rights)
        self.heard = []
        self.takes = True
        self.links.attach("", self.take)
        self.address = ""

    def take(self, sender, message):
        if not self.takes and isinstance(message, Note):
            return False
        self.heard.append((sender, message))
        return True

    async def open(self, address="127.0.0.1:0"):
        self.address = await self.links.open(address)
        return self

    def notes(self, sender=None):
        return [m.number for s, m in self.heard if isinstance(m, Note) and sender in (None, s)]

    def news(self):
        return [type(m).__name__ for _, m in self.heard if not isinstance(m, Note)]

    @property
    def reports(self):
        return self.links.reports


@contextlib.asynccontextmanager
async def nodes(*made):
    for node in made:
        await node.open()
    for node in made:
        for other in made:
            if other is not node:
                node.links.join(other.links.identity.node, other.address)
    try:
        yield made
    finally:
        for node in made:
            node.links.resume_reading()
        await asyncio.gather(*(node.links.close() for node in made))


def all_connected(*some):
    return all(state == "connected" for node in some for state in node.links.status().values())


def test_every_pair_has_one_link_and_messages_keep_their_order(wait):
    async def scenario():
        async with nodes(Node("a"), Node("b"), Node("c")) as some:
            await wait.until(lambda: all_connected(*some))
            for n in range(300):
                for node in some:
                    for other in "abc":
                        node.links.send(other, Note(n))  # to itself too
            await wait.until(lambda: all(len(node.notes()) == 900 for node in some))
            for node in some:
                assert node.news() == ["Connected", "Connected"]
                for other in "abc":
                    assert node.notes(other) == list(range(300))

    wait.run(scenario())


def test_with_mutual_tls(wait, tmp_path):
    for name in "abc":
        make_certificates(tmp_path / name, [name], ca=tmp_path / "a" if name != "a" else None, roles=["replica"])

    async def scenario():
        async with nodes(*(Node(name, tls=str(tmp_path / name)) for name in "abc")) as some:
            await wait.until(lambda: all_connected(*some))
            some[0].links.send("c", Note(1))
            some[2].links.send("a", Note(2))
            await wait.until(lambda: some[2].notes() == [1] and some[0].notes() == [2])

    wait.run(scenario())


def test_a_certificate_speaks_only_for_the_nodes_it_names(wait, tmp_path):
    make_certificates(tmp_path / "a", ["honest"])
    make_certificates(tmp_path / "mallory", ["mallory"], ca=tmp_path / "a", roles=["replica"])

    async def scenario():
        honest = await Node("honest", tls=str(tmp_path / "a")).open()
        mallory = Node("a", tls=str(tmp_path / "mallory"))
        mallory.links.join("honest", honest.address)
        await wait.until(lambda: honest.reports["links.refused"])
        assert "replica/mallory has no right 'replica a'" in honest.reports.sentences("links.refused")[0]
        assert honest.heard == []
        await mallory.links.close()
        await honest.links.close()

    wait.run(scenario())


def test_a_restart_is_a_disconnect_and_a_new_incarnation(wait):
    async def scenario():
        async with nodes(Node("a"), Node("b")) as (a, b):
            await wait.until(lambda: all_connected(a, b))
            await b.links.close()
            await wait.until(lambda: "Disconnected" in a.news())
            a.links.send("b", Note(1))  # nobody there: gone, and counted
            assert a.reports["links.unsent"] == 1
            again = await Node("b", incarnation=2).open(b.address)
            again.links.join("a", a.address)
            await wait.until(lambda: all_connected(a, again))
            assert a.heard[-1] == ("b", Connected("b", 2))
            assert a.news() == ["Connected", "Disconnected", "Connected"]
            a.links.send("b", Note(2))
            await wait.until(lambda: again.notes() == [2])
            await again.links.close()

    wait.run(scenario())


def test_whose_link_ends_and_who_listens_no_more_has_vanished(wait):
    async def scenario():
        async with nodes(Node("a"), Node("b"), Node("c")) as (a, b, c):
            vanished = []
            for node in (a, c):
                node.links.on_vanished = lambda name, node=node: vanished.append((node.links.identity.node, name))
            await wait.until(lambda: all_connected(a, b, c))
            await b.links.close()
            await wait.until(lambda: sorted(vanished) == [("a", "b"), ("c", "b")])
            assert a.news()[-1] == "Disconnected", "before that"

    wait.run(scenario())


def test_whose_process_lets_go_of_its_link_first_and_of_its_listener_then_has_vanished(wait):
    """As the kernel does for a process that was killed. Who knocks between the two is in nobody's hands."""

    async def scenario():
        a = await Node("a").open()
        vanished = []
        a.links.on_vanished = vanished.append
        with socket.create_server(("127.0.0.1", 0)) as listener:
            at = join_host(*listener.getsockname())
            task = asyncio.create_task(a.links._knock(a.links._peer("b"), *split_host(at)))
            await asyncio.sleep(0.05)
            assert not task.done()
        await task
        assert vanished == ["b"]
        await a.links.close()

    wait.run(scenario())


def test_who_lives_when_its_link_ends_has_not_vanished(wait):
    async def scenario():
        async with nodes(Node("a"), Node("b")) as (a, b):
            vanished = []
            for node in (a, b):
                node.links.on_vanished = vanished.append
            await wait.until(lambda: all_connected(a, b))
            next(iter(a.links._peers.values())).connection.abandon()
            await wait.until(lambda: "Disconnected" in b.news())
            await wait.until(lambda: all_connected(a, b) and not a.links._knocking and not b.links._knocking)
            assert vanished == []

    wait.run(scenario())


@pytest.mark.parametrize("dialler", ["theirs", "ours"])
@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            {"cluster": "11223344"},
            "cluster fingerprint (11223344|00ff00ff).*; give both the same cluster configuration",
        ),
        ({"incarnation": 1}, "incarnation 1 of 'b' has been succeeded by 5; the old process must stop"),
        ({"incarnation": 2**63 - 1}, "'b' says that it started .* s from now; set its clock"),
        ({"name": "c"}, "was called, but '[ac]' answered; correct the address"),
        ({"name": "a"}, "'a' is the name of the node it called; give each node its own"),
    ],
)
def test_who_differs_is_refused_with_a_sentence_on_both_sides(wait, other, sentence, dialler):
    async def scenario():
        a = await Node("a").open()
        known = Node("b", incarnation=5)
        known.links.join("a", a.address, dials=True)
        await wait.until(lambda: a.news() == ["Connected"])
        await known.links.close()
        await wait.until(lambda: a.news() == ["Connected", "Disconnected"])

        stranger = await Node(**{"name": "b", "incarnation": 6, **other}).open()
        if dialler == "ours":
            a.links.join("b", stranger.address, dials=True)
        else:
            stranger.links.join("z" if "name" in other else "a", a.address, dials=True)
        for node in (a, stranger):
            await wait.until(
                lambda node=node: any(re.search(sentence, report.detail) for report in node.reports.details),
                f"{[report.detail for report in node.reports.details]}",
            )
        assert a.news() == ["Connected", "Disconnected"]
        assert stranger.news() == []
        await stranger.links.close()
        await a.links.close()

    wait.run(scenario())


def test_an_incarnation_from_the_far_future_does_not_lock_its_node_out(wait):
    async def scenario():
        a = await Node("a").open()
        ghost = Node("b", incarnation=2**63 - 1)
        ghost.links.join("a", a.address, dials=True)
        await wait.until(lambda: a.reports["links.refused"] > 0)
        await ghost.links.close()
        real = Node("b", incarnation=time.time_ns() // 1000)
        real.links.join("a", a.address, dials=True)
        await wait.until(lambda: a.news() == ["Connected"])
        await real.links.close()
        await a.links.close()

    wait.run(scenario())


def test_a_full_outbox_cuts_the_link_and_both_sides_see_it(wait):
    """Nothing is dropped inside a link that goes on: what arrives is a prefix, then comes the disconnect."""

    async def scenario():
        bounds = {"frame_bytes_max": 70_000, "outbox_bytes_max": 500_000, "codec": Codec(Note, 69_000)}
        async with nodes(Node("a", **bounds), Node("b", **bounds)) as (a, b):
            await wait.until(lambda: all_connected(a, b))
            b.links.pause_reading()
            sent = 0
            while not a.reports["links.cut"]:
                a.links.send("b", Note(sent, "x" * 60_000))
                sent += 1
                await asyncio.sleep(0)
                assert sent < 1_000, "an outbox without a bound"
            assert "outbox of 500000 bytes is full" in a.reports.sentences("links.cut")[0]
            b.links.resume_reading()
            await wait.until(lambda: a.news()[-2:] == ["Disconnected", "Connected"])
            await wait.until(lambda: b.news() == ["Connected", "Disconnected", "Connected"])
            before = b.notes()
            assert before == list(range(len(before)))
            assert len(before) < sent
            a.links.send("b", Note(7_777))
            await wait.until(lambda: b.notes() == [*before, 7_777])

    wait.run(scenario())


def test_a_machine_that_cannot_take_a_message_cuts_the_link(wait):
    async def scenario():
        async with nodes(Node("a"), Node("b")) as (a, b):
            await wait.until(lambda: all_connected(a, b))
            b.takes = False
            for n in range(5):
                a.links.send("b", Note(n))
            await wait.until(lambda: "Disconnected" in a.news() and "Disconnected" in b.news())
            assert b.notes() == [], "none of those behind the one that was not taken"
            b.takes = True
            await wait.until(lambda: all_connected(a, b))
            a.links.send("b", Note(9))
            await wait.until(lambda: b.notes() == [9])

    wait.run(scenario())


def test_a_peer_that_broke_its_protocol_loses_its_link_and_may_come_again(wait):
    async def scenario():
        async with nodes(Node("a"), Node("b")) as (a, b):
            await wait.until(lambda: all_connected(a, b))
            b.links.blame("a/processes", ProtocolError("a view of 2**64 - 1"))
            b.links.blame("stranger", ProtocolError("nobody"))
            await wait.until(lambda: "Disconnected" in a.news() and "Disconnected" in b.news())
            assert "a: a view of 2**64 - 1" in b.reports.sentences("links.cut")[0]
            await wait.until(lambda: all_connected(a, b))
            a.links.send("b", Note(9))
            await wait.until(lambda: b.notes() == [9])

    wait.run(scenario())


def test_several_machines_share_a_link(wait):
    async def scenario():
        async with nodes(Node("a"), Node("b")) as (a, b):
            await wait.until(lambda: all_connected(a, b))
            heard = []
            b.links.attach("press", lambda sender, message: heard.append((sender, message)))
            assert heard == [("a", Connected("a", 1))], "who comes later learns who is there"
            a.links.send("b/press", Note(1), sender="oven")
            a.links.send("b/nobody", Note(2))
            a.links.post("press").broadcast(Note(3))
            a.links.post().broadcast(Note(4))
            await wait.until(lambda: b.notes() == [4])
            assert heard[1:] == [("a/oven", Note(1)), ("a/press", Note(3))]
            assert b.reports["links.unaddressed"] == 1
            with pytest.raises(ConfigError, match="attached to 'b' already"):
                b.links.attach("press", heard.append)
            b.links.detach("press")
            with pytest.raises(ConfigError, match="exceeds the limit of 255 bytes"):
                a.links.send("b/" + "x" * 256, Note(1))

    wait.run(scenario())


def test_hostile_bytes_on_a_link_are_counted_and_harm_nobody(wait):
    chance = random.Random(3)
    good = framed(Codec(Greeting, 4096).encode(Greeting(VERSION, CLUSTER, "mallory", 1)))
    good += framed(Codec(Accepted, 4096).encode(Accepted()))
    attacks = [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 2**32 - 1),
        framed(b""),
        framed(b"\xc1" * 30),
        framed(Codec(Greeting, 4096).encode(Greeting(9, CLUSTER, "mallory", 1))),
        framed(Codec(Greeting, 4096).encode(Greeting(VERSION, CLUSTER, "", 1))),
        framed(Codec(Greeting, 4096).encode(Greeting(VERSION, CLUSTER, "mal/lory", 1))),
        framed(Codec(Greeting, 4096).encode(Greeting(VERSION, CLUSTER, "mallory", -1))),
        good + struct.pack(">I", 2**31),
        good + framed(b""),
        good + framed(b"\x09abc"),
        good + framed(b"\x00\x02\xff\xff"),
        good + framed(b"\x00\x00not a note"),
        *(good + framed(chance.randbytes(chance.randrange(200))) for _ in range(30)),
        *(chance.randbytes(chance.randrange(1, 200)) for _ in range(30)),
    ]

    async def scenario():
        async with nodes(Node("a"), Node("b")) as (a, b):
            await wait.until(lambda: all_connected(a, b))
            port = int(b.address.rpartition(":")[2])
            for attack in attacks:
                reader, writer = await open_known_connection(port)
                writer.write(attack)
                writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()
            a.links.send("b", Note(1))
            await wait.until(lambda: b.notes() == [1])
            assert a.news() == ["Connected"]
            assert b.reports["links.refused"] >= 8
            assert b.reports["links.bad_frame"] >= 4
            assert all("127.0.0.1:" in said for said in b.reports.sentences("links.refused"))

    wait.run(scenario())


def test_a_silent_caller_is_cut_off(wait):
    async def scenario():
        a = await Node("a", handshake_us=20_000).open()
        port = int(a.address.rpartition(":")[2])
        for known in (False, True):
            reader, writer = await (
                open_known_connection(port) if known else asyncio.open_connection("127.0.0.1", port)
            )
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
            assert "no greeting arrived in time" in a.reports.sentences("links.refused")[-1]
        assert a.reports["links.refused"] == 2
        await a.links.close()

    wait.run(scenario())


def test_without_tls_only_loopback_is_listened_on(wait):
    with pytest.raises(ConfigError, match=r"refusing to listen on 0\.0\.0\.0:0 without TLS"):
        wait.run(Node("a").open("0.0.0.0:0"))


def test_messages_must_fit_the_frames():
    with pytest.raises(ConfigError, match="frame_bytes_max"):
        Links(Identity("a", 1, CLUSTER), Codec(Note, 5_000_000))


@pytest.mark.parametrize("name", ["", "a/b", "x" * 256])
def test_a_node_needs_a_plain_name(name):
    with pytest.raises(ConfigError, match="node name"):
        Identity(name, 1, CLUSTER)


@given(st.text(max_size=60), st.text(max_size=60), st.binary(max_size=50))
def test_an_envelope_holds_what_was_sealed(machine, sender, body):
    to, came_from, inside = unseal(seal(machine, sender, body))
    assert (to, came_from, bytes(inside)) == (machine, sender, body)


@given(st.binary(max_size=40))
def test_any_bytes_are_an_envelope_or_a_frame_error(data):
    with contextlib.suppress(FrameError):
        machine, sender, body = unseal(data)
        assert len(machine.encode()) + len(sender.encode()) + len(body) + 2 == len(data)


class Resender:
    """A small reliable sender: one at a time, repeated after each `Connected` until acknowledged."""

    def __init__(self, peer, upto):
        self.peer, self.upto, self.acked = peer, upto, 0

    def start(self, now):
        return []

    def handle(self, sender, message, now):
        if isinstance(message, Disconnected):
            return []
        if isinstance(message, Note):
            if message.number != self.acked + 1:
                return []
            self.acked = message.number
            if self.acked == self.upto:
                return [Stop("all acknowledged")]
        return [Send(self.peer, Note(self.acked + 1))]

    def timer(self, name, now):
        return []


class Accepter:
    def __init__(self):
        self.accepted = []

    def start(self, now):
        return [SetTimer("tick", now + 1_000)]

    def handle(self, sender, message, now):
        if not isinstance(message, Note):
            return []
        if not self.accepted or message.number == self.accepted[-1] + 1:
            self.accepted.append(message.number)
        return [Send(sender, Note(self.accepted[-1]))]

    def timer(self, name, now):
        return [SetTimer("tick", now + 1_000)]


def test_machines_on_drivers_over_links_that_keep_breaking(wait):
    """Driver, links and machines together: the link is cut again and again, and each number is accepted once."""

    async def scenario():
        a, b = Node("a"), Node("b")
        a.links.detach("")
        b.links.detach("")
        sender, accepter = Resender("b", 300), Accepter()
        drivers = [
            Driver(machine, node.links.post(), config=DriverConfig(inbox_max=100))
            for machine, node in ((sender, a), (accepter, b))
        ]
        for driver, node in zip(drivers, (a, b), strict=True):
            node.links.attach("", driver.offer)
            driver.on_congestion = lambda full, links=node.links: (
                links.pause_reading if full else links.resume_reading
            )()
        async with nodes(a, b):
            running = [asyncio.create_task(driver.run()) for driver in drivers]
            cuts = 0
            while not running[0].done():
                reached = sender.acked
                await wait.until(lambda reached=reached: sender.acked > reached + 20 or running[0].done())
                peer = b.links._peers["a"]
                if peer.connection is not None:
                    peer.connection.abandon()
                    cuts += 1
            drivers[1].stop("enough")
            await asyncio.gather(*running)
        assert accepter.accepted == list(range(1, 301))
        assert cuts >= 5

    wait.run(scenario())


def test_a_peer_that_never_comes_costs_no_memory(wait):
    """Spare places of a cluster are dialled for as long as it runs; live processes rarely look for circles."""

    async def play():
        node = await Node("a", redial_max_us=1_000).open()
        node.links.join("z", "127.0.0.1:1")
        await wait.until(lambda: node.reports.counts.get("links.unreachable", 0) >= 2)
        before, tries = tracemalloc.get_traced_memory()[0], node.reports.counts["links.unreachable"]
        await wait.until(lambda: node.reports.counts["links.unreachable"] >= tries + 40)
        assert tracemalloc.get_traced_memory()[0] - before < 10 * READ_BYTES
        await node.links.close()

    tracemalloc.start()
    gc.disable()
    try:
        wait.run(play())
    finally:
        gc.enable()
        tracemalloc.stop()
