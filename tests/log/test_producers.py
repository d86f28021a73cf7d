"""Many producers of one stream: one canonical order, what was taken written down exactly, whoever seals."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from unerring.log import EventLog, LogWriter, MemoryStore, Quarantine, Reason, Taken, WriterConfig
from unerring.log.producers import Mark, Run, less, settled, within
from unerring.model import TIME_MAX, CallerError, Stamp

from .worlds import BURST, READING

# --- marks and runs, beside plain sets ---

UNIVERSE = [(epoch, number) for epoch in (0, 1, 2) for number in range(8)]
marks = st.sampled_from(UNIVERSE)
runs = st.lists(st.tuples(marks, marks).map(lambda pair: (min(pair), max(pair))), max_size=5)


def members(mark: Mark, above: tuple[Run, ...] | list[Run]) -> set[Mark]:
    inside = {event for event in UNIVERSE if event <= mark}
    return inside | {event for event in UNIVERSE for first, last in above if first <= event <= last}


@given(marks, runs)
def test_a_mark_and_runs_have_one_form(mark: Mark, given_runs: list[Run]) -> None:
    settled_mark, above = settled(mark, given_runs)
    assert members(settled_mark, above) == members(mark, given_runs)
    assert settled(settled_mark, above) == (settled_mark, above)
    for event in UNIVERSE:
        assert (event <= settled_mark or within(above, event)) == (event in members(mark, given_runs))


def test_runs_that_touch_are_one() -> None:
    assert settled((0, 4), [((0, 7), (0, 8)), ((0, 5), (0, 6))]) == ((0, 8), ())
    assert settled((0, 4), [((0, 9), (1, 2)), ((0, 6), (0, 8)), ((1, 3), (1, 3))]) == ((0, 4), (((0, 6), (1, 3)),))
    assert settled((0, 4), [((0, 8), (0, 9)), ((0, 6), (0, 6))]) == ((0, 4), (((0, 6), (0, 6)), ((0, 8), (0, 9))))
    assert settled((0, 4), [((0, 2), (0, 9)), ((0, 3), (0, 5))]) == ((0, 9), ())


@given(marks, runs, st.lists(marks, unique=True, max_size=6))
def test_what_is_held_is_not_taken(mark: Mark, given_runs: list[Run], events: list[Mark]) -> None:
    held = sorted(event for event in events if event <= mark)
    beyond = [run for run in given_runs if run[0] > mark]
    left, above = less(mark, beyond, held)
    taken = Taken({"p": left}, {"p": above})
    for event in UNIVERSE:
        assert taken.has("p", event) == (event in members(mark, beyond) - set(held))


def test_holes_are_what_is_pending() -> None:
    taken = Taken({"p": (1, 4)}, {"p": (((1, 7), (1, 8)), ((2, 3), (2, 5)))})
    assert list(taken.holes("p")) == [((1, 5), (1, 6)), ((1, 9), (2, 2))]
    assert taken.runs == 2
    assert list(Taken({"p": (1, 4)}).holes("p")) == []


# --- the writer ---


def payload(number: int) -> dict[str, object]:
    return {"machine": f"m{number % 3}", "celsius": number / 2}


def rows_in(log: EventLog) -> list[tuple[int, int, str, int, int]]:
    chain = log.chain("Burst")
    return [
        (row["time"], row["ordinal"], row["_producer"], row["_epoch"], row["_sequence"])
        for row in chain.read(chain.base.from_us, chain.refresh()).to_pylist()
    ]


def feed(writer: LogWriter, producer: str, times: list[int], first: int = 1, epoch: int = 0, now: int = 0) -> None:
    for number, time in enumerate(times, first):
        writer.append(producer, (epoch, number), Stamp(time), payload(number), now)


LATE = msgspec.structs.replace(BURST, lateness_us=10)


def test_the_slowest_producer_holds_the_stream_back() -> None:
    writer = LogWriter(EventLog(MemoryStore()), BURST)
    feed(writer, "a", [1, 5, 9])
    feed(writer, "b", [2, 6])
    writer.seal()
    assert writer.chain.through_us == 5
    state = writer.awaited(now=7)
    assert state is not None
    assert (state.producer, state.watermark_us, state.silent_us, state.state) == ("b", 5, 7, "active")
    writer.end(0, "b")
    writer.seal()
    assert writer.chain.through_us == 8
    writer.end(0, "a")
    writer.seal()
    assert writer.chain.through_us == TIME_MAX
    assert writer.awaited(0) is None


def test_rows_of_one_time_are_in_the_order_of_producers_and_sequences_whatever_came_first() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, BURST)
    feed(writer, "b", [5, 5, 6])
    feed(writer, "a", [5, 7])
    writer.seal()
    assert rows_in(log) == [(5, 0, "a", 0, 1), (5, 1, "b", 0, 1), (5, 2, "b", 0, 2)]


def test_a_producers_own_ordinals_are_kept_where_they_are_higher() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, BURST)
    for number, ordinal in enumerate([0, 4, 5]):
        writer.append("b", (0, number), Stamp(5, ordinal), payload(0), 0)
    writer.append("a", (0, 0), Stamp(5, 2), payload(0), 0)
    writer.advance(5, 0)
    writer.seal()
    assert [row[1:3] for row in rows_in(log)] == [(2, "a"), (3, "b"), (4, "b"), (5, "b")]


def test_events_out_of_order_within_the_lateness_find_their_place() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, LATE)
    feed(writer, "a", [20, 12, 25, 15, 40])
    assert writer.seal() == {"a": (0, 4)}
    assert [row[0] for row in rows_in(log)] == [12, 15, 20, 25]
    feed(writer, "a", [35, 29], first=6)
    assert writer.seal() == {"a": (0, 4)}
    assert [(bad.sequence, bad.reason) for bad in Quarantine(log.store, "Burst").events()] == [(7, Reason.LATE)]
    assert writer.late == 1


def test_what_was_sealed_out_of_sequence_is_written_down_and_not_taken_again() -> None:
    log = EventLog(MemoryStore())
    first = LogWriter(log, LATE)
    feed(first, "a", [40, 12, 50, 41, 45, 56])  # 12 is late by its own producer's order
    assert first.seal() == {"a": (0, 2)}
    footer = first.chain.last()
    assert footer is not None
    assert footer.producers == {"a": (0, 1)}, "that 12 has no place follows from this segment, and is in the next"
    assert footer.above == {"a": (((0, 4), (0, 5)),)}
    assert footer.format >= 4, "a release that would forget it refuses it"
    second = LogWriter(log, LATE)
    feed(second, "a", [12, 50, 41, 45, 56, 99], first=2)
    assert second.repeated == 2
    assert second.seal() == {"a": (0, 6)}
    assert [row[0] for row in rows_in(log)] == [40, 41, 45, 50, 56]
    assert [bad.sequence for bad in Quarantine(log.store, "Burst").events()] == [2]


def test_what_comes_twice_before_it_is_looked_at_is_taken_once() -> None:
    """A producer that was not acknowledged yet sends again; both copies may be in one batch of the writer's."""
    log = EventLog(MemoryStore())
    writer = LogWriter(log, BURST)
    bad = {"machine": "m1", "celsius": "hot"}
    for producer, sequence, time, what in [
        ("p", 1, 10, payload(1)),
        ("q", 1, 10, payload(2)),
        ("p", 2, 11, bad),
        ("p", 3, 12, payload(3)),
        ("p", 1, 10, payload(1)),
        ("p", 2, 11, bad),
        ("q", 1, 10, payload(2)),
        ("p", 3, 12, payload(3)),
        ("p", 4, 13, payload(4)),
    ]:
        writer.append(producer, (0, sequence), Stamp(time), what, now=0)
    writer.end(now=0)
    assert writer.seal() == {"p": (0, 4), "q": (0, 1)}
    assert [row[2:] for row in rows_in(log)] == [("p", 0, 1), ("q", 0, 1), ("p", 0, 3), ("p", 0, 4)]
    assert writer.repeated == 4
    assert writer.quarantined == 1


def test_a_writer_that_cannot_say_what_it_took_seals_less_and_never_forgets() -> None:
    log = EventLog(MemoryStore())
    config = WriterConfig(rows_per_segment=4, rows_held_max=19, runs_max=1)
    schema = msgspec.structs.replace(LATE, lateness_us=150)
    writer = LogWriter(log, schema, config)
    times = [time for pair in zip(range(1101, 1111), range(1000, 1010), strict=True) for time in pair]
    feed(writer, "a", times)
    writer.advance(1009, 0, "a")
    writer.seal()
    assert writer.chain.taken().runs <= 1
    assert "runs of events out of their producers' order are more than a segment says" in writer.blocked
    assert writer.full
    with pytest.raises(CallerError, match="raise it, or lower the lateness"):
        feed(writer, "a", [2000], first=21)
    other = LogWriter(log, schema)
    feed(other, "a", times)
    other.end(0, "a")
    other.seal()
    assert sorted(row[4] for row in rows_in(log)) == list(range(1, 21))


def test_a_restarted_writer_waits_for_those_who_were_there() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, BURST)
    feed(writer, "a", [5, 6])
    feed(writer, "b", [5, 6])
    writer.seal()
    second = LogWriter(log, BURST)
    feed(second, "a", [6, 9], first=2)
    second.seal()
    assert second.chain.through_us == 5, "b may still bring its 6"
    feed(second, "b", [6, 8], first=2)
    second.seal()
    assert [row[0] for row in rows_in(log)] == [5, 5, 6, 6]
    assert Quarantine(log.store, "Burst").events() == []


def test_a_silent_producer_is_waited_for_as_long_as_the_stream_says() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, msgspec.structs.replace(BURST, idle_after_us=1_000_000))
    feed(writer, "a", [5], now=0)
    feed(writer, "b", [5, 9], now=500_000)
    writer.seal()
    assert writer.chain.through_us == 4
    assert not writer.due(999_999)
    assert writer.due(1_000_000), "by now a is idle"
    writer.seal()
    assert writer.chain.through_us == 8
    assert writer.chain.taken().awaited == ["b"]
    feed(writer, "a", [7, 12], first=2, now=1_100_000)
    feed(writer, "b", [20], first=3, now=1_100_000)
    writer.seal()
    assert writer.chain.through_us == 11, "it is waited for again"
    (late,) = Quarantine(log.store, "Burst").events()
    assert (late.producer, late.sequence, late.reason, late.time_us) == ("a", 2, Reason.LATE, 7)
    assert writer.due(9_000_000)
    writer.seal()
    assert writer.chain.through_us == 20, "nobody is waited for: what was said is all there is"


def test_a_clock_that_is_ahead_does_not_close_the_stream_for_others() -> None:
    log = EventLog(MemoryStore())
    ahead = msgspec.structs.replace(BURST, max_ahead_us=100)
    writer = LogWriter(log, ahead, wall=lambda: 50)
    feed(writer, "fast", [40, 86_400_000_000, 45])
    writer.advance(86_400_000_000, 0, "fast")
    writer.seal()
    assert writer.chain.through_us == 44
    feed(writer, "right", [46])
    feed(writer, "fast", [60], first=4)
    writer.seal()
    assert [row[0] for row in rows_in(log)] == [40, 45]
    (bad,) = Quarantine(log.store, "Burst").events()
    assert (bad.sequence, bad.reason) == (2, Reason.AHEAD)
    assert "s ahead (max_ahead is 0.0001 s)" in bad.detail


def test_what_is_lost_to_one_writer_and_sealed_by_another_is_not_lost() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, LATE)
    feed(writer, "a", [50, 51, 42, 45, 46, 57])
    writer.seal()
    assert writer.chain.taken().above == {"a": (((0, 3), (0, 5)),)}
    second = LogWriter(log, LATE)
    second.lost("a", (0, 8), "gone", 0, first=1)
    second.seal()
    lost = [(bad.sequence, bad.reason) for bad in Quarantine(log.store, "Burst").events()]
    assert lost == [(2, Reason.LOST), (8, Reason.LOST)], "3 to 5 are in the log"


def test_what_is_lost_before_what_another_writer_sealed_is_lost() -> None:
    """Nothing was written down of a loss that ended before another writer's events."""
    log = EventLog(MemoryStore())
    writer = LogWriter(log, LATE)
    feed(writer, "a", [50, 51, 42, 45, 46, 57])
    writer.seal()
    assert writer.chain.taken() == Taken({"a": (0, 0)}, {"a": (((0, 3), (0, 5)),)}, frozenset())
    second = LogWriter(log, LATE)
    second.lost("a", (0, 1), "gone", 0)
    second.lost("a", (0, 4), "gone", 0, first=2)
    second.seal()
    lost = [(bad.first, bad.sequence) for bad in Quarantine(log.store, "Burst").events()]
    assert lost == [(1, 1), (2, 2)], "3 and 4 are in the log"


def test_more_producers_than_the_bound_are_not_taken() -> None:
    writer = LogWriter(EventLog(MemoryStore()), BURST, WriterConfig(producers_max=2))
    feed(writer, "a", [1])
    feed(writer, "b", [1])
    assert not writer.admits("c")
    writer.join("c", 0)
    with pytest.raises(CallerError, match="has 2 producers, which is the limit; events of c are not taken"):
        feed(writer, "c", [1])
    feed(writer, "a", [2], first=2)


def test_of_a_strict_stream_the_first_producer_has_a_time() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, READING)
    feed(writer, "b", [5, 7])
    feed(writer, "a", [5, 7])
    assert writer.seal() == {"b": (0, 2), "a": (0, 2)}
    rows = writer.chain.read(0, 7).to_pylist()
    assert [(row["time"], row["_producer"]) for row in rows] == [(5, "a"), (7, "a")]
    assert [(bad.producer, bad.sequence) for bad in Quarantine(log.store, "Reading").events()] == [("b", 1), ("b", 2)]


def test_a_producer_that_restarts_goes_on_beside_what_is_still_held_of_it() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, LATE)
    feed(writer, "a", [10, 40, 31], epoch=1)
    feed(writer, "a", [33, 41, 32], epoch=2)
    assert writer.seal() == {"a": (1, 1)}
    feed(writer, "a", [50, 70], first=4, epoch=2)
    assert writer.seal() == {"a": (2, 4)}
    assert [row[0] for row in rows_in(log)] == [10, 31, 32, 33, 40, 41, 50]


Step = tuple[int, int, int]


def published(seed: int, producers: int, lateness: int) -> Iterator[list[int]]:
    state = seed
    for _ in range(producers):
        times: list[int] = []
        newest = 100
        for _ in range(12):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            newest += (state >> 40) % 4
            times.append(newest - (state >> 20) % (lateness + 2))
        yield times


@settings(max_examples=120)
@given(
    schedule=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 3)), max_size=80),
    seed=st.integers(0, 2**32),
    producers=st.integers(1, 4),
    lateness=st.sampled_from([0, 3, 9]),
)
def test_any_writers_make_the_canonical_merge_of_what_is_not_late(
    schedule: list[Step], seed: int, producers: int, lateness: int
) -> None:
    """Three writers are fed, seal and die in any order. Which events are late follows from their producer's order."""
    log = EventLog(MemoryStore())
    schema = msgspec.structs.replace(BURST, lateness_us=lateness)
    names = [f"p{number}" for number in range(producers)]
    sent = dict(zip(names, published(seed, producers, lateness), strict=True))

    def begin() -> tuple[LogWriter, dict[str, int]]:
        writer = LogWriter(log, schema)
        for name in names:
            writer.join(name, 0)
        return writer, {name: writer.chain.producers().get(name, (1, 0))[1] for name in names}

    lives = [begin() for _ in range(3)]
    for who, what, count in schedule:
        writer, positions = lives[who]
        if what == 4:
            writer.seal()
        elif what == 5:
            lives[who] = begin()
        else:
            name = names[what % producers]
            times = sent[name][positions[name] : positions[name] + count]
            feed(writer, name, times, first=positions[name] + 1, epoch=1)
            positions[name] += len(times)
    for writer, positions in lives:
        for name in names:
            feed(writer, name, sent[name][positions[name] :], first=positions[name] + 1, epoch=1)
            writer.end(0, name)
        assert writer.seal() == dict.fromkeys(sorted(names), (1, 12)) | dict.fromkeys(names, (1, 12))
    late, wanted = set(), []
    for name in names:
        newest = 0
        for number, time in enumerate(sent[name], 1):
            if time < newest - lateness:
                late.add((name, number))
            else:
                wanted.append((time, name, number))
            newest = max(newest, time)
    wanted.sort()
    assert [(time, name, number) for time, _, name, _, number in rows_in(log)] == wanted
    ordinals: dict[int, int] = {}
    for time, ordinal, *_ in rows_in(log):
        assert ordinal == ordinals.get(time, -1) + 1
        ordinals[time] = ordinal
    assert {(bad.producer, bad.sequence) for bad in Quarantine(log.store, "Burst").events()} == late
