"""What is kept of ended instances: encoded, in the order of their ends, and found by an index."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, strategies as st

from unerring.processes.finished import Finished
from unerring.processes.messages import Outline
from unerring.runtime.where import equalities, where


def outline(machine: Any = "press-1", status: str = "completed", ended_us: int = 0, parent: str = "") -> Outline:
    return Outline("order", status, "", {"machine": machine, "n": 1}, version="v", ended_us=ended_us, parent=parent)


def test_an_outline_comes_back_as_it_was() -> None:
    finished = Finished(["machine"])
    finished.add("a", outline(status="failed", ended_us=7))
    assert finished["a"] == outline(status="failed", ended_us=7)
    assert finished.get("b") is None
    assert "a" in finished
    assert list(finished) == ["a"]


def test_after_a_restart_the_oldest_end_is_still_the_first_to_go() -> None:
    finished = Finished(["machine"])
    records = {"a": outline(ended_us=3), "b": outline(ended_us=1), "c": outline("press-2", ended_us=2)}
    finished.load({instance: msgspec.msgpack.encode(one) for instance, one in records.items()})
    assert [finished.remove_oldest() for _ in range(3)] == ["b", "c", "a"]
    assert finished.having([("machine", "press-1")]) == []
    assert finished._by == {}


def test_the_rarest_value_leads_to_the_candidates() -> None:
    finished = Finished(["machine"])
    for number in range(10):
        finished.add(f"i{number}", outline(f"press-{number % 2}", "failed" if number == 4 else "completed"))
    assert finished.having([("status", "failed"), ("machine", "press-0")]) == ["i4"]
    assert finished.having([("machine", "press-1")]) == ["i1", "i3", "i5", "i7", "i9"]
    assert finished.having([("instance", "i3"), ("machine", "press-0")]) == ["i3"]
    assert finished.having([("instance", "i77")]) == []
    assert len(finished.having([("status", "completed")])) == 10  # too common for an index: all are looked at
    assert len(finished.having([("n", 1)])) == 10  # declared by nobody
    assert finished.having([("machine", "press-9")]) == []


def test_children_are_found_by_their_parent_and_others_are_not_looked_at() -> None:
    finished = Finished(["machine"])
    for instance, parent in (("a", "p"), ("b", ""), ("c", "q")):
        finished.add(instance, outline(parent=parent))
    assert finished.having([("parent", "p")]) == ["a"]
    assert finished.having([("parent", "q"), ("machine", "press-1")]) == ["c"]
    assert finished.having([("parent", "")]) == []
    assert [finished.remove_oldest(), len(finished)] == ["a", 2]
    assert finished.having([("parent", "p")]) == []


def test_values_that_no_condition_can_name_are_left_out_of_the_index() -> None:
    finished = Finished(["machine"])
    finished.add("a", outline(["a", "list"]))
    finished.add("b", outline(None))
    assert finished.having([("machine", "press-1")]) == []
    assert [finished.remove_oldest() for _ in range(2)] == ["a", "b"]


def test_equalities_are_those_that_must_hold() -> None:
    assert equalities("") == []
    assert equalities("machine = 'a' and (status = 'failed' and 3 = n)") == [
        ("machine", "a"),
        ("status", "failed"),
        ("n", 3),
    ]
    assert equalities("machine = 'a' or status = 'failed'") == []
    assert equalities("not machine = 'a' and n > 3 and machine = parent") == []


values = st.one_of(st.sampled_from(["a", "b", "1", ""]), st.integers(0, 2), st.booleans(), st.none(), st.floats(0, 1))
conditions = st.sampled_from(
    [
        "machine = 'a'",
        "machine = 1",
        "machine = 1.0 and status = 'failed'",
        "machine = 'b' or status = 'failed'",
        "status = 'completed' and machine = 'a'",
        "parent = 'p' and not machine = 'a'",
        "instance = 'i1'",
        "machine = ''",
    ]
)


@given(st.lists(st.tuples(values, st.sampled_from(["completed", "failed"]), st.sampled_from(["", "p"]))), conditions)
def test_an_index_finds_what_looking_at_all_finds(rows: list[tuple[Any, str, str]], condition: str) -> None:
    finished = Finished(["machine"])
    for number, (machine, status, parent) in enumerate(rows):
        finished.add(f"i{number}", outline(machine, status, number, parent))
    holds = where(condition, ["machine"])

    def fits(instance: str) -> bool:
        one = finished[instance]
        known = {"instance": instance, "status": one.status, "parent": one.parent, **one.variables}
        return holds(known.get)

    every = [instance for instance in finished if fits(instance)]
    assert [instance for instance in finished.having(equalities(condition)) if fits(instance)] == every
