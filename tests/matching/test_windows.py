"""Windows and joins worked out by hand; the random pairs hold the interpreter to the oracle."""

from __future__ import annotations

from unerring import Rule, counted, fn, last, rule, session, sliding, step, time_of, trailing, tumbling

from .letters import Letter, found


def over(window: object, *, change: bool = False) -> Rule:
    made = rule("r").on(Letter).window(window)  # type: ignore[arg-type]
    return (made.on_change() if change else made).emit(n=fn.count(), last=fn.last(Letter.name))


def test_tumbling_closes_with_the_last_moment_before_its_end() -> None:
    assert found(over(tumbling(10)), "A1 B9 C10") == ["9: n=2 last=B", "19: n=1 last=C"]
    assert found(over(tumbling(10)), "A1 B9 C10", through=18) == ["9: n=2 last=B"]
    assert found(over(tumbling(10, offset=1)), "A1 B10 C11") == ["10: n=2 last=B", "20: n=1 last=C"]


def test_sliding() -> None:
    assert found(over(sliding(4, 2)), "A3") == ["3: n=1 last=A", "5: n=1 last=A"]
    assert found(over(sliding(2, 5)), "A1 B3 C5") == ["1: n=1 last=A", "6: n=1 last=C"], "3 is in no window"


def test_session_closes_when_the_gap_has_passed() -> None:
    assert found(over(session(3)), "A1 B4 C8") == ["7: n=2 last=B", "11: n=1 last=C"]


def test_counted() -> None:
    assert found(over(counted(2)), "A1 B2 C3") == ["2: n=2 last=B"]
    assert found(over(counted(2, 1)), "A1 B2 C3") == ["2: n=2 last=B", "3: n=2 last=C"]


def test_trailing_looks_when_a_row_comes_and_when_one_leaves() -> None:
    assert found(over(trailing(3)), "A1 B3") == ["1: n=1 last=A", "3: n=2 last=B", "4: n=1 last=B", "6: n=0"]


def test_on_change() -> None:
    assert found(over(trailing(3), change=True), "A1 A4") == ["1: n=1 last=A", "7: n=0"], "one comes as one leaves"
    assert found(over(tumbling(2), change=True), "A1 A3 A9") == ["1: n=1 last=A", "5: n=0", "9: n=1 last=A", "11: n=0"]


def test_having() -> None:
    made = rule("r").on(Letter).window(tumbling(2)).having(fn.count() > 1).emit(n=fn.count())
    assert found(made, "A0 A1 A2 A4 A5") == ["1: n=2", "5: n=2"]


a = step("a", Letter, Letter.name == "A")
b = step("b", Letter, Letter.name == "B")


def test_a_join_is_certain_at_its_last_event() -> None:
    pair = rule("r").join(a, b, within=5).emit(a=time_of(last(a)), b=time_of(last(b)))
    assert found(pair, "B1 A2 B6 B8") == ["2: a=2 b=1", "6: a=2 b=6"]


def test_a_join_gives_what_joined_nothing_once_that_is_certain() -> None:
    pair = rule("r").join(a, b, within=5).unmatched(a).emit(a=time_of(last(a)), b=time_of(last(b)))
    assert found(pair, "A1 B7 A9") == ["6: a=1", "9: a=9 b=7"]


def test_a_join_on_a_condition() -> None:
    pair = rule("r").join(a, b, within=9).when(last(a).v == last(b).v).emit(a=time_of(last(a)), b=time_of(last(b)))
    assert found(pair, "A1=1 A2=2 B3=2 B4") == ["3: a=2 b=3"]


def test_an_event_does_not_join_itself() -> None:
    left, right = step("l", Letter), step("r", Letter)
    pair = rule("x").join(left, right, within=9).emit(l=time_of(last(left)), r=time_of(last(right)))
    assert found(pair, "A1 B2") == ["2: l=2 r=1", "2: l=1 r=2"]
