"""Lost for good: a host dies and its replicas are replaced on others, without a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.live_tree import readings
from tests.app.lost_hosts import lost_hosts
from tests.app.tree_app import app
from unerring.app.live_cluster import topology_of
from unerring.app.options import RunOptions
from unerring.correlation import Member, Record, Standing
from unerring.model import ConfigError
from unerring.runtime.live.cluster import Cluster
from unerring.runtime.live.healing import TURN_S, Healing, lacks_one, places
from unerring.runtime.live.placement import addresses_on, place, process_names

HOSTS = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3", "d": "127.0.0.4"}


def test_a_host_that_is_lost_is_made_up_for_by_the_others(tmp_path: Path) -> None:
    """Section 9.4: evicted with the word of one that remains; then a new replica joins elsewhere."""
    with lost_hosts(tmp_path, readings(900), "--evict-after", "3s") as hosts:
        hosts.feed(0, 300)
        before = hosts.members()
        lost = [name for name in before if hosts.cluster.hosts[name] == "b"]
        hosts.lose("b")
        hosts.feed(300, 600)
        hosts.until(hosts.whole)
        after = hosts.members()
        assert {after[name]["standing"] for name in lost} == {"gone"}
        new = {name for name in after if name not in before}
        assert {hosts.cluster.hosts[name] for name in new} == {"a", "c"}, "the keeper's host, and one that only reads"
        hosts.start("b")
        hosts.until(lambda: all(hosts.members()[name]["standing"] == "caught_up" for name in lost))
        assert all(hosts.members()[name]["incarnation"] > before[name]["incarnation"] for name in lost)
        hosts.feed(600, 900)
        hosts.end()
    assert hosts.violations() == []


# ---- whose turn it is ------------------------------------------------------------------------------------------


def cluster(hosts: dict[str, str], f: int = 1) -> Cluster:
    topology = topology_of(app, f)
    placed = place(topology, list(hosts)) if hosts else {}
    addresses = (
        addresses_on(placed, hosts, shared=True) if hosts else dict.fromkeys(process_names(topology), "127.0.0.1:1")
    )
    return Cluster("tests.app.tree_app:app", topology, addresses, hosts=placed)


def record(**standings: str) -> Record:
    """What is `lost` is gone, too."""
    return Record(1, {name.replace("_", "/"): _member(standing) for name, standing in standings.items()})


def _member(standing: str) -> Member:
    return Member(1, Standing("gone" if standing == "lost" else standing), lost=standing == "lost")


def test_a_place_is_on_a_host_that_has_no_replica_of_the_node() -> None:
    four = cluster(HOSTS)
    assert [four.hosts[f"Rate/{number}"] for number in range(4)] == ["a", "b", "c", "d"]
    lost = record(Rate_0="caught_up", Rate_1="lost")
    assert places(four, lost, "Rate") == ["Rate/2", "Rate/3", "Rate/1"], "the place of the lost one comes last"
    three = cluster({host: HOSTS[host] for host in "abc"})
    assert three.hosts["Rate/3"] == "a"
    assert places(three, lost, "Rate") == ["Rate/2", "Rate/1"]


@pytest.mark.parametrize(
    ("standings", "lacks"),
    [
        ({"Rate_0": "caught_up", "Rate_1": "caught_up"}, False),
        ({"Rate_0": "caught_up", "Rate_1": "joining"}, False),
        ({"Rate_0": "caught_up", "Rate_1": "lost"}, True),
        ({"Rate_0": "caught_up", "Rate_1": "gone"}, False),
        ({"Rate_0": "caught_up", "Rate_1": "lost", "Rate_2": "joining"}, False),
        ({"Rate_0": "joining", "Rate_1": "lost"}, False),
        ({}, False),
    ],
)
def test_a_node_lacks_one_if_it_has_too_few_and_somebody_with_a_state(standings: dict[str, str], lacks: bool) -> None:
    assert lacks_one(cluster(HOSTS), record(**standings), "Rate") is lacks


def test_the_next_host_takes_its_turn_if_the_first_one_does_not() -> None:
    four, lost = cluster(HOSTS), record(Rate_0="caught_up", Rate_1="lost")
    first, second, with_one = (Healing(four, host) for host in "cda")
    assert first.due(lost, [], 100.0) == ["Rate/2"]
    assert first.due(lost, ["Rate/2"], 100.5) == [], "it is started once"
    assert second.due(lost, [], 100.0) == []
    assert second.due(lost, [], 100.0 + TURN_S) == ["Rate/3"]
    assert with_one.due(lost, ["Rate/0"], 1000.0) == []
    third = Healing(four, "d")
    third.due(lost, [], 0.0)
    third.due(record(Rate_0="caught_up", Rate_1="lost", Rate_2="joining"), [], 1.0)
    assert third.due(lost, [], TURN_S + 1) == [], "its patience begins anew with a new loss"


def test_without_a_list_of_hosts_all_places_are_here() -> None:
    alone = cluster({})
    assert Healing(alone, "").due(record(Rate_0="caught_up", Rate_1="lost"), ["Rate/0", "Rate/1"], 0.0) == ["Rate/2"]


def test_what_evict_after_means() -> None:
    assert RunOptions(engine="live").config.evict_after_us == 30_000_000
    assert RunOptions(engine="live", evict_after="2m").config.evict_after_us == 120_000_000
    assert RunOptions(engine="live", evict_after="off").config.evict_after_us == 0
    for text, why in (("soon", "is not a duration"), ("1s", "at least twice record_poll_us"), ("9d", "evict_after_us")):
        with pytest.raises(ConfigError, match=f"--evict-after '{text}': .*{why}.*; write for example 30s, or off"):
            RunOptions(engine="live", evict_after=text)
