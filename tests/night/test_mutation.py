"""scripts/mutation: which modules it alters, and what it makes of what the tests say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "mutation"
TESTS = """
from unerring.log.store.deep import held
from unerring.log.loose import spare
from unerring.log.turning import turns

def test_all():
    assert held(3) and not held(2)
    spare(1)
    assert turns() == 'none'
"""
SEEDS = """
import pytest
from unerring.log.loose import spare

@pytest.mark.parametrize(("name", "seed"), [("log", 0), ("intake", 0), ("processes", 0)])
def test_nothing_is_violated(name, seed):
    assert name != "processes", "this is none of the log"
"""
MODULES = {
    "../__init__.py": "",
    "__init__.py": "",
    "store/__init__.py": "",
    "store/deep.py": "def held(n):\n    return n > 2\n",
    "loose.py": "def spare(n):\n    return n > 2\n",
    "turning.py": "def turns():\n    while 'a' > 'a':\n        pass\n    return 'none'\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of three modules below log."""
    for name, text in MODULES.items():
        path = tmp_path / "src" / "unerring" / "log" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tests" / "log").mkdir(parents=True)
    (tmp_path / "tests" / "log" / "test_some.py").write_text(TESTS)
    (tmp_path / "tests" / "simulation").mkdir()
    (tmp_path / "tests" / "simulation" / "test_scenarios.py").write_text(SEEDS)
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts" / "mutation")
    return tmp_path


def mutate(tree: Path, only: str, *more: str) -> tuple[subprocess.CompletedProcess[str], dict[str, dict[str, Any]]]:
    out = tree / "mutation.json"
    options = ["--only", only, "--patience", "2", "--out", str(out), *more]
    done = subprocess.run(
        [sys.executable, str(tree / "scripts" / "mutation"), *options], capture_output=True, text=True, cwd=tree
    )
    return done, {row["module"]: row for row in json.loads(out.read_text())} if out.exists() else {}


def test_modules_in_folders_are_altered_and_what_takes_too_long_is_no_kill(tree: Path) -> None:
    done, rows = mutate(tree, "")
    assert done.returncode == 0, done.stderr
    assert set(rows) == {"log/store/deep", "log/loose", "log/turning"}
    deep, loose, turning = rows["log/store/deep"], rows["log/loose"], rows["log/turning"]
    assert (deep["tried"], deep["killed"], deep["timed_out"]) == (2, 2, 0)
    assert (loose["tried"], loose["killed"], len(loose["survivors"])) == (2, 0, 2)
    assert (turning["tried"], turning["killed"], turning["timed_out"]) == (0, 0, 1), "a loop that never ends"


def test_tests_that_fail_without_any_alteration_end_it(tree: Path) -> None:
    test = tree / "tests" / "log" / "test_some.py"
    test.write_text(test.read_text().replace("'none'", "'one'"))
    done, rows = mutate(tree, "deep")
    assert done.returncode == 1
    assert done.stderr.startswith("tests/log ")
    assert done.stderr.strip().endswith(": the tests fail with unaltered source; repair them first")
    assert rows == {}


def test_an_alteration_meets_the_tests_that_come_to_its_function(tree: Path) -> None:
    ran = tree / "ran"
    more = f"""
from pathlib import Path
from unerring.log.loose import spare, unused

def test_spare():
    Path({str(ran)!r}).open("a").write("spare ")
    assert spare(3) and not spare(2)

def test_unused():
    Path({str(ran)!r}).open("a").write("unused ")
    assert unused
"""
    (tree / "tests" / "log" / "test_more.py").write_text(more)
    loose = tree / "src" / "unerring" / "log" / "loose.py"
    loose.write_text(loose.read_text() + "def unused(n):\n    return n > 7\n")
    done, rows = mutate(tree, "loose")
    assert done.returncode == 0, done.stderr
    assert (rows["log/loose"]["killed"], rows["log/loose"]["tried"]) == (2, 4), "of both functions"
    assert all("n > 7" in line for line in rows["log/loose"]["survivors"]), "nothing comes there"
    assert ran.read_text().split() == ["spare", "unused", "spare", "spare"]


def test_seeds_of_the_scenarios_of_a_package_count(tree: Path) -> None:
    seeds = tree / "tests" / "simulation" / "test_scenarios.py"
    seeds.write_text(SEEDS + "    assert name != 'intake' or (spare(3) and not spare(2))\n")
    done, rows = mutate(tree, "loose")
    assert done.returncode == 0, done.stderr
    assert (rows["log/loose"]["killed"], rows["log/loose"]["tried"]) == (2, 2)


def test_what_survives_the_tests_meets_the_simulator(tree: Path) -> None:
    """The tests do not come to `spare`; the search does, on one of its seeds."""
    simulation = """
from types import SimpleNamespace
from unerring.log.loose import spare

names = lambda: ["channels", "log"]
find = lambda name: name

def run(kind, seed):
    assert kind == "log", "the others are of other packages"
    return SimpleNamespace(violations=() if seed % 3 else [not spare(3) or spare(2)] * (not spare(3) or spare(2)))
"""
    (tree / "src" / "unerring" / "simulation.py").write_text(simulation)
    done, rows = mutate(tree, "loose", "--search", "0.5")
    assert done.returncode == 0, done.stderr
    assert (rows["log/loose"]["killed"], rows["log/loose"]["tried"]) == (2, 2)


def test_notes_are_kept_for_the_next_run(tree: Path) -> None:
    kept = tree / "kept"
    kept.mkdir()
    done, first = mutate(tree, "loose", "--kept", str(kept))
    assert done.returncode == 0, done.stderr
    test = tree / "tests" / "log" / "test_some.py"
    test.write_text(test.read_text().replace("'none'", "'one'"))
    done, second = mutate(tree, "loose", "--kept", str(kept))
    assert done.returncode == 0, "what is kept is not noted again"
    assert second["log/loose"]["tried"] == first["log/loose"]["tried"]
