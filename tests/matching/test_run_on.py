"""`run_on` as people call it: with events that they wrote down."""

from __future__ import annotations

from typing import Any

import pytest

from unerring import event_of, fn, rule, run_on, step, stream
from unerring.model import SchemaError


def test_run_on_takes_events_of_one_time_in_the_order_in_which_they_are_given() -> None:
    @stream(key="k")
    class Tied:
        k: int
        v: int

    @stream(key="k", strict=True)
    class Apart:
        k: int
        v: int

    def rising(of: Any) -> Any:
        one, two = step("one", of, of.v == 1), step("two", of, of.v == 2)
        return rule("rising").pattern(one.then(two).within(seconds=1)).emit(n=fn.count())

    first, second = event_of(Tied(1, 1), 5), event_of(Tied(1, 2), 5)
    [found] = run_on(rising(Tied), [first, second, event_of(Tied(1, 3), 5, 1)])
    assert found.stamp == (5, 0)
    assert run_on(rising(Tied), [second, first]) == []
    with pytest.raises(SchemaError, match="stamps must increase"):
        run_on(rising(Apart), [event_of(Apart(1, 1), 5), event_of(Apart(1, 2), 5)])
