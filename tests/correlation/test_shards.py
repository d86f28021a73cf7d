"""Nodes divided by key: what travels, what a source keeps for its shards, what an application makes of the parts."""

from __future__ import annotations

from typing import Any

import pytest

from unerring.correlation import (
    Ack,
    Application,
    Batch,
    CorrelationConfig,
    NodeSpec,
    Role,
    Sharding,
    Source,
    Topology,
    committed,
    lanes_at,
    outputs_of,
    sharded,
    side_by_side,
)
from unerring.correlation.messages import RecordIs
from unerring.correlation.outgoing import Outgoing
from unerring.correlation.shards import Cuts, applications_of, carried, lanes_after, lanes_of
from unerring.matching import Chunk, Cutter, Output
from unerring.model import (
    BEFORE_ALL,
    TIME_MIN,
    Column,
    ColumnType,
    ConfigError,
    Deliver,
    Event,
    Persist,
    Send,
    Stamp,
    StreamSchema,
)

SECOND = 1_000_000
KEYED = (Column("k", ColumnType.INT), Column("v", ColumnType.INT))
CONFIG = CorrelationConfig()


def whole() -> Topology:
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a",)),
        NodeSpec("low", Role.CORRELATION, ("a",), ("b",), 1),
        NodeSpec("high", Role.CORRELATION, ("b",), ("c",), 0),
        NodeSpec("app", Role.APPLICATION, ("b", "c")),
    )
    return Topology(nodes, tuple(StreamSchema(name, KEYED, ("k",)) for name in "abc"))


def divided(**counts: int) -> Topology:
    keys, types = {"a": ("k",), "b": ("k",)}, dict.fromkeys("bc", (ColumnType.INT,))
    return sharded(whole(), {name: Sharding(count, keys, types) for name, count in counts.items()})


def event(time: int, key: int, ordinal: int = 0) -> Event:
    return Event("a", Stamp(time, ordinal), (key,), {"k": key, "v": time})


def persist(disk: dict[str, bytes], effects: list[Any]) -> list[Any]:
    for effect in effects:
        if isinstance(effect, Persist):
            disk.update(effect.puts)
            for key in effect.deletes:
                del disk[key]
    return [effect for effect in effects if not isinstance(effect, Persist)]


def test_a_topology_with_shards_has_a_node_and_a_part_of_each_stream_for_each() -> None:
    topology = divided(low=3, high=2)
    assert [node.name for node in topology.nodes] == ["src", "low-s0", "low-s1", "low-s2", "high-s0", "high-s1", "app"]
    assert topology.node("src").outputs == ("a", "a@k:0of3", "a@k:1of3", "a@k:2of3")
    assert topology.node("low-s1").inputs == ("a@k:1of3",)
    assert topology.node("low-s1").replicas == ("low-s1/0", "low-s1/1")
    assert topology.node("high-s0").inputs == ("b#0of3", "b#1of3", "b#2of3"), "an ordinal counts all keys"
    assert topology.node("app").inputs == ("b#0of3", "b#1of3", "b#2of3", "c#0of2", "c#1of2")
    assert [schema.name for schema, _ in topology.inputs("high-s0")] == ["b"]
    assert carried(topology, "a@k:0of3") == topology.schema("a")
    assert [column.name for column in carried(topology, "b#0of3").columns][2:] == [
        "at_rank",
        "at_ordinal",
        "at_index",
        "at_key0",
    ]


def test_one_shard_is_the_node_as_it_is_and_a_run_from_before_goes_on() -> None:
    assert divided(low=1) == whole()
    assert divided(low=1).fingerprint() == whole().fingerprint()
    assert divided(low=2).fingerprint() != divided(low=3).fingerprint() != whole().fingerprint()


def test_a_node_without_a_key_cannot_have_shards() -> None:
    with pytest.raises(ConfigError, match="'low' cannot have shards: it takes a stream without a key"):
        sharded(whole(), {"low": Sharding(2, {"a": ()}, {"b": ()})})


def test_a_shard_that_takes_what_shards_make_keeps_its_keys_with_the_ordinals_of_all() -> None:
    topology = divided(low=2, high=2)
    form = outputs_of(topology, topology.node("low-s0"))["b"]
    made = [Output("b", 5, 0, n, (n,), 0, {"k": n, "v": n}) for n in range(6)]
    pieces = [form.placed(made[::2]), form.placed(made[1::2])]
    lanes = lanes_of(topology, "high-s1")["b"]
    assert lanes.joined is not None
    own = list(lanes.joined(pieces))
    owner = Cutter(topology.schema("b"), ("k",), 2).owner
    assert [(e.key[0], e.stamp) for e in own] == [(n, Stamp(5, n)) for n in range(6) if owner({"k": n}) == 1]
    assert own


def test_a_source_comes_back_with_each_part_where_it_was() -> None:
    """What is pruned of a stream is what all parts have; a part that is ahead drops what it gets again."""
    topology = divided(low=2)
    record = topology.founding()
    cutter = Cutter(topology.schema("a"), ("k",), 2)
    log = [event(1 + n // 3, n, n % 3) for n in range(30)]
    parts = cutter.cut(log)
    assert all(len(part) > 4 for part in parts)
    for follows in (False, True):
        disk: dict[str, bytes] = {}

        def source(disk: dict[str, bytes] = disk, follows: bool = follows) -> Source:
            made = Source(disk, "src/0", topology, CONFIG, follows)
            made.handle("membership", RecordIs(record), 0)
            return made

        first = source()
        for at in range(0, 30, 3):
            persist(disk, first.publish(log[at : at + 3], 0))
        for shard, count in ((0, 2), (1, len(parts[1]))):
            for number in range(2):
                ack = Ack(f"a@k:{shard}of2", parts[shard][count - 1].stamp, count, 1, 99)
                persist(disk, first.handle(f"low-s{shard}/{number}", ack, 0))
        persist(disk, first.timer("tick", 10 * SECOND))
        again = source()
        queues = again.outgoing.queues
        assert queues["a"].mark < parts[0][2].stamp <= log[queues["a"].mark_count].stamp
        if follows:
            persist(disk, again.publish([e for e in log if e.stamp > queues["a"].last], 0))
        assert queues["a@k:0of2"].events() == parts[0][2:]
        assert queues["a@k:0of2"].batch(2, 3).prev == parts[0][1].stamp
        assert (queues["a@k:1of2"].count, queues["a@k:1of2"].last) == (len(parts[1]), parts[1][-1].stamp)
        assert queues["a@k:1of2"].events() == []


def part_batch(topology: Topology, name: str, prev: Stamp, index: int, outputs: list[Output], watermark: int) -> Batch:
    form = outputs_of(topology, topology.node("low-s0"))["b"]
    return Batch(name, prev, index, tuple(form.placed(outputs)), watermark)


def test_an_application_numbers_parts_once_all_are_there_and_repeats_nothing_after_a_restart() -> None:
    topology = divided(low=2)
    disk: dict[str, bytes] = {}

    def start() -> Application:
        made = Application(dict(disk), "app/0", topology, CONFIG)
        made.handle("membership", RecordIs(topology.founding()), 0)
        return made

    def output(time: int, ordinal: int, key: int) -> Output:
        return Output("b", time, 0, ordinal, (key,), 0, {"k": key, "v": time})

    app = start()
    first = part_batch(topology, "b#0of2", app.intake.streams["b#0of2"].last, 0, [output(1, 1, 0), output(2, 0, 0)], 2)
    effects = persist(disk, app.handle("low-s0/0", first, 0))
    assert not [e for e in effects if isinstance(e, Deliver)], "the other shard may have earlier ones of these times"
    acked = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Ack)]
    assert [(a.stream, a.count) for a in acked] == [("b#0of2", 2)], "kept, so received"

    app = start()
    second = part_batch(topology, "b#1of2", app.intake.streams["b#1of2"].last, 0, [output(1, 0, 1)], 1)
    effects = persist(disk, app.handle("low-s1/0", second, 0))
    delivered = [e.what for e in effects if isinstance(e, Deliver)]
    assert [(e.stamp, e.key) for e in delivered] == [(Stamp(1, 0), (1,)), (Stamp(1, 1), (0,))]
    assert committed(disk, "b") == delivered
    assert app.streams["b"].watermark == 1

    app = start()
    effects = persist(disk, app.handle("low-s0/1", first, 0))
    assert [type(e) for e in effects] == [Send], "duplicates but for the watermark, which was not kept"
    assert app.intake.credit("b#0of2") == 1 + CONFIG.window_events, "the one of time 2 waits"
    effects = persist(disk, app.handle("low-s1/0", Batch("b#1of2", Stamp(1, 0), 1, (), 9), 0))
    assert [e.what.stamp for e in effects if isinstance(e, Deliver)] == [Stamp(2, 0)]
    assert not [key for key in disk if key.startswith("application/b#") and "position" not in key]
    assert [e.stamp for e in committed(disk, "b")] == [Stamp(1, 0), Stamp(1, 1), Stamp(2, 0)]


def test_a_part_is_kept_until_an_application_has_numbered_it() -> None:
    """Else what comes with an upgrade would wait for a log that waits for a slower shard, which waits for its acks."""
    topology = divided(low=2)
    form = outputs_of(topology, topology.node("low-s0"))["b"]
    events = list(form.placed([Output("b", time, 0, 0, (0,), 0, {"k": 0, "v": 0}) for time in range(1, 6)]))
    outgoing = Outgoing("low-s0/0", topology, topology.node("low-s0").outputs, CONFIG)
    outgoing.read(topology.founding())
    outgoing.append("b", events)
    for receiver in ("high/0", "app/0"):
        assert outgoing.ack(receiver, Ack("b#0of2", Stamp(5, 0), 5, 1, CONFIG.window_events)) is None
    outgoing.prune()
    queue = outgoing.queues["b#0of2"]
    assert (queue.mark_count, queue.count) == (0, 5), "received, and not numbered: the other shard is not that far"
    outgoing.ack("app/0", Ack("b#0of2", Stamp(5, 0), 5, 1, 2 + CONFIG.window_events))
    outgoing.prune()
    assert (queue.mark, queue.mark_count) == (Stamp(2, 0), 2)
    outgoing.ack("app/0", Ack("b#0of2", Stamp(5, 0), 5, 1, 5 + CONFIG.window_events))
    outgoing.prune()
    assert not len(queue)


def test_parts_that_begin_anew_under_other_names_repeat_nothing() -> None:
    disk: dict[str, bytes] = {}
    made = [Output("b", time, 0, 0, (time,), 0, {"k": time, "v": time}) for time in range(1, 9)]

    def play(shards: int, outputs: list[Output], watermark: int) -> list[Stamp]:
        topology = divided(low=shards)
        app = Application(dict(disk), "app/0", topology, CONFIG)
        app.handle("membership", RecordIs(topology.founding()), 0)
        owner = Cutter(topology.schema("b"), ("k",), shards).owner
        stamps: list[Stamp] = []
        for shard in range(shards):
            own = [output for output in outputs if owner(output.payload) == shard]
            name = f"b#{shard}of{shards}"
            batch = part_batch(topology, name, app.intake.streams[name].last, 0, own, watermark)
            effects = persist(disk, app.handle(f"low-s{shard}/0", batch, 0))
            stamps += [e.what.stamp for e in effects if isinstance(e, Deliver)]
        return stamps

    assert play(2, made[:5], 5) == [Stamp(time) for time in range(1, 6)]
    assert play(3, made, 8) == [Stamp(time) for time in range(6, 9)]
    assert [e.stamp.time for e in committed(disk, "b")] == list(range(1, 9))


def test_a_state_of_the_log_begins_what_new_nodes_send_at_its_beginning_although_they_have_pruned() -> None:
    both = side_by_side(divided(low=2, high=2), divided(low=3, high=3), (), 1)
    marks = {name: (Stamp(40, 0), 9) for name in both.node("high-s0-1").inputs}
    lanes = lanes_at(both, marks, 20, lambda stream, mark: ())
    fresh = [name for name in marks if name.endswith("of3")]
    assert len(fresh) == 3
    assert all((lanes[name].last, lanes[name].count) == (BEFORE_ALL, 0) for name in fresh), "a peer has what is lacking"
    assert all(lanes[name].watermark == TIME_MIN for name in fresh)
    assert all(lanes[name].count == 9 for name in marks if name not in fresh)


def lanes_shown(found: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Under which names each stream comes, and whether something is made of what comes in them."""
    return {stream: (" ".join(one.names), one.joined is not None) for stream, one in found.items()}


def test_a_stream_comes_under_the_old_names_up_to_the_agreed_time_and_under_the_new_ones_after_it() -> None:
    plain, shards = whole(), divided(low=2, high=2)
    assert lanes_shown(lanes_of(plain, "high")) == lanes_shown(lanes_after(plain, "high")) == {}
    assert lanes_shown(lanes_of(shards, "low-s1")) == {"a": ("a@k:1of2", False)}, "cut by its sender"
    assert lanes_shown(lanes_of(shards, "app")) == {"b": ("b#0of2 b#1of2", True), "c": ("c#0of2 c#1of2", True)}
    assert lanes_shown(lanes_after(shards, "app")) == {}
    both = side_by_side(divided(low=2, high=2), divided(low=3, high=2), (), 1)
    assert lanes_shown(lanes_of(both, "high-s0")) == {"b": ("b#0of2 b#1of2", True)}
    assert lanes_shown(lanes_after(both, "high-s0")) == {"b": ("b#0of3 b#1of3 b#2of3", True)}
    assert lanes_shown(lanes_after(both, "app")) == {"b": ("b#0of3 b#1of3 b#2of3", True)}, "c goes on"
    assert lanes_shown(lanes_of(both, "low-s2-1")) == {"a": ("a", True)}, "whole: its source cuts it otherwise"
    joins = side_by_side(divided(low=2), divided(), (), 1)
    assert lanes_shown(lanes_of(joins, "high")) == {"b": ("b#0of2 b#1of2", True)}
    assert lanes_shown(lanes_after(joins, "high")) == {"b": ("b", False)}
    parts = side_by_side(divided(), divided(low=2), (), 1)
    assert lanes_shown(lanes_of(parts, "high")) == {}
    assert lanes_shown(lanes_after(parts, "high")) == {"b": ("b#0of2 b#1of2", True)}


def test_a_shard_that_gets_a_stream_whole_keeps_what_it_owns_in_any_form() -> None:
    topology = side_by_side(divided(), divided(low=2), (), 1)
    log = [event(1 + n // 3, n, n % 3) for n in range(12)]
    schema = topology.schema("a")
    owner = Cutter(schema, ("k",), 2).owner
    chunks = [Chunk.of_events(schema, log[first : first + 4]) for first in (0, 4, 8)]
    for shard in (0, 1):
        lanes = lanes_of(topology, f"low-s{shard}-1")["a"]
        assert lanes.joined is not None
        own = [one for one in log if owner(one.payload) == shard]
        assert own
        for pieces, columns in (([log[:5], log[5:]], False), (chunks, True), ([chunks[0], log[4:8], chunks[2]], True)):
            joined = lanes.joined(pieces)
            assert (list(joined), isinstance(joined, Chunk)) == (own, columns), "columns stay what they are"


def test_only_an_application_waits_for_all_shards_before_it_has_a_part() -> None:
    topology = divided(low=2, high=2)
    takers = {name: applications_of(topology, name) for name in ("a", "a@k:0of2", "b#0of2", "c#1of2")}
    assert takers == {"a": (), "a@k:0of2": (), "b#0of2": ("app",), "c#1of2": ("app",)}
    assert list(outputs_of(topology, topology.node("low-s1"))) == ["b"]
    assert outputs_of(topology, topology.node("src")) == {}
    assert outputs_of(whole(), whole().node("low")) == {}


def test_two_nodes_that_divide_a_stream_otherwise_have_each_their_parts_of_it() -> None:
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a", "z")),
        NodeSpec("low", Role.CORRELATION, ("a", "z"), ("b",)),
        NodeSpec("side", Role.CORRELATION, ("a",), ("c",)),
        NodeSpec("also", Role.CORRELATION, ("a",), ("d",)),
        NodeSpec("app", Role.APPLICATION, ("b", "c", "d")),
    )
    plain = Topology(nodes, tuple(StreamSchema(name, KEYED, ("k",)) for name in "azbcd"))
    types = dict.fromkeys("bcd", (ColumnType.INT,))
    wanted = {
        "low": Sharding(2, {"a": ("k",), "z": ("k",)}, types),
        "side": Sharding(3, {"a": ("v",)}, types),
        "also": Sharding(1, {}, {}),
    }
    topology = sharded(plain, wanted)
    of_low, of_side = [f"a@k:{n}of2" for n in range(2)], [f"a@v:{n}of3" for n in range(3)]
    sent = topology.node("src").outputs
    assert sent == ("a", "z", "a@k:0of2", "a@k:1of2", "z@k:0of2", "z@k:1of2", *of_side)
    assert topology.node("low-s1").inputs == ("a@k:1of2", "z@k:1of2")
    assert topology.node("side-s2").inputs == ("a@v:2of3",)
    assert topology.node("also").inputs == ("a",)
    assert topology.node("also") == plain.node("also")
    cuts = {stream: Cuts(topology, stream, sent) for stream in "az"}
    assert (cuts["a"].names, cuts["a"].shards) == ((*of_low, *of_side), 3)
    assert (cuts["z"].names, cuts["z"].shards) == (("z@k:0of2", "z@k:1of2"), 2)
    assert (Cuts(topology, "b", ("b",)).names, Cuts(topology, "b", ("b",)).shards) == ((), 1)
    assert Cuts(topology, "a", ("a", *of_low)).names == tuple(of_low), "what another maker sends is not this one's"
    log = [event(1 + n, n) for n in range(20)]
    parts = dict(cuts["a"].cut(log))
    by_k, by_v = (Cutter(topology.schema("a"), (key,), of).cut(log) for key, of in (("k", 2), ("v", 3)))
    assert [list(parts[name]) for name in (*of_low, *of_side)] == [list(part) for part in (*by_k, *by_v)]
