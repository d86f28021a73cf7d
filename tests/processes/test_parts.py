"""Replica and node are made of parts: each message goes to one of them, and a part can be replaced by another one."""

from __future__ import annotations

from random import Random
from typing import Any, get_args

import msgspec
import pytest

from tests.processes.table import INSTANCE, Table, one_write
from tests.processes.test_scale import CONFIG, NAMES, Three, waiting
from unerring.model import InvariantBreach, Persist, Report, Send
from unerring.processes import node, replica
from unerring.processes.config import ClusterBounds
from unerring.processes.election import Election
from unerring.processes.messages import (
    MESSAGES,
    Decided,
    Fetch,
    Heartbeat,
    Lead,
    Mail,
    Outline,
    Post,
    Replicate,
    Request,
    Settled,
    State,
    Status,
    Step,
)
from unerring.processes.naming import Slot


def test_every_message_that_a_node_may_get_goes_to_one_part() -> None:
    table = Table(one_write())
    machine = table.nodes[table.members[0]]
    kinds = [kind for kind in get_args(MESSAGES) if kind is not Request]
    assert [kind.__name__ for kind in kinds if kind not in node._ON] == []
    to_instances = [kind for kind in kinds if node._ON[kind](machine) == machine._to_instance]
    assert sorted(kind.__name__ for kind in to_instances) == sorted(kind.__name__ for kind in replica._ON)


def test_neither_is_a_chain_of_classes() -> None:
    assert replica.Replica.__bases__ == (object,)
    assert node.ProcessNode.__bases__ == (object,)


def test_a_part_is_replaced_by_a_class_attribute() -> None:
    class Timid(Election):
        def ask_view(self, now: int, why: str) -> None:
            pass

    class TimidReplica(replica.Replica):
        election_part = Timid

    table = Table(one_write(), TimidReplica)
    table.start()
    table.deliver(list(table.members))
    table.ask_view(table.members[1])
    assert table.replica(table.members[1]).acceptor.view == 0


def test_a_slot_is_given_once_in_a_view_and_is_free_in_the_next() -> None:
    table = Table(one_write())
    table.start()
    mine = table.replica(table.members[0])
    slot = Slot(mine.context, mine.acceptor, {})
    assert (slot.named(1), slot.taken(1)) == ("", False)
    slot.take(1, table.members[1])
    assert (slot.named(1), slot.taken(1), slot.give(1)) == (table.members[1], True, False)
    with pytest.raises(InvariantBreach, match="one naming for each view and group"):
        slot.take(1, table.members[2])
    mine.acceptor.raise_view(1)
    assert (slot.named(1), slot.give(1), slot.named(1)) == ("", True, table.members[0])
    kept = [key for effect in table.nodes[table.members[0]].out.take() for key, _ in getattr(effect, "puts", ())]
    assert f"{INSTANCE}|naming" in kept, "another one's is on disk before it hears of it"


def test_a_slot_that_was_closed_is_nobodys_up_to_its_view_after_a_restart_too() -> None:
    table = Table(one_write())
    table.start()
    node, mine = table.nodes[table.members[0]], table.replica(table.members[0])
    node.out.take()
    mine.slot.close(2)
    [kept] = [effect for effect in node.out.take() if isinstance(effect, Persist)]
    again = Slot(mine.context, mine.acceptor, {key.partition("|")[2]: data for key, data in kept.puts})
    for slot in (mine.slot, again):
        assert (slot.taken(1), slot.named(1)) == (True, "")
    assert not again.give(1)
    mine.acceptor.raise_view(2)
    assert again.taken(1 << 30)
    mine.acceptor.raise_view(3)
    assert not again.taken(1)


# --- the instances of a node ---


def decided(instance: str, status: str = Status.RUNNING, group: int = 0) -> State:
    graph = waiting().graph
    lineage = (Step(0, graph.start),) * group
    return State(instance, "waiting", graph.version, group, lineage, graph.start, {"n": 0}, status=status)


def test_only_what_is_under_way_is_open_after_a_restart() -> None:
    history = msgspec.msgpack.encode(decided("i", Status.FAILED))
    outline = msgspec.msgpack.encode(Outline("waiting", "failed", "", {}))
    promise = msgspec.msgpack.encode((1, "n1"))
    records = {"a|outline": outline, "a|history": history, "b|history": history, "c|promise": promise}
    records |= {"d|history": history, "d|promise": promise, "e|outline": outline, "e|promise": promise}
    restarted = node.ProcessNode("n0", NAMES, [waiting()], records, Random(1), 0, ClusterBounds(), CONFIG)
    assert (sorted(restarted.instances), sorted(restarted.finished)) == (["c", "d"], ["a", "e"])


def test_a_full_node_takes_no_more_and_says_so() -> None:
    config = msgspec.structs.replace(CONFIG, instances_max=2)
    machine = node.ProcessNode("n0", NAMES, [waiting()], {}, Random(1), 0, ClusterBounds(), config)
    machine.start(0)
    said = []
    for name in ("a", "b", "c"):
        effects = machine.handle("partner", Post(name, Mail("m", "go", 1)), 0)
        said.append([(e.what, e.detail) for e in effects if isinstance(e, Report)])
    full = [("process.instances_full", "c is not taken: there are 2 instances")]
    assert (said, list(machine.instances)) == ([[], [], full], ["a", "b"])


def settled(*messages: object) -> tuple[bool, bool]:
    """Whether an instance is open, and whether its end is kept, when it is said to be settled after these."""
    machine = Three().nodes["n0"]
    for message in (*messages, Settled("i")):
        machine.handle("n1", message, 2_000_000)
    return "i" in machine.instances, "i" in machine.finished


def test_an_instance_is_settled_by_whoever_knows_of_its_end() -> None:
    end = decided("i", Status.COMPLETED, 1)
    assert settled() == (False, False), "it has no part in it"
    assert settled(Replicate(0, decided("i"))) == (True, False), "it knows of no end"
    assert settled(Decided(0, decided("i"))) == (True, False)
    assert settled(Decided(0, end)) == (False, True)
    assert settled(Replicate(0, end)) == (False, True), "it had accepted it, and others know that it was decided"


def test_who_is_told_that_an_instance_is_settled_and_knows_of_no_end_still_asks_for_what_it_missed() -> None:
    machine = Three(msgspec.structs.replace(CONFIG, transfers_max=1)).nodes["n0"]
    for name in ("a", "b"):
        machine.handle("n1", Replicate(0, decided(name)), 2_000_000)

    def asked(effects: list[Any]) -> list[tuple[str, Fetch]]:
        sent = [effect for effect in effects if isinstance(effect, Send)]
        return [(effect.to, effect.message) for effect in sent if isinstance(effect.message, Fetch)]

    led = Heartbeat(tuple(Lead(name, 0, 1, ask_clean=False) for name in ("a", "b")))
    assert asked(machine.handle("n1", led, 2_000_000)) == [("n1", Fetch("a", 0, 0))], "one after the other"
    machine.handle("n2", Settled("b"), 2_000_000)
    effects = machine.handle("n1", Decided(0, decided("a", group=1)), 2_000_000)
    assert asked([*effects, *machine.timer("tick", 2_000_001)]) == [("n1", Fetch("b", 0, 0))]
