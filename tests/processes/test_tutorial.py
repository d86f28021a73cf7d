"""The tutorial, typed as a new user would: every command of it, in order, with what it says that one sees."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.cluster import pass_time
from unerring.cli import main

TUTORIAL = Path(__file__).parent.parent.parent / "docs" / "tutorial-process.md"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)


def lines() -> Iterator[tuple[str, list[str]]]:
    """Each command, with what it shows."""
    for block in blocks("text"):
        for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = typed.strip().splitlines()
            yield command, shown


class User:
    """A shell of few words: `&`, `kill %1`, and the unerring command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: subprocess.Popen[bytes] | None = None

    def types(self, command: str) -> str:
        if command == "kill %1":
            self.stop()
            return ""
        words = shlex.split(command)
        assert words[0] == "unerring"
        if words[-1] == "&":
            with (self.folder / "node.log").open("ab") as log:
                full = [sys.executable, "-m", "unerring", *words[1:-1]]
                self.running = subprocess.Popen(full, cwd=self.folder, stdout=log, stderr=log)
            self._listens()
            return ""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
            main(words[1:])
        return said.getvalue()

    def _listens(self) -> None:
        end_s = time.monotonic() + 60
        while not (self.folder / "unerring-data" / "node.sock").exists():
            said = (self.folder / "node.log").read_text()
            assert self.running is not None, said
            assert self.running.poll() is None, said
            assert time.monotonic() < end_s, said
            pass_time(0.05)

    def stop(self) -> None:
        if self.running is not None:
            self.running.terminate()
            self.running.wait(600)
            self.running = None


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    (tmp_path / "shop.py").write_text(blocks("python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # another test's
    typist = User(tmp_path)
    yield typist
    typist.stop()
    sys.modules.pop("shop", None)


def test_the_tutorial_is_true(user: User) -> None:
    for command, shown in lines():
        said = user.types(command)
        for line in shown:
            assert line in said, f"$ {command}\n{said}"
    log = (user.folder / "node.log").read_text()
    assert log.count("shipped 2 parcels") == 1
    assert "thanked ann" in log
