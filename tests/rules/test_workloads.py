"""W1, W2 and W3 on a small prefix of their events, against a few lines of plain Python each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from unerring.matching.interpreter import Interpreter
from unerring.matching.outputs import Row
from unerring.rules.workloads import W1, W2, W3

EVENTS = 10_000


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    path = Path(__file__).parent.parent.parent / "bench" / "workloads.py"
    spec = importlib.util.spec_from_file_location("workloads_of_bench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    drawn: list[Row] = module.rows(module.columns(EVENTS, keys=400))
    return drawn


def count(rule: Any, rows: list[Row]) -> int:
    engine = Interpreter(rule.plan)
    return sum(
        len(engine.feed(rows[n : n + 999], rows[n : n + 999][-1].event.stamp.time)) for n in range(0, EVENTS, 999)
    )


def test_w1(rows: list[Row]) -> None:
    found, latest = 0, {}
    for _, event in rows:
        key, time, kind = event.key, event.stamp.time, event.payload["type"]
        if kind == "A":
            latest[key] = time
        elif kind == "B" and time - latest.get(key, -(10**12)) <= 10_000_000:
            found += 1
            del latest[key]
    assert count(W1, rows) == found > 500


def test_w2(rows: list[Row]) -> None:
    found, state = 0, {}  # key -> (time of A, number of C, last v)
    for _, event in rows:
        key, time, kind, v = event.key, event.stamp.time, event.payload["type"], event.payload["v"]
        began, rising, top = state.get(key, (None, 0, 0.0))
        if kind == "D":
            continue
        if kind == "A":
            state[key] = (time, 0, 0.0)
        elif kind == "C" and began is not None and (not rising or v > top) and time - began <= 30_000_000:
            state[key] = (began, rising + 1, v)
        else:
            found += kind == "B" and began is not None and rising > 0 and time - began <= 30_000_000
            state.pop(key, None)
    assert count(W2, rows) == found > 100


def test_w3(rows: list[Row]) -> None:
    found, open_, end = 0, {}, rows[-1].event.stamp.time
    for _, event in rows:
        key, time, kind = event.key, event.stamp.time, event.payload["type"]
        waiting = open_.setdefault(key, [])
        found += sum(time > began + 5_000_000 for began in waiting)
        open_[key] = [] if kind == "B" else [began for began in waiting if time <= began + 5_000_000]
        if kind == "A":
            open_[key].append(time)
    found += sum(end >= began + 5_000_000 for waiting in open_.values() for began in waiting)
    assert count(W3, rows) == found > 500
