"""The duplicate filter (Figure 3, lines 7-18): whatever arrives, what is accepted is the stream, in order, once."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from unerring.correlation.incoming import Incoming, Verdict
from unerring.correlation.messages import Batch
from unerring.correlation.queue import Queue
from unerring.model import BEFORE_ALL, Event, ProtocolError, Stamp


def event(time: int, ordinal: int = 0) -> Event:
    return Event("s", Stamp(time, ordinal), (), {"v": time})


def queue(*times: int) -> Queue:
    made = Queue("s")
    made.append([event(time) for time in times])
    return made


def test_the_next_batch_is_accepted_and_its_watermark_counts() -> None:
    incoming = Incoming("s")
    taken = incoming.take(Batch("s", BEFORE_ALL, 0, (event(3), event(5)), 8))
    assert (taken.verdict, len(taken.events), incoming.last, incoming.count) == (Verdict.NEXT, 2, Stamp(5), 2)
    assert incoming.watermark == 8


def test_a_duplicate_is_dropped_and_an_overlap_cut() -> None:
    incoming = Incoming("s")
    stream = queue(1, 2, 3)
    incoming.take(stream.batch(0, 2))
    assert incoming.take(stream.batch(0, 2)).verdict is Verdict.DUPLICATE
    assert [e.stamp.time for e in incoming.take(stream.batch(0, 3)).events] == [3]


def test_a_gap_is_seen_and_nothing_moves() -> None:
    incoming = Incoming("s")
    assert incoming.take(queue(1, 2, 3).batch(1, 3)).verdict is Verdict.GAP
    assert incoming.last == BEFORE_ALL


def test_watermark_that_arrives_after_a_lost_event_does_not_count() -> None:
    incoming = Incoming("s")
    incoming.take(queue(1).batch(0, 1))
    taken = incoming.take(Batch("s", Stamp(2), 2, (), 9))
    assert taken.verdict is Verdict.GAP
    assert incoming.watermark < 2


def test_a_sender_whose_replica_has_diverged_is_not_believed() -> None:
    incoming = Incoming("s")
    incoming.take(queue(1, 3).batch(0, 2))
    with pytest.raises(ProtocolError, match="diverged"):
        incoming.take(queue(1, 2, 4).batch(0, 3))


@given(
    times=st.lists(st.integers(1, 60), min_size=1, max_size=30),
    cuts=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60),
)
def test_any_interleaving_of_any_leaders_gives_the_stream(times: list[int], cuts: list[tuple[int, int]]) -> None:
    """Several leaders send overlapping, repeated and reordered pieces; Resume fills what is missing."""
    events: list[Event] = []
    for time in sorted(times):
        same = events and events[-1].stamp.time == time
        events.append(event(time, events[-1].stamp.ordinal + 1 if same else 0))
    stream = Queue("s", events=events)
    incoming = Incoming("s")
    accepted: list[Event] = []
    for start, end in cuts:
        start, end = sorted((min(start, stream.count), min(end, stream.count)))
        taken = incoming.take(stream.batch(start, end))
        accepted += taken.events
        assert (taken.verdict is Verdict.GAP) == (start > incoming.count - len(taken.events))
    accepted += incoming.take(stream.batch(incoming.count, stream.count)).events
    assert accepted == events
