"""The checker of promise 3 on what a model may have beside actions and branches: loops, lanes, late blocks, races,
conversations and children. A right history of each passes, and one that is wrong in a single place does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.audit.test_one_copy import E
from unerring.audit import Acted, Did, Model, check_atomic, check_one_copy, one_copy
from unerring.model import CallerError


class W(msgspec.Struct):
    name: str
    kind: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    write: bool = False
    compensable: bool = True
    loop: str = ""
    over: str = ""
    at_most: int = 0
    at_once: int = 1
    lane: int = 0
    collects: tuple[tuple[str, str], ...] = ()
    answers: str = ""
    atomic: str = ""


def model(vertices: Sequence[W], edges: str, initial: Mapping[str, Any]) -> Model:
    """Edges as "a b c", one after the other, or "a b:label"; "." is the beginning and the end."""
    laid = []
    for chain in edges.split(","):
        names = chain.split()
        for source, target in pairwise(names):
            name, _, label = target.partition(":")
            laid.append(E(source.partition(":")[0].strip("."), name.strip("."), label))
    return Model(list(vertices), laid, initial, lambda vertex, state: str(state["n"] >= 2).lower(), _fit)


def _fit(name: str, value: Any) -> Any:
    return value


def act(action: str, request: Any, reply: Any, view: int = 1, named: str = "", write: bool = True) -> Acted:
    return Acted(action, f"i/{named or action}/0@{view}", request, reply, write)


def journal_of(acted: Sequence[Acted], order: Sequence[int] | None = None) -> list[Did]:
    """What the service wrote of a run in which each write was a group of its own."""
    writes = [one for one in acted if one.write]
    lines = [
        Did("do", one.iid, one.action, group, 1, (1,) * (group - 1), one.request, one.reply)
        for group, one in enumerate(writes, 1)
    ]
    return [lines[at] for at in order] if order is not None else lines


def promises(of: Model, acted: Sequence[Acted], journal: Sequence[Did], status: str = "completed") -> set[str]:
    return {found.promise for found in check_one_copy("i", of, status, acted, journal)}


# ---- a loop that goes on until a condition holds ------------------------------------------------------------------

ROUNDS = model(
    [
        W("head", "loop", at_most=3),
        W("pay", "call", ("n",), ("n",), write=True),
        W("bill", "call", ("n",), ("b",), write=True),
        W("end", "again", loop="head"),
        W("ship", "call", ("n",), ("s",), write=True),
    ],
    ". head pay bill end ship .",
    {"n": 0, "s": 0, "b": 0},
)
TWICE = [
    act("pay", {"n": 0}, 1, named="pay'0"),
    act("bill", {"n": 1}, 5, named="bill'0"),
    act("pay", {"n": 1}, 2, named="pay'1"),
    act("bill", {"n": 2}, 6, named="bill'1"),
    act("ship", {"n": 2}, 1),
]


def test_rounds_of_a_loop_follow_one_another() -> None:
    assert promises(ROUNDS, TWICE, journal_of(TWICE)) == set()
    assert promises(ROUNDS, TWICE, journal_of(TWICE, [2, 1, 0, 3, 4])) == {one_copy.ORDER}, (
        "the second pay before the first"
    )
    assert promises(ROUNDS, TWICE, journal_of(TWICE, [0, 2, 1, 3, 4])) == {one_copy.ORDER}, (
        "the second pay before a bill"
    )
    assert promises(ROUNDS, TWICE, journal_of(TWICE, [0, 1, 2, 4, 3])) == {one_copy.ORDER}, (
        "what follows the loop before it ended"
    )
    assert promises(ROUNDS, TWICE, journal_of(TWICE, [1, 0, 2, 3, 4])) == {one_copy.ORDER}, "a bill before its pay"


def test_a_loop_is_as_long_as_its_condition_says() -> None:
    assert promises(ROUNDS, [*TWICE[:2], TWICE[4]], journal_of([*TWICE[:2], TWICE[4]])) == {one_copy.CONFORMS}
    more = [*TWICE[:4], act("pay", {"n": 2}, 3, named="pay'2")]
    assert one_copy.CONFORMS in promises(ROUNDS, more, journal_of(more), "running")
    assert promises(ROUNDS, TWICE[:4], journal_of(TWICE[:4]), "running") == set()
    assert promises(ROUNDS, TWICE[:4], journal_of(TWICE[:4])) == {one_copy.COMPLETE}


def test_a_loop_at_its_bound_goes_no_further() -> None:
    slow = [
        line
        for round in range(3)
        for line in (act("pay", {"n": 0}, 0, named=f"pay'{round}"), act("bill", {"n": 0}, 5, named=f"bill'{round}"))
    ]
    assert promises(ROUNDS, slow, journal_of(slow), "running") == set()
    fourth = [*slow, act("pay", {"n": 0}, 0, named="pay'3")]
    assert promises(ROUNDS, fourth, journal_of(fourth), "running") == {one_copy.CONFORMS}
    out = [*slow, act("ship", {"n": 0}, 1)]
    assert promises(ROUNDS, out, journal_of(out), "running") == {one_copy.CONFORMS}, "it did not come to its condition"


@pytest.mark.parametrize("named", ["pay", "pay'0", "pay'2", "pay'1'0"])
def test_an_interaction_id_has_the_round(named: str) -> None:
    wrong = [*TWICE[:2], act("pay", {"n": 1}, 2, named=named)]
    assert one_copy.CONFORMS in promises(ROUNDS, wrong, journal_of(wrong), "running")


def test_the_groups_of_a_round_are_undone_before_those_of_the_round_before() -> None:
    done = journal_of(TWICE[:4])
    undone = [Did("undo", line.iid, line.action, line.group, 1, line.basis) for line in reversed(done)]
    assert promises(ROUNDS, TWICE[:4], done + undone, "failed") == set()
    for at in range(3):
        wrong = [*undone[:at], undone[at + 1], undone[at], *undone[at + 2 :]]
        assert promises(ROUNDS, TWICE[:4], done + wrong, "failed") == {one_copy.REVERSE}


def test_what_is_built_on_may_be_written_in_short() -> None:
    """−n and a view are n groups of that view."""
    done = journal_of(TWICE)
    short = [msgspec.structs.replace(line, basis=(-len(line.basis), 1) if line.basis else ()) for line in done]
    mixed = msgspec.structs.replace(done[4], basis=(1, -2, 1, 1))
    for last in (short[4], mixed):
        lines = [*short[:4], last]
        for at in range(4):
            undone = Did("undo", lines[at].iid, lines[at].action, at + 1, 1, lines[at].basis)
            found = check_one_copy("i", ROUNDS, "failed", TWICE, [*lines, undone])
            assert one_copy.REVERSE in {one.promise for one in found}, "it was undone before what built on it"
    other = [msgspec.structs.replace(short[4], basis=(-3, 1, 7))]  # another execution of group 4
    undone = Did("undo", short[3].iid, short[3].action, 4, 1, short[3].basis)
    assert one_copy.REVERSE not in promises(ROUNDS, TWICE, [*short[:4], *other, undone], "failed")


# ---- a loop over a list, with two lanes ----------------------------------------------------------------------------


def lane(n: int) -> list[W]:
    return [
        W(f"each:{n}", "loop", (), (f"item:{n}", f"out:{n}"), over="items", at_once=2, lane=n),
        W(f"work:{n}", "call", (f"item:{n}",), (f"r:{n}",), write=True),
        W(f"next:{n}", "again", (), (f"item:{n}",), loop=f"each:{n}", collects=((f"out:{n}", f"r:{n}"),)),
    ]


LANES = model(
    [
        W("split", "and-split"),
        *lane(0),
        *lane(1),
        W("join", "and-join"),
        W("all", "gather", (), ("out",), collects=(("out", "out:0"), ("out", "out:1"))),
        W("ship", "call", ("out",), ("s",), write=True),
    ],
    ". split each:0, split each:1",
    {
        "items": [10, 20, 30],
        "n": 0,
        "out": [],
        "s": 0,
        "item:0": 0,
        "item:1": 0,
        "out:0": [9],
        "out:1": [9],
        "r:0": 0,
        "r:1": 0,
    },
)
LANES = msgspec.structs.replace(
    LANES,
    edges=[
        E("", "split"),
        *(
            E(one, other)
            for n in (0, 1)
            for one, other in (
                ("split", f"each:{n}"),
                (f"each:{n}", f"work:{n}"),
                (f"work:{n}", f"next:{n}"),
                (f"next:{n}", "join"),
            )
        ),
        E("join", "all"),
        E("all", "ship"),
        E("ship", ""),
    ],
)


def noted(action: str, reply: Any, named: str = "") -> Acted:
    return act(action, {}, reply, named=named, write=False)


OVER = [
    noted("each:0", [10]),
    noted("each:1", [20]),
    act("work:0", {"item": 10}, 11, named="work:0'0"),
    noted("next:0", {"next": [30], "got": [11]}, named="next:0'0"),
    act("work:1", {"item": 20}, 21, named="work:1'0"),
    act("work:0", {"item": 30}, 31, named="work:0'1"),
    noted("next:1", {"next": [], "got": [21]}, named="next:1'0"),
    noted("next:0", {"next": [], "got": [31]}, named="next:0'1"),
    noted("all", None),
    act("ship", {"out": [11, 21, 31]}, 1),
]


def changed(acted: Sequence[Acted], at: int, **changes: Any) -> list[Acted]:
    return [*acted[:at], msgspec.structs.replace(acted[at], **changes), *acted[at + 1 :]]


def test_each_item_of_a_list_is_worked_on_in_its_lane() -> None:
    assert promises(LANES, OVER, journal_of(OVER)) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        changed(OVER, 0, reply=[20]),  # the other lane's item
        changed(OVER, 0, reply=[]),
        changed(OVER, 3, reply={"next": [20], "got": [11]}),
        changed(OVER, 3, reply={"next": [30], "got": [12]}),
        changed(OVER, 3, reply={"next": [], "got": [11]}),
        changed(OVER, 6, reply={"next": [30], "got": [21]}),
        changed(OVER, 5, request={"item": 10}),
        changed(OVER, 5, iid="i/work:0'0/0@1"),
        changed(OVER, 9, request={"out": [11, 31, 21]}),  # put together lane by lane
        changed(OVER, 9, request={"out": [11, 31]}),
        changed(OVER, 9, request={"out": [9, 11, 31, 21]}),  # what was there before the loop
        [*OVER[:7], *OVER[8:]],  # put together before the last round was over
        [*OVER[:6], *OVER[7:]],
    ],
)
def test_a_wrong_item_round_or_result_is_found(wrong: list[Acted]) -> None:
    assert one_copy.CONFORMS in promises(LANES, wrong, journal_of(wrong))


@pytest.mark.parametrize(("items", "out"), [([], []), ([10], [11])])
def test_a_short_list_leaves_lanes_empty(items: list[int], out: list[int]) -> None:
    short = msgspec.structs.replace(LANES, initial={**LANES.initial, "items": items})
    acted = [noted("each:0", items[:1]), noted("each:1", [])]
    if items:
        acted += [OVER[2], noted("next:0", {"next": [], "got": [11]}, named="next:0'0")]
    acted += [noted("all", None), act("ship", {"out": out}, 1)]
    assert promises(short, acted, journal_of(acted)) == set()
    wrong = changed(acted, 1, reply=[20])
    assert one_copy.CONFORMS in promises(short, wrong, journal_of(wrong))


# ---- blocks with a time limit, sleeps, races, conversations, children -----------------------------------------------

WITHIN = model(
    [
        W("hour", "within"),
        W("pick", "call", ("n",), ("p",), write=True),
        W("rest", "sleep"),
        W("pack", "call", ("p",), ("q",), write=True),
        W("sorry", "call", ("n",), ("q",), write=True),
        W("done", "xor-join", loop="hour"),
        W("ship", "call", ("q",), ("s",), write=True),
    ],
    ". hour pick:intime rest pack done ship ., hour sorry:late done",
    {"n": 0, "p": 0, "q": 0, "s": 0},
)
WITHIN = msgspec.structs.replace(
    WITHIN,
    edges=[E(e.source, e.target, "in time" if e.label == "intime" else e.label) for e in WITHIN.edges],
)
PICK, PACK, SORRY = act("pick", {"n": 0}, 1), act("pack", {"p": 1}, 2), act("sorry", {"n": 0}, 3)
LATE = act("hour", {}, None, write=False)


@pytest.mark.parametrize(
    "acted",
    [
        [PICK, PACK, act("ship", {"q": 2}, 1)],
        [LATE, SORRY, act("ship", {"q": 3}, 1)],
        [PICK, LATE, SORRY, act("ship", {"q": 3}, 1)],
    ],
)
def test_a_block_is_done_in_time_or_left(acted: list[Acted]) -> None:
    assert promises(WITHIN, acted, journal_of(acted)) == set()


@pytest.mark.parametrize(
    "acted",
    [
        [SORRY, act("ship", {"q": 3}, 1)],  # nobody said that it was late
        [PICK, LATE, PACK, act("ship", {"q": 2}, 1)],  # it went on with what was late
        [PICK, PACK, LATE, SORRY, act("ship", {"q": 3}, 1)],  # it was done
        [PICK, act("ship", {"q": 0}, 1)],
    ],
)
def test_a_block_that_is_left_late_wrongly_is_found(acted: list[Acted]) -> None:
    assert one_copy.CONFORMS in promises(WITHIN, acted, journal_of(acted))


TALK = model(
    [
        W("ask", "send", ("n",), ("a",), write=True),
        W("race", "first-split"),
        W("hear", "receive", (), ("h",), answers="ask"),
        W("wait", "sleep"),
        W("over", "xor-join"),
        W("child", "child", ("n", "h"), ("c", "d")),
    ],
    ". ask race hear over child ., race wait over",
    {"n": 0, "a": 0, "h": 0, "c": 0, "d": 0},
)
ASK = act("ask", {"n": 0}, 1)
HEAR = Acted("hear", "m1", ASK.iid, 7, write=False)
WAIT = act("wait", {}, {}, write=False)


def child(h: int) -> Acted:
    return act("child", {"n": 0, "h": h}, {"c": 4, "d": 5}, write=False)


@pytest.mark.parametrize("acted", [[ASK, HEAR, child(7)], [ASK, WAIT, child(0)]])
def test_one_of_two_waits_wins(acted: list[Acted]) -> None:
    assert promises(TALK, acted, journal_of(acted)) == set()


@pytest.mark.parametrize(
    "acted",
    [
        [ASK, child(0)],  # nothing won
        [ASK, HEAR, WAIT, child(7)],
        [ASK, WAIT, HEAR, child(7)],
        [HEAR, ASK, WAIT, child(0)],
        [ASK, msgspec.structs.replace(HEAR, request="i/ask/0@0"), child(7)],  # of another execution
        [ASK, msgspec.structs.replace(HEAR, request=""), child(7)],
        [ASK, HEAR, child(0)],
    ],
)
def test_a_wait_that_lost_or_an_answer_to_nothing_is_found(acted: list[Acted]) -> None:
    assert one_copy.CONFORMS in promises(TALK, acted, journal_of(acted))


def test_a_process_is_over_when_its_last_wait_is() -> None:
    ending = model([W("a", "call", ("n",), ("n",), write=True), W("rest", "sleep")], ". a rest .", {"n": 0})
    acted = [act("a", {"n": 0}, 1)]
    assert promises(ending, acted, journal_of(acted)) == set()
    assert promises(ending, [], []) == {one_copy.COMPLETE}


def test_a_reply_that_does_not_fit_is_found() -> None:
    def fit(name: str, value: Any) -> Any:
        if value > 3:
            raise CallerError("too large")
        return value

    small = msgspec.structs.replace(ROUNDS, fit=fit)
    assert promises(small, TWICE[:1], journal_of(TWICE[:1]), "running") == set()
    [found] = check_one_copy("i", small, "running", TWICE[:2], journal_of(TWICE[:2]))
    assert found.promise == one_copy.CONFORMS
    assert "does not fit: too large" in found.witness[0]


@pytest.mark.parametrize(
    ("taken", "split"),
    [
        (
            [
                ("pay", "i/pay'0/0@1", 1),
                ("bill", "i/bill'0/0@1", 1),
                ("pay", "i/pay'1/0@1", 2),
                ("bill", "i/bill'1/0@1", 2),
            ],
            0,
        ),
        ([("pay", "i/pay'0/0@1", 1), ("bill", "i/bill'0/0@1", 2)], 1),
        ([("pay", "i/pay'0/0@1", 1), ("ship", "i/ship/0@1", 2), ("bill", "i/bill'0/0@1", 1)], 0),
    ],
)
def test_an_atomic_block_is_decided_in_one_group_in_each_round(taken: list[tuple[str, str, int]], split: int) -> None:
    atomic = [msgspec.structs.replace(v, atomic="b" if v.name in ("pay", "bill") else "") for v in ROUNDS.vertices]
    of = msgspec.structs.replace(ROUNDS, vertices=atomic)
    assert [found.promise for found in check_atomic("i", of, taken)] == [one_copy.ATOMIC] * split
