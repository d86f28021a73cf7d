"""A rule of a live run gets other shards while it runs on several hosts around a store, and one of them is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.live_tree import APART_US
from tests.app.store_hosts import StoreHosts, begun
from tests.app.tree_app import Reading
from unerring import event_of
from unerring.app.sharding import shards_of
from unerring.correlation import Role
from unerring.pipeline import agreed_upgrades, is_done
from unerring.runtime.live import cluster as clusters

RATES = "tests.app.shard_app:rates"
EVENTS = 40_000
"""More than are needed."""


class Divided(StoreHosts):
    """Fed a few events at a time, as time goes by."""

    fed = 0

    def feed_on(self, events: int = 4) -> None:
        self.feed(self.fed, self.fed + events)
        self.fed += events

    def rescale(self, shards: int) -> str:
        """Entered on another host, which only reaches the store."""
        command = [sys.executable, "-m", "unerring", "rescale", self.place.address, "--app", RATES]
        command += ["--shards", f"Rate={shards}", "--scratch", str(self.folder / "operator")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def has(self, shards: int) -> bool:
        """Whether each host has so many shards, and none of those before."""
        for host in self.runs:
            topology = clusters.read(self.scratch(host) / "live").topology
            rules = [node for node in topology.nodes if node.role is Role.CORRELATION]
            if any(map(topology.is_ending, rules)) or len(rules) != shards:
                return False
            assert shards_of(rules) == ({"Rate": shards} if shards > 1 else {})
        return True

    def until_it_has(self, shards: int, number: int) -> None:
        def more() -> bool:
            self.feed_on()
            return is_done(self.place.log, number) and self.has(shards)

        self.until(more)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_shards_split_and_merge_although_a_host_is_lost(s3_bucket: str, tmp_path: Path) -> None:
    events = [event_of(Reading(machine=n % 12, celsius=n), n * APART_US) for n in range(1, EVENTS + 1)]
    store = f"{s3_bucket}/{tmp_path.name}"
    with begun(Divided(tmp_path, store, events, "--evict-after=8s", address=RATES)) as hosts:
        hosts.feed_on(100)
        hosts.until(lambda: hosts.reached(events[50].stamp.time))
        assert "agreed: Rate has 3 shards" in hosts.rescale(3)
        hosts.lose("b")
        hosts.until_it_has(3, number=1)
        hosts.start("b")
        hosts.until(lambda: hosts.has_begun("b"))
        hosts.feed_on(40)
        assert "agreed: Rate has 1 shard " in hosts.rescale(1)
        hosts.until_it_has(1, number=2)
        hosts.feed_on(40)
        del events[hosts.fed :]
        hosts.end()
        split_us, merged_us = (agreed.at_us for agreed in agreed_upgrades(hosts.place.log))
        assert events[0].stamp.time < split_us < merged_us < events[-1].stamp.time
        assert hosts.violations() == []
