"""`unerring explain` and `unerring node` on a process, as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from unerring.cli import main
from unerring.processes import ProcessesConfig

SOURCE = """
from unerring.processes.build import Process

class State:
    n: int = 1

double = Process("double", state=State)

@double.action(writes="n", deterministic=True)
async def twice(n: int) -> int:
    return 2 * n

double.flow(twice)
"""


def unerring(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(SOURCE)
    command = [sys.executable, "-m", "unerring", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_explain_tells_and_draws(tmp_path: Path) -> None:
    done = unerring(tmp_path, "explain", "shop:double", "--svg", "double.svg")
    assert "twice (local): deterministic non-write" in done.stdout, done.stderr
    assert (tmp_path / "double.svg").read_text().startswith("<svg")
    facts = json.loads(unerring(tmp_path, "explain", "shop:double", "--json").stdout)
    assert [action["action"] for action in facts["actions"]] == ["twice"]


def test_a_node_runs_an_instance_once(tmp_path: Path) -> None:
    for _ in range(2):
        done = unerring(tmp_path, "node", "shop:double", "--start", "double=d1", "--given", '{"n": 21}')
        assert json.loads(done.stdout) == {"n": 42}, done.stderr


@pytest.mark.parametrize(("bound", "heartbeat_us"), [((), 50_000), (("--failover", "200ms"), 10_000)])
def test_a_failover_bound_chooses_how_often_a_node_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: tuple[str, ...], heartbeat_us: int
) -> None:
    (tmp_path / "shop.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    configs: list[ProcessesConfig] = []

    async def run(processes: object, name: str, links: object, config: ProcessesConfig, *others: object) -> None:
        configs.append(config)

    monkeypatch.setattr("unerring.cli.node._run", run)
    with suppress(SystemExit):
        main(["node", "shop:double", *bound])
    assert [config.heartbeat_us for config in configs] == [heartbeat_us]


def test_what_a_node_writes_is_for_its_user_alone(tmp_path: Path) -> None:
    assert unerring(tmp_path, "node", "shop:double", "--start", "double=d1", "--data", "nodes").returncode == 0
    written = list((tmp_path / "nodes").rglob("*"))
    assert any(path.suffix == ".db" for path in written)
    open_to_others = [path for path in (tmp_path / "nodes", *written) if path.stat().st_mode & 0o077]
    assert open_to_others == []


def test_a_token_is_read_from_a_file(tmp_path: Path) -> None:
    assert "No such option: --token" in unerring(tmp_path, "dashboard", ".", "--token", "x").stderr
    assert "cannot be read as a token" in unerring(tmp_path, "dashboard", ".", "--token-file", "none").stderr
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "empty").chmod(0o600)
    assert "has no token in it" in unerring(tmp_path, "dashboard", ".", "--token-file", "empty").stderr


def test_wrong_calls_get_a_sentence(tmp_path: Path) -> None:
    assert "is not NAME=VALUE" in unerring(tmp_path, "node", "shop:double", "--peer", "n1").stderr
    assert "not a process" in unerring(tmp_path, "node", "shop:State").stderr
    wrong = unerring(tmp_path, "node", "shop:double", "--start", "double=d1", "--given", "[1]")
    assert "--given must be a JSON object" in wrong.stderr


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    from importlib.metadata import version

    assert unerring(tmp_path, "--version").stdout == f"unerring {version('unerring')}\n"
