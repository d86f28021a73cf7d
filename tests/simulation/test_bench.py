"""The benchmark runs, small; its figures have the shape that `unerring bench` prints. No figure is judged here."""

from __future__ import annotations

import importlib.util
from pathlib import Path

BENCH = Path(__file__).parent.parent.parent / "bench" / "simulation.py"


def test_the_benchmark_gives_its_figures() -> None:
    spec = importlib.util.spec_from_file_location("bench_simulation", BENCH)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    bench.VIRTUAL_US = 100_000
    figures = bench.run(repeats=1, seeds=1)
    assert [one["figure"] for one in figures] == [
        "messages_per_s",
        "ratio.floor",
        "channels.messages_per_s",
        "channels.faulty.messages_per_s",
        "channels.seeds_per_s",
    ]
    for one in figures:
        assert set(one) == {"bench", "figure", "value", "unit", "goal", "met"}
        assert one["met"] == (one["value"] >= one["goal"])
        assert one["value"] > 0
