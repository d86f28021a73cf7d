"""`unerring night`: everything that searches for mistakes, on fresh seeds, for some hours."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.model import CallerError

if TYPE_CHECKING:
    from unerring.night import Progress

QUICK_S = 600.0


def command(
    hours: Annotated[float, typer.Option(min=0.001, max=1000.0, help="How long.")] = 8.0,
    quick: Annotated[bool, typer.Option("--quick", help="Ten minutes.")] = False,
    out: Annotated[Path, typer.Option(help="The folder of all nights.")] = Path("night"),
    only: Annotated[
        list[str] | None, typer.Option(help="Try the parts with this in their names alone; may be repeated.")
    ] = None,
    tests: Annotated[
        Path | None, typer.Option(help="A folder of long tests (test_*.py) that are tried too, by pytest.")
    ] = None,
    fuzz: Annotated[
        Path | None, typer.Option(help="A folder with targets for the fuzzer, such as tests/fuzz of the project.")
    ] = None,
    cores: Annotated[int, typer.Option(min=0, max=1024, help="Processes at once; 0: one for each core.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Where the seeds begin; by default they follow from date and release.")
    ] = None,
    replay: Annotated[
        str, typer.Option(help="Try one seed of a part again (with --seed), and print what it shows.")
    ] = "",
) -> None:
    """Try to break it for some hours: simulations of every protocol on seeds that nobody has used, mutants that must
    be caught, hostile messages, fuzzed decoders, and the long tests. A night that was ended (Ctrl-C, kill, power) goes
    on when the command is given again. OUT/report.html says what was tried and found. Exit code 1: something was
    found."""
    from unerring.night import (
        Piece,
        carry_out,
        found_lately,
        open_night,
        part_of,
        parts,
        report_of,
        spend,
        write_report,
    )

    if replay:
        if seed is None:
            raise CallerError("--replay needs --seed: the one that the finding names")
        trial = carry_out(Piece(part_of(replay), seed))
        for found in trial.found:
            typer.echo(f"{found.what}\n{found.text}")
        typer.echo("" if trial.found else "nothing found")
        raise typer.Exit(1 if trial.found else 0)
    chosen = parts(tests, only or (), fuzz)
    lately = found_lately(out)
    journal = open_night(out, QUICK_S if quick else hours * 3600, cores or len(os.sched_getaffinity(0)), seed)
    night = journal.night
    typer.echo(f"night of {night.began}, release {night.release}, seeds from {night.seed}; {len(chosen)} parts")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
    shown = _Shown()
    spender = spend(journal, chosen, lately, shown)
    shown.end()
    report = report_of(spender, chosen)
    page = write_report(journal, report)
    for finding in report.findings:
        typer.echo(f"found, {finding['times']} times: {finding['part']}: {finding['what']}\n  {finding['replay']}")
    typer.echo(
        f"{report.seeds:,} seeds, {report.messages:,} messages, {report.tests:,} tests, {report.inputs:,} inputs of "
        f"the fuzzer; {len(report.findings)} causes found. {page}"
    )
    if spender.interrupted:
        typer.echo("interrupted; the same command goes on")
        raise typer.Exit(130)
    raise typer.Exit(1 if report.findings else 0)


class _Shown:
    """The state of the night: one line that changes on a terminal, a line a minute elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._said_s = 0.0

    def __call__(self, progress: Progress) -> None:
        terminal = self._console.is_terminal
        now_s = time.monotonic()
        if now_s - self._said_s < (1.0 if terminal else 60.0):
            return
        self._said_s = now_s
        left = f"{int(progress.left_s) // 3600}:{int(progress.left_s) % 3600 // 60:02d}:{int(progress.left_s) % 60:02d}"
        said = f"{left} left, {progress.tried:,} tried, {progress.findings} found; {', '.join(progress.under_way)}"
        if terminal:
            self._console.print(f"\r\x1b[K{said[: self._console.width - 1]}", end="", markup=False)
        else:
            self._console.print(said, markup=False)

    def end(self) -> None:
        if self._console.is_terminal:
            self._console.print()
