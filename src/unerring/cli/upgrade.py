"""`unerring upgrade NEW:APP RUN`: new rules for a run."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unerring.cli._place import HERE, Run, Scratch

if TYPE_CHECKING:
    from rich.console import Console

    from unerring.app import App, Place
    from unerring.audit import TrialReport
    from unerring.pipeline import SparkConfig


def command(
    app: Annotated[str, typer.Argument(help="module:attribute of the app with the new rules.")],
    run: Run = HERE,
    at: Annotated[
        str,
        typer.Option(
            help="The new rules take over after this event time (microseconds, or ISO 8601 with an offset); by default "
            "as soon as possible."
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: show what the new rules would have found.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            help="Dry run: compare from here on: a duration before the end of the log (24h), a time, or beginning. "
            "With beginning, rules that look back without end read the whole log, also in an upgrade."
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
    """Let the rules of an app take over in a run that has others, while it runs or stopped.

    Up to one time, which is agreed on the run's store before anything changes, the old rules count; after it the new
    ones do. They read the log as far back as they look (`unerring explain` says how far), so that no open match is lost
    and none is found twice. Rules that are the same go on as they are. Reactions come, go and change at that time, too,
    also where all rules are the same. A run that is going on takes the new app over by itself; one that is stopped is
    upgraded here, on Spark.

    With --dry-run nothing is changed: the rules that are new, and those above them, run as if they had taken over at
    the beginning of the stretch that is compared. The report says, rule by rule, what was found and would not be, and
    what was not found and would be, with samples and the events that make them.
    """
    from rich.console import Console

    from unerring.app import BEGINNING, load, place_of
    from unerring.cli._times import time_us
    from unerring.model import CallerError
    from unerring.pipeline import SparkConfig

    console = Console(stderr=True)
    place = place_of(run, scratch)
    config = SparkConfig(master=master, memory=memory, log=str(place.scratch / "upgrade.log"))
    if dry_run:
        if at:
            raise CallerError("--at is for an upgrade; a dry run begins with --since")
        _try(app, place, since, config, html, as_json, console)
    else:
        at_us = time_us("--at", at) if at else None
        _upgrade(app, load(app), place, at_us, since == BEGINNING, config, as_json, console)


def _upgrade(
    address: str,
    app: App,
    place: Place,
    at_us: int | None,
    from_beginning: bool,
    config: SparkConfig,
    as_json: bool,
    console: Console,
) -> None:
    """Agree, and do the rest unless a run does it."""
    import msgspec

    from unerring.app import Ownership, agree_on_upgrade, changes_while_it_runs, upgrade_here
    from unerring.model import CallerError
    from unerring.pipeline import spark_session

    owner = Ownership(place)
    running = ""
    try:
        owner.take(console.print)
    except CallerError as error:
        running = str(error)
    try:
        live = bool(running) and changes_while_it_runs(place)
        under_way = agree_on_upgrade(place, address, app, at_us, from_beginning=from_beginning, prepared=live)
        missing = running
        if not running:
            with console.status("starting Spark") as status, spark_session(config, f"upgrade {app.name}") as spark:
                missing = upgrade_here(place, under_way, spark, status.update)
    finally:
        owner.stop()
    if as_json:
        at = None if live and under_way.waits else under_way.at_us
        document = {"upgrade": under_way.proposed.number, "at_us": at, "done": not missing}
        typer.echo(msgspec.json.encode(document).decode())
        return
    when = under_way.when
    if running:
        typer.echo(f"agreed: the rules of {address} take over {when}; the run does that by itself")
    elif missing:
        typer.echo(f"agreed: the rules of {address} take over {when}; {missing}, so start a run, which does that")
    else:
        typer.echo(f"the rules of {address} count {when}; start them with: unerring run {address}")


def _try(
    app: str, place: Place, since: str, config: SparkConfig, html: Path | None, as_json: bool, console: Console
) -> None:
    import msgspec
    from rich.console import Console

    from unerring.app import BEGINNING, TRIAL_PAGE, DryRun, load, shown, since_time
    from unerring.audit import trial_page
    from unerring.cli._times import time_us
    from unerring.pipeline import spark_session

    loaded = load(app)
    trial = DryRun(loaded, place, since_time(since, partial(time_us, "--since")), from_beginning=since == BEGINNING)
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
