"""A service that is away: who watches the run sees it in the status, the metrics and the documented alerts, while
instances wait for it and when they are held; and sees it go away."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.pages import blocks_of
from tests.runtime.test_http_answers import Shop, order, serving
from unerring import Embedded, HttpService
from unerring.app.status import RunStatus
from unerring.app.status.prometheus import prometheus
from unerring.dashboard.screen import render_status
from unerring.processes.graph import Retry
from unerring.runtime.process_control import control_of

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
LONG = Retry(attempts_max=100_000, backoff_us=1_000, backoff_max_us=20_000)
SHORT = Retry(attempts_max=2, backoff_us=1_000, backoff_max_us=1_000)


def fires(alert: str, metrics: str) -> bool:
    """Whether the documented expression holds for some sample; how long it must is Prometheus's part."""
    (rules,) = [b.text for b in blocks_of("operations.md", OPERATIONS.read_text()) if b.save_as == "alerts.yaml"]
    found = re.search(rf"alert: {alert}\n\s+expr: (unerring_\w+) > (\d+)\n", rules)
    assert found, f"there is no alert {alert} of that form"
    samples = re.findall(rf"^{found[1]}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return any(float(value) > float(found[2]) for value in samples)


class Watched:
    """A node whose service is not there, and who watches it."""

    def __init__(self, folder: Path, engine: Embedded) -> None:
        self.engine = engine
        self.control = control_of(engine, folder / "embedded.sock")
        self.folder = folder

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(600):
            while True:
                told = await asyncio.to_thread(RunStatus(self.folder).look)
                if holds(told["processes"]):
                    return told
                await asyncio.sleep(0.01)


def shown(told: dict[str, Any]) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(render_status(told, width=120))
    return captured.get()


def watch(folder: Path, retry: Retry, body: Callable[[Watched, int], Any]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

    async def main() -> None:
        service = HttpService(f"http://127.0.0.1:{port}")
        async with Embedded([order(retry=retry)], folder / "embedded.db", {"shop": service}) as engine:
            watched = Watched(folder, engine)
            await watched.control.open()
            await engine.start("order", "o1", item="bolt")
            await body(watched, port)
            await watched.control.close()

    asyncio.run(main())


def test_instances_that_wait_for_a_service_are_counted_by_service(tmp_path: Path) -> None:
    async def body(watched: Watched, port: int) -> None:
        told = await watched.until(lambda processes: processes["waiting"] == {"shop": 1})
        assert 'unerring_instances_waiting{service="shop"} 1' in prometheus(told)
        assert fires("ServiceAway", prometheus(told))
        assert "1 wait for shop" in shown(told)
        with serving(Shop(), port):
            await watched.engine.result("o1")
            told = await watched.until(lambda processes: not processes["waiting"])
        assert not fires("ServiceAway", prometheus(told))

    watch(tmp_path, LONG, body)


def test_instances_that_are_held_are_counted(tmp_path: Path) -> None:
    async def body(watched: Watched, port: int) -> None:
        told = await watched.until(lambda processes: processes["held"] == 1)
        assert fires("InstancesHeld", prometheus(told))
        assert "1 held" in shown(told)
        assert told["processes"]["waiting"] == {}
        with serving(Shop(), port):
            await watched.engine.retry("o1")
            await watched.engine.result("o1")
            told = await watched.until(lambda processes: not processes["held"])
        assert not fires("InstancesHeld", prometheus(told))

    watch(tmp_path, SHORT, body)


def test_what_was_held_when_the_nodes_ended_is_told_from_their_databases(tmp_path: Path) -> None:
    async def body(watched: Watched, port: int) -> None:
        await watched.until(lambda processes: processes["held"] == 1)

    watch(tmp_path, SHORT, body)
    (tmp_path / "log").mkdir()
    (tmp_path / "processes").mkdir()
    (tmp_path / "embedded.db").rename(tmp_path / "processes" / "embedded.db")
    told = RunStatus(tmp_path).look()
    assert told["processes"]["source"] == "disk"
    assert fires("InstancesHeld", prometheus(told))
