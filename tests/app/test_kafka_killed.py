"""Kafka, log, situation, process under kill -9 of everything but the broker: every offset accounted for, nothing twice.
The long form, at a broker with durable topics, is in tests/campaign."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.app.kafka_runs import Line, Notes, killed_again_and_again
from tests.kafka import MockCluster


def test_every_offset_is_accounted_for_whatever_is_killed(tmp_path: Path) -> None:
    notes = Notes()
    with MockCluster(2) as cluster, notes.serving(tmp_path) as address:
        cluster.create("readings", 2)
        line = Line(tmp_path, cluster.address, "readings", 2, address)
        killed_again_and_again(line, notes, 1, 300, Random(4))
