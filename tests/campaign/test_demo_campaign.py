"""The factory's demonstration with twenty seeds, and with every mutant: the judge says yes, and can say no."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.app.test_demo import played
from unerring.app.demo import mutants
from unerring.app.demo.factory import Shape, examples
from unerring.app.demo.verdict import judge


@pytest.mark.parametrize("seed", range(20))
def test_the_verdict_holds(seed: int) -> None:
    code, verdict, said = played("--fast", "--seed", str(seed))
    assert code == 0, said
    assert verdict["holds"] is True
    assert said.count("kill -9") == 3
    live, spark = verdict["engines"]["live"], verdict["engines"]["spark"]
    assert live["events"] == spark["events"] == verdict["published"] == Shape.fast().events
    assert live["delivered"] == spark["delivered"] == live["perfect"]
    assert live["delivered"]["Standstill"] + live["delivered"]["Shortage"] == verdict["instances"]["completed"] > 0


@pytest.fixture(scope="module")
def showing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was judged right, and kept."""
    folder = tmp_path_factory.mktemp("showing") / "run"
    code, _, said = played("--fast", "--seed", "100", "--keep", str(folder))
    assert code == 0, said
    return folder


@pytest.mark.parametrize("mutant", mutants.MUTANTS)
def test_the_judge_can_say_no(
    showing: Path, tmp_path: Path, mutant: str, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(examples()))
    monkeypatch.setenv("FACTORY_SERVICES", "http://127.0.0.1:1")
    monkeypatch.setenv("FACTORY_CHANNELS", "{}")
    shutil.copytree(showing, tmp_path / "run", ignore=shutil.ignore_patterns("*.sock", "control"))
    mutants.plant(mutant, tmp_path / "run")
    assert not judge(tmp_path / "run", print).holds


def test_a_planted_mutant_is_the_commands_verdict() -> None:
    code, verdict, said = played("--fast", "--seed", "101", "--mutant", "doubled-action")
    assert code == 1, said
    assert verdict["holds"] is False
