"""Processes, at length: many seeds, and a hundred real failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.correlation.network import network
from tests.processes.cluster import Cluster
from tests.runtime.test_kill import torment
from unerring.simulation import find, run


@pytest.mark.fixed_seeds
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "name",
    [
        *("processes", "processes-races", "processes-loops", "processes-blocks", "processes-all"),
        *("processes-storm", "processes-disks"),
    ],
)
def test_two_thousand_seeds(name: str) -> None:
    scenario = find(name)
    reached: dict[str, int] = {}
    for seed in range(2_000):
        outcome = run(scenario, seed)
        assert not outcome.violations, f"seed {seed}: " + "\n".join(map(str, outcome.violations))
        for what in outcome.reached:
            reached[what] = reached.get(what, 0) + 1
    assert [what for what in scenario.must_reach if what not in reached] == []


@pytest.mark.timeout(1800)
def test_a_hundred_real_failures(seed: int, blows: Counter[str], tmp_path: Path) -> None:
    with Cluster(tmp_path, struck=blows) as cluster:
        torment(cluster, failures=100, seed=seed)
        cluster.wait_settled(300)
        assert cluster.check() == []


@pytest.mark.timeout(3600)
def test_a_hundred_failures_with_partitions(
    seed: int, blows: Counter[str], server: Callable[[str], Path], tmp_path: Path
) -> None:
    """Each node and the service on a host of its own, mutual TLS, partitions by nftables, kills and stops."""
    hosts = ("n0", "n1", "n2", "shop")
    with (
        network(server("ip"), server("nft"), "unproc", hosts) as joined,
        Cluster(tmp_path, network=joined, struck=blows) as cluster,
    ):
        torment(cluster, failures=100, seed=seed)
        cluster.wait_settled(300)
        assert cluster.check() == []
