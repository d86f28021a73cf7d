"""Runs with several drivers of Spark, supervised by the test itself, whose drivers are killed while they work."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from tests.app.live_tree import LiveRun, read_status
from unerring.app import live, standby
from unerring.app.options import SparkOptions
from unerring.model import Event
from unerring.runtime.live import LiveSupervisor
from unerring.runtime.os_processes import dotted

DRIVERS = ("spark/0", "spark/1")


class StandbyRun(LiveRun):
    """f = 1: two drivers for the rules on Spark, two replicas of every other rule."""

    def __init__(
        self, data: Path, address: str, events: list[Event], on_spark: tuple[str, ...], rows: int, **options: Any
    ) -> None:
        self.options = SparkOptions(master="local[1]", memory="700m", rows=rows)
        self.killed: set[int] = set()
        super().__init__(data, address, events, on_spark=on_spark, **options)

    def new_supervisor(self) -> LiveSupervisor:
        return LiveSupervisor(self.cluster, self.data / "live", self._command)

    def _command(self, name: str) -> list[str]:
        if name in DRIVERS:
            return standby.command(self.data, name, self.options)
        return live.command(self.data, name)

    @property
    def replicas(self) -> list[str]:
        return [name for name in self.cluster.founding if name not in ("situations/0",)]

    def healthy(self, name: str) -> bool:
        return super().healthy(name) and self.status(name)["pid"] not in self.killed

    def both_stand(self) -> bool:
        return all(self.healthy(name) for name in DRIVERS) and self.leader() is not None

    def leader(self) -> str | None:
        return next((name for name in DRIVERS if self.healthy(name) and self.status(name).get("leads")), None)

    def logs(self) -> str:
        paths = [self.data / "live" / "logs" / f"{dotted(name)}.log" for name in DRIVERS]
        return "\n".join(path.read_text()[-2000:] for path in paths if path.exists())

    def kill(self, driver: str, part: str = "Python", number: int = signal.SIGKILL) -> None:
        """A driver's Python, or its JVM, as its status names them."""
        told = read_status(self.data, driver)
        self.killed.add(told["pid"])
        os.kill(told["pid"] if part == "Python" else told["driver"]["jvm"], number)

    async def supervised(self, play: Any) -> None:
        """Play while the supervisor runs."""
        running = asyncio.create_task(self.supervisor.run())
        try:
            await play
        finally:
            self.supervisor.stop()
            await running
