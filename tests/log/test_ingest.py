"""Files brought in: ordered within the lateness, once, whatever happens half way."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from unerring.cli import main
from unerring.log import Chain, EventLog, IngestConfig, MemoryStore, Quarantine, ingest
from unerring.log.files import guess_schema
from unerring.log.times import Times
from unerring.model import TIME_MAX, CallerError, ConfigError, SchemaError

from .worlds import BURST, READING, Crash, CrashingStore, ForgetfulStore, table, times_in

T = Times("ts")


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    """The rows in the format that the file's name asks for."""
    if path.suffix == ".csv":
        names = list(rows[0])
        lines = [",".join(names)] + [",".join("" if row[n] is None else str(row[n]) for n in names) for row in rows]
        path.write_text("\n".join(lines) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def rows(times: list[int]) -> list[dict[str, object]]:
    notes = ["n", None]
    return [{"ts": time, "machine": f"m{time % 5}", "celsius": time / 2, "note": notes[time % 2]} for time in times]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_every_kind_of_file_gives_the_same_events(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"r.{kind}", rows([3, 1, 2, 9, 7]))
    log = EventLog(tmp_path / "log")
    done = ingest(log, path, READING, T, IngestConfig(lateness_us=5))
    assert (done.rows, done.added, done.quarantined, done.through_us) == (5, 5, {}, 9)
    chain = log.chain("Reading")
    found = chain.read(0, 9, columns=["machine", "celsius", "note", "_sequence"]).to_pylist()
    assert [row["_sequence"] for row in found] == [1, 2, 0, 4, 3]
    assert [{k: row[k] for k in ("machine", "celsius", "note")} for row in found] == [
        {k: row[k] for k in ("machine", "celsius", "note")} for row in rows([1, 2, 3, 7, 9])
    ]


def late_by_definition(times: list[int], lateness: int, ordinals: bool) -> tuple[list[int], list[int]]:
    """Slow and obvious: the ordered row numbers, and the late or doubled ones."""
    newest, taken, refused = None, [], []
    for number, time in enumerate(times):
        if newest is not None and time < newest - lateness:
            refused.append(number)
        else:
            taken.append((time, number))
        newest = time if newest is None else max(newest, time)
    ordered: list[int] = []
    seen: set[int] = set()
    for time, number in sorted(taken):
        if not ordinals and time in seen:
            refused.append(number)
        else:
            ordered.append(number)
        seen.add(time)
    return ordered, sorted(refused)


@settings(max_examples=80)
@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    lateness=st.integers(0, 40),
    size=st.integers(1, 20),
    ordinals=st.booleans(),
)
def test_order_and_lateness_are_as_defined(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], lateness: int, size: int, ordinals: bool
) -> None:
    path = write(tmp_path_factory.mktemp("ingest") / "r.parquet", rows(times))
    schema = BURST if ordinals else READING
    log = EventLog(MemoryStore())
    ingest(log, path, schema, T, IngestConfig(lateness_us=lateness, rows_per_segment=size))
    ordered, refused = late_by_definition(times, lateness, ordinals)
    chain = log.chain(schema.name)
    found = chain.read(-1, chain.through_us).to_pylist()
    assert [row["_sequence"] for row in found] == ordered
    stamps = [(row["time"], row["ordinal"]) for row in found]
    assert stamps == sorted(set(stamps))
    assert [bad.sequence for bad in Quarantine(log.store, schema.name).events()] == refused


@settings(max_examples=60)
@given(at=st.integers(0, 14), after=st.booleans(), size=st.integers(1, 9), twice=st.booleans())
def test_a_crash_half_way_goes_on_where_it_stopped(
    tmp_path_factory: pytest.TempPathFactory, at: int, after: bool, size: int, twice: bool
) -> None:
    times = [5, 3, 8, 1, 9, 9, 12, 4, 20, 18, 25, 24, 23, 40, 33]
    path = write(tmp_path_factory.mktemp("crash") / "r.jsonl", rows(times))
    config = IngestConfig(lateness_us=7, rows_per_segment=size)
    held: dict[str, bytes] = {}
    for crash in [at, *([at // 2] if twice else [])]:
        try:
            ingest(EventLog(CrashingStore(held, crash, after)), path, READING, T, config)
        except Crash:
            continue
    log = EventLog(CrashingStore(held, 10_000, after=False))
    ingest(log, path, READING, T, config)
    perfect = EventLog(MemoryStore())
    ingest(perfect, path, READING, T, config)
    chain, wanted = log.chain("Reading"), perfect.chain("Reading")
    assert chain.read(-1, 40).equals(wanted.read(-1, 40))
    assert Quarantine(log.store, "Reading").events() == Quarantine(perfect.store, "Reading").events()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_same_file_twice_adds_nothing(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / f"r.{kind}", rows([1, 2, 3]))
    log = EventLog(tmp_path / "log")
    assert ingest(log, path, READING, T).added == 3
    before = sorted(p.name for p in (tmp_path / "log").rglob("*") if p.is_file())
    again = ingest(log, path, READING, T)
    assert (again.added, again.already) == (0, True)
    copy = tmp_path / f"another-name.{kind}"
    copy.write_bytes(path.read_bytes())
    assert ingest(log, copy, READING, T).already
    assert sorted(p.name for p in (tmp_path / "log").rglob("*") if p.is_file()) == before


def test_what_the_stream_has_passed_is_late(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    log.create(READING).seal(5, table([4, 5]))
    done = ingest(log, write(tmp_path / "r.csv", rows([3, 4, 6, 7])), READING, T)
    assert (done.added, done.quarantined) == (2, {"late": 2})
    assert times_in(log.chain("Reading")) == [4, 5, 6, 7]
    assert "already reached 5" in Quarantine(log.store, "Reading").events()[0].detail
    all_late = ingest(log, write(tmp_path / "old.csv", rows([1, 2])), READING, T)
    assert (all_late.added, all_late.quarantined, all_late.through_us) == (0, {"late": 2}, 7)
    assert ingest(log, tmp_path / "old.csv", READING, T).already


def test_a_file_is_added_though_every_reply_of_the_store_is_lost(tmp_path: Path) -> None:
    log = EventLog(ForgetfulStore())
    path = write(tmp_path / "a.csv", rows(list(range(1, 8))))
    result = ingest(log, path, READING, T, IngestConfig(rows_per_segment=3), end=True)
    assert (result.added, result.quarantined, result.through_us) == (7, {}, TIME_MAX)
    assert times_in(log.chain(READING.name)) == list(range(1, 8))


def test_a_stream_ends_though_another_writer_sealed_meanwhile(tmp_path: Path) -> None:
    class Busy(MemoryStore):
        """Another writer is faster, once, when the end is to be sealed."""

        def create(self, name: str, data: bytes) -> bool:
            if "/segments/" in name and chains and chains[0].refresh() == 2:
                chain = chains.pop()
                chain.seal(9, table([9]))
            return MemoryStore.create(self, name, data)

    chains: list[Chain] = []
    log = EventLog(Busy())
    chains.append(log.create(READING))
    result = ingest(log, write(tmp_path / "a.csv", rows([1, 2])), READING, T, end=True)
    assert result.through_us == TIME_MAX
    assert times_in(log.chain(READING.name)) == [1, 2, 9]


def test_rows_behind_those_of_a_faster_writer_are_added_too(tmp_path: Path) -> None:
    class Busy(MemoryStore):
        """Another writer is faster, once, when the first rows are to be sealed."""

        def create(self, name: str, data: bytes) -> bool:
            if "/segments/" in name and chains:
                chains.pop().seal(2, table([1, 2]))
            return MemoryStore.create(self, name, data)

    chains: list[Chain] = []
    log = EventLog(Busy())
    chains.append(log.create(READING))
    result = ingest(log, write(tmp_path / "a.csv", rows([2, 3, 4])), READING, T)
    assert (result.added, result.quarantined, result.through_us) == (2, {"late": 1}, 4)
    assert times_in(log.chain(READING.name)) == [1, 2, 3, 4]


def test_a_stream_that_is_complete_ends(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    assert ingest(log, write(tmp_path / "r.csv", rows([1])), READING, T, end=True).through_us == TIME_MAX
    assert ingest(log, write(tmp_path / "s.csv", rows([2])), READING, T, end=True).quarantined == {"late": 1}


BAD_CSV = b"\n".join(
    [
        b"\xef\xbb\xbfts,machine,celsius,note",
        b"1,a,1.5,",
        b"2,a,hot,",
        b'3,a,2.5,"two\nlines, and ""quotes"""',
        b"4,a",
        b"",
        b"5,\xff\xfe,1.0,",
        b",a,1.0,",
        b"6,a,,x",
        b"7,b,7,plain\n",
    ]
)


def test_bad_rows_of_a_csv_stand_alone_with_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(BAD_CSV)
    log = EventLog(tmp_path / "log")
    done = ingest(log, path, READING, T)
    assert (done.rows, done.added, done.quarantined) == (8, 3, {"schema": 5})
    found = log.chain("Reading").read(0, 7, columns=["note"]).to_pylist()
    assert [(row["time"], row["note"]) for row in found] == [(1, None), (3, 'two\nlines, and "quotes"'), (7, "plain")]
    bad = Quarantine(log.store, "Reading").events()
    assert [(event.sequence, event.raw) for event in bad] == [
        (1, b"2,a,hot,\n"),
        (3, b"4,a\n"),
        (4, b"5,\xff\xfe,1.0,\n"),
        (5, b",a,1.0,\n"),
        (6, b"6,a,,x\n"),
    ]


def test_bad_rows_of_json_lines_stand_alone_with_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    lines = [
        b'{"ts": 1, "machine": "a", "celsius": 1}',
        b'{"ts": 2, "machine": "a"',
        b'{"ts": 3, "machine": 7, "celsius": 1}',
        b'{"ts": "yesterday", "machine": "a", "celsius": 1}',
        b'{"ts": "1970-01-01T00:00:00.000009Z", "machine": "a", "celsius": 2.5, "extra": []}',
        b"\xff",
    ]
    path.write_bytes(b"\n".join(lines))
    log = EventLog(tmp_path / "log")
    done = ingest(log, path, READING, T)
    assert (done.added, done.quarantined) == (2, {"undecodable": 2, "schema": 2})
    assert times_in(log.chain("Reading")) == [1, 9]
    assert [event.raw for event in Quarantine(log.store, "Reading").events()] == [lines[i] for i in (1, 2, 3, 5)]


def test_bad_rows_of_parquet_stand_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    held = {"ts": [1, None, 3], "machine": ["a", "b", None], "celsius": [1, 2, 3], "note": ["", "", ""]}
    pq.write_table(pa.table(held), path)
    log = EventLog(tmp_path / "log")
    assert ingest(log, path, READING, T).quarantined == {"schema": 2}
    assert json.loads(Quarantine(log.store, "Reading").events()[1].raw)["ts"] == 3


@pytest.mark.parametrize(
    ("written", "times", "wanted"),
    [
        ("7", Times("ts", "s"), 7_000_000),
        ("7", Times("ts", "ms"), 7_000),
        ("7999", Times("ts", "ns"), 7),
        ("1970-01-01T01:00:00+01:00", T, 0),
        ("1970-01-01 00:00:01.5Z", T, 1_500_000),
        ("1970-01-01T01:00:02", Times("ts", zone="Europe/Berlin"), 2_000_000),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_times_are_understood(tmp_path: Path, kind: str, written: str, times: Times, wanted: int) -> None:
    value: object = int(written) if kind == "jsonl" and written.isdigit() else written
    path = write(tmp_path / f"r.{kind}", [{**rows([1])[0], "ts": value}])
    log = EventLog(tmp_path / "log")
    ingest(log, path, READING, times)
    assert times_in(log.chain("Reading")) == [wanted]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_nanoseconds_before_1970_are_rounded_down_in_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    moments = [-2001, -2000, -1, 999]
    path = write(tmp_path / f"r.{kind}", [{**rows([1])[0], "ts": moment} for moment in moments])
    log = EventLog(tmp_path / "log")
    ingest(log, path, READING, Times("ts", "ns"))
    chain = log.chain("Reading")
    assert chain.read(-9, chain.through_us).column("time").to_pylist() == [-3, -2, -1, 0]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_time_without_a_zone_is_not_guessed(tmp_path: Path, kind: str) -> None:
    given = [{**rows([1])[0], "ts": "1970-01-01T01:00:02"}]
    if kind == "parquet":
        given = [{**row, "ts": datetime.fromisoformat(str(row["ts"]))} for row in given]
    path = write(tmp_path / f"r.{kind}", given)
    log = EventLog(tmp_path / "log")
    with pytest.raises(CallerError, match=r"'1970-01-01.01:00:02.*' in column 'ts' has no time zone; .* --zone UTC"):
        ingest(log, path, READING, T)
    assert log.streams() == [], "nothing is brought in, and nothing is in quarantine"
    ingest(log, path, READING, Times("ts", zone="UTC"))
    assert times_in(log.chain("Reading")) == [3_602_000_000]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_time_without_a_zone_among_others_goes_to_quarantine_with_what_to_do(tmp_path: Path, kind: str) -> None:
    moments = ["1970-01-01T01:00:02Z", "1970-01-01T01:00:03", "1970-01-01T01:00:04Z"]
    path = write(tmp_path / f"r.{kind}", [{**rows([1])[0], "ts": moment} for moment in moments])
    log = EventLog(tmp_path / "log")
    assert ingest(log, path, READING, T).quarantined == {"schema": 1}
    assert "--zone" in Quarantine(log.store, "Reading").events()[0].detail


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("number", "said", "unit", "wanted"),
    [
        (
            1_772_352_000,
            "would be in the year 1970 as microseconds, and is clearly seconds",
            "s",
            1_772_352_000_000_000,
        ),
        (1_772_352_000_500, "would be in the year 1970 .* clearly milliseconds", "ms", 1_772_352_000_500_000),
        (1_772_352_000_500_000_123, "would be in the year 58133 .* clearly nanoseconds", "ns", 1_772_352_000_500_000),
    ],
)
def test_numbers_that_are_clearly_of_another_unit_are_refused(
    tmp_path: Path, kind: str, number: int, said: str, unit: str, wanted: int
) -> None:
    path = write(tmp_path / f"r.{kind}", [{**rows([1])[0], "ts": number}])
    log = EventLog(tmp_path / "log")
    with pytest.raises(CallerError, match=f"time {number} in column 'ts' {said}; use --time-unit {unit}"):
        ingest(log, path, READING, T)
    assert log.streams() == []
    ingest(log, path, READING, Times("ts", unit))
    assert times_in(log.chain("Reading")) == [wanted]


def test_a_unit_that_was_said_is_believed(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", rows([1_772_352_000]))
    ingest(log := EventLog(tmp_path / "log"), path, READING, Times("ts", "us"))
    assert times_in(log.chain("Reading")) == [1_772_352_000]
    with pytest.raises(CallerError, match="time zone 'Mars' is not known"):
        Times("ts", zone="Mars")


def test_a_stream_is_declared_after_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", [{"ts": 1, "machine": "a", "n": 3, "x": 1.5, "ok": "true"}])
    schema = guess_schema(path, "Guess", ("machine",), T)
    assert {c.name: (c.type.value, c.nullable) for c in schema.columns} == {
        "machine": ("text", False),
        "n": ("int", True),
        "x": ("float", True),
        "ok": ("bool", True),
    }
    assert not schema.strict
    assert ingest(EventLog(tmp_path / "log"), path, schema, T).added == 1


@pytest.mark.parametrize(
    ("name", "content", "error", "sentence"),
    [
        ("r.csv", b"ts,machine\n1,a\n", SchemaError, "no column 'celsius', which .*; it has ts, machine"),
        ("r.xml", b"<a/>", CallerError, r"files named \*\.xml are not supported"),
        ("r.parquet", b"PAR1 not really", CallerError, "not a complete Parquet file"),
        ("missing.csv", None, CallerError, "is not a file"),
    ],
)
def test_hopeless_files_get_a_sentence(
    tmp_path: Path, name: str, content: bytes | None, error: type[Exception], sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=sentence):
        ingest(EventLog(tmp_path / "log"), tmp_path / name, READING, T)


def test_too_much_within_the_lateness_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rows(list(range(50))))
    config = IngestConfig(lateness_us=99, rows_per_segment=5, rows_held_max=9)
    with pytest.raises(ConfigError, match="use a smaller lateness"):
        ingest(EventLog(MemoryStore()), path, READING, T, config)


def test_quoted_newlines_do_not_split_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import unerring.log.files as files

    monkeypatch.setattr(files, "BLOCK_BYTES", 16)
    path = tmp_path / "r.csv"
    path.write_text("ts,machine,celsius,note\n" + "".join(f'{i},"a\n{i}",1.0,"x,\ny"\n' for i in range(1, 30)))
    log = EventLog(tmp_path / "log")
    assert ingest(log, path, READING, T).added == 29
    found = log.chain("Reading").read(0, 3, columns=["machine"])
    assert found.column("machine").to_pylist() == ["a\n1", "a\n2", "a\n3"]


# --- as a command


def ingested(*arguments: object) -> int:
    try:
        main(["ingest", *map(str, arguments)])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_the_command_fails_when_more_than_a_little_went_to_quarantine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "r.csv", rows([*range(10, 107), 1, 2, 3]))
    known = ["--stream", "Reading", "--time-column", "ts", "--key", "machine"]
    assert ingested(path, *known, "--data", tmp_path / "a") == 1
    told = capsys.readouterr()
    assert "97 of 100 rows" in told.out
    assert "3 of 100 rows (3 %)" in told.err
    assert "more than --quarantine-max 1: see why with `unerring quarantine show" in told.err
    assert ingested(path, *known, "--data", tmp_path / "a") == 1, "the second time, too"
    assert ingested(path, *known, "--data", tmp_path / "b", "--quarantine-max", 5) == 0
    assert ingested(path, *known, "--data", tmp_path / "c", "--lateness", "1s") == 0
    assert ingested(path, *known, "--data", tmp_path / "d", "--quarantine-max", 0, "--json") == 1


def test_the_command_asks_for_the_key_of_a_new_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "r.csv", rows([1, 2]))
    known = ["--stream", "Reading", "--time-column", "ts", "--data", tmp_path / "run"]
    assert ingested(path, *known) == 2
    assert "its key is not known; name the key columns with --key" in capsys.readouterr().err
    assert ingested(path, *known, "--key", "machine", "--no-key") == 2
    assert ingested(path, *known, "--no-key") == 0
    more = write(tmp_path / "more.csv", rows([3, 4]))
    assert ingested(more, *known) == 0, "it is there now"
    declared = EventLog(tmp_path / "run" / "log").declaration("Reading")
    assert declared is not None
    assert declared.schema.key == ()
