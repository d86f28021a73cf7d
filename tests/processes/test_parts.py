"""Replica and node are made of parts: each message goes to one of them, and a part can be replaced by another one."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.processes.table import INSTANCE, Table, one_write
from unerring.model import InvariantBreach
from unerring.processes import node, replica
from unerring.processes.election import Election
from unerring.processes.messages import MESSAGES, Request
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
