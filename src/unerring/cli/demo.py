"""`unerring demo`: see it work."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from unerring.app.demo.show import print_verdict, run_demo


def command(
    seed: Annotated[int, typer.Option(help="The same seed loses the same messages.")] = 1,
    fast: Annotated[bool, typer.Option("--fast", help="A third of the time.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep the run's files in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as one JSON object.")] = False,
) -> None:
    """A producer and three consumers over networks that lose, repeat and reorder. The producer is killed with -9 and
    restarted, a consumer crashes and comes back. At the end every consumer's ledger must balance: each event was
    delivered once and in order, or declared lost by its exact range. The exit code is the verdict."""
    console = Console(stderr=as_json, highlight=False)
    try:
        verdict = asyncio.run(run_demo(seed, fast, keep, console))
    except KeyboardInterrupt:
        console.print("stopped; nothing is left running")
        raise typer.Exit(130) from None
    if as_json:
        sys.stdout.write(msgspec.json.encode({"holds": verdict.holds, **msgspec.to_builtins(verdict)}).decode() + "\n")
    else:
        print_verdict(verdict, console)
    raise typer.Exit(0 if verdict.holds else 1)
