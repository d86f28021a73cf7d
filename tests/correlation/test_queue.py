"""The outgoing queue: pruned by stamp, credit in whole times, watermark capped before what was not sent."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from unerring.correlation.queue import Queue
from unerring.model import Event, InvariantBreach, Stamp


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
