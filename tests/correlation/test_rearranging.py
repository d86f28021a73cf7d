"""The nodes of a run from one edition of its rules to the next: who stays, who goes, who comes, and what each takes."""

from __future__ import annotations

import msgspec
import pytest

from tests.correlation.table import schema
from tests.correlation.test_shards import KEYED, divided, whole
from unerring.correlation import NodeSpec, Role, Topology, alone, side_by_side
from unerring.correlation.rearranging import after_of, before_of, founded, is_that
from unerring.model import StreamSchema


def shown(topology: Topology) -> list[str]:
    """A line for each node: what it takes (with ranks, where they are not the topology's own) and makes, and when."""

    def line(node: NodeSpec) -> str:
        ranks = node.ranks or [""] * len(node.inputs)
        taken = " ".join(f"{name}.{rank}".rstrip(".") for name, rank in zip(node.inputs, ranks, strict=True))
        times = f" ({node.begins}-{node.ends} after {node.after_us})".replace(" (0-0 after 0)", "")
        part = f" = {node.part}" if node.part else ""
        return f"{node.name}{part}: {taken} -> {' '.join(node.outputs)}{times}"

    return [line(node) for node in topology.nodes]


def names(topology: Topology) -> tuple[str, str]:
    """The streams and the parts of streams."""
    return " ".join(s.name for s in topology.streams), " ".join(part.name for part in topology.parts)


def test_a_rule_that_changes_comes_beside_the_old_one_and_the_others_stay() -> None:
    both = side_by_side(whole(), whole(), ("b",), 1)
    assert shown(both) == [
        "src:  -> a",
        "low: a.0 -> b (0-1 after 0)",
        "high: b.1 -> c",
        "low-1 = low: a.0 -> b (1-0 after 0)",
        "app: b c -> ",
    ]
    assert (both.upgrade, both.origin, both.fingerprint()) == (1, whole().fingerprint(), whole().fingerprint())
    assert both.makers("b") == ("low", "low-1"), "who ends, first"
    assert shown(alone(both, 40)) == [
        "src:  -> a",
        "high: b.1 -> c",
        "low-1 = low: a.0 -> b (1-0 after 40)",
        "app: b c -> ",
    ]
    assert [node.name for node in before_of(both)] == ["src", "low", "high", "app"]
    assert [node.name for node in after_of(both)] == ["src", "high", "low-1", "app"]


def edition(sources: str, ranked: str, *rules: str) -> Topology:
    """Rules as what they take > what they make; `ranked`: the streams in the order of their ranks."""
    split = [rule.split(">") for rule in rules]
    nodes = (
        *(NodeSpec(f"src_{stream}", Role.SOURCE, outputs=(stream,)) for stream in sources),
        *(NodeSpec(made.upper(), Role.CORRELATION, tuple(taken), (made,), 1) for taken, made in split),
        NodeSpec("app", Role.APPLICATION, tuple(made for _, made in split)),
    )
    return Topology(nodes, tuple(StreamSchema(stream, KEYED, ("k",)) for stream in ranked))


def test_rules_and_sources_come_and_go_and_who_stays_keeps_its_ranks() -> None:
    first, second = edition("a", "axy", "a>x", "ax>y"), edition("az", "zyxqa", "za>q", "ax>y", "a>x")
    both = side_by_side(first, second, (), 1)
    assert shown(both) == [
        "src_a:  -> a",
        "X: a.0 -> x",
        "Y: a.0 x.1 -> y",
        "src_z:  -> z (1-0 after 0)",
        "Q-1 = Q: z.0 a.4 -> q (1-0 after 0)",
        "app: x y q -> ",
    ]
    assert names(both) == ("z y x q a", "")
    assert [(one.name, rank) for one, rank in both.inputs("Y")] == [("a", 0), ("x", 1)]
    one = alone(both, 7)
    assert shown(one) == [line.replace("after 0", "after 7") for line in shown(both)]
    third = side_by_side(one, edition("a", "ax", "a>x"), ("x",), 2)
    assert shown(third) == [
        "src_a:  -> a",
        "X: a.0 -> x (0-2 after 0)",
        "Y: a.0 x.1 -> y (0-2 after 0)",
        "src_z:  -> z (1-2 after 7)",
        "Q-1 = Q: z.0 a.4 -> q (1-2 after 7)",
        "X-2 = X: a.0 -> x (2-0 after 0)",
        "app: x y q -> ",
    ]
    assert names(third) == ("a x z y q", "")
    last = alone(third, 9)
    assert shown(last) == ["src_a:  -> a", "X-2 = X: a.0 -> x (2-0 after 9)", "app: x -> "]
    assert names(last) == ("a x", "")
    assert last.origin == first.fingerprint(), "one run"


def test_who_came_with_one_upgrade_stays_with_the_next_one_as_it_is() -> None:
    first, second = edition("a", "axy", "a>x", "ax>y"), edition("az", "zyxqa", "za>q", "ax>y", "a>x")
    one = alone(side_by_side(first, second, (), 1), 7)
    assert shown(side_by_side(one, second, ("x",), 2)) == [
        "src_a:  -> a",
        "X: a.0 -> x (0-2 after 0)",
        "Y: a.0 x.1 -> y",
        "src_z:  -> z (1-0 after 7)",
        "Q-1 = Q: z.0 a.4 -> q (1-0 after 7)",
        "X-2 = X: a.4 -> x (2-0 after 0)",
        "app: x y q -> ",
    ]


def test_a_shard_that_came_to_take_a_stream_whole_takes_it_whole_for_good() -> None:
    """Its place in the stream is one of the whole stream's numbers."""
    run = alone(side_by_side(whole(), divided(high=2), (), 1), 5)
    for number in (2, 3):
        both = side_by_side(run, divided(high=2), ("b",), number)
        assert both.node("high-s0-1").inputs == both.node("high-s1-1").inputs == ("b",)
        run = alone(both, 5 * number)
    assert run.node("low-3").outputs == ("b",)


def test_shards_go_and_others_come_and_one_that_stays_takes_both_for_a_while() -> None:
    both = side_by_side(divided(low=2, high=2), divided(low=3, high=2), (), 1)
    old, new = "b#0of2.1 b#1of2.1", "b#0of3.1 b#1of3.1 b#2of3.1"
    came = [f"low-s{n}-1 = low-s{n}: a.0 -> b#{n}of3 (1-0 after 0)" for n in range(3)]
    assert shown(both) == [
        "src:  -> a a@k:0of2 a@k:1of2",
        "low-s0: a@k:0of2.0 -> b#0of2 (0-1 after 0)",
        "low-s1: a@k:1of2.0 -> b#1of2 (0-1 after 0)",
        f"high-s0: {old} {new} -> c#0of2",
        f"high-s1: {old} {new} -> c#1of2",
        *came,
        "app: b#0of2 b#1of2 b#0of3 b#1of3 b#2of3 c#0of2 c#1of2 -> ",
    ]
    assert names(both)[1] == "b#0of2 b#1of2 c#0of2 c#1of2 a@k:0of2 a@k:1of2 b#0of3 b#1of3 b#2of3"
    one = alone(both, 40)
    assert shown(one) == [
        "src:  -> a",
        f"high-s0: {new} -> c#0of2",
        f"high-s1: {new} -> c#1of2",
        *(line.replace("after 0", "after 40") for line in came),
        "app: b#0of3 b#1of3 b#2of3 c#0of2 c#1of2 -> ",
    ]
    assert names(one)[1] == "c#0of2 c#1of2 b#0of3 b#1of3 b#2of3"


@pytest.mark.parametrize(
    ("old", "new", "fresh", "lines", "parts"),
    [
        # A whole node whose stream is cut is replaced: who stays takes its parts of both.
        (
            {"high": 2},
            {"high": 2},
            "b",
            [
                "low: a.0 -> b b@k:0of2 b@k:1of2 (0-1 after 0)",
                "high-s0: b@k:0of2.1 -> c#0of2",
                "high-s1: b@k:1of2.1 -> c#1of2",
                "low-1 = low: a.0 -> b b@k:0of2 b@k:1of2 (1-0 after 0)",
                "app: b c#0of2 c#1of2 -> ",
            ],
            "c#0of2 c#1of2 b@k:0of2 b@k:1of2",
        ),
        # Shards with other rules take the same parts as the old ones.
        (
            {"high": 2},
            {"high": 2},
            "c",
            [
                "low: a.0 -> b b@k:0of2 b@k:1of2",
                "high-s0: b@k:0of2.1 -> c#0of2 (0-1 after 0)",
                "high-s1: b@k:1of2.1 -> c#1of2 (0-1 after 0)",
                "high-s0-1 = high-s0: b@k:0of2.1 -> c#0of2 (1-0 after 0)",
                "high-s1-1 = high-s1: b@k:1of2.1 -> c#1of2 (1-0 after 0)",
                "app: b c#0of2 c#1of2 -> ",
            ],
            "c#0of2 c#1of2 b@k:0of2 b@k:1of2",
        ),
        # The first shards take the stream whole: who makes it stays, and does not know how to cut it.
        (
            {},
            {"high": 2},
            "",
            [
                "low: a.0 -> b",
                "high: b.1 -> c (0-1 after 0)",
                "high-s0-1 = high-s0: b.1 -> c#0of2 (1-0 after 0)",
                "high-s1-1 = high-s1: b.1 -> c#1of2 (1-0 after 0)",
                "app: b c#0of2 c#1of2 c -> ",
            ],
            "c#0of2 c#1of2",
        ),
        # One node in the place of shards.
        (
            {"high": 2},
            {},
            "",
            [
                "low: a.0 -> b b@k:0of2 b@k:1of2",
                "high-s0: b@k:0of2.1 -> c#0of2 (0-1 after 0)",
                "high-s1: b@k:1of2.1 -> c#1of2 (0-1 after 0)",
                "high-1 = high: b.1 -> c (1-0 after 0)",
                "app: b c#0of2 c#1of2 c -> ",
            ],
            "c#0of2 c#1of2 b@k:0of2 b@k:1of2",
        ),
    ],
)
def test_whole_nodes_and_shards_take_each_others_places(
    old: dict[str, int], new: dict[str, int], fresh: str, lines: list[str], parts: str
) -> None:
    both = side_by_side(divided(**old), divided(**new), fresh, 1)
    assert shown(both) == ["src:  -> a", *lines]
    assert names(both) == ("a b c", parts)
    wanted = [msgspec.structs.replace(node, name=node.name.removesuffix("-1")) for node in alone(both, 5).nodes]
    if both.node("low").outputs == divided(**new).node("low").outputs:
        assert {(node.name, node.inputs, node.outputs) for node in wanted} == {
            (node.name, node.inputs, node.outputs) for node in divided(**new).nodes
        }


def test_who_stays_and_took_a_part_keeps_it_although_a_new_maker_sends_the_whole() -> None:
    both = side_by_side(divided(high=2), whole(), ("b",), 1)
    later = alone(both, 5)
    assert [line for line in shown(later) if line.startswith(("low", "high"))] == [
        "low-1 = low: a.0 -> b (1-0 after 5)",
        "high-1 = high: b.1 -> c (1-0 after 5)",
    ]
    assert later.parts == ()


def test_a_run_is_that_of_its_app_before_and_after_an_upgrade_and_of_no_other() -> None:
    both = side_by_side(divided(low=2, high=2), divided(low=3, high=2), (), 1)
    one = alone(both, 40)
    apps = [divided(low=2, high=2), divided(low=3, high=2), divided(low=2, high=3), whole()]
    assert [is_that(both, app) for app in apps] == [True, True, False, False]
    assert [is_that(one, app) for app in apps] == [False, True, False, False]
    assert [is_that(apps[0], app) for app in apps] == [True, False, False, False]
    first, second = edition("a", "axy", "a>x", "ax>y"), edition("az", "zyxqa", "za>q", "ax>y", "a>x")
    added = side_by_side(first, second, (), 1)
    more = msgspec.structs.replace(second, streams=(*second.streams, schema("free")))
    taken = [msgspec.structs.replace(node, f=3) if node.name == "Q" else node for node in second.nodes]
    less = msgspec.structs.replace(second, nodes=tuple(taken))
    assert [is_that(added, app) for app in (first, second, more, less)] == [True, True, True, False]


def test_a_founded_topology_has_no_node_that_came_later() -> None:
    both = side_by_side(whole(), divided(high=2), (), 1)
    later = founded(alone(both, 5))
    assert {node.begins for node in later.nodes} == {0}
    assert [node.name for node in later.nodes if later.is_coming(node)] == []
    assert [node.after_us for node in later.nodes if node.name.startswith("high")] == [5, 5]
