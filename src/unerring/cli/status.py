"""`unerring status`: what a run is doing, or did."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from unerring.cli._place import HERE, Data, Run, Scratch


def command(
    run: Run = "",
    data: Data = HERE,
    scratch: Scratch = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: the status document.")] = False,
) -> None:
    """Show a run: the query tree with leaders, queues and lag; Spark's levels; streams, processes, channels; failures
    and elections; the verdict. Of a run that has ended, what it left in its folder."""
    import msgspec

    from unerring.app import RunStatus, place_of

    document = RunStatus(place_of(run or data, scratch)).look()
    if as_json:
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    from rich.console import Console

    from unerring.dashboard import render_status

    console = Console()
    console.print(render_status(document, console.width))
