"""All of the feature table through `unerring.match`: as batches, and as streams started again in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.feature_table import BATCH, STREAMS, Case, hold_in_batch, hold_on_a_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from unerring.pipeline.session import SparkConfig, start

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    few = (("spark.sql.shuffle.partitions", "2"),)
    session = start(SparkConfig(master="local[2]", memory="1g", log=str(log), more=few), "feature table")
    yield session
    session.stop()


@pytest.mark.parametrize("case", BATCH, ids=lambda case: case.what)
def test_a_batch(case: Case, spark: SparkSession) -> None:
    hold_in_batch(spark, case)


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.what)
def test_a_stream_that_is_started_again(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    hold_on_a_stream(spark, case, tmp_path)


def test_the_streams_say_something(spark: SparkSession, tmp_path: Path) -> None:
    said = [hold_on_a_stream(spark, case, tmp_path / str(number)) for number, case in enumerate(STREAMS[:10])]
    assert sum(map(bool, said)) >= 5
