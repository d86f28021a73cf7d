"""`unerring status`: what a live run is doing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    data: Annotated[Path, typer.Option(help="The run's folder.")] = Path("unerring-data"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a process.")] = False,
) -> None:
    """Show a live run: groups, leaders, incarnations, queues, lag."""
    import msgspec

    from unerring.runtime.live.status import processes

    found = processes(data / "live")
    if as_json:
        for told in found:
            sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return
    from rich.console import Console

    Console().print(_table(found))


def _table(found: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table("process", "state", "leads", "incarnation", "elections", "in", "made", "queued", "behind")
    for told in found:
        inputs, outputs = told.get("inputs", {}), told.get("outputs", {})
        table.add_row(
            told["name"],
            told["state"],
            "yes" if told.get("leads") else "",
            str(told.get("incarnation", "")),
            str(told.get("elections", "")),
            f"{sum(stream['events'] for stream in inputs.values()):,}" if inputs else "",
            f"{sum(stream['events'] for stream in outputs.values()):,}" if outputs else "",
            f"{sum(stream['queued'] for stream in outputs.values()):,}" if outputs else "",
            f"{told['behind']:,}" if told.get("behind") else "",
        )
    return table
