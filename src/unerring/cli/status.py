"""`unerring status`: what a run is doing, or did."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path | None, typer.Argument(help="The run's folder.")] = None,
    data: Annotated[Path, typer.Option(help="The same, as other commands name it.")] = Path("unerring-data"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: the status document.")] = False,
) -> None:
    """Show a run: the query tree with leaders, queues and lag; Spark's levels; streams, processes, channels; failures
    and elections; the verdict. Of a run that has ended, what it left in its folder."""
    import msgspec

    from unerring.app import RunStatus

    document = RunStatus(run or data).look()
    if as_json:
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    from rich.console import Console

    from unerring.dashboard import render_status

    console = Console()
    console.print(render_status(document, console.width))
