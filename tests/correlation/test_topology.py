"""Which node makes and takes what, who is watched, what is refused, and what makes two clusters the same one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.correlation.table import schema
from tests.correlation.test_shards import divided, whole
from unerring.correlation import NodeSpec, Role, Topology, alone, side_by_side
from unerring.correlation.record import Member, Record, Standing
from unerring.model import ConfigError

SOURCE, RULE, APP = Role.SOURCE, Role.CORRELATION, Role.APPLICATION


def topology(*nodes: NodeSpec, streams: str = "abc", **fields: Any) -> Topology:
    return Topology(nodes, tuple(schema(name) for name in streams), **fields)


SRC = NodeSpec("src", SOURCE, outputs=("a",))


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ((SRC, NodeSpec("src", SOURCE, outputs=("b",))), "node name 'src': give every node a name of its own"),
        ((NodeSpec("", SOURCE, outputs=("a",)),), "node name '': give"),
        ((NodeSpec("s/0", SOURCE, outputs=("a",)),), "node name 's/0': give"),
        ((SRC, NodeSpec("two", SOURCE, outputs=("a",))), "stream 'a' is made by two nodes"),
        ((NodeSpec("src", SOURCE, outputs=("x",)),), "stream 'x' has no schema and rank"),
        ((SRC, NodeSpec("app", APP, ("b",))), "node 'app' takes stream 'b', which no node makes"),
        ((SRC, NodeSpec("n", RULE, ("a",), ("b",), -1)), "node 'n': f is -1"),
        ((SRC, NodeSpec("n", RULE, ("c",), ("b",)), NodeSpec("m", RULE, ("b",), ("c",))), "b"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(nodes: tuple[NodeSpec, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        topology(*nodes)


def test_a_field_that_nobody_knows_is_refused() -> None:
    """A misspelt one would count for nothing."""
    named = msgspec.to_builtins(whole())
    assert msgspec.convert(named, Topology) == whole()
    with pytest.raises(msgspec.ValidationError, match="unknown field `rule`"):
        msgspec.convert({**named, "rule": "x"}, Topology)


def test_two_may_make_a_stream_only_while_one_of_them_ends_with_the_upgrade() -> None:
    ending = NodeSpec("old", SOURCE, outputs=("a",), ends=2)
    assert topology(SRC, ending, upgrade=2).makers("a") == ("old", "src")
    assert topology(ending, SRC, upgrade=2).maker("a") is SRC
    for upgrade, nodes in ((1, (SRC, ending)), (2, (SRC, ending, msgspec.structs.replace(ending, name="older")))):
        with pytest.raises(ConfigError, match="made by two"):
            topology(*nodes, upgrade=upgrade)


def test_what_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match="there is no node 'x'"):
        whole().node("x")
    with pytest.raises(ConfigError, match="no node makes stream 'x'"):
        whole().makers("x")


def test_who_stands_alone_and_who_is_watched() -> None:
    """What takes no streams and is no source is waited for by nobody; one process with a disk comes back itself."""
    cases = [
        (NodeSpec("n", SOURCE, outputs=("a",)), True, False),
        (NodeSpec("n", SOURCE, outputs=("a",), f=1), False, True),
        (NodeSpec("n", RULE, ("a",), ("b",)), False, True),
        (NodeSpec("n", RULE, ("a",), ("b",), 2), False, True),
        (NodeSpec("n", RULE, (), ("b",), 1), False, False),
        (NodeSpec("n", APP, ("a",)), True, False),
        (NodeSpec("n", APP, ("a",), f=1), False, True),
        (NodeSpec("n", APP, f=1), False, False),
    ]
    assert [(node.stands_alone, node.watched) for node, _, _ in cases] == [(one, two) for _, one, two in cases]
    assert cases[3][0].replicas == ("n/0", "n/1", "n/2")
    assert (cases[3][0].hosts, NodeSpec("n-s0", RULE, shard_of="n").hosts) == ("n", "n")


def test_a_node_takes_its_streams_in_the_order_of_ranks() -> None:
    nodes = (
        NodeSpec("src", SOURCE, outputs=("a", "c")),
        NodeSpec("plain", RULE, ("c", "a"), ("b",)),
        NodeSpec("ranked", RULE, ("a", "c", "b"), ranks=(7, 2, 4)),
    )
    made = topology(*nodes)
    taken = {name: [(one.name, rank) for one, rank in made.inputs(name)] for name in ("src", "plain", "ranked")}
    assert taken == {"src": [], "plain": [("a", 0), ("c", 2)], "ranked": [("c", 2), ("b", 4), ("a", 7)]}
    assert made.upstream("plain") == ("src",)
    assert made.upstream("ranked") == ("src", "plain")
    assert (made.takers("a"), made.takers("b")) == (("plain", "ranked"), ("ranked",))


def test_a_part_stands_for_its_stream() -> None:
    made = divided(low=2, high=2)
    assert [made.stream_of(name) for name in ("a", "a@k:1of2", "b#0of2", "x")] == ["a", "a", "b", "x"]
    assert [made.is_taken(stream) for stream in "abcx"] == [True, True, True, False]
    assert not topology(SRC).is_taken("a")
    assert topology(SRC, NodeSpec("app", APP, ("a",))).is_taken("a")
    assert [made.made(name) for name in ("src", "low-s1", "app")] == [("a",), ("b",), ()]
    part = made.part("a@k:1of2")
    assert part is not None
    assert (part.is_cut, part.number, part.of, part.key) == (True, 1, 2, ("k",))
    assert made.part("a") is None
    assert made.schema("b#0of2") == made.schema("b")


def test_members_found_a_cluster_caught_up_with_their_first_incarnation() -> None:
    member = Member(1, Standing.CAUGHT_UP)
    names = ("app/0", "high/0", "low/0", "low/1", "src/0")
    record = whole().founding()
    assert record == Record(1, dict.fromkeys(names, member))
    assert list(record.members) == list(names), "in the order of names"


def test_a_cluster_is_the_same_whatever_only_its_log_and_its_upgrades_know() -> None:
    """Replicas of another configuration are refused; a field that came later does not make two of one."""
    first = whole()

    def with_node(**fields: Any) -> Topology:
        return msgspec.structs.replace(
            first, nodes=(first.nodes[0], msgspec.structs.replace(first.nodes[1], **fields), *first.nodes[2:])
        )

    def with_stream(**fields: Any) -> Topology:
        return msgspec.structs.replace(
            first, streams=(msgspec.structs.replace(first.streams[0], **fields), *first.streams[1:])
        )

    same = [msgspec.structs.replace(first, upgrade=3), with_stream(lateness_us=5), with_stream(idle_after_us=5)]
    assert {one.fingerprint() for one in same} == {first.fingerprint()}
    others = [
        *(with_node(**fields) for fields in ({"f": 2}, {"begins": 1}, {"ends": 1}, {"part": "x"}, {"after_us": 1})),
        *(with_node(**fields) for fields in ({"ranks": (1,)}, {"shard_of": "x"}, {"shard_of": "x", "shard": 1})),
        with_node(shard_of="x", shards=3),
        msgspec.structs.replace(first, rules="others"),
        with_stream(key=("v",)),
        divided(low=2),
        divided(high=2),
    ]
    prints = [one.fingerprint() for one in others]
    assert len({first.fingerprint(), *prints}) == len(others) + 1
    assert msgspec.structs.replace(others[0], origin="the first").fingerprint() == "the first"


def test_the_fingerprint_of_a_plain_cluster_is_that_of_earlier_releases() -> None:
    """A run that was begun with one release goes on with the next."""
    assert whole().fingerprint() == "4806d60b50c00b9a"
    assert divided(low=2, high=2).fingerprint() == "fdde9cc079cc867f"


def test_a_node_comes_and_goes_with_one_upgrade_alone() -> None:
    both = side_by_side(whole(), whole(), ("b",), 3)
    old, new, stays = both.node("low"), both.node("low-3"), both.node("high")
    assert [both.is_coming(node) for node in (old, new, stays)] == [False, True, False]
    assert [both.is_ending(node) for node in (old, new, stays)] == [True, False, False]
    later = msgspec.structs.replace(alone(both, 9), upgrade=4)
    assert not any(later.is_coming(node) or later.is_ending(node) for node in later.nodes)
    plain = whole()
    assert not any(plain.is_coming(node) or plain.is_ending(node) for node in plain.nodes)
