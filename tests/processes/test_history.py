"""A state's history on the wire and on disk: what is left out there can always be put together again."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings, strategies as st

from unerring.processes.history import PAST, Page, Pages, added, ends_with, extends, joined
from unerring.processes.messages import Accepted, State, Step, Taken

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
