"""`unerring verify RUN`: read and check every file of a run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._anchors import anchors_in
from unerring.cli._place import Run, Scratch

if TYPE_CHECKING:
    from unerring.app import Place, Spread, Verified


def command(
    run: Run,
    scratch: Scratch = None,
    anchor: Annotated[
        list[Path] | None,
        typer.Option(help="A file with roots that were kept elsewhere (`unerring anchor --to`). Repeatable."),
    ] = None,
    trusted_key: Annotated[
        Path | None, typer.Option(help="The public key that must have signed the roots: 64 digits, or PEM.")
    ] = None,
    master: Annotated[
        str, typer.Option(help="Let Spark's tasks read the objects: its master, such as spark://HOST:PORT.")
    ] = "",
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "1g",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object: kinds of files, and what is damaged.")
    ] = False,
) -> None:
    """Read every file of the run and check all its bytes: digests, links between segments, how far each stream must
    reach, and whether all of it is what the run's roots name. The run may be running; nothing is changed.

    Exit code 1: something is damaged, missing, swapped, rolled back or rewritten.
    """
    import msgspec
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from unerring.app import check_run, place_of, verify
    from unerring.log import public_key

    place = place_of(run, scratch)
    check_run(place)
    anchors = [one for path in anchor or () for one in anchors_in(path)]
    trusted = "" if trusted_key is None else public_key(trusted_key)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with (
        _spread(place, master, memory) as spread,
        Progress(*columns, console=Console(stderr=True), transient=True) as bar,
    ):
        task = bar.add_task("verify", total=None)
        outcome = verify(
            place, lambda done, total: bar.update(task, completed=done, total=total), anchors, trusted, spread
        )
    if as_json:
        sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    else:
        _show(outcome)
    raise typer.Exit(1 if outcome.damage else 0)


def _show(outcome: Verified) -> None:
    for kind in outcome.kinds:
        if kind.files:
            old = f"; {kind.unprotected:,} of an older release, without digests" if kind.unprotected else ""
            wrong = f"; {kind.damaged:,} damaged" if kind.damaged else ""
            typer.echo(f"{kind.name}: {kind.files:,} files, {kind.bytes:,} bytes{old}{wrong}")
    for sentence in outcome.damage:
        typer.echo(f"damaged: {sentence}")
    for sentence in outcome.notes:
        typer.echo(f"not covered: {sentence}")
    covered = outcome.covered
    if covered.newest:
        by = f"signed by {covered.key}" if covered.key else "not signed"
        kept = f"; the anchor is of root {covered.anchored}" if covered.anchored else "; no anchor was given"
        typer.echo(f"root {covered.newest}, {by}{kept}")
    if not outcome.damage:
        typer.echo("every byte that was read is as it was written")


@contextlib.contextmanager
def _spread(place: Place, master: str, memory: str) -> Iterator[Spread | None]:
    if not master:
        yield None
        return
    from unerring.app import spread_on
    from unerring.pipeline import SparkConfig, spark_session

    config = SparkConfig(master=master, memory=memory, log=str(place.scratch / "verify.log"))
    with spark_session(config, "unerring verify") as spark:
        yield spread_on(spark, place)
