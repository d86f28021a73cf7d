"""`unerring new`: what it makes runs, as a new user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unerring.app.new import make_app
from unerring.model import CallerError


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_its_rule_its_process_and_its_tests_run(tmp_path: Path) -> None:
    made = run(tmp_path, "-m", "unerring", "new", "plant")
    assert made.returncode == 0, made.stderr
    assert "now: cd plant && python -m pytest" in made.stdout
    tested = run(tmp_path / "plant", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "3 passed" in tested.stdout, tested.stdout + tested.stderr
    explained = run(tmp_path / "plant", "-m", "unerring", "explain", "plant.app:overheating")
    assert "rule: overheating" in explained.stdout, explained.stderr


def test_nothing_is_overwritten_and_a_bad_name_is_refused(tmp_path: Path) -> None:
    make_app("plant", tmp_path)
    (tmp_path / "plant" / "app.py").write_text("mine")
    with pytest.raises(CallerError, match="is there already; choose another name or an empty folder"):
        make_app("plant", tmp_path)
    assert (tmp_path / "plant" / "app.py").read_text() == "mine"
    for name in ("My Plant", "class", "unerring", "../plant"):
        with pytest.raises(CallerError, match="cannot be the name of a Python module"):
            make_app(name, tmp_path)
