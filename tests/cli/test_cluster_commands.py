"""`unerring run` on a process, `unerring process` beside it and its audit afterwards, as a user calls them: real nodes
with mutual TLS, a real HTTP service behind the filter, a node killed while instances are under way."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.ports import free_ports
from tests.processes.cluster import pass_time
from unerring.cli import main

SHOP = """
import msgspec
from unerring import Process, Service

class Order(msgspec.Struct):
    item: str = ""
    reservation: int = 0
    paid: bool = False
    truck: int = 0

order = Process("order", state=Order, services=[Service("stock")])

@order.action(service="stock", operation="reserve", writes="reservation", write=True)
async def reserve(item: str) -> int: ...

payment = order.receive("payment", writes="paid")

@order.action(service="stock", operation="dispatch", writes="truck", write=True, compensable=False)
async def dispatch(reservation: int) -> int: ...

order.flow(reserve, payment, dispatch)
"""

STOCK = """
import json
from unerring.runtime.services import IdempotencyFilter, SqliteStore

number = 100

async def stock(scope, receive, send):
    global number
    if scope["type"] != "http":
        return
    number += 1
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(number).encode()})

app = IdempotencyFilter(stock, SqliteStore("stock.db"))
"""


class Called(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Shop:
    """A folder with the process, its service, and a running cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "corner_shop.py").write_text(SHOP)
        (folder / "corner_stock.py").write_text(STOCK)
        [self.port] = free_ports(1)
        self.running: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        assert self.call("certs", "ca").returncode == 0
        log = (self.folder / "log").open("ab")
        for command in (
            [sys.executable, "-m", "uvicorn", "corner_stock:app", "--port", str(self.port), "--log-level", "error"],
            [sys.executable, "-m", "unerring", "run", "corner_shop:order", "--f", "1", "--tls", "ca", "--data", "d"]
            + ["--service", f"stock=http://127.0.0.1:{self.port}"],
        ):
            self.running.append(subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log))
        log.close()

    def end(self) -> None:
        for process in reversed(self.running):
            process.terminate()
            process.wait(600)
        self.running.clear()

    def call(self, *arguments: str) -> Called:
        """A command, inside this process: a new one for each would take most of the test's time."""
        out, errors, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                main(list(arguments))
            except SystemExit as end:
                code = int(end.code or 0)
        return Called(code, out.getvalue(), errors.getvalue())

    def process(self, *arguments: str) -> Called:
        return self.call("process", *arguments, "--data", "d")

    def wait_for(self, *arguments: str, shows: str) -> str:
        """Ask again until the answer has it."""
        end = time.monotonic() + 120
        while True:
            done = self.process(*arguments)
            if done.returncode == 0 and shows in done.stdout:
                return done.stdout
            log = (self.folder / "log").read_text()[-1500:]
            assert time.monotonic() < end, f"{arguments}: {done.stdout} {done.stderr} {log}"
            pass_time(0.2)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = Shop(tmp_path)
    try:
        shop.begin()
        yield shop
    finally:
        shop.end()


@pytest.mark.timeout(300)
def test_a_cluster_as_a_user_sees_it(shop: Shop) -> None:
    shop.wait_for("start", "order", "o1", "--given", '{"item": "bolt"}', shows='"o1"')
    other = shop.process("start", "order", "o1", "--given", '{"item": "nut"}')
    assert "was started before with another process or other input" in other.stderr
    assert "there is no process" in shop.process("start", "odor", "o2").stderr
    assert shop.process("start", "order", "o2", "--given", '{"item": "nut"}').returncode == 0
    shop.wait_for("show", "o1", shows='"group":1')
    victim = children(shop.running[1].pid)[0]
    os.kill(victim, signal.SIGKILL)  # the supervisor starts it again
    assert shop.process("signal", "o1", "payment", "--payload", "true", "--id", "p1").returncode == 0
    assert shop.process("cancel", "o2").returncode == 0
    shop.wait_for("list", "--status", "completed", shows="o1")
    shop.wait_for("list", "--status", "cancelled", shows="o2")
    done = json.loads(shop.wait_for("show", "o1", shows='"ended_us"'))
    assert done["variables"]["item"] == "bolt"
    history = json.loads(shop.process("history", "o1", "--json").stdout)
    assert [a["vertex"] for group in history["groups"] for a in group["actions"]] == ["reserve", "payment", "dispatch"]
    assert "reserve" in shop.process("history", "o1").stdout
    assert "has ended (completed); it can no longer be cancelled" in shop.process("cancel", "o1").stderr
    assert "knows no instance 'o9'" in shop.process("signal", "o9", "payment").stderr
    shop.end()
    audit = shop.process("audit", "corner_shop:order", "--journal", "stock.db", "--json")
    verdict = json.loads(audit.stdout)
    assert (audit.returncode, verdict["wrong"]) == (0, False), verdict
    assert verdict["instances"] == {"completed": 1, "cancelled": 1}
    assert verdict["interactions"] >= 4  # two reservations, one of them undone, one truck
    same = shop.call("audit", "d", "--journal", "stock.db")
    assert (same.returncode, "the effects of one execution" in same.stdout) == (0, True), same
    forge(shop.folder / "stock.db")
    wrong = shop.call("audit", "d", "--journal", "stock.db")
    assert wrong.returncode == 1
    assert "o1/dispatch/0 is in the decided execution, but has no effect" in wrong.stdout


def children(pid: int) -> list[int]:
    """Processes that this one started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return sorted(found)


def forge(path: Path) -> None:
    """As if the truck had never left."""
    database = sqlite3.connect(path)
    with database:
        database.execute("DELETE FROM unerring_journal WHERE iid LIKE 'o1/dispatch/%'")
    database.close()
