"""Rules wider than a process: what can have shards and what cannot, and what a run's folder keeps when they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.shard_app import Rate, Reading, Steps, Total, app
from unerring import fn, rule, trailing
from unerring.app import App, RunOptions
from unerring.app.deliveries import ran_live
from unerring.app.live_cluster import make_cluster, topology_of
from unerring.app.place import place_of
from unerring.app.sharding import shards_of
from unerring.app.status.tree import tree_of
from unerring.correlation import Role
from unerring.model import CallerError, ConfigError

ADDRESS = "tests.app.shard_app:app"


def test_an_app_says_how_many_shards_a_rule_has_and_a_run_may_say_otherwise(tmp_path: Path) -> None:
    wide = App("wide", rules=[Rate, Steps, Total], streams=[Reading], buckets=8, shards={"Rate": 8})
    assert shards_of(topology_of(wide, 1).nodes) == {"Rate": 8}
    cluster = make_cluster(ADDRESS, 1, tmp_path, shards={"Rate": 3, "Steps": 2})
    names = [node.name for node in cluster.topology.nodes if node.role is Role.CORRELATION]
    assert names == ["Rate-s0", "Rate-s1", "Rate-s2", "Steps-s0", "Steps-s1", "Total"]
    assert {"Rate-s2/1", "Steps-s1/0", "Total/1"} <= set(cluster.addresses)
    assert ran_live(place_of(tmp_path), "Rate"), "an audit looks for what was delivered and is not sealed yet"


@pytest.mark.parametrize(
    ("shards", "why"),
    [
        ({"Rate": 0}, "0 shards of Rate; choose between 1 and 8, which is the number of the app's buckets"),
        ({"Rate": 9}, "9 shards of Rate; choose between 1 and 8"),
        ({"Rates": 2}, "shards of 'Rates'; there are nodes Rate, Steps, Total"),
        ({"Total": 2}, "rule Total has no key, so that all its events belong together and Total cannot have shards"),
    ],
)
def test_shards_that_cannot_be_are_a_sentence(shards: dict[str, int], why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        App("wide", rules=[Rate, Steps, Total], streams=[Reading], buckets=8, shards=shards)
    with pytest.raises(ConfigError, match=why):
        make_cluster(ADDRESS, 0, tmp_path, shards=shards)
    assert not (tmp_path / "live").exists()


def test_a_node_whose_rules_read_a_stream_by_different_keys_cannot_have_shards() -> None:
    by_celsius = rule("Hot").on(Reading).key("celsius").window(trailing(1000)).on_change("n").emit(n=fn.count())
    with pytest.raises(ConfigError, match=r"low reads Reading by \(machine\) and by \(celsius\)"):
        App("two", rules=[Rate, by_celsius], nodes={"low": [Rate, by_celsius]}, shards={"low": 2}, buckets=8)


def test_rules_on_spark_have_partitions_not_shards(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="--shards is for rules that run live"):
        RunOptions(engine="spark", shards={"Rate": 2})
    assert RunOptions(engine="spark", live=("Rate",), shards={"Rate": 2}).supervised
    with pytest.raises(ConfigError, match="--shards Steps: it runs on Spark"):
        make_cluster(ADDRESS, 0, tmp_path, on_spark=("Steps", "Total"), shards={"Steps": 2})


def test_the_status_has_one_node_for_a_rule_with_shards(tmp_path: Path) -> None:
    cluster = make_cluster(ADDRESS, 0, tmp_path, shards={"Rate": 3})
    for known in (app, None):
        nodes = {node["name"]: node for node in tree_of(known, cluster.topology)["nodes"]}
        assert (nodes["Rate"]["runs_on"], nodes["Rate"]["shards"], nodes["Rate"]["outputs"]) == ("Rate", 3, ["Rate"])
        assert (nodes["Total"]["runs_on"], nodes["Total"]["shards"]) == ("Total", 1)
        assert nodes["Total"]["inputs"] == ["Rate", "Steps"]


def test_a_run_that_is_stopped_may_get_other_shards_but_no_other_f(tmp_path: Path) -> None:
    first = make_cluster(ADDRESS, 0, tmp_path, shards={"Rate": 3}, durable=True)
    other = make_cluster(ADDRESS, 0, tmp_path, durable=True)
    assert shards_of(other.topology.nodes) == {}
    assert other.generation == first.generation + 1, "nobody of the old shards may speak with the new ones"
    assert make_cluster(ADDRESS, 0, tmp_path, durable=True) == other
    with pytest.raises(ConfigError, match="other rules, another f"):
        make_cluster(ADDRESS, 1, tmp_path, shards={"Rate": 2}, durable=True)
