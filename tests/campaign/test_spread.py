"""What the campaigns on several hosts measure, tried on a status and a log that are made up."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from tests.campaign.spread import FRESH_S, Received, absent_in, lags
from unerring.log import Syncs
from unerring.model import protect_json, verified_json
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


def test_a_process_node_counts_once_it_takes_part_and_tells_so_now(tmp_path: Path) -> None:
    status = tmp_path / "processes" / "status"
    for name, absent in (("n0", ""), ("n1", "its disk is empty"), ("n2", "")):
        fields = {"disk": msgspec.to_builtins(Syncs().look()), "services": [], "absent": absent}
        note(status / f"{name}.json", name, fields)
    old = verified_json((status / "n2.json").read_bytes(), dict[str, object], "n2")
    (status / "n2.json").write_bytes(protect_json(old | {"at": time.time() - FRESH_S - 1}))
    assert absent_in(tmp_path) == {"n0": "", "n1": "its disk is empty", "n2": "it tells nothing"}
    assert absent_in(tmp_path / "lost") == {}
