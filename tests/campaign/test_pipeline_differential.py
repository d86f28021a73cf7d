"""Oracle = Spark batch = Spark streaming, over many random rules, cuts and micro-batches."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("streaming", "batch")
SEEDS = range(2000, 2400, 40)


def _beside(name: str) -> Any:
    """A module of the pipeline's own tests, as a package beside this folder."""
    tests = Path(__file__).parent.parent
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return importlib.import_module(f"pipeline.{name}")


random_rules, factory_worlds = _beside("test_random_rules"), _beside("factory_worlds")


@pytest.fixture(scope="module")
def spark(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from unerring.pipeline.session import SparkConfig, start

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start(SparkConfig(master="local[2]", memory="2g", log=str(log)), "differential")
    yield session
    session.stop()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_rules(spark: SparkSession, tmp_path: Path, kind: str, seed: int) -> None:
    rows = Random(f"{kind}{seed}").choice((10, 25, 60, 1000))
    random_rules.agree_on_random_rules(spark, tmp_path, kind, seed, 40, rows)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_papers_situations(spark: SparkSession, tmp_path: Path, kind: str, seed: int) -> None:
    random = Random(f"{kind}{seed}")
    levels, wanted = factory_worlds.factory_log(tmp_path, seed, 3000, random.choice((1, 2, 3)))
    for level in levels:
        random_rules.detect_all(spark, level, kind, random.choice((300, 900, 10_000)))
    for name, mine in wanted.items():
        assert random_rules.texts(random_rules.sealed(tmp_path, name)) == random_rules.texts(mine), name
