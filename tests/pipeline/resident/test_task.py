"""A task of a pool, in this process: it answers for what it is told to advance, and keeps states when it is told to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from unerring.model import TIME_MIN, InvariantBreach, LogError
from unerring.pipeline.answers import unstage
from unerring.pipeline.intervals import spans_of
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition
from unerring.pipeline.resident.handing import BYTES_MAX, PIECES_MAX, Fresh
from unerring.pipeline.resident.task import Holder
from unerring.pipeline.resident.wire import Advance, Answered, Drop, Kept, Take, ToTask
from unerring.pipeline.shuffling import Interval
from unerring.pipeline.states import States
from unerring.pipeline.versions import enter

from ..worlds import OTHER, TYPED, as_table, missing, pair, random_events, write

PLANS = (pair("Pairs", TYPED, "A", "B", 40), missing("Misses", OTHER, "A", "B", 15))
MIDDLE_US, END_US = 200, 400


@pytest.fixture
def level(tmp_path: Path) -> Level:
    [level] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), 2)
    enter(level)
    for schema in (TYPED, OTHER):
        events = [event for event in random_events(3, 120, 7, schema) if event.stamp.time <= END_US]
        write(level.log.create(schema, 2), events, [100, 300], END_US)
    States(level).begin(TIME_MIN)
    return level


def interval(level: Level, from_us: int, through_us: int) -> Interval:
    return Interval(from_us, (through_us,), spans_of(level.chains(), from_us, through_us))


def said(holder: Holder, *messages: ToTask) -> list[Answered | Kept]:
    return [reply for message in messages for reply in holder.handle(message)]  # type: ignore[misc]


def test_it_answers_what_its_partitions_find_and_keeps_their_states(level: Level) -> None:
    holder = Holder((level,))
    holder.warm()
    both = [interval(level, TIME_MIN, MIDDLE_US), interval(level, MIDDLE_US, END_US)]
    for bucket in range(2):
        first, second, kept = said(
            holder,
            Take(0, bucket, TIME_MIN, 7),
            Advance(0, bucket, both[0], keep=False),
            Advance(0, bucket, both[1], keep=True),
        )
        assert kept == Kept(0, bucket, END_US)
        partition = Partition(level, bucket)
        for answer, one in ((first, both[0]), (second, both[1])):
            assert isinstance(answer, Answered)
            assert (answer.tenure, answer.from_us, answer.through_us) == (7, one.from_us, one.ends_us[-1])
            for stream, table in partition.advance(one.ends_us[-1], one.spans).items():
                assert (stream in answer.outputs) == bool(len(table))
                assert not len(table) or unstage(answer.outputs[stream]).rows.equals(table)
            assert answer.keys == partition.keys
            assert answer.rows == partition.rows
    assert States(level).times() == [END_US]


def test_another_one_goes_on_from_the_state(level: Level) -> None:
    first, second = Holder((level,)), Holder((level,))
    whole, rest = interval(level, TIME_MIN, MIDDLE_US), interval(level, MIDDLE_US, END_US)
    said(first, *(one for b in range(2) for one in (Take(0, b, TIME_MIN, 1), Advance(0, b, whole, keep=True))))
    [mine] = said(first, Advance(0, 1, rest, keep=False))
    [theirs] = said(second, Take(0, 1, MIDDLE_US, 1), Advance(0, 1, rest, keep=False))
    assert mine.state_bytes > theirs.state_bytes == 0  # what each has kept itself
    mine = msgspec.structs.replace(mine, state_bytes=0)
    assert mine == theirs


def test_what_is_sealed_already_is_run_without_an_answer(level: Level) -> None:
    """With the segments that the hub knows, or without: then the task looks itself."""
    whole, rest = interval(level, TIME_MIN, MIDDLE_US), interval(level, MIDDLE_US, END_US)
    answers = []
    for sealed in (whole, Interval(TIME_MIN, (100, MIDDLE_US), {})):
        answers += said(Holder((level,)), Take(0, 1, TIME_MIN, 1, sealed), Advance(0, 1, rest, keep=False))
    answers += said(
        Holder((level,)),
        Take(0, 1, TIME_MIN, 1),
        Advance(0, 1, whole, keep=False),
        Advance(0, 1, rest, keep=False),
    )
    assert answers[0] == answers[1] == answers[3]


def test_rows_that_are_handed_over_are_those_of_the_log(level: Level) -> None:
    """In pieces that do not end where the interval does, for rules that are compiled and one that is not."""
    fresh = Fresh(OTHER)
    ends = [TIME_MIN, 50, 120, MIDDLE_US, END_US]
    for from_us, through_us in pairwise(ends):
        rows = level.log.chain(OTHER.name).read(from_us, through_us)
        fresh.add(from_us, through_us, rows if len(rows) else None)
    whole = interval(level, TIME_MIN, END_US)
    only = {TYPED.name: whole.spans[TYPED.name]}
    for bucket in range(2):
        [took] = said(Holder((level,)), Take(0, bucket, TIME_MIN, 1), Advance(0, bucket, whole, keep=False))
        count, data = fresh.rows(TIME_MIN, END_US)
        steps = Interval(TIME_MIN, (30, 130, END_US), only)
        handed = Advance(0, bucket, steps, keep=False, handed={OTHER.name: data})
        [got] = said(Holder((level,)), Take(0, bucket, TIME_MIN, 1), handed)
        assert isinstance(got, Answered)
        assert isinstance(took, Answered)
        assert (got.keys, got.rows) == (took.keys, took.rows)
        assert list(got.outputs) == list(took.outputs)
        assert "Misses" in took.outputs
        for stream, outputs in took.outputs.items():
            assert unstage(got.outputs[stream]).rows.equals(unstage(outputs).rows)
        assert count == len(level.log.chain(OTHER.name).read(TIME_MIN, END_US))


def test_what_is_handed_over_is_so_much_and_no_more() -> None:
    fresh = Fresh(TYPED)
    assert fresh.end_us(5) == 5
    for number in range(PIECES_MAX + 2):
        fresh.add(number, number + 1, None)
    assert [fresh.end_us(from_us) for from_us in (1, 2, 20, 50)] == [1, PIECES_MAX + 2, PIECES_MAX + 2, 50]
    assert fresh.rows(2, 9) == (0, b"")
    many = as_table(random_events(3, 9000, 7), TYPED)
    assert many.nbytes > BYTES_MAX
    fresh.add(PIECES_MAX + 2, 10**6, many)
    assert fresh.end_us(20) == 20


def test_what_it_cannot_do_is_an_error(level: Level) -> None:
    holder = Holder((level,))
    with pytest.raises(LogError, match=f"the state of level 1 at {MIDDLE_US}"):
        said(holder, Take(0, 0, MIDDLE_US, 1))
    said(holder, Take(0, 0, TIME_MIN, 1))
    with pytest.raises(InvariantBreach, match="from where it stands"):
        said(holder, Advance(0, 0, interval(level, MIDDLE_US, END_US), keep=False))
    said(holder, Drop(0, 0), Drop(0, 0))
    with pytest.raises(KeyError):
        said(holder, Advance(0, 0, interval(level, TIME_MIN, MIDDLE_US), keep=False))
