"""What changes the way of a process at a decided state, in which order: commands, deadlines, groups given up."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.processes.test_scale import CONFIG, NAMES
from unerring import Process, Service
from unerring.model import SECOND_US, Report
from unerring.processes.config import ClusterBounds
from unerring.processes.messages import CANCEL, HOLD, MOVE, RESUME, Clean, Mail, State, Status
from unerring.processes.node import ProcessNode
from unerring.processes.replica import Replica


class Order(msgspec.Struct):
    item: str = ""
    answer: str = ""


def ordering(**options: Any) -> Process:
    """In a block: reserve, and wait for an answer; then a child that cannot be undone."""
    process, part = (
        Process("ordering", state=Order, services=[Service("mail")], **options),
        Process("part", state=Order),
    )

    @process.action(service="mail", write=True)
    async def reserve(item: str) -> None: ...

    part.flow(part.receive("go"))
    return process.flow(
        process.within(SECOND_US, [reserve, process.receive("answer", writes="answer")]),
        process.child("making", part, {"item": "item"}, compensable=False),
    )


class Steered:
    """One replica, and a decided state of its instance."""

    def __init__(self, before: str = "answer", view: int = 0, **options: Any) -> None:
        self.process = ordering(**options)
        self.node = ProcessNode("n0", NAMES, [self.process], {}, Random(1), 0, ClusterBounds(), CONFIG)
        made = self.node.roster.create("i", 0)
        assert made is not None
        self.replica: Replica = made
        graph = self.process.graph
        cut = tuple(number for number, edge in enumerate(graph.edges) if edge.target == before)
        self.state = State("i", "ordering", graph.version, 3, (), cut, {"item": "", "answer": ""})
        self.replica.acceptor.raise_view(view)
        self.node.out.take()

    def next(self, now: int = 0, **changes: Any) -> tuple[dict[str, Any] | None, list[str]]:
        """What changes in the state, and what is reported."""
        state = msgspec.structs.replace(self.state, **changes)
        self.replica.acceptor.decided = (self.replica.acceptor.view, state)
        after = self.replica.steering.next_state(self.process, state, now)
        told = [effect.what.removeprefix("process.") for effect in self.node.out.take() if isinstance(effect, Report)]
        if after is None:
            return None, told
        fields = state.__struct_fields__
        return {name: getattr(after, name) for name in fields if getattr(after, name) != getattr(state, name)}, told

    def command(self, id: str, channel: str, payload: Any = None) -> None:
        self.replica.inbox.store(Mail(id, channel, payload))
        self.node.out.take()


def test_commands_are_carried_out_once_in_the_order_of_their_arrival() -> None:
    steered = Steered()
    assert steered.next() == (None, [])
    steered.command("one", HOLD, "why")
    steered.command("two", RESUME)
    assert steered.next() == ({"held": "why", "consumed": ("one",)}, [])
    assert steered.next(held="why", consumed=("one",)) == ({"held": "", "consumed": ("one", "two")}, [])
    assert steered.next(consumed=("one", "two")) == (None, [])
    steered.command("three", MOVE, "nowhere")
    assert steered.next(consumed=("one", "two")) == ({"consumed": ("one", "two", "three")}, ["command_refused"])


def test_a_cancel_waits_for_a_child_that_cannot_be_undone_and_lets_others_pass() -> None:
    steered = Steered(before="making")
    steered.command("one", CANCEL)
    assert steered.next() == (None, [])
    steered.command("two", HOLD)
    assert steered.next() == ({"held": "by an operator", "consumed": ("two",)}, [])
    free = Steered()
    free.command("one", CANCEL)
    undone = {"status": Status.UNDOING, "reason": "cancelled", "consumed": ("one",)}
    assert free.next() == (undone, [])


def test_a_move_waits_until_nothing_of_an_older_view_is_left_to_undo() -> None:
    for view in (0, 1):
        steered = Steered(view=view)
        assert not steered.replica.steering.moving
        steered.command("one", MOVE, "nowhere")
        refused = ({"consumed": ("one",)}, ["command_refused"])
        assert steered.next() == (refused if view == 0 else (None, []))
        assert steered.replica.steering.moving
        for name in NAMES[1:]:
            steered.replica.recovery.on_clean(name, Clean("i", 1, 3), 0)
        assert steered.next() == refused
        steered.next(consumed=("one",))
        assert not steered.replica.steering.moving


def test_deadlines_come_after_commands_and_spare_a_promise() -> None:
    steered = Steered(deadline=SECOND_US)
    [block] = steered.process.graph.blocks
    late = {"status": Status.UNDOING, "reason": "its deadline of 1 s has passed"}
    undone = {"status": Status.UNDOING, "rewind": 2, "turn": 2}
    assert steered.next(99, deadline_us=100) == (None, [])
    assert steered.next(100, deadline_us=100, blocks={block: (2, 100)}) == (late, [])
    changes, told = steered.next(100, deadline_us=101, blocks={block: (2, 100)})
    assert changes is not None
    assert (changes.pop("turn") >= 0, changes | {"turn": 2}, told) == (True, undone, ["late"])
    assert steered.next(99, blocks={block: (2, 100)}) == (None, [])
    steered.command("one", HOLD)
    assert steered.next(100, deadline_us=100) == ({"held": "by an operator", "consumed": ("one",)}, [])
    promised = Steered(before="making", deadline=SECOND_US)
    assert promised.next(100, deadline_us=100, blocks={block: (2, 100)}) == (None, [])


@pytest.mark.parametrize(
    ("aborts", "holds", "held"),
    [
        ((4, CONFIG.abort_views_max, "no answer"), True, "no answer"),
        ((4, CONFIG.abort_views_max, ""), True, "it could not go on"),
        ((4, CONFIG.abort_views_max - 1, "no answer"), True, ""),
        ((3, CONFIG.abort_views_max, "no answer"), True, ""),
        ((4, CONFIG.abort_views_max, "no answer"), False, ""),
    ],
)
def test_a_group_that_was_given_up_too_often_is_held_where_the_process_says_so(
    aborts: tuple[int, int, str], holds: bool, held: str
) -> None:
    steered = Steered(on_failure="hold" if holds else "undo")
    steered.replica.election.aborts = aborts
    assert steered.next() == (({"held": held}, ["held"]) if held else (None, []))
    assert steered.next(held="already") == (None, [])
