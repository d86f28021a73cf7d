"""The feature table once more, as streams: rows come in pieces and out of order, and after every piece the query is
stopped and started again from its state. What is final is what the oracle says is; what could never be is refused.

Spark's part (micro-batches, watermarks, where state is kept) is played here; tests/pipeline runs it for real.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from unerring.matching import oracle
from unerring.matching.outputs import Row
from unerring.model import ColumnType, Event, RuleError, Stamp
from unerring.pipeline.carrying import ORDINAL, TIME
from unerring.pipeline.streamed import Reading, _piece
from unerring.sql.stream import check_streamable

from .sqlrun import recognition_of
from .test_features import CASES, Case, table

SECOND_MS = 1000


class BucketState:
    """Spark's `GroupState`, as far as it is asked."""

    def __init__(self) -> None:
        self.kept: bytes | None = None
        self.watermark_ms = 0
        self.hasTimedOut = False
        self.wakes_ms: int | None = None

    @property
    def exists(self) -> bool:
        return self.kept is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.kept is not None
        return (self.kept,)

    def update(self, value: tuple[bytes]) -> None:
        [self.kept] = value

    def remove(self) -> None:
        self.kept = None

    def getCurrentWatermarkMs(self) -> int:
        return self.watermark_ms

    def setTimeoutTimestamp(self, time_ms: int) -> None:
        assert time_ms > self.watermark_ms
        self.wakes_ms = time_ms


def carried(rows: list[dict[str, Any]], names: list[str]) -> pd.DataFrame:
    columns: dict[str, Any] = {
        TIME: pd.Series([row["ts"] for row in rows], dtype="int64"),
        ORDINAL: pd.Series([-1] * len(rows), dtype="int64"),
    }
    for number, name in enumerate(names):
        values = [row[name] for row in rows]
        columns[f"v{number}"] = pd.Series([0 if value is None else value for value in values], dtype="int64")
        columns[f"n{number}"] = pd.Series([value is None for value in values], dtype="bool")
    return pd.DataFrame(columns)


def streamed(reading: Reading, rows: list[dict[str, Any]], seed: int) -> tuple[list[tuple[Any, ...]], int]:
    """Rows in random pieces, at most two seconds late; all outputs, and the watermark at the end."""
    rng = random.Random(seed)
    names = [column.name for column in reading.plan.inputs[0].schema.columns]
    late = sorted(rows, key=lambda row: row["ts"] + rng.choice([0, 0, 1, 2]) * SECOND_MS * 1000)
    state = BucketState()
    found: list[tuple[Any, ...]] = []
    newest_ms = 0
    while True:
        piece = [late.pop(0) for _ in range(min(rng.randrange(3), len(late)))]
        state.hasTimedOut = not piece
        run = _piece(reading)  # anew every time: a query that was stopped and started again
        if piece or (state.exists and state.wakes_ms is not None and state.wakes_ms <= state.watermark_ms):
            for frame in run((0,), iter([carried(piece, names)] if piece else []), state):  # type: ignore[arg-type]
                found += [_row(values) for values in frame.itertuples(index=False)]
        newest_ms = max([newest_ms, *(row["ts"] // 1000 for row in piece)])
        watermark_ms = max(state.watermark_ms, newest_ms - 2 * SECOND_MS)
        if not late and watermark_ms == state.watermark_ms and not piece:
            return found, state.watermark_ms
        state.watermark_ms = watermark_ms


def _row(values: Any) -> tuple[Any, ...]:
    return tuple(None if null else value for value, null in zip(values[::2], values[1::2], strict=True))


def reading_of(case: Case) -> tuple[Reading, list[dict[str, Any]]]:
    sql = f"SELECT {case.select} FROM t MATCH_RECOGNIZE (ORDER BY ts {case.clause})"
    recognition = recognition_of(sql, at=ColumnType.INT, x=ColumnType.INT, ts=ColumnType.TIME)
    plan = replace(recognition.plan, order_by=())
    check_streamable(plan)
    rows = [{**row, "ts": row["at"] * SECOND_MS * 1000} for row in table(case)]
    return Reading(plan, ("at", "x", "ts"), (), "ts"), rows


def final(case: Case) -> bool:
    try:
        reading_of(case)
    except RuleError as error:
        if "might never be final" not in str(error):
            raise
        return False
    return True


BOUNDED = [case for case in CASES if final(case)]
WITHIN = [
    replace(case, clause=re.sub(r" (SUBSET|DEFINE)", r" WITHIN INTERVAL '20' SECOND \1", case.clause, count=1))
    for case in CASES
    if re.search(" (SUBSET|DEFINE)", case.clause) and "WITHIN" not in case.clause
]
"""The same with a bound in time, which makes most of the others final."""


def test_enough_of_the_table_can_be_final() -> None:
    assert len(BOUNDED) >= 10
    assert len(WITHIN) >= 15


@pytest.mark.parametrize("case", [*BOUNDED, *WITHIN], ids=lambda case: case.what)
def test_a_feature_on_a_stream(case: Case) -> None:
    if not final(case):
        return  # NEXT and $ ask for what a stream cannot say, WITHIN or not
    reading, rows = reading_of(case)
    for seed in range(3):
        found, watermark_ms = streamed(reading, rows, seed)
        events = [
            Event("input", Stamp(row["ts"]), (), {name: row[name] for name in ("at", "x", "ts")})
            for row in rows
            if row["ts"] <= watermark_ms * 1000
        ]
        wanted = oracle.outputs_of(reading.plan, [Row(0, event) for event in events], watermark_ms * 1000)
        payloads = [tuple(output.payload.values()) for output in wanted]
        assert [row[4:] for row in found] == payloads
