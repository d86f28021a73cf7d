"""Replicas while an upgrade is under way: what a durable one keeps over a restart."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from unerring.correlation import (
    MEMBERSHIP,
    OPERATOR,
    Batch,
    CorrelationConfig,
    Membership,
    NodeSpec,
    Rearrange,
    Replica,
    Role,
    Standing,
    Topology,
    alone,
    side_by_side,
)
from unerring.correlation.messages import AskConfirmation, Confirmation, Enter, ReadRecord
from unerring.correlation.switching import Span
from unerring.model import BEFORE_ALL, Column, ColumnType, Event, Persist, Send, Stamp, StreamSchema

CONFIG = CorrelationConfig()


def rules(*names: str) -> Topology:
    """A rule for each of these names, each of which makes a stream of the same name in lower case."""
    made = [name.lower() for name in names]
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a",), f=1),
        *(NodeSpec(name, Role.CORRELATION, ("a",), (name.lower(),), 1) for name in names),
        NodeSpec("app", Role.APPLICATION, tuple(made), f=1),
    )
    return Topology(nodes, tuple(StreamSchema(name, (Column("v", ColumnType.INT),)) for name in ("a", *made)))


class Life:
    """A durable replica of the application, the keeper of the record, and their disks."""

    def __init__(self, topology: Topology) -> None:
        self.disk: dict[str, bytes] = {}
        self.keeper = Membership({}, topology, CONFIG, Random(1))
        self.start(topology)

    def start(self, topology: Topology) -> None:
        self.machine = Replica("app/0", topology, CONFIG, None, Random(len(self.disk)), dict(self.disk))
        self.deliver(self.machine.start(0))

    def deliver(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self.disk.update(effect.puts)
                for key in effect.deletes:
                    self.disk.pop(key, None)
            if isinstance(effect, Send) and effect.to == MEMBERSHIP:
                for answer in self.keeper.handle("app/0", effect.message, 0):
                    if isinstance(answer, Send) and answer.to == "app/0":
                        self.deliver(self.machine.handle(MEMBERSHIP, answer.message, 0))

    def take(self, stream: str, maker: str, count: int) -> None:
        """The next event of a stream."""
        last = Stamp(count, 0) if count else BEFORE_ALL
        event = Event(stream, Stamp(count + 1, 0), (), {"v": count})
        self.deliver(self.machine.handle(f"{maker}/0", Batch(stream, last, count, (event,), count + 1), 0))

    @property
    def counts(self) -> dict[str, int]:
        return {stream: incoming.count for stream, incoming in self.machine.intake.streams.items()}


def test_a_durable_state_of_before_a_rule_was_added_is_kept() -> None:
    before = rules("X")
    both = side_by_side(before, rules("X", "Q"), ("q",), 1)
    life = Life(before)
    life.take("x", "X", 0)
    life.keeper.topology = both
    for _ in range(2):
        life.start(both)
        assert life.machine.holding
        assert life.machine.incarnation == 1, "nothing was lost: nobody may be there who could give it a state"
        assert life.counts == {"x": 1, "q": 0}
        assert [event.stamp for piece in life.machine.merge.waiting("x") for event in piece] == [Stamp(1, 0)]
    life.take("q", "Q-1", 0)
    life.start(both)
    assert life.counts == {"x": 1, "q": 1}


def test_a_node_counts_after_the_time_of_its_upgrade_also_while_the_next_one_is_under_way() -> None:
    """A replica that is behind may hear of the next nodes before it gets to the time agreed for its own."""
    first = alone(side_by_side(rules("X"), rules("X", "Q"), ("q",), 1), 4)
    second = side_by_side(first, rules("X", "Q"), ("x",), 2)
    span = Span(second, second.node("Q-1"))
    events = [Event("q", Stamp(time, 0), (), {"v": time}) for time in (3, 4, 5)]
    assert [event.stamp.time for event in span.counted(events)] == [5]
    assert [span.watermark(time) for time in (3, 5)] == [4, 5]
    third = alone(second, 9)
    assert {node.name: node.after_us for node in third.nodes if node.role is Role.CORRELATION} == {"Q-1": 4, "X-2": 9}


def test_an_upgrade_does_not_wait_for_who_never_came() -> None:
    before = rules("X")
    keeper = Membership({}, before, CONFIG, Random(1))
    keeper.start(0)
    here = [name for node in before.nodes for name in node.replicas if name != "X/1"]
    for name in here:
        enter = Enter(name, f"token of {name}", 0, before.fingerprint())
        [challenge] = [effect.message for effect in keeper.handle(name, enter, 0) if isinstance(effect, Send)]
        keeper.handle(name, msgspec.structs.replace(enter, nonce=challenge.nonce), 0)
    end_us = 3 * CONFIG.evict_after_us
    both = side_by_side(before, rules("X", "Q"), ("q",), 1)
    for number, (topology, standing) in enumerate(((before, Standing.CAUGHT_UP), (both, Standing.GONE))):
        keeper.handle(OPERATOR, Rearrange(topology), 0)
        for now in range(number * end_us, (number + 1) * end_us, CONFIG.eviction_us // 4):
            for name in here:
                keeper.handle(name, ReadRecord(0), now)
            for effect in keeper.timer("membership", now):
                if isinstance(effect, Send) and isinstance(effect.message, AskConfirmation):
                    keeper.handle(effect.to, Confirmation(effect.message.round, effect.message.replica, 1), now)
        assert keeper.record.members["X/1"].standing is standing
