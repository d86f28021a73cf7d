"""`unerring status`: what the processes of a run are doing, live ones and drivers of Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    data: Annotated[Path, typer.Option(help="The run's folder.")] = Path("unerring-data"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a process.")] = False,
) -> None:
    """Show a run's processes: groups, leaders, incarnations, elections, queues, lag, drivers, the membership record."""
    import msgspec

    from unerring.runtime.live.status import keepers, processes

    found = processes(data / "live")
    if as_json:
        for told in found:
            sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return
    from rich.console import Console

    console = Console()
    console.print(_table(found))
    if any("driver" in told for told in found):
        console.print(_drivers(found))
    for told in found:
        if told.get("refused"):
            console.print(f"{told['name']} stopped: {told['refused']}")
    for keeper in keepers(data / "live"):
        gone = [name for name, member in keeper["record"]["members"].items() if member["standing"] == "gone"]
        said = f"{keeper['name']}: version {keeper['record']['version']} of the record"
        console.print(f"{said}; gone: {', '.join(gone)}" if gone else said)


def _table(found: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    columns = ("process", "host", "state", "leads", "incarnation", "elections", "in", "waiting", "made", "queued")
    table = Table(*columns, "behind", "lag", "quarantined")
    node = ""
    for told in found:
        group = told["name"].partition("/")[0]
        if node and group != node:
            table.add_section()
        node = group
        inputs, outputs = told.get("inputs", {}), told.get("outputs", {})
        table.add_row(
            told["name"],
            told.get("host", ""),
            told["state"] if told["standing"] in ("", "caught_up") else f"{told['state']}, {told['standing']}",
            "yes" if told.get("leads") else "",
            str(told.get("incarnation", "")),
            str(told.get("elections", "")),
            _sum(inputs, "events"),
            _sum(inputs, "waiting"),
            _sum(outputs, "events"),
            _sum(outputs, "queued"),
            f"{told['behind']:,}" if told["behind"] else "",
            f"{told['lag_s']:,.3f} s" if told["lag_s"] else "",
            str(told.get("reports", {}).get("correlation.quarantined", "")),
        )
    return table


def _drivers(found: list[dict[str, Any]]) -> Any:
    """What each driver of Spark has done since it started, level by level."""
    from rich.table import Table

    from unerring.model import TIME_MAX, TIME_MIN, to_datetime

    table = Table(
        "driver", "pid", "JVM", "level", "rules", "events", "sealed", "held", "progress", "lag", "keys", "batch"
    )
    for told in found:
        driver = told.get("driver", {})
        for level in driver.get("levels", ()):
            through_us = level["through_us"]
            known = through_us is not None and TIME_MIN < through_us < TIME_MAX
            table.add_row(
                told["name"],
                str(told.get("pid", "")),
                str(driver["jvm"] or ""),
                str(level["level"]),
                ", ".join(level["rules"]),
                f"{level['events']:,}",
                f"{driver['sealed']:,}",
                f"{driver['held']:,}",
                f"{to_datetime(through_us):%Y-%m-%d %H:%M:%S}" if known else ("complete" if through_us else "–"),
                f"{level['lag_s']:,.1f} s",
                f"{level['keys']:,}",
                f"{level['batch_s']:.1f} s" if level["batch"] is not None else "–",
            )
    return table


def _sum(streams: dict[str, Any], what: str) -> str:
    return f"{sum(stream[what] for stream in streams.values()):,}" if streams else ""
