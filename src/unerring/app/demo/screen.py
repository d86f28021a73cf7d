"""The factory's demonstration on a terminal: the tree with leaders and lag, the counters, what fails; the verdict."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, Final

from rich import box
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unerring.app.demo.factory import Factory
from unerring.app.demo.verdict import FactoryVerdict

NEWS_SHOWN: Final = 7
TABLES_LINES: Final = 40
"""A terminal of so many lines has room for a table of situations and one of actions; a lower one has a line of each."""


class Screen:
    """Says what happens line by line in a file, or shows it as it is on a terminal."""

    def __init__(self, console: Console) -> None:
        self.factory: Factory | None = None
        self._console = console
        self._news: list[str] = []
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        self._news.append(f"[dim]{time.monotonic() - self._began:5.1f} s[/]  {text}")
        if not self._console.is_terminal:
            self._console.print(self._news[-1])

    async def show(self, playing: Coroutine[Any, Any, FactoryVerdict]) -> FactoryVerdict:
        """While it plays."""
        if not self._console.is_terminal:
            return await playing
        with Live(self, console=self._console, refresh_per_second=2):
            return await playing

    def __rich__(self) -> Group:
        """Events come first, because a low terminal cuts off the end."""
        lines = [Text.from_markup(line, overflow="ellipsis") for line in self._news[-NEWS_SHOWN:]]
        for line in lines:
            line.no_wrap = True
        shown: list[Any] = [Panel(Group(*lines), title="what happens", title_align="left", border_style="dim")]
        if self.factory is not None and self.factory.running:
            shown.append(_tree(self.factory))
            if self._console.height >= TABLES_LINES:
                shown.append(Columns([_counters(self.factory), _actions(self.factory)], expand=True))
            else:
                shown.append(_in_short(self.factory))
        return Group(*shown)


def _tree(factory: Factory) -> Table:
    """One line for each node of live correlation."""
    table = Table(title="live correlation, f = 1", title_justify="left", expand=True, box=box.SIMPLE_HEAD)
    for column in ("node", "replicas", "leader", "elections", "events in", "lag"):
        table.add_column(column, justify="right" if column in ("elections", "events in", "lag") else "left")
    nodes: dict[str, list[dict[str, Any]]] = {}
    for replica in factory.live.replicas():
        if replica.get("kind") == "Replica":
            nodes.setdefault(replica["name"].partition("/")[0], []).append(replica)
    for node, replicas in nodes.items():
        states = " ".join(
            f"[green]{r['state']}[/]" if r["state"] == "member" else f"[red]{r['state']}[/]" for r in replicas
        )
        leaders = [r["name"].partition("/")[2] for r in replicas if r.get("leads") and r["state"] != "silent"]
        taken = [sum(stream["events"] for stream in r.get("inputs", {}).values()) for r in replicas]
        table.add_row(
            node,
            states,
            ", ".join(leaders) or "–",
            str(sum(r.get("elections", 0) for r in replicas)),
            f"{max(taken, default=0):,}",
            f"{max((r['lag_s'] for r in replicas), default=0.0):,.0f} s",
        )
    return table


def _in_short(factory: Factory) -> Text:
    live, spark = (sum(engine.counts.values()) for engine in (factory.live, factory.spark))
    ended = sum(factory.instances.values())
    return Text(
        f" events: {factory.published:,} published, {factory.lost_in_transit:,} messages lost on the way\n"
        f" situations: {live:,} live, {spark:,} on Spark\n"
        f" processes: {len(factory.instances) - ended:,} running, {ended:,} ended; "
        f"{sum(factory.effects.values()):,} effects at the services"
    )


def _counters(factory: Factory) -> Table:
    table = Table(title="situations", title_justify="left")
    for column in ("stream", "live", "Spark"):
        table.add_column(column, justify="left" if column == "stream" else "right")
    for stream in sorted({*factory.live.counts, *factory.spark.counts}):
        table.add_row(stream, *(f"{engine.counts.get(stream, 0):,}" for engine in (factory.live, factory.spark)))
    return table


def _actions(factory: Factory) -> Table:
    table = Table(title="events and actions", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("events published", f"{factory.published:,}")
    table.add_row("messages lost on the way", f"{factory.lost_in_transit:,}")
    ended = sum(factory.instances.values())
    table.add_row("processes running", f"{len(factory.instances) - ended:,}")
    table.add_row("processes ended", f"{ended:,}")
    for operation, count in sorted(factory.effects.items()):
        table.add_row(f"  {operation}", f"{count:,}")
    return table


def print_verdict(verdict: FactoryVerdict, factory: Factory, console: Console) -> None:
    """The three promises with their figures."""
    table = Table(title="The verdict", title_justify="left", expand=True, show_lines=True)
    table.add_column("promise")
    table.add_column("what was found")
    table.add_column("kept", justify="center")
    live, spark = verdict.engines["live"], verdict.engines["spark"]
    situations = sum(live.delivered.values())
    table.add_row(
        "1  channels: once, in order, or told what is lost",
        f"{factory.published:,} events published, {factory.lost_in_transit:,} messages lost on the way; in the logs "
        f"{live.events:,} and {spark.events:,}, declared lost {live.lost:,} and {spark.lost:,}",
        _kept(verdict.channels),
    )
    table.add_row(
        "2  correlation: every situation exactly once",
        f"{situations:,} situations live, {sum(spark.delivered.values()):,} on Spark, "
        f"{sum(live.perfect.values()):,} in the perfect run; "
        f"the engines {'differ' if verdict.differences else 'gave the same, stamps included'}",
        _kept(verdict.correlation),
    )
    effects = ", ".join(f"{count:,} {operation}" for operation, count in sorted(verdict.effects.items()))
    table.add_row(
        "3  processes: the effects of exactly one execution",
        f"{sum(verdict.instances.values()):,} processes, {verdict.interactions:,} interactions; {effects}",
        _kept(verdict.process_violations),
    )
    console.print(table)
    console.print(f"Killed with -9 meanwhile: {'; '.join(factory.failures)}.", highlight=False)
    for violation in (*verdict.channels, *verdict.correlation, *verdict.process_violations):
        console.print(f"[red]violated:[/] {violation}", highlight=False)
    console.print(
        "[bold green]Everything is there exactly once.[/]" if verdict.holds else "[bold red]Something is wrong.[/]"
    )


def _kept(violations: list[str]) -> str:
    return "[bold red]no[/]" if violations else "[bold green]yes[/]"
