"""Bit rot in what a level on Spark keeps beside the log, Spark's own checkpoint included: a sentence or a perfect run,
never another one."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from tests.pipeline.worlds import TYPED, missing, pair, random_events, sealed, write
from unerring.matching.oracle import run_tree
from unerring.model import WorldError
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.streaming import detect_available

PLANS = (pair("Pairs", TYPED, "A", "B", 40), missing("Misses", TYPED, "A", "B", 15))
EVENTS = random_events(3, 160, 5)
HALF_US, END_US = 300, 600


def prepare(spark: SparkSession, data: Path) -> Level:
    """A run that has done half of its log."""
    [level] = levels_of(PLANS, (TYPED,), str(data), 1)
    chain = level.log.create(TYPED, 1)
    write(chain, [event for event in EVENTS if event.stamp.time <= HALF_US], [100, 200], HALF_US)
    detect_available(spark, level)
    write(chain, [event for event in EVENTS if event.stamp.time <= END_US], [400], END_US)
    return level


def kept(level: Level) -> list[Path]:
    """What the next run reads first."""
    states = sorted(Path(level.address).glob("states/*/[0-9]*"))[-1:]
    return [*states, *Path(level.address).glob("states/*/began")]


def test_flips_in_states_are_found_or_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    made = prepare(spark, tmp_path / "made")
    wanted = {plan.name: run_tree((plan,), EVENTS, dict(made.ranks), END_US) for plan in PLANS}
    silent: list[str] = []
    tried = 0
    for whole in kept(made):
        size = whole.stat().st_size
        for at in range(0, size, max(1, size // 30)):
            data = tmp_path / "run"
            shutil.copytree(tmp_path / "made", data)
            [level] = levels_of(PLANS, (TYPED,), str(data), 1)
            path = data / whole.relative_to(tmp_path / "made")
            held = path.read_bytes()
            path.write_bytes(held[:at] + bytes([held[at] ^ 1 << at % 8]) + held[at + 1 :])
            tried += 1
            try:
                detect_available(spark, level, restarts_max=0)
            except WorldError:
                pass
            else:
                if any(sealed(data, name) != found for name, found in wanted.items()):
                    silent.append(f"{path.name}[{at}]")
            shutil.rmtree(data)
    assert tried > 50
    assert not silent
