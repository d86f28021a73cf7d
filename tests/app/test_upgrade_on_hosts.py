"""Rules of a live run change while it runs on several hosts, one of which is lost for good just then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app import tree_app
from tests.app.editions import sealed, wanted
from tests.app.live_tree import readings
from tests.app.store_hosts import StoreHosts, store_hosts
from unerring.app import agree_on_upgrade
from unerring.app.upgrading import changes_while_it_runs
from unerring.model import TIME_MAX
from unerring.pipeline import is_done


@pytest.mark.long
def test_a_host_is_lost_while_the_rules_change(s3_bucket: str, tmp_path: Path) -> None:
    """Nobody of its own is on the host that is lost, nor on the one where the command was entered."""
    events = readings(20_000)
    with store_hosts(tmp_path, f"{s3_bucket}/{tmp_path.name}", events, "--evict-after=8s") as hosts:
        hosts.feed(0, 100)
        hosts.until(lambda: hosts.reached(events[50].stamp.time))
        assert changes_while_it_runs(hosts.place)
        under_way = agree_on_upgrade(hosts.place, "tests.app.tree_app:higher", tree_app.higher, prepared=True)
        hosts.lose("b")
        fed = 100 + feed_until_done(hosts, 100)
        hosts.feed(fed, fed + 40)
        del events[fed + 40 :]
        hosts.end()
        hosts.until(lambda: hosts.place.log.chain("Steps").refresh() == TIME_MAX)
    assert events[0].stamp.time < under_way.at_us < events[-1].stamp.time
    for stream, situations in wanted(tree_app.low, tree_app.higher, events, under_way.at_us).items():
        assert sealed(hosts.place.log, stream) == situations
        assert situations[-1].stamp.time > under_way.at_us


def feed_until_done(hosts: StoreHosts, first: int) -> int:
    """Feed on, a few events at a time, until the new rules have taken over on all hosts; how many events."""
    fed = 0

    def more() -> bool:
        nonlocal fed
        if not is_done(hosts.place.log, 1):
            hosts.feed(first + fed, first + fed + 4)
            fed += 4
            return False
        return all("take over" in (hosts.folder / f"{host}.log").read_text() for host in hosts.runs)

    hosts.until(more)
    return fed
