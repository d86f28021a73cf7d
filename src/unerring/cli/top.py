"""`unerring top`: a run in the terminal."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from unerring.cli._place import HERE, Run, Scratch

LOOK_S = 0.5


def command(
    run: Run = HERE,
    scratch: Scratch = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once and exit, as `unerring status` does.")] = False,
) -> None:
    """Show in the terminal what `unerring dashboard` shows in the browser, until Ctrl-C: the promises in figures, the
    live engine, Spark, the log, failures and elections."""
    from rich.console import Console
    from rich.live import Live

    from unerring.app import RunStatus, place_of
    from unerring.dashboard import render_status

    console = Console()
    status = RunStatus(place_of(run, scratch))
    if once or not console.is_terminal:
        console.print(render_status(status.look(), console.width))
        return
    pause = threading.Event()
    try:
        now = render_status(status.look(), console.width, console.height)
        with Live(now, console=console, screen=True, auto_refresh=False) as live:
            while not pause.wait(LOOK_S):
                live.update(render_status(status.look(), console.width, console.height), refresh=True)
    except KeyboardInterrupt:
        console.print(render_status(status.look(), console.width))
