"""How many tasks a pool has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from unerring.pipeline.connecting import parallelism_max

GROWS = {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({}, 2),
        ({"spark.dynamicAllocation.maxExecutors": "8"}, 2),
        (GROWS, None),
        (GROWS | {"spark.dynamicAllocation.maxExecutors": "8"}, 8),
        (GROWS | {"spark.dynamicAllocation.maxExecutors": "8", "spark.executor.cores": "4"}, 32),
        (
            GROWS | {"spark.dynamicAllocation.maxExecutors": "8", "spark.executor.cores": "4", "spark.task.cpus": "2"},
            16,
        ),
        (GROWS | {"spark.dynamicAllocation.maxExecutors": "1"}, 2),
    ],
)
def test_a_pool_may_be_as_large_as_its_cluster_grows(settings: dict[str, str], tasks: int | None) -> None:
    session: Any = SimpleNamespace(
        conf=SimpleNamespace(get=lambda name, default: settings.get(name, default)),
        sparkContext=SimpleNamespace(defaultParallelism=2),
    )
    assert parallelism_max(session) == tasks
