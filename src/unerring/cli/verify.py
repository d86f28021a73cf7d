"""`unerring verify RUN`: read and check every file of a run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    scratch: Scratch = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object: kinds of files, and what is damaged.")
    ] = False,
) -> None:
    """Read every file of the run and check all its bytes: digests, links between segments, and how far each stream
    must reach. The run may be running; nothing is changed. Exit code 1: something is damaged or missing."""
    import msgspec
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from unerring.app import check_run, place_of, verify

    place = place_of(run, scratch)
    check_run(place)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=None)
        outcome = verify(place, lambda done, total: bar.update(task, completed=done, total=total))
    if as_json:
        sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    else:
        for kind in outcome.kinds:
            if kind.files:
                old = f"; {kind.unprotected:,} of an older release, without digests" if kind.unprotected else ""
                wrong = f"; {kind.damaged:,} damaged" if kind.damaged else ""
                typer.echo(f"{kind.name}: {kind.files:,} files, {kind.bytes:,} bytes{old}{wrong}")
        for sentence in outcome.damage:
            typer.echo(f"damaged: {sentence}")
        if not outcome.damage:
            typer.echo("every byte that was read is as it was written")
    raise typer.Exit(1 if outcome.damage else 0)
