"""`unerring upgrade NEW:APP RUN`: new rules for a run."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unerring.cli._place import HERE, Run, Scratch

if TYPE_CHECKING:
    from unerring.audit import TrialReport


def command(
    app: Annotated[str, typer.Argument(help="module:attribute of the app with the new rules.")],
    run: Run = HERE,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: show what the new rules would have found.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            help="Dry run: compare from here on: a duration before the end of the log (24h), a time, or beginning. "
            "With beginning, rules that look back without end read the whole log."
        ),
    ] = "24h",
    scratch: Scratch = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the page to this file; by default upgrade.html beside the log.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole report as one JSON object.")] = False,
    master: Annotated[str, typer.Option(help="The Spark master, such as local[*] or spark://HOST:PORT.")] = "local[*]",
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
) -> None:
    """Try the rules of an app over the log of a run that has others.

    The rules that are new, and those above them, run on Spark as if they had taken over at the beginning of the stretch
    that is compared. The report says, rule by rule, what was found and would not be, and what was not found and would
    be, with samples and the events that make them. The rules read the log as far back as they look (`unerring explain`
    says how far).
    """
    import msgspec
    from rich.console import Console

    from unerring.app import BEGINNING, TRIAL_PAGE, DryRun, load, place_of, shown, since_time
    from unerring.audit import trial_page
    from unerring.cli._times import time_us
    from unerring.pipeline import SparkConfig, spark_session

    console = Console(stderr=True)
    place = place_of(run, scratch)
    loaded = load(app)
    trial = DryRun(loaded, place, since_time(since, partial(time_us, "--since")), from_beginning=since == BEGINNING)
    config = SparkConfig(master=master, memory=memory, log=str(place.scratch / "upgrade.log"))
    with console.status("starting Spark") as status, spark_session(config, f"upgrade {loaded.name}") as spark:
        report = trial.run(spark, status.update)
    page = trial_page(report)
    place.store.replace(TRIAL_PAGE, page.encode())
    if html is not None:
        html.write_text(page)
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        return
    _show(report, Console())
    console.print(f"the page: {html or shown(place.store.locate(TRIAL_PAGE))}", highlight=False)


def _show(report: TrialReport, console: Any) -> None:
    from rich.table import Table

    from unerring.audit import moment, trial_lines

    table = Table("situation", "found", "by the new rules", "gone", "come", title_justify="left")
    table.title = f"{report.app}, {moment(report.after_us)} through {moment(report.through_us)}"
    for rule in report.rules:
        found = rule.found
        counts = (found.before, found.after, found.gone, found.come)
        table.add_row(f"{rule.stream} ({rule.what})", *(f"{count:,}" for count in counts))
    table.columns[0].no_wrap = True
    console.print(table)
    for line in trial_lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
