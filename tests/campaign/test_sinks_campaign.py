"""A hundred kills of each sink's driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka import MockCluster
from tests.processes import postgres
from tests.s3 import S3Server
from tests.sinks.places import DeltaPlace, IcebergPlace, KafkaPlace, PostgresPlace
from tests.sinks.test_kills import killed, killed_webhook

KILLS = 100
Capture = pytest.CaptureFixture[str]


def report(capsys: Capture, blows: Counter[str], figures: dict[str, float]) -> None:
    """What was seen, for the pages; what is wrong has failed before."""
    blows["kill -9"] += KILLS
    with capsys.disabled():
        print(f"\n{figures}")


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[str]:
    with postgres.server() as dsn:
        yield dsn


def test_postgresql(postgres_server: str, tmp_path: Path, seed: int, blows: Counter[str], capsys: Capture) -> None:
    report(capsys, blows, killed(PostgresPlace(postgres_server), tmp_path, KILLS, seed=seed))


def test_delta(tmp_path: Path, seed: int, blows: Counter[str], capsys: Capture) -> None:
    report(capsys, blows, killed(DeltaPlace(str(tmp_path / "lake")), tmp_path, KILLS, seed=seed))


def test_delta_on_an_object_store(
    s3_bucket: str, tmp_path: Path, seed: int, blows: Counter[str], capsys: Capture
) -> None:
    report(capsys, blows, killed(DeltaPlace(f"{s3_bucket}/lake"), tmp_path, KILLS, seed=seed))


def test_kafka(tmp_path: Path, seed: int, blows: Counter[str], capsys: Capture) -> None:
    with MockCluster() as cluster:
        report(capsys, blows, killed(KafkaPlace(cluster), tmp_path, KILLS, seed=seed))


def test_iceberg(s3: S3Server, tmp_path: Path, seed: int, blows: Counter[str], capsys: Capture) -> None:
    report(capsys, blows, killed(IcebergPlace(s3), tmp_path, KILLS, seed=seed))


def test_webhook(tmp_path: Path, seed: int, blows: Counter[str], capsys: Capture) -> None:
    report(capsys, blows, killed_webhook(tmp_path, KILLS, seed=seed))
