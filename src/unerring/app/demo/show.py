"""Runs the demonstration and shows it: what fails, what each consumer has, and the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unerring.app.demo.consumers import Consumer
from unerring.app.demo.press import read_journal
from unerring.audit import Violation
from unerring.model import NetworkError
from unerring.runtime.transports import Faults

CATCH_UP_S: Final = 30.0
NEWS_SHOWN: Final = 9
LOSSES: Final = {
    "till": Faults(loss=0.02),
    "office": Faults(loss=0.15, duplication=0.05, reordering=0.1),
    "archive": Faults(loss=0.05, delay=0.2),
}


class Verdict(msgspec.Struct, frozen=True):
    published: int
    delivered: dict[str, int]
    declared_lost: dict[str, str]
    lost_in_transit: int
    violations: list[str]

    @property
    def holds(self) -> bool:
        return not self.violations


class Demo:
    """One producer, three consumers, a schedule of failures."""

    def __init__(self, seed: int, fast: bool, folder: Path, console: Console) -> None:
        self.consumers = [Consumer(name, faults, seed + n) for n, (name, faults) in enumerate(LOSSES.items())]
        self.folder = folder
        self.console = console
        self.news: list[str] = []
        self.url = "tcp://127.0.0.1:0"
        self.epoch = 0
        self._phase_s = 1.0 if fast else 3.0
        self._rate = 2000
        self._press: asyncio.subprocess.Process | None = None
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        self.news.append(f"[dim]{time.monotonic() - self._began:5.1f} s[/]  {text}")
        if not self.console.is_terminal:
            self.console.print(self.news[-1])

    # --- the schedule

    async def play(self) -> Verdict:
        try:
            await self._start_press()
            for consumer in self.consumers:
                await consumer.start(self.url)
                self.say(f"[bold]{consumer.name}[/] subscribed; its network loses {consumer.faults.loss:.0%}")
            await asyncio.sleep(self._phase_s)
            await self._kill_press()
            await asyncio.sleep(self._phase_s / 6)
            await self._start_press()
            await asyncio.sleep(self._phase_s)
            office = self.consumers[1]
            await office.crash()
            self.say("[red]office crashed[/]; it will continue from its last accepted event")
            await asyncio.sleep(self._phase_s / 3)
            await office.start(self.url)
            self.say("[green]office is back[/]")
            await asyncio.sleep(self._phase_s)
            await self._restart_press_cleanly()
            await asyncio.sleep(self._phase_s / 2)
            return await self._finish()
        finally:
            await self._end_press()
            for consumer in self.consumers:
                await consumer.stop()

    async def _start_press(self) -> None:
        self._press = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "unerring.app.demo.press",
            self.url,
            str(self.folder),
            str(self._rate),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        line = await self._out.readline()
        if not line:
            raise NetworkError(f"the demo's producer did not start; see above, or look into {self.folder}")
        self.url, epoch = line.decode().split()
        self.epoch = int(epoch)
        self.say(f"[green]producer started[/] as process {self._press.pid}, epoch {self.epoch}, at {self.url}")

    async def _kill_press(self) -> None:
        press = self._running
        press.kill()
        await press.wait()
        self.say(f"[red]producer killed[/] (kill -9 of process {press.pid}); what it had not sent is gone")

    async def _restart_press_cleanly(self) -> None:
        await self._end_press()
        self.say("producer ended [bold]cleanly[/]: its last sequence is on record")
        await self._start_press()

    async def _finish(self) -> Verdict:
        """The last epoch ends while its producer stays to answer; then every consumer must have all of it."""
        self.say("producer falls silent; consumers catch up")
        self._in.write(b"silent\n")
        published = read_journal(self.folder)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while not all(consumer.caught_up(self.epoch, published[self.epoch]) for consumer in self.consumers):
                    await asyncio.sleep(0.05)
                    published = read_journal(self.folder)
        return self._judge(published)

    def _judge(self, published: dict[int, int]) -> Verdict:
        violations: list[Violation] = []
        for consumer in self.consumers:
            violations.extend(consumer.judge(published))
        return Verdict(
            published=sum(published.values()),
            delivered={consumer.name: consumer.delivered for consumer in self.consumers},
            declared_lost={
                consumer.name: "; ".join(
                    f"{loss.first}–{'?' if loss.last is None else loss.last} of epoch {loss.epoch}"
                    for loss in consumer.lost_ranges
                )
                or "nothing"
                for consumer in self.consumers
            },
            lost_in_transit=sum(consumer.lost_in_transit for consumer in self.consumers),
            violations=[str(violation) for violation in violations],
        )

    async def _end_press(self) -> None:
        if self._press is not None and self._press.returncode is None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._in.write(b"silent\nend\n")
            try:
                async with asyncio.timeout(10):
                    await self._press.wait()
            except TimeoutError:
                self._press.kill()
                await self._press.wait()

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._press is None:
            raise NetworkError("the demo's producer is not running")
        return self._press

    @property
    def _in(self) -> asyncio.StreamWriter:
        stdin = self._running.stdin
        if stdin is None:
            raise NetworkError("the demo's producer takes no orders")
        return stdin

    @property
    def _out(self) -> asyncio.StreamReader:
        stdout = self._running.stdout
        if stdout is None:
            raise NetworkError("the demo's producer says nothing")
        return stdout

    # --- the screen

    def screen(self) -> Group:
        table = Table(expand=True)
        for column in ("consumer", "delivered", "lost in transit", "duplicates discarded", "declared lost", "restarts"):
            table.add_column(column, justify="left" if column == "consumer" else "right")
        for consumer in self.consumers:
            ranges = len(consumer.lost_ranges)
            table.add_row(
                consumer.name,
                f"{consumer.delivered:,}",
                f"{consumer.lost_in_transit:,}",
                f"{consumer.duplicates:,}",
                f"{ranges} range{'' if ranges == 1 else 's'}" if ranges else "–",
                str(consumer.restarts),
            )
        news = Text.from_markup("\n".join(self.news[-NEWS_SHOWN:]))
        return Group(table, Panel(news, title="what happens", title_align="left", border_style="dim"))


async def run_demo(seed: int, fast: bool, folder: Path, console: Console) -> Verdict:
    """Play it on the screen; the verdict at the end."""
    demo = Demo(seed, fast, folder, console)
    if not console.is_terminal:
        return await demo.play()
    with Live(console=console, get_renderable=demo.screen, refresh_per_second=8):
        return await demo.play()


def print_verdict(verdict: Verdict, console: Console) -> None:
    table = Table(title="Promise 1: in order, once, or told exactly what is lost", title_justify="left", expand=True)
    for column in ("consumer", "published", "delivered", "declared lost (sequences)"):
        table.add_column(column, justify="right" if column in ("published", "delivered") else "left")
    for name, delivered in verdict.delivered.items():
        table.add_row(name, f"{verdict.published:,}", f"{delivered:,}", verdict.declared_lost[name])
    console.print(table)
    console.print(f"The network lost {verdict.lost_in_transit:,} messages on the way; all of them were found.")
    for violation in verdict.violations:
        console.print(f"[red]violated:[/] {violation}")
    console.print(
        "[bold green]The ledger balances: every event is delivered once or declared lost.[/]"
        if verdict.holds
        else "[bold red]The ledger does not balance.[/]"
    )
