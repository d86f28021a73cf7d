"""One Spark session for all tests of the pipeline: starting one takes longer than any of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[SparkSession]:
    from unerring.pipeline.session import SparkConfig, start

    log = Path(os.environ["UNERRING_TEST_SCRATCH"]) / "spark.log"
    # Tests are short: a compiler that compiles less, and a collector without threads of its own, are quicker here.
    quick = (
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss8m"),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    )
    session = start(SparkConfig(master="local[2]", memory="1g", log=str(log), more=quick), "tests")
    yield session
    session.stop()
