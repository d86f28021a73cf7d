"""The checker of promise 3 is itself checked: a right history passes, and one wrong in a single place does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from unerring.audit import Acted, Did, Model, check_agreement, check_one_copy, one_copy


class V(msgspec.Struct):
    name: str
    kind: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    write: bool = False
    compensable: bool = True


class E(msgspec.Struct, frozen=True):
    source: str
    target: str
    label: str = ""


MODEL = Model(
    [
        V("price", "call", ("n",), ("p",)),
        V("reserve", "call", ("p",), ("r",), write=True),
        V("large", "xor-split", ("p",)),
        V("inspect", "call", ("r",), ("i",)),
        V("joined", "xor-join"),
        V("and", "and-split"),
        V("bill", "call", ("p",), ("b",), write=True),
        V("label", "call", ("r",), ("l",), write=True),
        V("end", "and-join"),
        V("ship", "call", ("b", "l"), ("s",), write=True, compensable=False),
    ],
    [
        E("", "price"),
        E("price", "reserve"),
        E("reserve", "large"),
        E("large", "inspect", "true"),
        E("large", "joined", "false"),
        E("inspect", "joined"),
        E("joined", "and"),
        E("and", "bill", "0"),
        E("and", "label", "1"),
        E("bill", "end"),
        E("label", "end"),
        E("end", "ship"),
        E("ship", ""),
    ],
    {"n": 2, "p": 0, "r": 0, "i": 0, "b": 0, "l": 0, "s": 0},
    lambda vertex, state: str(state["p"] > 10).lower(),
    lambda name, value: value,
)

ACTED = [
    Acted("price", "i/price/0@1", {"n": 2}, 8, write=False),
    Acted("reserve", "i/reserve/0@1", {"p": 8}, 70, write=True),
    Acted("label", "i/label/0@2", {"r": 70}, 5, write=True),
    Acted("bill", "i/bill/0@2", {"p": 8}, 6, write=True),
    Acted("ship", "i/ship/0", {"b": 6, "l": 5}, 1, write=True),
]


def did(what: str, iid: str, group: int, basis: tuple[int, ...], request: Any = None, reply: Any = None) -> Did:
    view = int(iid.split("@")[1]) if "@" in iid else -1
    return Did(what, iid, iid.split("/")[1], group, view, basis, request, reply)


JOURNAL = [
    did("do", "i/reserve/0@0", 1, (), {"p": 9}, 71),  # a master of view 0 that did not survive
    did("undo", "i/reserve/0@0", 1, ()),
    did("do", "i/reserve/0@1", 1, (), {"p": 8}, 70),
    did("do", "i/bill/0@1", 2, (1,), {"p": 8}, 9),
    did("do", "i/label/0@1", 2, (1,), {"r": 70}, 9),
    did("undo", "i/label/0@1", 2, (1,)),
    did("undo", "i/bill/0@1", 2, (1,)),
    did("do", "i/label/0@2", 2, (1,), {"r": 70}, 5),
    did("do", "i/bill/0@2", 2, (1,), {"p": 8}, 6),
    did("do", "i/ship/0", 4, (1, 2, 2), {"b": 6, "l": 5}, 1),
]


def promises(acted: list[Acted], journal: list[Did], status: str = "completed") -> list[str]:
    return [found.promise for found in check_one_copy("i", MODEL, status, acted, journal)]


def test_a_right_history_passes() -> None:
    assert promises(ACTED, JOURNAL) == []


def without(at: int) -> Callable[[], tuple[list[Acted], list[Did]]]:
    return lambda: (ACTED, JOURNAL[:at] + JOURNAL[at + 1 :])


def swapped(one: int, other: int) -> Callable[[], tuple[list[Acted], list[Did]]]:
    def change() -> tuple[list[Acted], list[Did]]:
        journal = list(JOURNAL)
        journal[one], journal[other] = journal[other], journal[one]
        return ACTED, journal

    return change


def acted(at: int, **changes: Any) -> Callable[[], tuple[list[Acted], list[Did]]]:
    def change() -> tuple[list[Acted], list[Did]]:
        actions = list(ACTED)
        actions[at] = msgspec.structs.replace(actions[at], **changes)
        return actions, JOURNAL

    return change


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (without(1), one_copy.UNDONE),  # a dead master's write stays
        (without(2), one_copy.KEPT),  # a decided write never happened
        (without(0), one_copy.UNDO_ONCE),  # undone without having been done
        (lambda: (ACTED, [*JOURNAL, JOURNAL[2]]), one_copy.ONCE),
        (lambda: (ACTED, [*JOURNAL, JOURNAL[9]]), one_copy.ONCE),  # the truck left twice
        (lambda: (ACTED, [*JOURNAL, JOURNAL[1]]), one_copy.UNDO_ONCE),
        (lambda: (ACTED, [*JOURNAL, did("undo", "i/bill/0@2", 2, (1,))]), one_copy.KEPT),
        (lambda: (ACTED, [*JOURNAL, did("undo", "i/reserve/0@1", 1, ())]), one_copy.REVERSE),
        (lambda: (ACTED, [*JOURNAL, did("do", "i/ship/1", 4, (1, 2, 2))]), one_copy.UNDONE),
        (swapped(2, 9), one_copy.ORDER),
        (acted(1, request={"p": 9}), one_copy.KEPT),
        (acted(1, reply=71), one_copy.KEPT),  # went on with a reply that the service did not give
        (acted(0, reply=7), one_copy.CONFORMS),  # another read than the one the writes were made from
        (acted(0, reply=11), one_copy.CONFORMS),  # the other branch should have been taken
        (lambda: (ACTED[:4], JOURNAL[:9]), one_copy.COMPLETE),
        (lambda: ([ACTED[1], ACTED[0], *ACTED[2:]], JOURNAL), one_copy.CONFORMS),
        (lambda: (ACTED[:-1], JOURNAL), one_copy.UNDONE),
    ],
)
def test_one_wrong_place_is_found(change: Callable[[], tuple[list[Acted], list[Did]]], promise: str) -> None:
    assert promise in promises(*change())


def test_a_cancelled_process_leaves_nothing() -> None:
    journal = [JOURNAL[2], did("undo", "i/reserve/0@1", 1, ())]
    assert promises(ACTED[:2], journal, "cancelled") == []
    assert promises(ACTED[:2], journal[:1], "cancelled") == [one_copy.UNDONE]


def test_undoing_waits_for_what_was_built_on_it() -> None:
    """A decided group is undone only after an execution outside the lineage that built on it."""
    wrong = [JOURNAL[2], JOURNAL[3], did("undo", "i/reserve/0@1", 1, ()), did("undo", "i/bill/0@1", 2, (1,))]
    assert promises(ACTED[:2], wrong, "failed") == [one_copy.REVERSE]
    assert promises(ACTED[:2], [*wrong[:2], wrong[3], wrong[2]], "failed") == []


def test_a_parked_process_keeps_what_cannot_be_undone() -> None:
    assert promises(ACTED, JOURNAL, "parked") == []
    assert one_copy.KEPT in promises(ACTED, JOURNAL[:-1], "parked")


def test_nothing_is_said_about_the_order_of_two_journals() -> None:
    """Two services' clocks are not compared; what a third would see of their order is not known."""
    ours = [msgspec.structs.replace(line, journal=line.action) for line in JOURNAL]
    assert promises(ACTED, ours) == []
    assert promises(ACTED, sorted(ours, key=lambda line: line.journal)) == []
    apart = [*ours[2:4], did("undo", "i/reserve/0@1", 1, ()), did("undo", "i/bill/0@1", 2, (1,))]
    apart = [msgspec.structs.replace(line, journal=line.action) for line in apart]
    assert promises(ACTED[:2], apart, "failed") == []
    assert promises(ACTED[:2], apart[:-1], "failed") == [one_copy.REVERSE, one_copy.UNDONE], "never undone at all"


def test_lineages_extend_one_another() -> None:
    assert check_agreement("i", {"a": (0, 0, 2), "b": (0, 0), "c": ()}) == []
    assert [found.promise for found in check_agreement("i", {"a": (0, 1), "b": (0, 2, 2)})] == [one_copy.ONE]
