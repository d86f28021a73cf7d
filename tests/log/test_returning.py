"""Out of quarantine and back: seen with bytes and reason, corrected, brought back once."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from unerring.cli import main
from unerring.log import (
    BadEvent,
    EventLog,
    LogWriter,
    MemoryStore,
    Quarantine,
    Reason,
    WriterConfig,
    ingest,
    is_encrypted,
)
from unerring.log.returning import Held, Returned, _placed, _Ready, bring_back, held
from unerring.log.times import Times
from unerring.model import TIME_MAX, CallerError, Stamp

from .worlds import BURST, READING, Crash, CrashingStore

CSV = """ts,machine,celsius,note
1970-01-01T00:00:01Z,a,1.5,
1970-01-01T00:00:02Z,b,hot,n
1970-01-01T00:00:03,c,2.5,n
1970-01-01T00:00:00Z,d,3.5,"x, y"
1970-01-01T00:00:04Z,e,4.5,n
"""
T = Times("ts")


def write(tmp_path: Path, text: str = CSV, name: str = "r.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def corrected(found: list[Held], **columns: Any) -> list[Held]:
    return [msgspec.structs.replace(one, row={**(one.row or {}), **columns}) for one in found]


def machines(log: EventLog, stream: str = "Burst") -> list[tuple[int, int, str]]:
    chain = log.chain(stream)
    rows = chain.read(chain.base.from_us, chain.refresh()).to_pylist()
    return [(row["time"], row["ordinal"], row["machine"]) for row in rows]


def test_bad_rows_of_a_csv_file_are_seen_as_rows_corrected_and_brought_back(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    assert ingest(log, write(tmp_path), BURST, T).quarantined == {"schema": 2, "late": 1}
    bad = held(log, "Burst")
    assert [one.row for one in bad] == [
        {"time": 2_000_000, "machine": "b", "celsius": "hot", "note": "n"},
        {"time": "1970-01-01T00:00:03", "machine": "c", "celsius": "2.5", "note": "n"},
        {"time": 0, "machine": "d", "celsius": 3.5, "note": "x, y"},
    ]
    assert bad[0].raw == b"1970-01-01T00:00:02Z,b,hot,n\n"
    done = bring_back(log.chain("Burst"), bad)
    assert done.brought == 0
    assert [(one.sequence, one.reason) for one in done.stayed] == [
        (1, Reason.SCHEMA),
        (2, Reason.SCHEMA),
        (3, Reason.LATE),
    ]
    assert "--zone" in done.stayed[1].detail
    assert "already reached 4000000; --restamp" in done.stayed[2].detail
    better = [*corrected(bad[:1], celsius="7.5", time="1970-01-01T00:00:05Z"), *bad[1:]]
    done = bring_back(log.chain("Burst"), better, zone="UTC")
    assert (done.brought, [one.reason for one in done.stayed]) == (1, [Reason.LATE, Reason.LATE])
    assert machines(log)[-1] == (5_000_000, 0, "b")
    assert [one.sequence for one in held(log, "Burst")] == [2, 3]
    done = bring_back(log.chain("Burst"), better, zone="UTC", restamp=True)
    assert (done.brought, done.already, done.stayed) == (2, 1, ())
    assert machines(log)[-2:] == [(5_000_001, 0, "c"), (5_000_001, 1, "d")] or machines(log)[-2:] == [
        (5_000_001, 0, "d"),
        (5_000_001, 1, "c"),
    ]
    assert held(log, "Burst") == []
    assert Quarantine(log.store, "Burst").counts() == {}
    assert bring_back(log.chain("Burst"), better).already == 3
    assert len(machines(log)) == 5


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_rows_of_other_files_are_seen_as_rows_too(tmp_path: Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    given_rows = [{"ts": 1, "machine": "a", "celsius": 1.5}, {"ts": 2, "machine": None, "celsius": 2.5}]
    path = tmp_path / f"r.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps({**row, "note": None}) + "\n" for row in given_rows))
    else:
        pq.write_table(pa.Table.from_pylist([{**row, "note": "n"} for row in given_rows]), path)
    log = EventLog(tmp_path / "log")
    ingest(log, path, BURST, Times("ts", "s"))
    [bad] = held(log, "Burst")
    assert bad.row is not None
    assert (bad.row["time"], bad.row["machine"], bad.row["celsius"]) == (2_000_000, None, 2.5)
    assert bring_back(log.chain("Burst"), corrected([bad], machine="b")).brought == 1
    assert machines(log) == [(1_000_000, 0, "a"), (2_000_000, 0, "b")]


def test_events_of_a_channel_keep_their_time_and_what_cannot_be_read_is_written_anew() -> None:
    log = EventLog(MemoryStore())
    writer = LogWriter(log, BURST, WriterConfig(event_bytes_max=100))
    writer.append("p", (1, 1), Stamp(10), {"machine": "a", "celsius": "hot"}, now=0)
    writer.undecodable("p", (1, 2), b"\xff", "not msgpack", now=0)
    writer.lost("p", (1, 3), "numbers 3 to 3", now=0)
    writer.append("p", (1, 4), Stamp(12), {"machine": "b", "celsius": 1.0}, now=0)
    writer.seal()
    bad = held(log, "Burst")
    assert [one.row for one in bad] == [{"time": 10, "machine": "a", "celsius": "hot"}, None, None]
    done = bring_back(log.chain("Burst"), bad, restamp=True)
    assert [one.reason for one in done.stayed] == [Reason.SCHEMA, Reason.UNDECODABLE, Reason.LOST]
    done = bring_back(log.chain("Burst"), corrected(bad, time=20, machine="c", celsius=2.0))
    assert (done.brought, [one.detail for one in done.stayed]) == (2, ["it never came, so there are no bytes"])
    assert machines(log) == [(20, 0, "c"), (20, 1, "c")]
    writer.advance(30, now=0)
    writer.seal()
    assert machines(log) == [(20, 0, "c"), (20, 1, "c")], "what the stream passed meanwhile"
    assert [one.sequence for one in held(log, "Burst")] == [3, 4]


def test_bytes_of_a_stream_without_secrets_need_no_key_whatever_they_begin_with() -> None:
    log = EventLog(MemoryStore())
    log.create(BURST)
    came = b"unerring encrypted 1\n by the publisher, for itself"
    assert is_encrypted(came)
    Quarantine(log.store, "Burst").add([BadEvent("p", 1, 1, Reason.UNDECODABLE, "not msgpack", came)])
    [given] = held(log, "Burst", secrets=True)
    assert (given.detail, given.raw) == ("not msgpack", came)


def test_a_strict_stream_stays_strict_and_one_that_has_ended_ended(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    ingest(log, write(tmp_path), READING, T)
    bad = corrected(held(log, "Reading"), time=9_000_000, celsius=1.0)
    done = bring_back(log.chain("Reading"), bad[:2])
    assert (done.brought, [one.reason for one in done.stayed]) == (1, [Reason.NOT_INCREASING])
    assert bring_back(log.chain("Reading"), bad, restamp=True).brought == 2
    assert [time for time, _, _ in machines(log, "Reading")][-3:] == [9_000_000, 9_000_001, 9_000_002]
    ended = EventLog(tmp_path / "ended")
    ingest(ended, tmp_path / "r.csv", BURST, T, end=True)
    assert ended.chain("Burst").through_us == TIME_MAX
    done = bring_back(ended.chain("Burst"), corrected(held(ended, "Burst"), celsius=1.0), zone="UTC", restamp=True)
    assert {one.detail.partition(": ")[2] for one in done.stayed} == {"the stream has ended"}


def test_what_was_never_in_quarantine_cannot_be_brought_back(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    ingest(log, write(tmp_path), BURST, T)
    [bad, *_] = held(log, "Burst")
    with pytest.raises(CallerError, match="is not in the quarantine of stream Burst"):
        bring_back(log.chain("Burst"), [msgspec.structs.replace(bad, sequence=0)])


@given(st.integers(0, 12), st.booleans())
def test_whatever_ends_it_half_way_each_event_is_back_once(at: int, after: bool) -> None:
    kept: dict[str, bytes] = {}
    writer = LogWriter(EventLog(CrashingStore(kept, 10**9, after)), BURST)
    for sequence in range(4):
        writer.append("p", (1, sequence), Stamp(10 + sequence), {"machine": "abcd"[sequence], "celsius": "hot"}, now=0)
    writer.advance(100, now=0)
    writer.seal()
    log = EventLog(CrashingStore(kept, at, after))
    with contextlib.suppress(Crash):
        bring_back(log.chain("Burst"), corrected(held(log, "Burst")[:2], celsius=1.0), restamp=True)
    log = EventLog(CrashingStore(kept, 10**9, after))
    bring_back(log.chain("Burst"), corrected(held(log, "Burst")[1:], celsius=1.0), restamp=True)
    bring_back(log.chain("Burst"), corrected(held(log, "Burst"), celsius=1.0), restamp=True)
    assert sorted(name for _, _, name in machines(log)) == ["a", "b", "c", "d"]
    assert held(log, "Burst") == []


# --- as a command


def called(*arguments: object) -> int:
    try:
        main(["quarantine", *map(str, arguments)])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_the_command_shows_exports_and_brings_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    ingest(EventLog(run / "log"), write(tmp_path), BURST, T)
    assert called("show", run, "--reason", "schema", "--limit", 1) == 0
    shown = capsys.readouterr().out
    assert "Burst  file-" in shown
    assert ", 0, 1  schema: CSV conversion error to double: invalid value 'hot'" in shown or "'hot'" in shown
    assert "    1970-01-01T00:00:02Z,b,hot,n\\n" in shown
    assert called("show", run, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["reason"] for line in lines] == ["schema", "schema", "late"]
    for line in lines:
        line["row"]["celsius"], line["row"]["time"] = 7.5, "1970-01-01T00:01:00Z"
    (tmp_path / "better.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    assert called("replay", run, "--from", tmp_path / "better.jsonl") == 0
    assert "2 events are back in stream Burst" in capsys.readouterr().out
    assert called("replay", run, "--from", tmp_path / "better.jsonl", "--json") == 0
    done = msgspec.json.decode(capsys.readouterr().out, type=Returned)
    assert (done.brought, done.already) == (0, 2)
    assert called("replay", run) == 1
    assert "stays: late: time 0: the stream has already reached 60000000" in capsys.readouterr().out
    assert called("replay", run, "--restamp") == 0
    assert called("show", run) == 0
    assert "nothing is in quarantine" in capsys.readouterr().out
    assert [time for time, _, _ in machines(EventLog(run / "log"))][-3:] == [60_000_000, 60_000_000, 60_000_001]


def test_mistakes_are_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    ingest(EventLog(run / "log"), write(tmp_path), BURST, T)
    (tmp_path / "broken.jsonl").write_text('{"stream": 3}\n')
    for arguments, sentence in [
        (["show", run, "--stream", "Nobody"], "there is no stream or rule 'Nobody'"),
        (["show", run, "--reason", "bored"], "'bored' is not known; use one of undecodable"),
        (["show", tmp_path / "elsewhere"], "there is no folder"),
        (["replay", run, "--from", tmp_path / "broken.jsonl"], "line 1: Expected `str`, got `int`"),
        (["replay", run, "--from", tmp_path / "none.jsonl"], "cannot be read"),
        (["replay", run, "--zone", "Mars"], "time zone 'Mars' is not known"),
    ]:
        assert called(*arguments) == 2
        assert sentence in capsys.readouterr().err


def ready(*times: int) -> list[_Ready]:
    return [_Ready(time, ("p", 0, number), {}) for number, time in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "restamp", "strict", "placed", "stayed"),
    [
        ([10, 11, 11, 13], False, True, [(1, 11), (3, 13)], [(0, Reason.LATE), (2, Reason.NOT_INCREASING)]),
        ([10, 11, 11, 13], False, False, [(1, 11), (2, 11), (3, 13)], [(0, Reason.LATE)]),
        ([13, 9, 11, 11], True, True, [(1, 11), (2, 12), (3, 13), (0, 14)], []),
        ([13, 9, 11, 10], True, False, [(1, 11), (3, 11), (2, 11), (0, 13)], []),
        ([12, 11], False, True, [(1, 11), (0, 12)], []),
    ],
)
def test_what_is_brought_back_finds_a_place_behind_the_end_or_stays(
    times: list[int], restamp: bool, strict: bool, placed: list[tuple[int, int]], stayed: list[tuple[int, Reason]]
) -> None:
    found, refused = _placed(ready(*times), 10, restamp, strict)
    assert [(event.id[2], event.time_us) for event in found] == placed
    assert [(one.sequence, one.reason) for one in refused] == stayed
    for one in refused:
        said = "already reached 10" if one.reason is Reason.LATE else "another event has this time"
        assert said in one.detail


@pytest.mark.parametrize("through_us", [TIME_MAX, TIME_MAX - 1])
def test_behind_the_end_of_time_there_is_no_place(through_us: int) -> None:
    found, refused = _placed(ready(5), through_us, restamp=True, strict=False)
    assert (found, refused[0].reason) == ([], Reason.LATE)
    assert ("has ended" in refused[0].detail) == (through_us == TIME_MAX)
