"""Several files in one call: the lateness holds across their seams, once, whatever happens half way."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from unerring.app.verifying import verify
from unerring.log import EventLog, IngestConfig, MemoryStore, Quarantine, ingest
from unerring.model import CallerError, ConfigError, SchemaError, StreamSchema, schema_of, stream

from .test_ingest import T, ingested, late_by_definition, rows, write
from .worlds import BURST, READING, Crash, CrashingStore, times_in

KNOWN = ("--stream", "Reading", "--time-column", "ts", "--key", "machine")
VALUES = ["machine", "celsius", "note"]


def pieces(folder: Path, times: list[list[int]], kind: str = "jsonl") -> list[Path]:
    """A file of each; their rows differ in more than the time, so that no two files are the same."""
    return [
        write(folder / f"{number:02}.{kind}", [{**row, "note": f"{number}-{at}"} for at, row in enumerate(rows(part))])
        for number, part in enumerate(times)
    ]


def overlapping(files: int, each: int, over: int) -> list[list[int]]:
    """Files in order, each of which begins `over` before the end of the one before it. No two times are the same."""
    draw = random.Random(7)
    parts = []
    for number in range(files):
        start = number * each * 10
        moments = [start + at * 10 + number % 10 for at in range(-over // 10, each)]
        draw.shuffle(moments)
        parts.append([moment + 1_000 for moment in moments])
    return parts


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("size", [40, 1_000_000])
def test_nothing_is_late_at_the_seams_of_ten_files(tmp_path: Path, kind: str, size: int) -> None:
    parts = overlapping(files=10, each=50, over=200)
    config = IngestConfig(lateness_us=800, rows_per_segment=size)
    log = EventLog(MemoryStore())
    done = ingest(log, pieces(tmp_path, parts, kind), READING, T, config)
    every = [moment for part in parts for moment in part]
    assert (done.rows, done.added, done.quarantined) == (len(every), len(every), {})
    found = log.chain("Reading").read(0, done.through_us)
    assert found.column("time").to_pylist() == sorted(every)
    whole = [{**row, "note": f"{n}-{at}"} for n, part in enumerate(parts) for at, row in enumerate(rows(part))]
    one = EventLog(MemoryStore())
    ingest(one, write(tmp_path / f"sorted.{kind}", sorted(whole, key=lambda row: int(str(row["ts"])))), READING, T)
    wanted = one.chain("Reading").read(0, done.through_us, columns=VALUES)
    assert found.select(wanted.column_names).equals(wanted)


def test_by_themselves_the_same_files_are_late_at_their_seams(tmp_path: Path) -> None:
    log = EventLog(MemoryStore())
    paths = pieces(tmp_path, overlapping(files=10, each=50, over=200))
    config = IngestConfig(lateness_us=800)
    late = [ingest(log, path, READING, T, config).quarantined.get("late", 0) for path in paths]
    assert late == [0] + [19] * 9, "a call seals all of its rows when it ends"


def test_beyond_the_lateness_exactly_those_are_late_that_are(tmp_path: Path) -> None:
    parts = [sorted(part) for part in overlapping(files=10, each=50, over=200)]
    log = EventLog(MemoryStore())
    done = ingest(log, pieces(tmp_path, parts), READING, T, IngestConfig(lateness_us=100))
    late = [moment for before, part in pairwise(parts) for moment in part if moment < before[-1] - 100]
    assert (len(late), done.quarantined) == (81, {"late": 81})
    assert sorted([*times_in(log.chain("Reading")), *late]) == sorted(moment for part in parts for moment in part)
    assert not set(times_in(log.chain("Reading"))) & set(late)


@settings(max_examples=80)
@given(
    parts=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=15), min_size=2, max_size=6),
    lateness=st.integers(0, 40),
    size=st.integers(1, 20),
    ordinals=st.booleans(),
)
def test_files_are_as_one_file_of_all_their_rows(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], lateness: int, size: int, ordinals: bool
) -> None:
    schema = BURST if ordinals else READING
    log = EventLog(MemoryStore())
    paths = pieces(tmp_path_factory.mktemp("files"), parts)
    done = ingest(log, paths, schema, T, IngestConfig(lateness_us=lateness, rows_per_segment=size))
    ordered, refused = late_by_definition([moment for part in parts for moment in part], lateness, ordinals)
    notes = [f"{number}-{at}" for number, part in enumerate(parts) for at in range(len(part))]
    chain = log.chain(schema.name)
    found = chain.read(-1, chain.through_us, columns=["note", "_producer", "_sequence"]).to_pylist()
    assert [row["note"] for row in found] == [notes[number] for number in ordered]
    assert [row["_sequence"] for row in found] == [int(notes[number].split("-")[1]) for number in ordered]
    bad = Quarantine(log.store, schema.name).events()
    producers = {row["note"].split("-")[0]: row["_producer"] for row in found}
    assert len(set(producers.values())) == len(producers)
    assert len({event.id for event in bad}) == len(bad) == len(refused) == sum(done.quarantined.values())
    assert (done.rows, done.added) == (len(notes), len(ordered))
    wanted = sorted(notes[number] for number in refused)
    assert sorted(note for event in bad for note in notes if f'"{note}"'.encode() in event.raw) == wanted


@settings(max_examples=60)
@given(at=st.integers(0, 24), after=st.booleans(), size=st.integers(1, 9), twice=st.booleans())
def test_a_crash_half_way_goes_on_where_it_stopped(
    tmp_path_factory: pytest.TempPathFactory, at: int, after: bool, size: int, twice: bool
) -> None:
    parts = [[5, 3, 8, 1, 9], [9, 12, 4, 20], [18, 25, 24], [23, 40, 33, 2]]
    paths = pieces(tmp_path_factory.mktemp("crash"), parts)
    config = IngestConfig(lateness_us=7, rows_per_segment=size)
    held: dict[str, bytes] = {}
    for crash in [at, *([at // 2] if twice else [])]:
        try:
            ingest(EventLog(CrashingStore(held, crash, after)), paths, READING, T, config)
        except Crash:
            continue
    log, perfect = EventLog(CrashingStore(held, 10_000, after=False)), EventLog(MemoryStore())
    told, wanted = (ingest(each, paths, READING, T, config) for each in (log, perfect))
    assert (told.rows, told.quarantined) == (wanted.rows, wanted.quarantined)
    assert log.chain("Reading").read(-1, 40).equals(perfect.chain("Reading").read(-1, 40))
    assert Quarantine(log.store, "Reading").events() == Quarantine(perfect.store, "Reading").events()
    for again in (paths, paths[1:3], paths[:1], [*paths, paths[2]]):
        result = ingest(log, again, READING, T, config)
        assert (result.added, result.already) == (0, True)


def test_a_file_of_a_call_that_has_not_ended_waits_for_that_call(tmp_path: Path) -> None:
    paths = pieces(tmp_path, [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    config = IngestConfig(rows_per_segment=2)
    held: dict[str, bytes] = {}
    steps = 0
    while not any("/segments/" in name for name in held):
        steps += 1
        held.clear()
        with pytest.raises(Crash):
            ingest(EventLog(CrashingStore(held, steps, after=False)), paths[:2], READING, T, config)
    log = EventLog(CrashingStore(held, 10_000, after=False))
    sealed = times_in(log.chain("Reading"))
    assert 0 < len(sealed) < 6
    for other in (paths[0], paths[1], paths, paths[1::-1]):
        with pytest.raises(
            CallerError, match=r"in part, .* same files in the same order first: \S*00.jsonl \S*01.json"
        ):
            ingest(log, other, READING, T, config)
    assert times_in(log.chain("Reading")) == sealed
    assert Quarantine(log.store, "Reading").events() == []
    assert ingest(log, paths[:2], READING, T, config).quarantined == {}
    rest = ingest(log, paths, READING, T, config)
    assert (rest.rows, rest.added, rest.files_already, rest.already) == (9, 3, 2, False)
    assert times_in(log.chain("Reading")) == list(range(1, 10))


def test_a_file_that_is_in_in_part_by_itself_is_ended_by_itself(tmp_path: Path) -> None:
    paths = pieces(tmp_path, [[1, 2, 3, 4, 5, 6], [7, 8]])
    held: dict[str, bytes] = {}
    steps = 0
    while not any("/segments/" in name for name in held):
        steps += 1
        held.clear()
        with pytest.raises(Crash):
            ingest(EventLog(CrashingStore(held, steps, after=False)), paths[0], READING, T, IngestConfig(0, 2))
    log = EventLog(CrashingStore(held, 10_000, after=False))
    with pytest.raises(CallerError, match="ingest it by itself first"):
        ingest(log, paths, READING, T)
    ingest(log, paths[0], READING, T, IngestConfig(0, 2))
    assert ingest(log, paths, READING, T).added == 2
    assert times_in(log.chain("Reading")) == list(range(1, 9))


def test_two_calls_at_once_with_a_file_in_common_bring_it_in_once(tmp_path: Path) -> None:
    paths = pieces(tmp_path, [[1, 2], [3, 4], [5, 6]])

    class Busy(MemoryStore):
        """Another call seals just before this one does."""

        def create(self, name: str, data: bytes) -> bool:
            if "/segments/" in name and not raced:
                raced.append(name)
                ingest(EventLog(self), paths[1:], READING, T)
            return MemoryStore.create(self, name, data)

    raced: list[str] = []
    log = EventLog(Busy())
    with pytest.raises(CallerError, match="in part, by a call that has not ended"):
        ingest(log, paths[:2], READING, T)
    assert times_in(log.chain("Reading")) == [3, 4, 5, 6]
    assert ingest(log, paths[:2], READING, T).quarantined == {"late": 2}, "the stream is past the first one now"
    assert times_in(log.chain("Reading")) == [3, 4, 5, 6]


def test_a_hopeless_file_stops_a_call_before_it_begins(tmp_path: Path) -> None:
    paths = pieces(tmp_path, [[1, 2], [3, 4]], "csv")
    bad = tmp_path / "bad.csv"
    bad.write_text("ts,machine\n5,a\n")
    log = EventLog(tmp_path / "log")
    with pytest.raises(SchemaError, match=r"bad.csv has no column 'celsius'"):
        ingest(log, [*paths, bad], READING, T, IngestConfig(rows_per_segment=1))
    assert times_in(log.chain("Reading")) == []
    assert ingest(log, paths, READING, T).added == 4


def test_what_is_held_across_files_is_bounded(tmp_path: Path) -> None:
    paths = pieces(tmp_path, [list(range(start, start + 5)) for start in range(0, 50, 5)])
    config = IngestConfig(lateness_us=99, rows_per_segment=5, rows_held_max=9)
    with pytest.raises(ConfigError, match="use a smaller lateness"):
        ingest(EventLog(MemoryStore()), paths, READING, T, config)


# --- as a command


def test_the_command_takes_files_and_says_what_was_in_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = pieces(tmp_path, overlapping(files=4, each=30, over=100), "csv")
    known = (*KNOWN, "--data", tmp_path / "run", "--lateness", "1ms")
    assert ingested(*paths[:3], *known) == 0
    assert "120 of 120 rows of 3 files are in stream Reading" in capsys.readouterr().out
    assert ingested(*paths[:3], *known) == 0
    assert "3 files are already in stream Reading: nothing to add" in capsys.readouterr().out
    assert ingested(*paths, *known, "--quarantine-max", 10) == 0
    told = capsys.readouterr().out
    assert "31 of 160 rows of 4 files, 3 of which were in before, were added to stream Reading" in told
    assert "9 went to quarantine: late" in told
    marks = next(kind for kind in verify(tmp_path / "run").kinds if kind.name == "marks of ingested files")
    assert (marks.files, marks.damaged) == (3 * 2 + 1 + 2, 0), (
        "begun and call of three, their end; begun and end of one"
    )
    assert ingested(*paths, *known, "--master", "local[1]") == 2
    assert "with --master there is one source, and these are 4" in capsys.readouterr().err


def test_an_address_is_not_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ingested("s3a://bucket/events", *KNOWN, "--data", tmp_path / "run") == 2
    assert "s3a://bucket/events is an address, not a file; add --master" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_lateness_of_a_stream_counts_where_none_is_given(tmp_path: Path) -> None:
    @stream(key="machine", name="Reading", lateness=800)
    class Late:
        machine: str
        celsius: float
        note: str | None = None

    declared: StreamSchema = schema_of(Late)
    paths = pieces(tmp_path, overlapping(files=3, each=30, over=100), "csv")
    for folder, options, code in (("a", (), 0), ("b", ("--lateness", "0s"), 1)):
        EventLog(tmp_path / folder / "log").create(declared)
        assert ingested(*paths, *KNOWN[:4], "--data", tmp_path / folder, *options) == code
