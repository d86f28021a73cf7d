"""Roles: what somebody with a genuine certificate of our CA may do is what its role and the policy say."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.runtime.test_links import Node, Note
from unerring.channels import (
    Ack,
    ChannelCodec,
    ChannelConfig,
    ConsumerConfig,
    Frames,
    Heartbeat,
    Stale,
    producer_id,
)
from unerring.correlation import messages as correlation
from unerring.model import Actor, ConfigError, HandshakeError, Right
from unerring.processes import messages as processes
from unerring.runtime import AsyncPublisher, AsyncSubscriber
from unerring.runtime.guard import NOTED_MAX, REFUSED, TOLD, Guard
from unerring.runtime.reports import Reports
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet

CODEC = ChannelCodec(ChannelConfig())


def channel(card: str, **more: object) -> TransportConfig:
    quick = {"redial_min_us": 1_000, "redial_max_us": 20_000, "stream": "Reading"}
    return msgspec.convert({"tls": card, **quick, **more}, TransportConfig)


class Outlet:
    """A producer's port, and what it hears."""

    def __init__(self, card: str, **more: object) -> None:
        self.reports = Reports()
        self.heard: list[bytes] = []
        self.way = open_outlet("tcp://127.0.0.1:0", channel(card, **more), self.reports)

    async def __aenter__(self) -> Outlet:
        await self.way.open(lambda sender, data: self.heard.append(data))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.way.close()

    async def greeted_by(self, card: str, **more: object) -> bool:
        """Whether somebody with this certificate may subscribe and ask."""
        inlet = open_inlet(self.way.direct, channel(card, **more))
        try:
            await inlet.open(lambda sender, data: None)
        except HandshakeError:
            return False
        await inlet.close()
        return True


@pytest.mark.parametrize("role", ["", *Actor])
def test_only_a_consumer_reads_a_stream(wait, cards, role) -> None:
    async def scenario() -> None:
        async with Outlet(cards("producer")) as outlet:
            assert await outlet.greeted_by(cards(role)) is (role == Actor.CONSUMER)
            assert outlet.heard == []
            assert outlet.reports[REFUSED] == (role != Actor.CONSUMER)

    wait.run(scenario())


@pytest.mark.parametrize("role", ["", *Actor])
def test_only_a_producer_s_port_is_read_from(wait, cards, role) -> None:
    """Another reader's too: it hands on what producers signed."""

    async def scenario() -> None:
        async with Outlet(cards(role)) as outlet:
            assert await outlet.greeted_by(cards("consumer")) is (role in (Actor.PRODUCER, Actor.CONSUMER))

    wait.run(scenario())


@pytest.mark.parametrize("caller", ["", *Actor])
@pytest.mark.parametrize("port", [Right.REPLICA, Right.NODE])
def test_only_a_replica_links_to_replicas_and_a_node_to_nodes(wait, cards, caller, port) -> None:
    async def scenario() -> None:
        role = str(port)
        server = Node("bob", tls=cards(role, "bob"), right_of=lambda node: (port, node))
        await server.open()
        other = Node("ann", tls=cards(caller), right_of=lambda node: (port, node))
        other.links.join("bob", server.address, dials=True)
        await wait.until(lambda: server.heard or server.reports["links.refused"])
        if caller == role:
            other.links.send("bob", Note(1))
            await wait.until(lambda: server.notes() == [1])
        else:
            assert server.heard == []
            await wait.until(lambda: any(TOLD in said for said in other.reports.sentences("links.unreachable")))
            assert server.reports[REFUSED] >= 1
        await other.links.close()
        await server.links.close()

    wait.run(scenario())


GOSSIP_AND_VOTE = {
    Right.REPLICA: (correlation.codec, correlation.Gossip(1, 0, False, 0, ()), correlation.Vote(0, "ann")),
    Right.NODE: (processes.codec, processes.Heartbeat(()), processes.Vote("i", 1, 0, None, (), 0)),
}


@pytest.mark.parametrize("caller", ["", *Actor])
@pytest.mark.parametrize("port", GOSSIP_AND_VOTE)
def test_only_replicas_and_nodes_gossip_and_vote(wait, cards, caller, port) -> None:
    """What decides who leads: each message as the machines of that port say it."""

    async def scenario() -> None:
        codec, *said = GOSSIP_AND_VOTE[port]
        server = Node("bob", tls=cards(str(port), "bob"), right_of=lambda node: (port, node), codec=codec(1_000_000))
        await server.open()
        other = Node("ann", tls=cards(caller), right_of=lambda node: (port, node), codec=codec(1_000_000))
        other.links.join("bob", server.address, dials=True)
        await wait.until(lambda: server.heard or server.reports["links.refused"])
        for message in said:
            other.links.send("bob", message)
        if caller == str(port):
            await wait.until(lambda: [message for _, message in server.heard][1:] == said)
        else:
            assert other.reports["links.unsent"] == len(said)
            assert server.heard == []
            assert server.reports[REFUSED] >= 1
        await other.links.close()
        await server.links.close()

    wait.run(scenario())


@pytest.mark.parametrize("name", ["store", "operator", "engine", "n9"])
def test_nobody_greets_by_a_name_that_is_no_node_s(wait, name) -> None:
    """Not even who knows the secret: "store" and "operator" are how a machine knows its own driver."""

    async def scenario() -> None:
        keeper = Node("membership", right_of=lambda node: ("replica", node) if node == "n0" else None)
        await keeper.open()
        liar = Node(name)
        liar.links.join("membership", keeper.address, dials=True)
        await wait.until(lambda: keeper.reports["links.stranger"])
        assert keeper.heard == []
        await liar.links.close()
        await keeper.links.close()

    wait.run(scenario())


def test_what_a_replica_greets_is_what_its_run_has(tmp_path) -> None:
    from unerring.app.live_cluster import make_cluster
    from unerring.runtime.live.hosting import Host

    cluster = make_cluster("tests.app.tree_app:app", 0, tmp_path)
    assert cluster.secret == str(tmp_path / "live" / "secret")
    host = Host(cluster, cluster.names[0], machine=None)  # type: ignore[arg-type]
    assert host._right_of("store") is None
    assert host._right_of("membership") == (Right.MEMBERSHIP, "membership")


def test_a_publisher_s_certificate_puts_no_frame_into_a_replica(wait, cards) -> None:
    """It was enough to seal a false situation: any certificate of the CA that named the node."""

    async def scenario() -> None:
        replica = Node("rule.0", tls=cards("replica", "rule.0"))
        await replica.open()
        publisher = Node("ann", tls=cards("producer"))
        publisher.links.join("rule.0", replica.address, dials=True)
        await wait.until(lambda: replica.reports["links.refused"])
        assert "producer/ann has no right 'replica ann'" in replica.reports.sentences(REFUSED)[0]
        assert replica.heard == []
        assert all("00ff00ff" not in said.detail for said in publisher.reports.details)
        await publisher.links.close()
        await replica.links.close()

    wait.run(scenario())


def requests_to(publisher: AsyncPublisher, card: str, messages: list) -> Callable:
    async def send() -> None:
        inlet = open_inlet(publisher.address, channel(card, stream=""))
        await inlet.open(lambda sender, data: None)
        for message in messages:
            inlet.send(publisher.address, CODEC.encode(message))
        await inlet.close()

    return send()


def test_a_consumer_acknowledges_for_nobody_else_and_no_reader_stops_a_producer(wait, cards, tmp_path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[allow]]\nwho = "producer/*"\npublish = ["*"]\n'
        '[[allow]]\nwho = "consumer/*"\nread = ["*"]\n'
        '[[allow]]\nwho = "consumer/log"\nacknowledge = ["$name"]\n'
    )

    async def scenario() -> None:
        at = channel(cards("producer", "gw1"), policy=str(policy), stream="")
        async with AsyncPublisher("tcp://127.0.0.1:0", transport=at) as out:
            own, epoch = producer_id("gw1"), out.epoch
            for message in (
                Ack(own, epoch, "log", 0),  # for another consumer
                Ack(own, epoch, "ann", 0),  # may not acknowledge at all
                Stale(own, epoch, epoch + 1),  # would stop the producer for good
            ):
                before = out.reports[REFUSED]
                await requests_to(out, cards("consumer", "ann"), [message])
                await wait.until(lambda before=before: out.reports[REFUSED] > before, str(message))
            await requests_to(out, cards("consumer", "log"), [Ack(producer_id("gw2"), epoch, "log", 0)])
            await wait.until(lambda: out.reports["channel.not_mine"])
            assert out.registered == {}
            assert await out.publish(b"goes on") == 1
            await requests_to(out, cards("consumer", "log"), [Ack(own, epoch, "log/of Reading", 0)])
            await wait.until(lambda: "log/of Reading" in out.registered)

    wait.run(scenario())


def test_a_producer_speaks_for_no_other_producer(wait, cards) -> None:
    """Frames, heartbeats and watermarks under another one's id, from a producer whose certificate is genuine."""

    async def scenario() -> None:
        async with Outlet(cards("producer", "mallory")) as outlet:
            async with AsyncSubscriber(outlet.way.direct, transport=channel(cards("consumer"))) as events:
                for victim in ("mallory", "gw1"):
                    beat = Heartbeat(producer_id(victim), 1, 1, victim, outlet.way.direct, watermark_us=10**15)
                    for message in (beat, Frames(producer_id(victim), 1, 1, [5], [b"false"])):
                        outlet.way.push(CODEC.encode(message))
                await wait.until(lambda: events._inlet.lines.reports[REFUSED] >= 2)
                assert events.met == [producer_id("mallory")]

    wait.run(scenario())


def test_a_publisher_has_the_name_of_its_certificate(cards) -> None:
    async def scenario() -> None:
        where = f"tcp://127.0.0.1:0?tls={cards('producer', 'gw1')}"
        async with AsyncPublisher(where) as out:
            assert out._machine.name == "gw1"
        with pytest.raises(ConfigError, match="producer 'gw2' has a certificate for gw1"):
            AsyncPublisher(where, name="gw2")
        with pytest.raises(ConfigError, match=r"policy.toml.* cannot be read"):
            AsyncPublisher(f"{where}&policy=policy.toml")

    asyncio.run(scenario())


def test_a_registered_consumer_registers_under_its_certificate_s_name(wait, cards) -> None:
    async def scenario() -> None:
        async with AsyncPublisher("tcp://127.0.0.1:0", transport=channel(cards("producer"), stream="")) as out:
            config = ConsumerConfig(registered="log of Reading")
            at = channel(cards("consumer", "log"), stream="")
            async with AsyncSubscriber(out.address, config=config, transport=at):
                await wait.until(lambda: out.registered)
                assert list(out.registered) == ["log/log of Reading"]

    wait.run(scenario())


def test_of_another_run_is_nobody(wait, cards, tmp_path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('run = "plant"\n[[allow]]\nwho = "*/*"\nread = ["*"]\npublish = ["*"]\n')

    async def scenario() -> None:
        async with Outlet(cards("producer"), policy=str(policy)) as outlet:
            assert await outlet.greeted_by(cards("consumer", "ann", "plant"))
            assert not await outlet.greeted_by(cards("consumer", "ann", "mill"))

    wait.run(scenario())


def test_a_policy_that_changes_cuts_off_whoever_lost_its_rights(wait, cards, tmp_path) -> None:
    """A mistake in the new file leaves the former one in force."""
    policy = tmp_path / "policy.toml"
    both = '[[allow]]\nwho = "consumer/*"\nread = ["Reading"]\n'
    policy.write_text(both)

    async def scenario() -> None:
        async with Outlet(cards("producer"), policy=str(policy)) as outlet:
            inlets = {name: open_inlet(outlet.way.direct, channel(cards("consumer", name))) for name in ("ann", "bob")}
            for inlet in inlets.values():
                await inlet.open(lambda sender, data: None)
            policy.write_text("who knows")
            await wait.until(lambda: outlet.reports["policy.not_reloaded"])
            assert "line 1" in outlet.reports.sentences("policy.not_reloaded")[0]
            assert outlet.reports["tcp.disconnected"] == 0
            policy.write_text(f'revoked = ["consumer/bob"]\n{both}')
            await wait.until(lambda: outlet.reports["tcp.disconnected"])
            await wait.until(lambda: not inlets["bob"].subscribed)
            assert inlets["ann"].subscribed
            for inlet in inlets.values():
                await inlet.close()

    wait.run(scenario())


def test_one_identity_takes_no_more_than_its_part_of_the_connections(wait, cards) -> None:
    async def scenario() -> None:
        async with Outlet(cards("producer"), connections_per_peer_max=3) as outlet:
            idle = [open_inlet(outlet.way.direct, channel(cards("consumer", "greedy"))) for _ in range(3)]
            for inlet in idle:
                await inlet.open(lambda sender, data: None)
            assert not await outlet.greeted_by(cards("consumer", "greedy"))
            assert await outlet.greeted_by(cards("consumer", "modest"))
            for inlet in idle:
                await inlet.close()

    wait.run(scenario())


def test_a_refusal_is_noted_once_and_counted_and_fills_no_log() -> None:
    from unerring.model import read_who

    reports = Reports()
    guard = Guard("", reports)
    for _ in range(5):
        assert guard.refusal((read_who("viewer/a"),), "publish", "Reading")
    assert (reports[REFUSED], len(reports.sentences(REFUSED))) == (5, 1)
    for number in range(2 * NOTED_MAX):
        guard.refusal((read_who(f"viewer/a{number}"),), "publish", "Reading")
    assert reports[REFUSED] == 5 + 2 * NOTED_MAX
    assert len(guard._noted) == NOTED_MAX
    assert guard.refusal(None, "publish", "Reading") is None


def test_the_certificates_of_a_host_are_for_the_processes_on_it(tmp_path: Path) -> None:
    from unerring.model import default_policy, read_who

    policy = default_policy()
    assert policy.reason(read_who("replica/b"), Right.REPLICA, "b/rule.0")[0]
    assert not policy.reason(read_who("replica/b"), Right.REPLICA, "c/rule.1")[0]


@pytest.mark.parametrize("keeper", ["", *Actor])
def test_only_a_replica_keeps_the_membership_record(wait, cards, keeper) -> None:
    """Whoever answers where the keeper should be is asked, before it learns who calls."""

    async def scenario() -> None:
        there = Node("membership", tls=cards(keeper, "membership"), right_of=lambda node: (Right.REPLICA, node))
        await there.open()
        replica = Node("rule.0", tls=cards("replica", "rule.0"), right_of=lambda node: (Right.MEMBERSHIP, "membership"))
        replica.links.join("membership", there.address, dials=True)
        await wait.until(lambda: there.heard or replica.reports["links.unreachable"])
        if keeper == Actor.REPLICA:
            replica.links.send("membership", Note(1))
            await wait.until(lambda: there.notes() == [1])
        else:
            assert there.heard == []
            assert replica.reports[REFUSED] >= 1
        await replica.links.close()
        await there.links.close()

    wait.run(scenario())


@pytest.mark.parametrize("right", [Right.REPLICA, Right.NODE, Right.MEMBERSHIP])
def test_a_genuine_process_stands_for_no_other(wait, cards, right) -> None:
    """One frame under another node's name was enough."""
    role = "node" if right == Right.NODE else "replica"

    async def scenario() -> None:
        server = Node("bob", tls=cards(role, "bob"), right_of=lambda node: (right, node))
        await server.open()
        liar = Node("carl", tls=cards(role, "ann"), right_of=lambda node: (right, node))
        liar.links.join("bob", server.address, dials=True)
        await wait.until(lambda: server.reports[REFUSED])
        assert server.heard == []
        await liar.links.close()
        await server.links.close()

    wait.run(scenario())


@pytest.mark.parametrize("role", ["", *Actor])
def test_only_a_consumer_acknowledges_even_where_all_may_read(wait, cards, tmp_path, role) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[[allow]]\nwho = "*/*"\nread = ["*"]\npublish = ["*"]\n'
        '[[allow]]\nwho = "consumer/*"\nacknowledge = ["$name"]\n'
    )

    async def scenario() -> None:
        at = channel(cards("producer", "gw1"), policy=str(policy), stream="")
        async with AsyncPublisher("tcp://127.0.0.1:0", transport=at) as out:
            if role == "":  # a certificate without a role is nobody, whatever the policy says
                with pytest.raises(HandshakeError):
                    await requests_to(out, cards(role), [Ack(producer_id("gw1"), out.epoch, "ann", 0)])
                return
            await requests_to(out, cards(role), [Ack(producer_id("gw1"), out.epoch, "ann", 0)])
            if role == Actor.CONSUMER:
                await wait.until(lambda: "ann" in out.registered)
                return
            await wait.until(lambda: out.reports[REFUSED])
            assert out.registered == {}

    wait.run(scenario())


@pytest.mark.parametrize("role", ["", *Actor])
@pytest.mark.parametrize("relays", [False, True])
def test_nobody_relays_unless_the_policy_says_so(wait, cards, tmp_path, role, relays) -> None:
    """Events of another producer, from a port whose owner has each role."""
    policy = tmp_path / "policy.toml"
    extra = '[[allow]]\nwho = "*/*"\nrelay = ["Reading"]\n' if relays else ""
    policy.write_text(f'[[allow]]\nwho = "*/*"\nread = ["*"]\npublish = ["*"]\n{extra}')

    async def scenario() -> None:
        async with Outlet(cards(role), policy=str(policy)) as outlet:
            reader = AsyncSubscriber(
                outlet.way.direct, transport=channel(cards("consumer"), policy=str(policy), redial_min_us=1_000)
            )
            if role == "":
                with pytest.raises(HandshakeError):
                    await reader.__aenter__()
                return
            async with reader as events:
                outlet.way.push(CODEC.encode(Heartbeat(producer_id("gw1"), 1, 1, "gw1", outlet.way.direct)))
                await wait.until(lambda: events.met or events._inlet.lines.reports[REFUSED])
                assert events.met == ([producer_id("gw1")] if relays else [])

    wait.run(scenario())


@pytest.mark.parametrize("speaks", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_flood_of_tls_handshakes_keeps_nobody_out(wait, cards, speaks) -> None:
    """Some say nothing, some begin a handshake and do not go on: the one that has taken longest makes room."""

    async def scenario() -> None:
        async with Outlet(cards("producer"), connections_max=8) as outlet:
            port = int(outlet.way.direct.rpartition(":")[2].partition("?")[0])
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            for _, writer in idle:
                writer.write(speaks)
            assert await outlet.greeted_by(cards("consumer"))
            assert outlet.reports["tcp.refused"] >= 32
            for _, writer in idle:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    wait.run(scenario())


SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


def test_every_test_that_the_page_names_is_there() -> None:
    """`tests/FOLDER/test_FILE.py::test_NAME`, or the file alone."""
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", SECURITY.read_text())
    assert len(named) > 40
    for path, name in named:
        source = (SECURITY.parents[1] / path).read_text()
        assert not name or f"def {name}(" in source, f"{path} has no {name}"


ACTIONS = {
    "test_only_replicas_and_nodes_gossip_and_vote": 2,
    "test_a_producer_speaks_for_no_other_producer": 2,
    "test_of_all_roles_nodes_and_services_ask_by_default": 3,
    "test_what_each_role_may_do_with_the_dashboard": 3,
}
"""Cells in each case of a test, where that is not one."""


def test_the_page_counts_the_cells_that_are_tried() -> None:
    page = SECURITY.read_text()
    rows = re.findall(r"^\|[^`]*\| (\d+) / (\d+) \| `tests/([\w/]+)\.py::(\w+)`", page, re.MULTILINE)
    assert len(rows) == 14
    counted: Counter[tuple[str, str]] = Counter()
    for allowed, refused, path, name in rows:
        counted[path, name] += int(allowed) + int(refused)
    for (path, name), cells in counted.items():
        test = getattr(importlib.import_module(f"tests.{path.replace('/', '.')}"), name)
        cases = math.prod(
            len([*mark.args[1]]) for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"
        )
        assert cells == cases * ACTIONS.get(name, 1), name
    allowed, refused = (sum(int(row[column]) for row in rows) for column in (0, 1))
    assert f"There are {allowed + refused} cells: {allowed} allowed, {refused} refused." in page
