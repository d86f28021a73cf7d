"""Instances for people: the fields by which they are found, and rows, of those that go on and those that ended."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.processes.alone import INSTANCE, Alone
from unerring import Process
from unerring.processes.messages import Decided, Outline, Replicate, Status


class Order(msgspec.Struct):
    item: str = "bolt"
    n: int = 0
    status: str = "a variable"


def process() -> Process:
    order = Process("order", state=Order, attributes=["item", "n"])
    return order.flow(order.receive("go", writes="n"))


def listed(**fields: Any) -> Alone:
    """One instance is open, and one has ended."""
    it = Alone(process())
    it.hear(it.others[0], Replicate(0, it.state(**fields)))
    version = it.process.graph.version
    ended = Outline("order", Status.FAILED, "why", {"item": "nut", "n": 3, "status": "x"}, "", version, 5, "mother")
    it.node.roster.add_finished("e", ended)
    return it


def test_what_is_known_of_an_instance_that_has_ended() -> None:
    it = listed()
    listing = it.node.listing
    version = it.process.graph.version
    attributes = {"item": "nut", "n": 3}
    row = {"instance": "e", "process": "order", "version": version, "status": Status.FAILED, "reason": "why"}
    assert listing.row("e") == row | {"ended_us": 5, "parent": "mother", "attributes": attributes}
    field = listing.field("e")
    assert field is not None
    assert {name: field(name) for name in (*row, "ended_us", "parent")} == row | {"ended_us": 5, "parent": "mother"}
    assert [field(name) for name in ("item", "n", "nothing")] == ["nut", 3, None]
    assert (listing.row("nobody"), listing.field("nobody")) == (None, None)


def test_what_is_known_of_one_that_goes_on() -> None:
    for fields, reason in (({}, ""), ({"held": "h"}, "h"), ({"reason": "r"}, "r"), ({"reason": "r", "held": "h"}, "r")):
        it = listed(**fields)
        row = it.node.listing.row(INSTANCE)
        field = it.node.listing.field(INSTANCE)
        assert row is not None
        assert field is not None
        assert row["reason"] == field("reason") == reason
        assert row["attributes"] == {"item": "bolt", "n": 0}
        assert (row["status"], row["process"], row["group"]) == (
            "held" if fields.get("held") else "running",
            "order",
            0,
        )
        assert row["waits_for"] == ([] if fields.get("held") else [{"wait": "go", "kind": "signal", "channel": "go"}])
        assert not {"variables", "history", "asks"} & row.keys()
        for name in ("instance", "process", "version", "status", "view", "role", "group", "parent"):
            assert field(name) == row[name], name
        assert (field("item"), field("nothing")) == ("bolt", None)


def test_those_that_go_on_come_first_and_are_found_by_what_they_are() -> None:
    it = listed()
    listing = it.node.listing
    assert listing.attributes == ("item", "n")
    assert [instance for instance, _ in listing.fields()] == [INSTANCE, "e"]
    for equal, going_on, over in (
        ((), [INSTANCE], ["e"]),
        ((("instance", INSTANCE),), [INSTANCE], []),
        ((("instance", "e"),), [], ["e"]),
        ((("instance", "nobody"),), [], []),
        ((("status", "running"),), [INSTANCE], []),
        ((("status", "failed"), ("process", "order")), [], ["e"]),
        ((("process", "other"),), [], ["e"]),
        ((("item", "nut"),), [INSTANCE], ["e"]),
        ((("item", "bolt"),), [INSTANCE], []),
        ((("parent", "mother"),), [INSTANCE], ["e"]),
    ):
        assert (listing.going_on(equal), listing.over(equal)) == (going_on, over), equal


def test_one_that_has_ended_and_is_not_settled_counts_as_over() -> None:
    it = listed()
    it.hear(it.others[0], Decided(0, it.state(1, status=Status.COMPLETED)))
    listing = it.node.listing
    assert INSTANCE in it.node.instances
    assert (listing.going_on(), listing.over()) == ([], ["e", INSTANCE])


def test_of_a_process_without_attributes_none_are_listed() -> None:
    it = listed()
    plain = Outline("order", Status.COMPLETED, "", {}, version="another")
    it.node.roster.add_finished("f", plain)
    row = it.node.listing.row("f")
    assert row is not None
    assert "attributes" not in row
