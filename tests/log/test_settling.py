"""Where the segments of an intake end, which of its rows have to be looked at, and how large a task's runs are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unerring.log import EventLog, Intake, MemoryStore, Parts, Spread
from unerring.log.parts import part_interval
from unerring.log.runs import Piece, RunFile
from unerring.log.settling import cuts, overlapping_rows
from unerring.log.taking import Order, TakeConfig, Taker
from unerring.model import TIME_MIN, LogError

from .test_intake import SCHEMA, TIMES, table_of


def intake(*runs: list[tuple[int, int, int]], settled_us: int = 0, through_us: int = 40) -> Intake:
    """Each run with its pieces: first and last time, and rows."""
    made = tuple(
        RunFile(f"{number}", "d", tuple(Piece(0, rows, first, last, 100) for first, last, rows in pieces))
        for number, pieces in enumerate(runs)
    )
    return Intake("s", 1, "p", settled_us, settled_us, through_us, through_us, made, 0, (), 0, {})


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ([(1, 10, 10), (11, 20, 10), (21, 30, 10), (31, 40, 10)], [10, 20, 30, 40]),
        ([(1, 5, 1), (6, 10, 9), (11, 40, 10)], [10, 40]),
        ([(1, 5, 4), (6, 40, 10)], [40]),
        ([(1, 5, 20), (6, 20, 10), (21, 40, 10)], [5, 20, 40]),
        ([(1, 5, 10), (2, 5, 10), (6, 40, 20)], [5, 40]),
        ([(-9, 0, 99), (1, 30, 10), (31, 50, 10), (41, 60, 99)], [30, 40]),
        ([(-9, 1, 10), (40, 60, 10)], [1, 40]),
        ([], [40]),
    ],
)
def test_segments_end_about_the_same_number_of_rows_apart(
    pieces: list[tuple[int, int, int]], ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unerring.log.settling.ROWS_PER_SEGMENT", 10)
    assert cuts(intake(pieces)) == ends
    assert cuts(intake(*([piece] for piece in pieces))) == ends, "whatever runs they are of"


@pytest.mark.parametrize(
    ("runs", "rows"),
    [
        ([[(1, 10, 3), (11, 20, 4)]], 0),
        ([[(1, 10, 3)], [(11, 20, 4)]], 0),
        ([[(1, 10, 3)], [(10, 20, 4)]], 7),
        ([[(1, 10, 3), (11, 20, 4)], [(15, 16, 5)], [(30, 31, 6)]], 9),
        ([[(-9, 0, 3)], [(-9, 0, 4)]], 0),
        ([[(40, 50, 3)], [(40, 50, 4)]], 7),
        ([[(41, 50, 3)], [(41, 50, 4)]], 0),
        ([[(-9, 1, 3)], [(-9, 1, 4)]], 7),
    ],
)
def test_rows_of_runs_that_overlap_in_time_have_to_be_looked_at(
    runs: list[list[tuple[int, int, int]]], rows: int
) -> None:
    assert overlapping_rows(intake(*runs)) == rows


def test_a_task_writes_a_run_when_it_holds_as_many_rows_as_one_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unerring.log.taking.BLOCK_ROWS", 1)
    store = MemoryStore()
    EventLog(store).create(SCHEMA, 1)
    order = Order("Reading", SCHEMA, Spread(1), TIMES, "s", 1, TIME_MIN, None, (), TakeConfig(rows_per_run=5))
    for pushed, runs in (([4], [4]), ([5], [5]), ([2, 2, 2], [6]), ([4, 1, 4, 1, 1], [5, 5, 1]), ([], []), ([9], [9])):
        taker = Taker(store, order, 0)
        for count in pushed:
            taker.take(table_of([(n, "a", n) for n in range(count)]))
        answer = taker.finish()
        assert [run.rows for run in answer.runs] == runs
        assert (answer.rows, answer.quarantined) == (sum(pushed), {})


def test_a_run_holds_each_row_once_in_the_piece_of_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unerring.log.runs.PIECE_ROWS", 4)
    store, spread = MemoryStore(), Spread(3)
    EventLog(store).create(SCHEMA, 3)
    order = Order("Reading", SCHEMA, spread, TIMES, "s", 1, TIME_MIN, None, (), TakeConfig())
    taker = Taker(store, order, 0)
    rows = [(30 - n, f"m{n % 7}", n) for n in range(30)]
    taker.take(table_of(rows))
    [run] = taker.finish().runs
    file = pq.ParquetFile(pa.BufferReader(store.read(f"Reading/parts/{run.name}")))
    assert (run.rows, file.metadata.num_rows, run.first_us, run.last_us) == (30, 30, 1, 30)
    parts, found = Parts(store, "Reading", SCHEMA), []
    for at, piece in enumerate(run.pieces):
        held = parts.part(run.part(at), ["time", "machine", "value"])
        times = held.column("time").to_pylist()
        assert (len(held), times[0], times[-1]) == (piece.rows, piece.first_us, piece.last_us)
        assert times == sorted(times)
        assert piece.rows <= 4
        assert {spread.of([name]) for name in held.column("machine").to_pylist()} == {piece.bucket}
        found += zip(times, held.column("machine").to_pylist(), held.column("value").to_pylist(), strict=True)
    assert sorted(found) == sorted(rows)
    assert sum(piece.bytes for piece in run.pieces) < len(store.read(f"Reading/parts/{run.name}") or b"")


def run_of(store: MemoryStore, rows: list[tuple[int, str, int]]) -> RunFile:
    order = Order("Reading", SCHEMA, Spread(1), TIMES, "s", 1, TIME_MIN, None, (), TakeConfig())
    taker = Taker(store, order, 0)
    taker.take(table_of(rows))
    [run] = taker.finish().runs
    return run


def test_a_runs_name_tells_exactly_the_times_of_its_rows() -> None:
    """From there on the sweep takes it for garbage, or leaves it."""
    store = MemoryStore()
    EventLog(store).create(SCHEMA, 1)
    assert part_interval(run_of(store, [(7, "a", 1), (5, "b", 2), (9, "a", 3)]).name) == (4, 9)


def test_a_run_that_lies_there_damaged_is_not_taken_for_the_one_that_is_written() -> None:
    store = MemoryStore()
    EventLog(store).create(SCHEMA, 1)
    rows = [(5, "a", 1), (7, "b", 2)]
    run = run_of(store, rows)
    assert run_of(store, rows) == run, "a task that is repeated writes the same"
    name = f"Reading/parts/{run.name}"
    store.replace(name, (store.read(name) or b"")[:-1])
    with pytest.raises(LogError, match=rf"{run.name} is damaged: its bytes do not match its name; remove it"):
        run_of(store, rows)
