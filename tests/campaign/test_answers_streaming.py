"""Large answers of tasks are sealed as parts, streaming; `make test` does it in batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline.test_answers import large_answers_are_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_on_spark_large_answers_are_sealed_as_parts(spark: SparkSession, tmp_path: Path) -> None:
    large_answers_are_parts(spark, tmp_path, "streaming")
