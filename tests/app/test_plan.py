"""Which host gets what: by load and latency, or as a strategy of one's own has it; shown before it is carried out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.app.tree_app import app, higher
from unerring.app import arrangements
from unerring.app.live_cluster import make_cluster, topology_of
from unerring.app.place import Place, place_of
from unerring.app.plan_document import plan_of
from unerring.app.planning import PlacementOptions
from unerring.correlation import side_by_side
from unerring.model import CallerError, ConfigError
from unerring.runtime.live.placement import Facts, place

HOSTS = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}
APP = "tests.app.tree_app:app"


def by_node(placed: dict[str, str], f: int = 1) -> dict[str, str]:
    """The hosts of each node's replicas, as letters."""
    return {
        node.name: "".join(placed[name] for name in node.replicas)
        for node in topology_of(app, f, everywhere=True).nodes
    }


def test_replicas_go_where_the_load_is_least() -> None:
    topology = topology_of(app, 1, everywhere=True)
    alike = by_node(place(topology, "abc"))
    assert alike == {"source_Reading": "ab", "Rate": "ca", "Steps": "bc", "Peaks": "ab", "situations": "ca"}
    heavy = by_node(place(topology, "abc", Facts(loads={"Rate": 100, "Peaks": 1, "Steps": 1})))
    others = [hosts for node, hosts in heavy.items() if node != "Rate"]
    free = next(host for host in "abc" if host not in heavy["Rate"])
    assert sum(free in hosts for hosts in others) == len(others), "the host without the heavy one has one of each other"
    strong = by_node(place(topology, "abc", Facts(capacities={"c": 10})))
    assert all("c" in hosts for hosts in strong.values())


def test_replicas_go_near_to_what_they_take_streams_from() -> None:
    """a and b are in one place, c and d in another."""
    topology = topology_of(app, 1, everywhere=True)
    far = {(one, other): 5_000 for one in "ab" for other in "cd"}
    near = by_node(place(topology, "abcd", Facts(latencies_us={**far, ("a", "b"): 100})))

    def crossings(placed: dict[str, str]) -> int:
        pairs = [(node.name, other) for node in topology.nodes for other in topology.upstream(node.name)]
        hops = [(placed[one][number], placed[other][number]) for one, other in pairs for number in (0, 1)]
        return sum((one in "ab") != (other in "ab") for one, other in hops)

    assert crossings(near) < crossings(by_node(place(topology, "abcd")))
    assert {host for hosts in near.values() for host in hosts} == set("abcd"), "and nobody has it all"


@pytest.mark.parametrize("f", [0, 1, 2])
@pytest.mark.parametrize("hosts", ["abc", "abcd", "abcdefg"])
def test_replicas_of_a_node_never_share_a_host(f: int, hosts: str) -> None:
    topology = topology_of(app, f, everywhere=True)
    placed = place(topology, hosts, Facts(loads={"Rate": 7, "Peaks": 3}, capacities={"a": 5}))
    for node in topology.nodes:
        chosen = [placed[name] for name in node.replicas]
        assert len(set(chosen)) == f + 1
        spares = [host for name, host in placed.items() if name.startswith(f"{node.name}/")][f + 1 :]
        if not node.stands_alone and len(hosts) >= f + 3:
            assert not set(spares) & set(chosen), "spare places are on other hosts, where there are any"


def one_host(topology: Any, hosts: Any, facts: Any) -> dict[str, str]:
    return {"Rate/0": "a", "Rate/1": "a"}


def last_first(topology: Any, hosts: Any, facts: Any) -> dict[str, str]:
    return {"Rate/0": "c", "Rate/1": "b"}


NOT_A_FUNCTION = 5


def test_a_strategy_of_ones_own() -> None:
    topology = topology_of(app, 1)
    placed = place(topology, "abc", strategy=last_first)
    assert [placed[f"Rate/{number}"] for number in (0, 1)] == ["c", "b"]
    assert placed["Steps/0"] == place(topology, "abc")["Steps/0"], "what it leaves out is placed by load"
    with pytest.raises(ConfigError, match="two replicas of Rate on host a: one failure would take both"):
        place(topology, "abc", strategy=one_host)
    with pytest.raises(ConfigError, match="puts Rate/0 on 'z'; there are hosts a, b, c"):
        place(topology, "abc", strategy=lambda *_: {"Rate/0": "z"})
    with pytest.raises(CallerError, match="is no function"):
        PlacementOptions(strategy=f"{__name__}:NOT_A_FUNCTION").strategy_used()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"capacities": {"z": "1"}}, "capacity z=1.0: name one of a, b, c"),
        ({"capacities": {"a": "0"}}, "a number above 0"),
        ({"capacities": {"a": "much"}}, "'much' is not a number"),
        ({"loads": {"Nobody": "1"}}, "load Nobody=1.0: name one of source_Reading, Rate"),
        ({"latencies": {"ab": "1ms"}}, "name two hosts, as in a:b=2ms"),
        ({"latencies": {"a:z": "1ms"}}, "latency a:z: name two of a, b, c"),
        ({"latencies": {"a:b": "soon"}}, "is not a duration"),
    ],
)
def test_what_a_plan_cannot_go_by_is_said(options: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=why):
        plan_of(app, 1, place_of(tmp_path), HOSTS, PlacementOptions(**options))


def test_a_plan_says_what_to_think_about(tmp_path: Path) -> None:
    plan = plan_of(app, 1, place_of(tmp_path), {"a": "127.0.0.1", "b": "127.0.0.2"}, PlacementOptions())
    assert "with --data s3://… any host may be lost" in plan.notes[0]
    assert "name 3 or more hosts" in plan.notes[1]
    with pytest.raises(ConfigError, match=r"node Rate has 3 replicas and there are 2 hosts"):
        plan_of(app, 2, place_of(tmp_path), {"a": "127.0.0.1", "b": "127.0.0.2"}, PlacementOptions())


def test_a_run_has_other_hosts(tmp_path: Path) -> None:
    make_cluster(APP, 1, tmp_path, hosts=HOSTS)
    assert make_cluster(APP, 1, tmp_path, hosts=HOSTS).hosts["source_Reading/0"] == "a"
    for other in ({**HOSTS, "c": "127.0.0.9"}, {"a": "127.0.0.1", "b": "127.0.0.2"}):
        with pytest.raises(ConfigError, match="this run has other hosts; give the same list"):
            make_cluster(APP, 1, tmp_path, hosts=other)


def test_the_first_host_of_a_run_on_a_store_decides(s3_bucket: str, tmp_path: Path) -> None:
    """What a plan goes by may look different a minute later, on another host."""
    address = f"{s3_bucket}/{tmp_path.name}"
    places = [Place(address, tmp_path / host) for host in "ab"]
    first = make_cluster(APP, 1, places[0], hosts=HOSTS, placement=PlacementOptions(capacities={"c": "9"}))
    second = make_cluster(APP, 1, places[1], hosts=HOSTS)
    assert (first.hosts, first.addresses) == (second.hosts, second.addresses)
    assert plan_of(app, 1, places[1], HOSTS, PlacementOptions()).begun
    with pytest.raises(ConfigError, match="belongs to a run on other hosts; give the same list, in the same order"):
        make_cluster(APP, 1, Place(address, tmp_path / "c"), hosts={"a": "127.0.0.1", "b": "127.0.0.2"})


def steps_last(topology: Any, hosts: Any, facts: Any) -> dict[str, str]:
    return (
        {"Steps-1/0": hosts[-1], "Steps-1/1": hosts[0]} if "Steps-1" in {node.name for node in topology.nodes} else {}
    )


def steps_nowhere(topology: Any, hosts: Any, facts: Any) -> dict[str, str]:
    return {"Steps-1/0": facts.loads["Steps"]} if "Steps-1" in {node.name for node in topology.nodes} else {}


@pytest.mark.parametrize(
    ("options", "steps", "says"),
    [
        (PlacementOptions(), "ab", ""),
        (PlacementOptions(capacities={"a": "9"}), "ac", ""),
        (PlacementOptions(latencies={"b:c": "9ms", "a:b": "9ms"}), "cb", ""),
        (PlacementOptions(loads={"source_Reading": "9", "Rate": "1", "situations": "1"}), "ca", ""),
        (PlacementOptions(strategy=f"{__name__}:steps_last"), "ca", ""),
        (PlacementOptions(strategy=f"{__name__}:steps_nowhere"), "ab", "they are placed by load: KeyError('Steps')"),
    ],
)
def test_nodes_that_come_in_flight_go_by_what_the_plan_went_by(
    options: PlacementOptions, steps: str, says: str, s3_bucket: str, tmp_path: Path
) -> None:
    run, said = Place(f"{s3_bucket}/{tmp_path.name}", tmp_path / "a"), list[str]()
    cluster = make_cluster("tests.app.tree_app:low", 1, run, hosts=HOSTS, placement=options)
    both = side_by_side(cluster.topology, topology_of(higher, 1, everywhere=True), ["Rate", "Steps"], 1)
    placed = arrangements.placed(run, cluster, both, said.append)
    assert "".join(placed[f"Steps-1/{number}"] for number in (0, 1)) == steps
    assert [placed[f"Rate-1/{number}"] for number in (0, 1)] == [cluster.hosts[f"Rate/{number}"] for number in (0, 1)]
    assert all(says in one for one in said)
    assert len(said) == bool(says)


def test_the_command_shows_a_plan(tmp_path: Path) -> None:
    options = [f"--host={host}={address}" for host, address in HOSTS.items()]
    command = [sys.executable, "-m", "unerring", "plan", APP, *options, "--data", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Rate" in shown
    assert "note: the log is in a folder of host a" in shown
    document = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert {node["node"]: node["replicas"] for node in document["nodes"]}["Rate"] == ["a", "b"]
    refused = subprocess.run(command[:5], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "a plan needs hosts; list them with --host NAME=ADDRESS" in refused.stderr
