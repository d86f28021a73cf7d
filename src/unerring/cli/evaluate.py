"""`unerring evaluate`: a paper's evaluation again, as a sweep on Spark, with figures, tables and what it claims."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress as Bar,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from unerring.evaluation import Claim, Summary, claims_of, experiment, run_one
from unerring.model import CallerError

SHOWN_MAX = 5
"""Failing runs that are shown; all are in the results."""

out = Console(highlight=False, soft_wrap=True)


def command(
    paper: Annotated[str, typer.Argument(help="correlation, processes or channels.")],
    runs: Annotated[int, typer.Option(min=1, help="Runs of each point, each with its own seed.")] = 20,
    full: Annotated[bool, typer.Option("--full", help="Run the papers' whole grid; takes a night.")] = False,
    data: Annotated[Path, typer.Option(help="Folder of results, tables and figures.")] = Path("unerring-data"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove earlier results.")] = False,
    master: Annotated[str, typer.Option(help="The Spark master, such as local[*] or spark://HOST:PORT.")] = "local[*]",
    point: Annotated[str, typer.Option(help="Run this point alone, without Spark (with --seed).")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of that run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Repeat a paper's evaluation. If it was killed, it continues. Exit code 1: a run or a claim failed."""
    evaluation = experiment(paper)
    if bool(point) != (seed is not None):
        raise CallerError("--point and --seed select one run; give both or neither")
    if point and seed is not None:
        measured = run_one(paper, msgspec.json.encode(evaluation.decode(point)).decode(), seed)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(measured)).decode() + "\n")
        raise typer.Exit(1 if measured.error else 0)
    folder = data / "evaluation" / paper
    summary = _sweep(paper, folder, evaluation.points(full), range(runs), fresh, master, as_json)
    made = _write(summary, folder)
    claims = claims_of(summary)
    if as_json:
        sys.stdout.write(msgspec.json.encode(_json(summary, claims, made)).decode() + "\n")
    else:
        _show(summary, claims, made)
    raise typer.Exit(1 if summary.failed or any(claim.holds is False for claim in claims) else 0)


def _sweep(paper: str, folder: Path, points: list[str], seeds: range, fresh: bool, master: str, quiet: bool) -> Summary:
    from unerring.evaluation import Sweep
    from unerring.pipeline import SparkConfig, start

    folder.mkdir(parents=True, exist_ok=True)
    spark = start(SparkConfig(master=master, log=str(folder / "spark.log")), f"unerring evaluate {paper}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn())
    more = (TextColumn("{task.fields[left]}"), TimeElapsedColumn())
    try:
        sweep = Sweep(spark, paper, folder / "results", fresh)
        with Bar(*columns, *more, console=Console(stderr=True), disable=quiet) as bar:
            task = bar.add_task(paper, total=len(points) * len(seeds), left="")
            for progress in sweep.run(points, seeds):
                left = f"{progress.left_s / 60:.1f} min left" if progress.left_s else ""
                failed = f", {progress.failed} failed" if progress.failed else ""
                bar.update(task, completed=progress.done, left=left + failed)
        wanted = set(points)
        kept = [one for one in sweep.results() if one.point in wanted and one.seed in seeds]
    finally:
        spark.stop()
    return Summary(experiment(paper), kept)


def _write(summary: Summary, folder: Path) -> list[Path]:
    from unerring.evaluation import draw

    table = folder / "table.csv"
    table.write_text(summary.csv())
    return [table, *draw(summary, folder / "figures")]


def _json(summary: Summary, claims: list[Claim], made: list[Path]) -> dict[str, Any]:
    return {
        "evaluation": summary.experiment.name,
        "points": len(summary.by_point),
        "runs": sum(map(len, summary.by_point.values())),
        "seconds_of_one_core": round(sum(m.seconds for rows in summary.by_point.values() for m in rows), 1),
        "failed": summary.failed,
        "claims": claims,
        "files": [str(path) for path in made],
    }


def _show(summary: Summary, claims: list[Claim], made: list[Path]) -> None:
    table = Table("claim", "the paper, or the aim", "measured", "", show_lines=True)
    words = {True: "[green]holds[/green]", False: "[red]does not hold[/red]", None: "[yellow]not measured[/yellow]"}
    for claim in claims:
        table.add_row(escape(claim.sentence), escape(claim.expected), escape(claim.measured), words[claim.holds])
    out.print(table)
    rows = [one for rows in summary.by_point.values() for one in rows]
    seconds = sum(one.seconds for one in rows)
    out.print(f"{len(rows)} runs of {len(summary.by_point)} points, {seconds / 60:.1f} min of one core")
    for failed in summary.failed[:SHOWN_MAX]:
        out.print(f"[red]seed {failed.seed} failed[/red]: {escape(failed.error)}")
        out.print(f"  replay it: {failed.replay}", markup=False)
    if len(summary.failed) > SHOWN_MAX:
        out.print(f"and {len(summary.failed) - SHOWN_MAX} more failing runs in the results")
    out.print(f"{made[0]}, and {len(made) - 1} figures in {made[0].parent / 'figures'}")
