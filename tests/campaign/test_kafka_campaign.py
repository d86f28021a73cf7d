"""Kafka, log, situation, process at a real broker with durable topics, killed many times."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.app.kafka_runs import Line, Notes, killed_again_and_again
from tests.kafka import WeedBroker


@pytest.mark.parametrize("seed", range(3))
def test_every_offset_is_accounted_for_at_a_broker_with_durable_topics(tmp_path: Path, seed: int) -> None:
    notes = Notes()
    with WeedBroker(tmp_path / "weed") as broker, notes.serving(tmp_path) as address:
        broker.create("readings", 3)
        line = Line(tmp_path, broker.address, "readings", 3, address, hot_every=100)
        killed_again_and_again(line, notes, 8, 1_000, Random(seed))
