"""`unerring demo`: see it work."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unerring.cli._place import checked
from unerring.model import require

if TYPE_CHECKING:
    from rich.console import Console


def command(
    seed: Annotated[int, typer.Option(help="The same seed gives the same plant and loses the same messages.")] = 1,
    fast: Annotated[bool, typer.Option("--fast", help="Run a shorter day.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep the run's files in this folder.")] = None,
    data: Annotated[
        str, typer.Option(help="Keep both logs and states on this store, such as s3://bucket/demo.", callback=checked)
    ] = "",
    mutant: Annotated[
        str, typer.Option(help="Break something before the audit, which must then fail; ? lists the mutants.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as one JSON object.")] = False,
) -> None:
    """Run a factory, kill parts of it, and audit the result.

    Its plant publishes events over connections that lose, duplicate and reorder messages. They are correlated live
    (f = 1) and on Spark at the same time. Situations start processes on three nodes, which call real HTTP services.
    Meanwhile a correlation leader, the master of a process and the Spark driver are killed with kill -9. At the end an
    audit on Spark recomputes the perfect run and checks that every event, situation and action was there exactly once.

    Exit code 0: nothing is wrong. 1: something is wrong.
    """
    import msgspec
    from rich.console import Console

    console = Console(stderr=as_json, highlight=False)
    if mutant == "?":
        from unerring.app import MUTANTS

        console.print("\n".join(MUTANTS))
        return
    require(
        "pyspark", "see the live engine at work without Spark: unerring new shop, whose README.md says how to run it"
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ends like Ctrl-C: its parts are ended in order.
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="unerring-")))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            verdict = _play(seed, fast, folder, mutant, data, console, as_json)
        except KeyboardInterrupt:
            console.print("stopped; nothing is left running")
            raise typer.Exit(130) from None
    if as_json:
        sys.stdout.write(msgspec.json.encode({"holds": verdict.holds, **msgspec.to_builtins(verdict)}).decode() + "\n")
    raise typer.Exit(0 if verdict.holds else 1)


def _play(seed: int, fast: bool, folder: Path, mutant: str, data: str, console: Console, quiet: bool) -> Any:
    from unerring.app import Factory, Screen, Shape, print_verdict

    screen = Screen(console)
    factory = Factory(folder, seed, Shape.fast() if fast else Shape(), screen.say, mutant, data)
    screen.factory = factory
    verdict = asyncio.run(screen.show(factory.play()))
    if not quiet:
        print_verdict(verdict, factory, console)
    return verdict
