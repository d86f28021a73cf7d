"""A planner that waits goes on when its time has come and not before: sleeps, deadlines and children, on each clock."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from unerring import Process
from unerring.model import SECOND_US
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.messages import Accepted, Start, State
from unerring.processes.node import ProcessNode

NOW = 1_000 * SECOND_US
CONFIG = ProcessesConfig(tend_us=3 * SECOND_US, mail_ask_us_max=60 * SECOND_US)


class Order(msgspec.Struct):
    item: str = ""
    at: int = 0
    answer: str = ""


def pausing(until: str = "") -> Process:
    process = Process("pausing", state=Order)
    return process.flow(process.sleep("pause", until=until) if until else process.sleep("pause", 7 * SECOND_US))


def hurried(deadline: int = 0, block: int = 0) -> Process:
    """Waits for an answer, in all or in a block for so long."""
    process = Process("hurried", state=Order, deadline=deadline)
    answer = process.receive("answer", writes="answer")
    return process.flow(process.within(block, [answer]) if block else answer)


def a_node(process: Process, records: dict[str, bytes], offset_us: int = 0) -> ProcessNode:
    bounds = ClusterBounds(f=0)
    node = ProcessNode("n", ("n",), [process], records, Random(1), NOW, bounds, CONFIG, wall_offset_us=offset_us)
    node.start(NOW)
    return node


def restarted(process: Process, offset_us: int = 0, **fields: Any) -> ProcessNode:
    """A node of its own, which finds on its disk what it had decided."""
    graph = process.graph
    variables = process.initial({}) | fields.pop("variables", {})
    state = State("i", graph.name, graph.version, 0, (), graph.start, variables, **fields)
    records = {"i|accepted": msgspec.msgpack.encode(Accepted(0, state, own=True))}
    node = a_node(process, records, offset_us)
    for number in range(3):  # it is looked at, and has nothing to do
        node.timer("tick", NOW + number)
    return node


@pytest.mark.parametrize(
    ("until", "due_us", "offset_us", "ends_us"),
    [
        ("", NOW + 3 * SECOND_US, 0, 3 * SECOND_US),
        ("", NOW + 6 * SECOND_US, 3 * SECOND_US, 3 * SECOND_US),
        ("", NOW + 100 * SECOND_US, 0, 7 * SECOND_US),  # by a clock that is ahead: a whole sleep from now on is enough
        ("", NOW + 7 * SECOND_US - 5, 0, 7 * SECOND_US - 5),
        ("at", NOW + 20 * SECOND_US, 0, 20 * SECOND_US),
        ("at", NOW + 20 * SECOND_US, -2 * SECOND_US, 22 * SECOND_US),
    ],
)
def test_a_sleep_ends_at_its_time_on_the_clock_of_whoever_waits(
    until: str, due_us: int, offset_us: int, ends_us: int
) -> None:
    node = restarted(pausing(until), offset_us, due={"pause": due_us}, variables={"at": due_us})
    node.timer("tick", NOW + ends_us - 1)
    assert node.query("i")["status"] == "running"
    node.timer("tick", NOW + ends_us)
    assert node.query("i")["status"] == "completed"


@pytest.mark.parametrize("offset_us", [0, 40, -40])
def test_a_deadline_ends_a_process_and_a_block_at_its_time(offset_us: int) -> None:
    wall_us = NOW + offset_us
    whole = restarted(hurried(deadline=SECOND_US), offset_us, deadline_us=wall_us + SECOND_US)
    part = a_node(hurried(block=SECOND_US), {}, offset_us)
    part.begin(Start("i", "hurried", {}), NOW)
    for number in range(3):
        part.timer("tick", NOW + number)
    for node, status in ((whole, "failed"), (part, "completed")):
        node.timer("tick", NOW + SECOND_US - 1)
        assert node.query("i")["status"] == "running"
        for number in range(3):
            node.timer("tick", NOW + SECOND_US + number)
        assert node.query("i")["status"] == status


def test_children_are_asked_for_again_when_their_time_has_come() -> None:
    part, process = Process("part", state=Order), Process("parent", state=Order)
    part.flow(part.receive("answer", writes="answer"))
    child = process.child("making", part, {"item": "item"}, compensable=False)
    node = a_node(process.flow(child), {})
    node.begin(Start("i", "parent", {}), NOW)
    made = f"i+{child}"
    assert sorted(node.instances) == ["i", made]
    parent = node.instances["i"]
    assert parent.parent.due_us == [NOW + CONFIG.tend_us]
    assert NOW < parent.next_us(NOW) <= NOW + CONFIG.tend_us
    node.timer("tick", NOW + CONFIG.tend_us - 1)
    assert parent.parent.due_us == [NOW + CONFIG.tend_us]
    node.timer("tick", NOW + CONFIG.tend_us)
    assert parent.parent.due_us == [NOW + 2 * CONFIG.tend_us]
