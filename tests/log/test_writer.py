"""The writer: sealed by size or age, twice at the same time without harm, bad events in quarantine."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from unerring.log import EventLog, LogWriter, MemoryStore, Quarantine, Reason, WriterConfig
from unerring.model import TIME_MAX, CallerError, ConfigError, Stamp

from .worlds import BURST, READING, Crash, CrashingStore, times_in


def payload(time: int) -> dict[str, object]:
    return {"machine": f"m{time % 3}", "celsius": time / 2}


def feed(writer: LogWriter, times: list[int], first: int = 0, epoch: int = 0) -> None:
    for sequence, time in enumerate(times, first):
        writer.append("p", (epoch, sequence), Stamp(time), payload(time), now=0)


def test_size_and_age_ask_for_a_segment() -> None:
    writer = LogWriter(EventLog(MemoryStore()), READING, WriterConfig(rows_per_segment=3, rows_held_max=5))
    assert not writer.due(10**12)
    assert writer.due_us() is None
    feed(writer, [1, 2])
    assert not writer.due(0)
    assert writer.due(100_000)
    feed(writer, [3], first=2)
    assert writer.due(0)
    assert writer.seal() == {"p": (0, 2)}
    assert not writer.due(10**12)
    assert times_in(writer.chain) == [1, 2, 3]
    assert writer.chain.through_us == 3


def test_a_full_writer_says_so_and_takes_no_more() -> None:
    writer = LogWriter(EventLog(MemoryStore()), READING, WriterConfig(rows_per_segment=2, rows_held_max=2))
    feed(writer, [1, 2])
    assert writer.full
    with pytest.raises(CallerError, match="seal first"):
        feed(writer, [3], first=2)
    writer.seal()
    feed(writer, [3], first=2)
    with pytest.raises(ConfigError):
        WriterConfig(rows_per_segment=10, rows_held_max=5)


def test_watermark_alone_makes_an_empty_segment() -> None:
    writer = LogWriter(EventLog(MemoryStore()), READING)
    writer.advance(50, now=0)
    writer.seal()
    assert writer.chain.through_us == 50
    writer.advance(40, now=0)
    assert writer.due_us() is None
    writer.end(now=0)
    writer.seal()
    assert writer.chain.through_us == TIME_MAX


def test_with_ordinals_the_last_time_waits_until_it_is_whole() -> None:
    writer = LogWriter(EventLog(MemoryStore()), BURST)
    for sequence, stamp in enumerate([Stamp(5, 0), Stamp(5, 1), Stamp(9, 0)]):
        writer.append("p", (0, sequence), stamp, payload(stamp.time), now=0)
    assert writer.seal() == {"p": (0, 1)}
    assert writer.chain.through_us == 8
    writer.append("p", (0, 3), Stamp(9, 1), payload(9), now=0)
    writer.advance(9, now=0)
    assert writer.seal() == {"p": (0, 3)}
    rows = writer.chain.read(0, 9).to_pylist()
    assert [(row["time"], row["ordinal"], row["_sequence"]) for row in rows] == [
        (5, 0, 0),
        (5, 1, 1),
        (9, 0, 2),
        (9, 1, 3),
    ]


def test_all_of_a_time_that_is_not_over_is_held_however_much_it_is() -> None:
    writer = LogWriter(EventLog(MemoryStore()), BURST, WriterConfig(rows_per_segment=2, rows_held_max=2))
    for sequence in range(5):
        assert not writer.full
        writer.append("p", (0, sequence), Stamp(5, sequence), payload(5), now=0)
    assert writer.seal() == {"p": (0, -1)}
    assert not writer.full, "sealing would not help"
    writer.append("p", (0, 5), Stamp(6), payload(6), now=0)
    assert writer.full
    assert writer.seal() == {"p": (0, 4)}
    assert not writer.full


def test_whether_a_stream_is_strict_may_change() -> None:
    log = EventLog(MemoryStore())
    feed(strict := LogWriter(log, READING), [1])
    strict.seal()
    relaxed = LogWriter(log, msgspec.structs.replace(READING, strict=False))
    for sequence in (1, 2):
        relaxed.append("p", (0, sequence), Stamp(2, sequence), payload(2), now=0)
    relaxed.advance(2, now=0)
    relaxed.seal()
    assert times_in(relaxed.chain) == [1, 2, 2]


def test_bad_events_go_to_quarantine_and_do_not_stop_the_stream() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, READING, WriterConfig(event_bytes_max=200))
    feed(writer, [10])
    writer.append("p", (0, 1), Stamp(11), {"machine": "a"}, now=0)
    writer.append("p", (0, 2), Stamp(12), {"machine": "a", "celsius": "hot"}, now=0)
    writer.append("p", (0, 3), Stamp(9), payload(9), now=0)
    writer.append("p", (0, 4), Stamp(13), {**payload(13), "note": "x" * 500}, now=0)
    writer.undecodable("p", (0, 5), b"\xff\x00", "not a frame of ours", now=0)
    feed(writer, [14], first=6)
    assert writer.seal() == {"p": (0, 6)}
    assert times_in(writer.chain) == [10, 14]
    quarantine = Quarantine(log.store, "Reading")
    assert [(bad.sequence, bad.reason) for bad in quarantine.events()] == [
        (1, Reason.SCHEMA),
        (2, Reason.SCHEMA),
        (3, Reason.NOT_INCREASING),
        (4, Reason.TOO_LARGE),
        (5, Reason.UNDECODABLE),
    ]
    assert quarantine.events()[4].raw == b"\xff\x00"
    assert quarantine.counts() == {"schema": 2, "not increasing": 1, "too large": 1, "undecodable": 1}
    assert writer.quarantined == 5


def test_a_restarted_writer_knows_what_it_took() -> None:
    log = EventLog(MemoryStore())
    feed(first := LogWriter(log, READING), [1, 2, 3])
    first.seal()
    second = LogWriter(log, READING)
    feed(second, [1, 2, 3, 4])
    assert second.repeated == 3
    assert second.seal() == {"p": (0, 3)}
    assert times_in(second.chain) == [1, 2, 3, 4]
    assert Quarantine(log.store, "Reading").events() == []


def test_a_new_epoch_may_count_from_zero_again() -> None:
    log = EventLog(MemoryStore())
    feed(writer := LogWriter(log, READING), [1, 2, 3])
    feed(writer, [4, 5], epoch=1)
    assert writer.seal() == {"p": (1, 1)}
    assert times_in(writer.chain) == [1, 2, 3, 4, 5]


steps = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=60)


@given(schedule=steps, count=st.integers(1, 30))
def test_writers_at_the_same_time_make_the_log_of_one(schedule: list[tuple[int, bool]], count: int) -> None:
    """Each step feeds one of three writers its next event, or lets it seal. Nothing is doubled or missing."""
    log = EventLog(MemoryStore())
    writers = [LogWriter(log, READING) for _ in range(3)]
    positions = [0, 0, 0]
    for who, seals in schedule:
        if seals:
            writers[who].seal()
        elif positions[who] < count:
            feed(writers[who], [positions[who] + 1], first=positions[who])
            positions[who] += 1
    for writer, position in zip(writers, positions, strict=True):
        feed(writer, list(range(position + 1, count + 1)), first=position)
        assert writer.seal() == {"p": (0, count - 1)}
    assert times_in(log.chain("Reading")) == list(range(1, count + 1))
    assert Quarantine(log.store, "Reading").events() == []


@settings(max_examples=60)
@given(at=st.integers(0, 12), after=st.booleans(), size=st.integers(1, 5))
def test_a_crash_at_any_durable_step_loses_and_doubles_nothing(at: int, after: bool, size: int) -> None:
    held: dict[str, bytes] = {}
    events = list(range(1, 21))
    acked = 0
    try:
        writer = LogWriter(EventLog(CrashingStore(held, at, after)), READING)
        for start in range(0, len(events), size):
            feed(writer, events[start : start + size], first=start)
            if start == size:
                writer.append("p", (0, start), Stamp(0), payload(0), now=0)
            acked = writer.seal()["p"][1] + 1
    except Crash:
        pass
    # The channel sends again what was never acknowledged.
    log = EventLog(CrashingStore(held, 10_000, after=False))
    writer = LogWriter(log, READING)
    feed(writer, events[acked:], first=acked)
    assert writer.seal() == {"p": (0, 19)}
    assert times_in(log.chain("Reading")) == events
