"""What the campaigns on several hosts measure, tried on a status and a log that are made up."""

from __future__ import annotations

from pathlib import Path

from tests.campaign.spread import Received, lags
from unerring.runtime.live.hosting import note


def test_what_an_application_replica_has_is_seen_whichever_has_it_first(tmp_path: Path) -> None:
    received = Received(lambda: [tmp_path / "a", tmp_path / "b"], "heat")
    received.look()
    for host, replica, watermark in (("a", 0, 5), ("b", 1, 9), ("a", 0, 7), ("b", 1, 12)):
        inputs = {"heat": {"watermark": watermark}}
        note(tmp_path / host / f"situations.{replica}.json", f"situations/{replica}", {"inputs": inputs})
        received.look()
    assert [through_us for _, through_us in received.moved] == [5, 9, 12]


def test_a_lag_is_from_when_an_event_was_in_the_log_to_when_its_situation_was_made() -> None:
    taken, made = [[1.0, 10], [2.0, 20], [3.0, 30]], [[1.5, 15], [4.0, 25]]
    assert lags(taken, made, 0.0, 9.0) == [0.5, 2.0]
    assert lags(taken, made, 1.5, 2.5) == [2.0]
