"""`unerring dashboard` before other users of the host: a login, a token for each run, and what `--open` gives away."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dashboard.doors import bearer, small_run
from tests.dashboard.running import until
from unerring.dashboard import OWNER, TOKEN_FILE, own_token
from unerring.dashboard.access import TOKEN_CHARS_MIN
from unerring.model import ConfigError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_run(tmp_path / "run")


@contextlib.contextmanager
def command(run: Path, *options: str, **environment: str) -> Iterator[tuple[str, str]]:
    """`unerring dashboard` as a process of its own: its address, and what it says of tokens."""
    asked = [sys.executable, "-m", "unerring", "dashboard", str(run), "--port", "0", *options]
    serving = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert serving.stdout is not None
    try:
        address = serving.stdout.readline().split()[0]
        said = "" if "UNERRING_TOKEN" in environment else serving.stdout.readline()
        with httpx.Client(base_url=address) as client:
            until(lambda: _answers(client), "the dashboard is up")
        yield address, said
    finally:
        serving.send_signal(signal.SIGINT)
        serving.wait(60)
        serving.stdout.close()


def test_another_user_of_the_host_sees_nothing_of_a_run(run) -> None:
    """The run's own token lies in its folder, and is the same at the next start."""
    with command(run) as (address, said), httpx.Client(base_url=address) as client:
        for path in ("/api/status", "/api/stream", "/metrics", "/audit", "/api/instances", "/static/main.js"):
            assert client.get(path).status_code == 401, path
        assert client.get("/").headers["location"] == "/login"
        kept = run / TOKEN_FILE
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        token = kept.read_text().strip()
        assert f"to log in, use the token {token}" in said
        assert client.get("/api/status", headers=bearer(token)).status_code == 200
    assert own_token(run) == token
    kept.chmod(0o644)
    with pytest.raises(ConfigError, match="others may read"):
        own_token(run)


def test_public_lets_everybody_read_and_nobody_change(run) -> None:
    with command(run, "--public") as (address, _), httpx.Client(base_url=address) as client:
        assert client.get("/api/status").status_code == 200
        assert client.post("/api/commands/kill", json={"who": "n0"}).status_code == 401
    refused = subprocess.run(
        [sys.executable, "-m", "unerring", "dashboard", str(run), "--public", "--token-file", str(roles_in(run))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (refused.returncode, "leave it out beyond loopback" in refused.stderr) == (2, True)


def roles_in(folder: Path) -> Path:
    file = folder / "tokens"
    file.touch(0o600)
    file.write_text("viewer/ann secret-of-somebody\n")
    return file


def test_a_folder_that_cannot_be_written_to_has_a_token_for_this_time(tmp_path, monkeypatch) -> None:
    assert len({own_token(tmp_path) for _ in range(3)}) == 1

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unerring.dashboard.access.os.open", full)
    tokens = {own_token(tmp_path / "none") for _ in range(2)}
    assert len(tokens) == 2
    assert min(map(len, tokens)) >= TOKEN_CHARS_MIN


def test_open_shows_no_secret_to_who_lists_processes(run, tmp_path) -> None:
    """The browser is given the name of a file that only this user can read; the code is in the file."""
    browser, page = tmp_path / "browser", run / "open.html"
    browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/arguments\n')
    browser.chmod(0o700)
    environment = {"BROWSER": f"{browser} %s", "UNERRING_TOKEN": "token-of-the-owner"}
    with command(run, "--open", **environment) as (address, _):
        until((tmp_path / "arguments").exists, "the browser was opened")
        assert (tmp_path / "arguments").read_text().strip() == page.as_uri()
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        code = re.search(r"url=(\S+)login#code=([\w-]+)", page.read_text())
        assert code is not None
        assert code[1] == address
        assert "token-of-the-owner" not in page.read_text()
        with httpx.Client(base_url=address, headers={"origin": address.rstrip("/")}) as client:
            assert client.post("/login", data={"code": code[2]}).status_code == 303
            assert client.get("/api/who").json() == {"who": str(OWNER)}
    assert not page.exists()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/login").status_code == 200
    except httpx.TransportError:
        return False
