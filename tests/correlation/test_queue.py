"""The outgoing queue: pruned by stamp, credit in whole times, watermark capped before what was not sent."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.correlation.table import schema
from unerring.correlation.queue import Queue
from unerring.matching import Chunk
from unerring.model import ORDINAL_MAX, Event, InvariantBreach, Stamp


def event(time: int, ordinal: int = 0) -> Event:
    return Event("s", Stamp(time, ordinal), (), {})


def test_pruning_is_by_stamp_and_the_mark_outlives_the_queue() -> None:
    queue = Queue("s")
    queue.append([event(1), event(2), event(3)])
    queue.prune(Stamp(2))
    queue.prune(Stamp(1))
    assert (queue.mark, queue.mark_count, len(queue)) == (Stamp(2), 2, 1)
    queue.prune(Stamp(9))
    assert (queue.mark, len(queue), queue.last, queue.count) == (Stamp(3), 0, Stamp(3), 3)
    assert queue.batch(3, 3).prev == Stamp(3)


def test_credit_that_ends_inside_a_time_lets_the_whole_time_pass() -> None:
    queue = Queue("s")
    queue.append([event(1), event(2, 0), event(2, 1), event(2, 2), event(3)])
    assert queue.allowed(0, 2) == 4
    assert queue.allowed(2, 2) == 4
    queue.prune(Stamp(2, 0))
    assert queue.allowed(2, 0) == 4


def test_a_time_passes_whole_up_to_the_last_ordinal_that_there_is() -> None:
    events = [event(1), event(2, ORDINAL_MAX - 1), event(2, ORDINAL_MAX), event(3)]
    assert [Queue("s", events=events).allowed(0, credit) for credit in range(6)] == [0, 1, 3, 3, 4, 4]


def test_who_has_so_much_could_be_sent_something_new() -> None:
    queue = Queue("s", events=[event(1), event(2), event(5), event(5, 1)])
    queue.prune(Stamp(1))
    queue.advance(5)
    asked = [
        (0, 9, 0),
        (1, 9, 5),
        (1, 1, 0),
        (1, 1, 1),
        (2, 3, 5),
        (2, 2, 3),
        (2, 2, 4),
        (4, 0, 4),
        (4, 9, 5),
        (5, 9, 0),
    ]
    expected = [True, True, True, False, True, True, False, True, False, False]
    assert [queue.has_more(*one) for one in asked] == expected


def test_a_stamp_follows_if_the_stream_has_it_at_that_number_or_may_have() -> None:
    queue = Queue("s", events=[event(1), event(2), event(4), event(5)])
    queue.prune(Stamp(2))
    asked = [(1, 1), (2, 1), (2, 2), (1, 2), (4, 3), (5, 3), (5, 4), (5, 5), (6, 5), (9, 4)]
    expected = [True, False, True, False, True, False, True, False, True, False]
    assert [queue.follows(Stamp(time), count) for time, count in asked] == expected
    assert [queue.stamp(count).time for count in range(7)] == [2, 2, 2, 4, 5, 5, 5]
    assert queue.floor == Stamp(4, -1)
    queue.prune(Stamp(5))
    assert (queue.floor, queue.follows(Stamp(5), 4), queue.follows(Stamp(4), 3)) == (None, True, True)


@pytest.mark.parametrize(
    ("bounds", "stops"),
    [
        ((9, 10**6), [2, 7, 8]),
        ((2, 10**6), [2, 4, 6, 7, 8]),
        ((1, 10**6), [1, 2, 3, 4, 5, 6, 7, 8]),
        ((9, 40), [2, 4, 6, 7, 8]),
        ((9, 39), [2, 3, 4, 5, 6, 7, 8]),
        ((9, 1), [2, 3, 4, 5, 6, 7, 8]),
        ((9, 80), [2, 6, 7, 8]),
        ((9, 79), [2, 5, 7, 8]),
    ],
)
def test_a_message_has_objects_or_columns_up_to_its_bounds(bounds: tuple[int, int], stops: list[int]) -> None:
    """Columns count with their bytes, twenty a row here, and one row goes in any case."""
    a = schema("s")
    events = [event(number) for number in range(1, 9)]
    events = [Event("s", one.stamp, (), {"v": 1}) for one in events]
    queue = Queue("s", events=events[:2])
    for some in (events[2:4], events[4:7]):
        queue.append(Chunk.of_events(a, some))
    queue.append(events[7:])
    row_bytes = Chunk.of_events(a, events).row_bytes
    events_max, bytes_max = bounds
    found = [0]
    while found[-1] < queue.count:
        found.append(queue.stop(found[-1], queue.count, events_max, bytes_max * row_bytes // 20))
    assert found[1:] == stops
    assert queue.stop(3, 6, 9, 10**6) == 6, "no further than asked for"
    assert queue.stop(4, 4, 9, 10**6) == 4


def test_watermark_is_capped_before_the_first_event_not_sent() -> None:
    queue = Queue("s")
    queue.append([event(1), event(5)])
    queue.advance(9)
    assert queue.batch(0, 1).watermark == 4
    assert queue.batch(0, 2).watermark == 9


def test_an_output_at_or_before_promised_watermark_breaks_the_invariant() -> None:
    queue = Queue("s")
    queue.advance(5)
    with pytest.raises(InvariantBreach):
        queue.append([event(5)])
    with pytest.raises(InvariantBreach, match=r"stream s: .*time=7.* does not come after .*time=8.* or 5"):
        queue.append([event(6), event(8), event(7)])
    with pytest.raises(InvariantBreach, match=r"stream s: .*time=5.* does not come after .* or 5"):
        queue.append([event(5), event(6)])
    assert queue.count == 0


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    prunes=st.lists(st.integers(0, 25), max_size=10),
    start=st.integers(0, 80),
)
def test_batches_are_the_stream_whatever_was_pruned(sizes: list[int], prunes: list[int], start: int) -> None:
    events = [event(time, ordinal) for time, size in enumerate(sizes, 1) for ordinal in range(size)]
    queue = Queue("s")
    queue.append(events)
    for time in prunes:
        queue.prune(Stamp(time, 1))
    start = max(queue.mark_count, min(start, queue.count))
    batch = queue.batch(start, queue.count)
    assert list(batch.events) == events[start:]
    assert batch.prev == (events[start - 1].stamp if start else Queue("s").mark)
