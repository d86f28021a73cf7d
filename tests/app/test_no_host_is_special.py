"""A run on a store, on several hosts: whichever is lost, the others go on. The first one is a host as any other."""

from __future__ import annotations

from pathlib import Path

from tests.app.live_tree import readings
from tests.app.store_hosts import store_hosts


def test_the_first_host_is_lost_for_good_with_its_disk(s3_bucket: str, tmp_path: Path) -> None:
    events = readings(600)
    with store_hosts(tmp_path, f"{s3_bucket}/{tmp_path.name}", events) as hosts:
        hosts.feed(0, 300)
        hosts.until(lambda: hosts.reached(events[200].stamp.time))
        hosts.lose("a")
        hosts.feed(300, 600)
        hosts.end()
    assert hosts.violations() == []
