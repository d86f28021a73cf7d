"""A part of the feature table through `unerring.match`; the whole of it is in the campaign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .feature_table import BATCH, STREAMS, Case, hold_in_batch, hold_on_a_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def small(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.unset("spark.sql.shuffle.partitions")


@pytest.mark.parametrize("case", BATCH[1::18], ids=lambda case: case.what)
def test_a_batch(case: Case, small: SparkSession) -> None:
    hold_in_batch(small, case)


@pytest.mark.parametrize("case", STREAMS[::40], ids=lambda case: case.what)
def test_a_stream_that_is_started_again(case: Case, small: SparkSession, tmp_path: Path) -> None:
    hold_on_a_stream(small, case, tmp_path)
