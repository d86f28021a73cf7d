"""A hundred kills of each sink's driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka import MockCluster
from tests.processes import postgres
from tests.s3 import S3Server
from tests.sinks.places import DeltaPlace, IcebergPlace, KafkaPlace, PostgresPlace
from tests.sinks.test_kills import killed

KILLS = 100


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[str]:
    with postgres.server() as dsn:
        yield dsn


def test_postgresql(postgres_server: str, tmp_path: Path) -> None:
    assert killed(PostgresPlace(postgres_server), tmp_path, KILLS, seed=11)["killed"] == KILLS


def test_delta(tmp_path: Path) -> None:
    assert killed(DeltaPlace(str(tmp_path / "lake")), tmp_path, KILLS, seed=12)["killed"] == KILLS


def test_delta_on_an_object_store(s3_bucket: str, tmp_path: Path) -> None:
    assert killed(DeltaPlace(f"{s3_bucket}/lake"), tmp_path, KILLS, seed=13)["killed"] == KILLS


def test_kafka(tmp_path: Path) -> None:
    with MockCluster() as cluster:
        assert killed(KafkaPlace(cluster), tmp_path, KILLS, seed=15)["killed"] == KILLS


def test_iceberg(s3: S3Server, tmp_path: Path) -> None:
    assert killed(IcebergPlace(s3), tmp_path, KILLS, seed=14)["killed"] == KILLS
