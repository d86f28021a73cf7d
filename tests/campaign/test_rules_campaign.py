"""Millions of random rules on random streams: oracle = interpreter, however cut, wherever restored."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.matching.conformance import check
from tests.matching.generators import endless_pair, looking_pair, pair, until_pair
from unerring.matching.interpreter import Interpreter
from unerring.rules import workloads

FIRST = 1_000_000
PAIRS = 1_000_000
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_small_pairs(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + PAIRS, CHUNKS):
        check(Interpreter, pair(seed))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_loops_with_stops(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + 100_000, CHUNKS):
        check(Interpreter, until_pair(seed))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_patterns_without_within_and_aggregates_that_look_around(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + 100_000, CHUNKS):
        check(Interpreter, endless_pair(seed))
        check(Interpreter, looking_pair(seed))


@pytest.mark.parametrize("kind", "pqwj")
def test_longer_streams(kind: str) -> None:
    for seed in range(FIRST, FIRST + 20_000):
        check(Interpreter, pair(seed, kind, events_max=24))


@pytest.mark.parametrize(
    ("workload", "found", "still_open"), [("W1", 216_065, None), ("W2", 65_899, None), ("W3", 303_387, 372)]
)
def test_the_first_two_million(workload: str, found: int, still_open: int | None) -> None:
    plan = getattr(workloads, workload).plan
    drawn, matcher, outputs = _bench_workloads().columns(), Interpreter(plan), 0
    for first in range(0, 2_000_000, 20_000):
        batch = _bench_workloads().rows(drawn.part(first, first + 20_000))
        outputs += len(matcher.feed(batch, batch[-1].event.stamp.time))
    assert outputs == found
    if still_open is not None:
        assert len(matcher.feed([], batch[-1].event.stamp.time + 5_000_000)) == still_open


@cache
def _bench_workloads() -> ModuleType:
    path = Path(__file__).parent.parent.parent / "bench" / "workloads.py"
    spec = importlib.util.spec_from_file_location("workloads_of_campaign", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
