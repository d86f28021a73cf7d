"""`unerring evaluate`: a paper's evaluation again, as a sweep on Spark, with figures, tables and what it claims."""

from __future__ import annotations

import sys
from collections import Counter
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

from unerring.evaluation import COLUMNS, Row, Summary, claims_of, experiment, renew, run_one, seconds_of
from unerring.model import CallerError, require

SHOWN_MAX = 5
"""Failing runs that are shown; all are in the results."""

out = Console(highlight=False, soft_wrap=True)


def command(
    paper: Annotated[str, typer.Argument(help="correlation, processes or channels.")],
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each point; 3, else 20.")] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="Every point at the papers' size: hours.")] = False,
    reduced: Annotated[bool, typer.Option("--reduced", help="The points of --quick, twenty runs of each.")] = False,
    first: Annotated[int, typer.Option("--from", min=0, help="The seed of the first run of each point.")] = 0,
    estimate: Annotated[bool, typer.Option("--estimate", help="Say how long it would take, and stop.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Also renew the tables and figures of this page of documentation.")
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of results, tables and figures.")] = Path("unerring-data"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove earlier results.")] = False,
    master: Annotated[str, typer.Option(help="The Spark master, such as local[*] or spark://HOST:PORT.")] = "local[*]",
    point: Annotated[str, typer.Option(help="Run this point alone, without Spark (with --seed).")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of that run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Repeat a paper's evaluation. If it was killed, it continues. Exit code 1: a run failed.

    Every figure and statement of the paper becomes a row: what it says, what was measured with the product's settings
    and with the paper's own rules, and a verdict. That a result is not reproduced is a result.
    """
    evaluation = experiment(paper)
    if bool(point) != (seed is not None):
        raise CallerError("--point and --seed select one run; give both or neither")
    if point and seed is not None:
        measured = run_one(paper, msgspec.json.encode(evaluation.decode(point)).decode(), seed)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(measured)).decode() + "\n")
        raise typer.Exit(1 if measured.error else 0)
    folder = data / "evaluation" / paper
    if full and reduced:
        raise CallerError("--full and --reduced are two grids; give one of them")
    tasks = evaluation.tasks(runs or (20 if full or reduced else 3), full, first)
    core_s = sum(seconds_of(evaluation.decode(one)) for one, _ in tasks)
    text = f"{len(tasks):,} runs of {len({one for one, _ in tasks})} points, about {_long(core_s)} of one core"
    if estimate:
        out.print(text)
        return
    Console(stderr=True).print(text)
    require("matplotlib")  # now, and not after hours
    summary = _sweep(paper, folder, tasks, fresh, master, as_json)
    made = _write(summary, folder)
    if page is not None:
        renew(page, summary, made[1:])
    claims = claims_of(summary)
    if as_json:
        sys.stdout.write(msgspec.json.encode(_json(summary, claims, made)).decode() + "\n")
    else:
        _show(summary, claims, made)
    raise typer.Exit(1 if summary.failed else 0)


def _long(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.0f} min"


def _sweep(paper: str, folder: Path, tasks: list[tuple[str, int]], fresh: bool, master: str, quiet: bool) -> Summary:
    from unerring.evaluation import Sweep
    from unerring.pipeline import SparkConfig, start

    folder.mkdir(parents=True, exist_ok=True)
    spark = start(SparkConfig(master=master, log=str(folder / "spark.log")), f"unerring evaluate {paper}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn())
    more = (TextColumn("{task.fields[left]}"), TimeElapsedColumn())
    try:
        sweep = Sweep(spark, paper, folder / "results", fresh)
        with Bar(*columns, *more, console=Console(stderr=True), disable=quiet) as bar:
            task = bar.add_task(paper, total=len(tasks), left="")
            for progress in sweep.run(tasks):
                left = f"{progress.left_s / 60:.1f} min left" if progress.left_s else ""
                failed = f", {progress.failed} failed" if progress.failed else ""
                bar.update(task, completed=progress.done, left=left + failed)
        wanted = set(tasks)
        kept = [one for one in sweep.results() if (one.point, one.seed) in wanted]
    finally:
        spark.stop()
    return Summary(experiment(paper), kept)


def _write(summary: Summary, folder: Path) -> list[Path]:
    from unerring.evaluation import draw

    table, text = folder / "table.csv", summary.csv()
    table.write_text(text)
    return [table, *draw(Summary.from_csv(summary.experiment, text), folder / "figures")]


def _json(summary: Summary, claims: list[Row], made: list[Path]) -> dict[str, Any]:
    return {
        "evaluation": summary.experiment.name,
        "points": len(summary.means),
        "runs": summary.count,
        "seconds_of_one_core": round(summary.seconds, 1),
        "failed": summary.failed,
        "claims": [
            {"place": row.claim.place, "says": row.claim.says, "measured": row.measured, "verdicts": row.verdicts}
            for row in claims
        ],
        "files": [str(path) for path in made],
    }


def _show(summary: Summary, claims: list[Row], made: list[Path]) -> None:
    table = Table("where", "the paper, or the aim", *COLUMNS.values(), show_lines=True)
    for row in claims:
        cells = [_cell(row, column) for column in COLUMNS]
        table.add_row(escape(row.claim.place), escape(row.claim.says), *cells)
    out.print(table)
    counts = Counter(row.verdict for row in claims)
    out.print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    out.print(f"{summary.count} runs of {len(summary.means)} points, {summary.seconds / 60:.1f} min of one core")
    for failed in summary.failed[:SHOWN_MAX]:
        out.print(f"[red]seed {failed.seed} failed[/red]: {escape(failed.error)}")
        out.print(f"  replay it: {failed.replay}", markup=False)
    if len(summary.failed) > SHOWN_MAX:
        out.print(f"and {len(summary.failed) - SHOWN_MAX} more failing runs in the results")
    out.print(f"{made[0]}, and {len(made) - 1} figures in {made[0].parent / 'figures'}")


COLOURS = {"reproduced": "green", "better": "green", "not reproduced": "red"}


def _cell(row: Row, column: str) -> str:
    if column not in row.verdicts:
        return ""
    verdict = row.verdicts[column]
    colour = COLOURS.get(verdict, "yellow")
    return f"{escape(row.measured.get(column, ''))} [{colour}]{verdict}[/{colour}]"
