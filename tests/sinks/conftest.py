"""The targets that every test of this folder runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka import MockCluster
from tests.processes import postgres
from tests.sinks.places import DeltaPlace, IcebergPlace, KafkaPlace, PostgresPlace, RealPlace
from tests.sinks.world import Place

TABLES = ["postgresql", "delta", "iceberg"]
REAL = [*TABLES, "kafka"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with postgres.server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def kafka() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture(params=["memory", *REAL])
def place(request: pytest.FixtureRequest) -> Place:
    """Where targets of one kind are made; each test has its own names."""
    return Place() if request.param == "memory" else _real(request)


@pytest.fixture(params=["memory", *TABLES])
def table_place(request: pytest.FixtureRequest) -> Place:
    """Those with transactions that hold against other drivers, and in which rows can be deleted."""
    return Place() if request.param == "memory" else _real(request)


@pytest.fixture(params=TABLES)
def real_table_place(request: pytest.FixtureRequest) -> RealPlace:
    return _real(request)


@pytest.fixture(params=REAL)
def real_place(request: pytest.FixtureRequest) -> RealPlace:
    return _real(request)


def _real(request: pytest.FixtureRequest) -> RealPlace:
    if request.param == "delta":
        return DeltaPlace(str(request.getfixturevalue("tmp_path")))
    if request.param == "kafka":
        return KafkaPlace(request.getfixturevalue("kafka"))
    if request.param == "iceberg":
        return IcebergPlace(request.getfixturevalue("s3"))
    return PostgresPlace(request.getfixturevalue("postgres_server"))
