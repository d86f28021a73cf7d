"""What an asynchronous engine hands over: queued once, numbered on, and asked for again where something is lacking."""

from __future__ import annotations

import pytest

from tests.correlation.table import line, schema
from unerring.correlation import CorrelationConfig
from unerring.correlation.engine import HandOver
from unerring.correlation.handed import Handed
from unerring.correlation.messages import Batch
from unerring.correlation.outgoing import Outgoing
from unerring.model import BEFORE_ALL, TIME_MIN, Event, InvariantBreach, Stamp


def event(time: int) -> Event:
    return Event("s1", Stamp(time), (), {"v": time})


def batch(*times: int, after: int = 0, index: int = 0, watermark: int = TIME_MIN) -> Batch:
    prev = Stamp(after) if after else BEFORE_ALL
    return Batch("s1", prev, index, tuple(event(time) for time in times), watermark)


def fresh() -> tuple[Handed, Outgoing]:
    return Handed("N1/0", {"s1": schema("s1")}), Outgoing("N1/0", line(), ("s1",), CorrelationConfig())


def test_what_is_new_is_queued_and_what_is_repeated_is_not() -> None:
    handed, outgoing = fresh()
    queue = outgoing.queues["s1"]
    assert handed.asked() == HandOver({"s1": BEFORE_ALL}, {"s1": 0})
    assert handed.take([], outgoing) == 0
    assert handed.take([batch(10, 20), batch(30, after=20, index=2, watermark=35)], outgoing) == 3
    assert handed.take([batch(10, 20, watermark=20)], outgoing) == 0
    assert handed.take([batch(20, 30, 40, after=10, index=1, watermark=45)], outgoing) == 1
    assert [made.stamp.time for made in queue.events()] == [10, 20, 30, 40]
    assert queue.watermark == 45
    assert handed.take([batch(after=40, index=4, watermark=60)], outgoing) == 0
    assert queue.watermark == 60, "a watermark alone counts, too"
    assert handed.asked() == HandOver({"s1": Stamp(40)}, {"s1": 4})


def test_where_something_is_lacking_nothing_behind_it_is_taken() -> None:
    handed, outgoing = fresh()
    gap = batch(30, after=20, index=2, watermark=90)
    assert handed.take([batch(10), gap, batch(20, after=10, index=1)], outgoing) is None
    assert outgoing.queues["s1"].count == 1
    assert outgoing.queues["s1"].watermark < 10
    assert handed.asked() == HandOver({"s1": Stamp(10)}, {"s1": 1})


def test_an_engine_that_made_something_else_stops_the_process() -> None:
    handed, outgoing = fresh()
    handed.take([batch(10, 30)], outgoing)
    with pytest.raises(InvariantBreach, match="engine of N1/0 does not continue from where it was"):
        handed.take([batch(10, 20, 40)], outgoing)


def test_after_a_restart_it_goes_on_where_the_queues_end() -> None:
    handed, outgoing = fresh()
    handed.take([batch(10, 20, watermark=25)], outgoing)
    again = Handed("N1/0", {"s1": schema("s1")})
    again.restore(outgoing.queues)
    assert again.asked() == HandOver({"s1": Stamp(20)}, {"s1": 2})
    assert again.take([batch(after=20, index=2, watermark=25)], outgoing) == 0
    with pytest.raises(InvariantBreach):
        again.take([batch(25, after=20, index=2)], outgoing)
    assert again.take([batch(26, after=20, index=2)], outgoing) == 1
    with pytest.raises(InvariantBreach):
        again.take([Batch("s1", Stamp(26), 3, (Event("s1", Stamp(30), (), {"v": "text"}),), 30)], outgoing)
