"""The duplicate filter (Figure 3, lines 7-18): whatever arrives, what is accepted is the stream, in order, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from tests.correlation.table import schema
from unerring.correlation.incoming import Incoming, Verdict
from unerring.correlation.messages import Batch
from unerring.correlation.queue import Queue
from unerring.correlation.shapes import Shapes
from unerring.matching import Chunk
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


def in_columns(batch: Batch) -> Batch:
    packed = Chunk.of_events(schema("s"), list(batch.events)).packed() if batch.events else ()
    return Batch(batch.stream, batch.prev, batch.index, packed, batch.watermark)


@pytest.mark.parametrize("form", [lambda batch: batch, in_columns])
def test_what_arrives_is_what_the_table_says_and_a_watermark_counts_behind_what_it_follows(
    form: Callable[[Batch], Batch],
) -> None:
    """`last` is 3, as number 2; the watermark is 4."""
    for batch, verdict, times, watermark in (
        (Batch("s", Stamp(3), 2, (event(5), event(9)), 8), Verdict.NEXT, [5, 9], 8),
        (Batch("s", Stamp(3), 2, (event(5),), 2), Verdict.NEXT, [5], 4),
        (Batch("s", Stamp(3), 2, (), 5), Verdict.NEXT, [], 5),
        (Batch("s", Stamp(3), 2, (), 4), Verdict.DUPLICATE, [], 4),
        (Batch("s", Stamp(1), 1, (), 7), Verdict.DUPLICATE, [], 4),  # what follows event 1 says nothing of event 3
        (Batch("s", BEFORE_ALL, 0, (event(1),), 7), Verdict.DUPLICATE, [], 4),
        (Batch("s", BEFORE_ALL, 0, (event(1), event(3)), 7), Verdict.NEXT, [], 7),
        (Batch("s", Stamp(1), 1, (event(3),), 4), Verdict.DUPLICATE, [], 4),
        (Batch("s", Stamp(1), 1, (event(3), event(5)), 6), Verdict.NEXT, [5], 6),
        (Batch("s", BEFORE_ALL, 0, (event(1), event(3), event(5), event(6)), 4), Verdict.NEXT, [5, 6], 4),
        (Batch("s", Stamp(3, 1), 3, (event(5),), 7), Verdict.GAP, [], 4),
        (Batch("s", Stamp(3, 1), 3, (), 7), Verdict.GAP, [], 4),
    ):
        incoming = Incoming("s", Stamp(3), 2, 4, Shapes(schema("s")))
        taken = incoming.take(form(batch))
        assert (taken.verdict, [e.stamp.time for e in taken.events]) == (verdict, times), batch
        assert taken.advanced == (verdict is Verdict.NEXT)
        assert (incoming.count, incoming.last) == (2 + len(times), Stamp(times[-1] if times else 3)), batch
        assert incoming.watermark == watermark, batch


@pytest.mark.parametrize("form", [lambda batch: batch, in_columns])
def test_what_no_replica_can_have_of_the_stream_is_refused_with_where_and_why(form: Callable[[Batch], Batch]) -> None:
    for batch, why in (
        (Batch("s", Stamp(3), 1, (event(5),), 8), "is number 2 here, but has another number at the sender"),
        (Batch("s", Stamp(3), 3, (event(5),), 8), "is number 2 here, but has another number at the sender"),
        (Batch("s", Stamp(3), 1, (), 8), "another number"),
        (Batch("s", Stamp(1), 2, (event(3),), 8), "another number"),
        (Batch("s", Stamp(1), 1, (event(5),), 8), r"Stamp\(time=5, ordinal=0\) follows Stamp\(time=1, .*diverged"),
        (Batch("s", BEFORE_ALL, 0, (event(1), event(2), event(5)), 8), r"time=5, .* follows Stamp\(time=2, .*diverged"),
        (Batch("s", BEFORE_ALL, 1, (event(2), event(5)), 8), r"follows Stamp\(time=2, .*diverged"),
        (Batch("s", Stamp(3), 2, (event(4),), 8), r"time=4, ordinal=0\) is not after the watermark 4"),
        (Batch("s", Stamp(3), 2, (event(6), event(6)), 8), r"time=6, ordinal=0\) cannot follow Stamp\(time=6"),
        (Batch("s", Stamp(3), 2, (event(5), event(7), event(6)), 8), r"time=6, .* cannot follow Stamp\(time=7"),
    ):
        incoming = Incoming("s", Stamp(3), 2, 4, Shapes(schema("s")))
        with pytest.raises(ProtocolError, match=why):
            incoming.take(form(batch))
        assert (incoming.last, incoming.count, incoming.watermark) == (Stamp(3), 2, 4)
    late = Incoming("s", Stamp(9), 1, 2)
    with pytest.raises(ProtocolError, match=r"time=8, .* cannot follow Stamp\(time=9"):
        late.take(Batch("s", Stamp(9), 1, (event(8), event(10)), 11))


def test_columns_whose_stamps_do_not_rise_are_refused_also_where_they_begin_before_what_is_here() -> None:
    incoming = Incoming("s", Stamp(3), 2, 3, Shapes(schema("s")))
    with pytest.raises(ProtocolError, match="stamps that do not rise"):
        incoming.take(in_columns(Batch("s", BEFORE_ALL, 0, (event(3), event(1), event(5)), 8)))


def test_a_stream_of_this_process_has_no_columns_and_no_shapes() -> None:
    incoming = Incoming("s")
    with pytest.raises(ProtocolError, match="columns of unknown types"):
        incoming.take(in_columns(Batch("s", BEFORE_ALL, 0, (event(1),), 1)))
    other = Event("t", Stamp(1), (), {})
    with pytest.raises(ProtocolError, match="is of t"):
        incoming.take(Batch("s", BEFORE_ALL, 0, (other,), 1))
    assert incoming.take(Batch("s", BEFORE_ALL, 0, (Event("s", Stamp(1), (), {"any": "thing"}),), 1)).advanced
