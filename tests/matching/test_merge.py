"""The merge: whatever the arrival, one order, in whole times; bounded; and the same after a restore."""

from __future__ import annotations

from random import Random

import pytest

from unerring.matching import oracle
from unerring.matching.merge import Merge
from unerring.matching.outputs import Row
from unerring.model import TIME_MAX, CallerError, Event, SchemaError, Stamp, StreamSchema

from .generators import RANKS, S, T, stream_events

STREAMS = [(S, RANKS["S"]), (T, RANKS["T"])]


def event(stream: StreamSchema, time: int, ordinal: int = 0) -> Event:
    return Event(stream.name, Stamp(time, ordinal), (0,), {})


def test_a_time_is_released_when_every_stream_has_reached_it() -> None:
    merge = Merge(STREAMS)
    merge.push(event(S, 5))
    assert merge.release()[0] == []
    merge.push(event(T, 5))
    assert merge.release()[0] == [], "T may have a second event at 5"
    merge.push(event(T, 5, 1))
    merge.advance("T", 5)
    rows, through = merge.release()
    assert [(row.rank, row.event.stamp.ordinal) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    assert through == 5


def test_released_in_bounded_steps_it_is_the_same_order_in_whole_times() -> None:
    for seed in range(50):
        random = Random(seed)
        events = stream_events(random, 30)
        whole, steps = Merge(STREAMS), Merge(STREAMS)
        for merge in (whole, steps):
            for one in events:
                merge.push(one)
            merge.end("S")
            merge.end("T")
        rows_max = random.choice((1, 2, 5))
        rows: list[Row] = []
        while steps.through < steps.complete:
            some, through = steps.release(rows_max)
            times = [row.event.stamp.time for row in some]
            assert not rows or not some or rows[-1].event.stamp.time < times[0]
            assert all(time <= through for time in times)
            earlier = [row for row in some if row.event.stamp.time < times[-1]]
            assert all(sum(row.event.stream == name for row in earlier) < rows_max for name in RANKS)
            rows += some
        assert rows == whole.release()[0]


def test_any_arrival_gives_one_order() -> None:
    for seed in range(200):
        random = Random(seed)
        events = stream_events(random, 20)
        lanes = {name: [e for e in events if e.stream == name] for name in RANKS}
        merge, rows = Merge(STREAMS), []
        while any(lanes.values()):
            name = random.choice([name for name, waiting in lanes.items() if waiting])
            merge.push(lanes[name].pop(0))
            if random.random() < 0.3:
                got, through = merge.release()
                assert all(row.event.stamp.time <= through for row in got)
                rows += got
            if random.random() < 0.2:
                state = merge.state()
                merge = Merge(STREAMS)
                merge.restore(state)
        for name in RANKS:
            merge.end(name)
        got, through = merge.release()
        rows += got
        assert through == TIME_MAX
        assert rows == oracle.merged(events, RANKS)
        assert all(isinstance(row, Row) for row in rows)


def test_stamps_must_increase_and_watermarks_hold() -> None:
    merge = Merge(STREAMS)
    merge.push(event(S, 5))
    with pytest.raises(SchemaError, match="stamps must increase"):
        merge.push(event(S, 5))
    merge.advance("T", 9)
    merge.advance("T", 3)
    with pytest.raises(SchemaError, match="watermark 9"):
        merge.push(event(T, 9))


def test_it_is_bounded_but_a_time_may_always_end() -> None:
    merge = Merge(STREAMS, rows_max=2)
    merge.push(event(T, 1))
    merge.push(event(T, 2))
    assert not merge.room("T", 3)
    with pytest.raises(CallerError, match="release before you push more"):
        merge.push(event(T, 3))
    assert merge.room("T", 2)
    merge.push(event(T, 2, 1))
    assert merge.room("S", 1), "the stream that the others wait for is never held back"
    merge.advance("S", 2)
    merge.advance("T", 2)
    merge.release()
    assert merge.room("T", 3)


def test_ranks_and_streams_are_checked() -> None:
    with pytest.raises(CallerError, match="one rank"):
        Merge([(S, 0), (T, 0)])
    with pytest.raises(CallerError, match="not merged here"):
        Merge([(S, 0)]).push(event(T, 1))
