"""A state's history on the wire and on disk: what is left out there can always be put together again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from unerring.model import ProtocolError
from unerring.processes.history import PACKED, PAST, Page, Pages, added, ends_with, extends, history_of, joined
from unerring.processes.messages import Accepted, Packed, State, Step, Taken, Undone
from unerring.processes.packing import packed

EMPTY = State("i", "p", "v", 0, (), (0,), {"x": 0}, given={"x": 0})


def after(state: State, view: int, actions: int) -> State:
    """The state after one more group of so many actions, executed in `view`."""
    group = state.group + 1
    taken = [Taken(f"a{n}", f"i/a{n}/0@{view}", {"n": n}, view, n % 2 == 0, group, view) for n in range(actions)]
    return msgspec.structs.replace(
        state,
        group=group,
        lineage=(*state.lineage, Step(view, (group,))),
        taken=(*state.taken, *taken),
        consumed=(*state.consumed, *([f"mail{group}"] if group < 5 else ())),
        variables={"x": view},
    )


class Disk:
    """One instance's records, as a replica keeps them."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.pages = Pages({})
        self.written = 0

    def accept(self, accepted: Accepted) -> None:
        record, changes = self.pages.split(accepted)
        self.records["accepted"] = msgspec.msgpack.encode(record)
        for key, page in changes.items():
            if page is None:
                del self.records[key]
            else:
                self.records[key] = msgspec.msgpack.encode(page)
        self.written = len(self.records["accepted"]) + sum(len(self.records[k]) for k, page in changes.items() if page)

    def read(self) -> Accepted:
        return Pages(self.records).whole(msgspec.msgpack.decode(self.records["accepted"], type=Accepted))


def test_what_is_added_joins_to_the_whole() -> None:
    base = after(after(EMPTY, 0, 2), 0, 1)
    state = after(base, 3, 3)
    assert extends(state, base)
    assert not extends(after(base, 3, 1), state)
    assert len(added(state, base).taken) == 3
    assert joined(base, added(state, base)) == state
    assert ends_with(state, added(state, base))
    assert not ends_with(state, added(after(base, 3, 2), base))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 60)), max_size=120))
@settings(deadline=None, max_examples=60)
def test_pages_give_back_whatever_was_accepted_last(steps: list[tuple[int, int, int]]) -> None:
    """Groups are added, and now and then another lineage wins that shares only its beginning."""
    disk, states = Disk(), [EMPTY]
    view = 0
    for rise, actions, back in steps:
        if rise == 4 and back < len(states):
            del states[len(states) - back :]
            states = states or [EMPTY]
        view += rise == 4
        states.append(after(states[-1], view, actions))
        accepted = Accepted(view, states[-1], True)
        disk.accept(accepted)
        assert disk.read() == accepted
        assert sorted(disk.records) == sorted(["accepted", *disk.pages.keys])


def test_a_long_history_is_not_written_again() -> None:
    disk, state = Disk(), EMPTY
    most = 0
    for _ in range(500):
        state = after(state, 0, 2)
        disk.accept(Accepted(0, state, True))
        most = max(most, disk.written)
    page = msgspec.msgpack.decode(disk.records[f"{PAST}000000"], type=Page)
    assert most < 3 * len(msgspec.msgpack.encode(page)) < len(msgspec.msgpack.encode(state)) / 5


@pytest.mark.parametrize("change", ["group", "lineage", "taken", "consumed", "given", "past"])
def test_a_state_follows_another_one_with_all_of_its_history(change: str) -> None:
    base = after(after(EMPTY, 0, 2), 0, 1)
    state = after(base, 3, 3)
    changed: dict[str, Any] = {
        "group": 1,
        "lineage": (Step(9, (1,)), base.lineage[1]),
        "taken": base.taken[1:],
        "consumed": ("mail7",),
        "given": {"x": 1},
        "past": (Packed(1, ((0, 1),), b""),),
    }
    assert extends(state, base)
    assert not extends(state, msgspec.structs.replace(base, **{change: changed[change]}))


def test_what_was_added_may_be_all_there_is_and_not_more() -> None:
    state = after(EMPTY, 0, 2)
    whole = msgspec.structs.replace(state, given={})
    assert ends_with(state, whole)
    for name, more in (("lineage", Step(0, ())), ("taken", state.taken[0]), ("consumed", "mail9")):
        assert not ends_with(state, msgspec.structs.replace(whole, **{name: (more, *getattr(whole, name))}))


def grown(groups: int, base: State = EMPTY, view: int = 0) -> State:
    for _ in range(groups):
        base = after(base, view, 2)
    return base


def test_only_what_is_new_is_written() -> None:
    pages = Pages({})
    long = grown(48)

    def writes(state: State) -> dict[str, Any]:
        record, changes = pages.split(Accepted(0, state, True))
        kept = len(state.lineage) % 16
        assert record.state.lineage == state.lineage[len(state.lineage) - kept :]
        assert record.state.taken == state.taken[len(state.taken) - 2 * kept :]
        assert (record.state.given, record.own) == ({}, True)
        return changes

    def page(state: State, number: int) -> Page:
        return Page(state.lineage[16 * number : 16 * number + 16], state.taken[32 * number : 32 * number + 32])

    def part(groups: int) -> State:
        return msgspec.structs.replace(
            long, group=groups, lineage=long.lineage[:groups], taken=long.taken[: 2 * groups]
        )

    assert writes(part(15)) == {"given": {"x": 0}}
    assert writes(part(15)) == {}
    assert writes(part(16)) == {f"{PAST}000000": page(long, 0)}
    assert writes(part(17)) == {}
    assert writes(long) == {f"{PAST}000001": page(long, 1), f"{PAST}000002": page(long, 2)}
    assert pages.keys == ["given", f"{PAST}000000", f"{PAST}000001", f"{PAST}000002"]
    other = grown(14, part(20), view=3)
    assert writes(other) == {f"{PAST}000001": page(other, 1), f"{PAST}000002": None}
    renewed = msgspec.structs.replace(other, taken=(msgspec.structs.replace(other.taken[0], reply=7), *other.taken[1:]))
    assert writes(renewed) == {f"{PAST}000000": page(renewed, 0)}
    assert writes(msgspec.structs.replace(part(3), given={"x": 8})) == {
        "given": {"x": 8},
        f"{PAST}000000": None,
        f"{PAST}000001": None,
    }
    assert pages.keys == ["given"]


def test_what_is_packed_is_written_once_and_comes_back_with_the_rest() -> None:
    disk = Disk()
    looping = msgspec.structs.replace(grown(44), rounds={"l": 1})
    state = packed(looping, 20)
    assert (len(state.past), len(state.lineage)) == (3, 14)
    first, second, third = state.past
    two = msgspec.structs.replace(state, group=34, past=(first, second))
    more = grown(4, state)
    for accepted, changes in (
        (two, [f"{PACKED}000000", f"{PACKED}000001", "given"]),
        (state, [f"{PACKED}000002"]),
        (more, [f"{PAST}000000"]),
        (
            msgspec.structs.replace(state, past=(second, first, third)),
            [f"{PACKED}000000", f"{PACKED}000001", f"{PAST}000000"],
        ),
        (two, [f"{PACKED}000000", f"{PACKED}000001", f"{PACKED}000002"]),
    ):
        assert sorted(Pages(disk.records).split(Accepted(0, accepted, True))[1]) == sorted(changes)
        disk.accept(Accepted(0, accepted, True))
        assert disk.read() == Accepted(0, accepted, True)
        assert sorted(disk.records) == sorted(["accepted", *disk.pages.keys])
    disk.accept(Accepted(0, more, True))
    assert msgspec.msgpack.decode(disk.records[f"{PAST}000000"], type=Page).taken == more.taken[:32]


def test_a_history_with_a_page_missing_is_none() -> None:
    disk = Disk()
    disk.accept(Accepted(0, grown(40), True))
    del disk.records[f"{PAST}000001"]
    with pytest.raises(ProtocolError, match="do not make one history"):
        disk.read()


def test_a_history_for_people_has_each_action_in_its_group() -> None:
    state = msgspec.structs.replace(
        after(after(EMPTY, 0, 1), 3, 0),
        lineage=(Step(0, (1,), "n1/2", 70), Step(3, (2,), "n2", 80)),
        undone=(Undone("a0", "i/a0/0@0~", 5),),
        rewound=((1, 2),),
        parent="p",
        reason="why",
    )
    action = {"vertex": "a0", "iid": "i/a0/0@0", "request": {"n": 0}, "reply": 0, "write": True, "group": 1, "view": 0}
    assert history_of(state) == {
        "instance": "i",
        "process": "p",
        "version": "v",
        "status": "running",
        "reason": "why",
        "parent": "p",
        "given": {"x": 0},
        "variables": {"x": 3},
        "consumed": ["mail1", "mail2"],
        "rewound": [[1, 2]],
        "undone": [{"vertex": "a0", "iid": "i/a0/0@0~", "took_us": 5}],
        "groups": [
            {
                "group": 1,
                "view": 0,
                "master": "n1",
                "at_us": 70,
                "actions": [action | {"unknown": False, "took_us": 0}],
            },
            {"group": 2, "view": 3, "master": "n2", "at_us": 80, "actions": []},
        ],
    }
