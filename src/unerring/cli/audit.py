"""`unerring audit RUN`: was anything wrong?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unerring.cli._place import Run, Scratch

if TYPE_CHECKING:
    from unerring.app import Place, ProcessVerdict
    from unerring.audit import Report
    from unerring.log import SigningKey


def command(
    run: Run,
    app: Annotated[str, typer.Option(help="module:attribute of the app; by default the one that ran there.")] = "",
    through: Annotated[
        str,
        typer.Option(help="Check up to this time (microseconds, or ISO 8601 with an offset); for a running run."),
    ] = "",
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar="STREAM", help="Situations that the app no longer has. Repeatable.")
    ] = None,
    journal: Annotated[
        list[str] | None,
        typer.Option(help="For processes: a filter's SQLite file or PostgreSQL address, or JSON lines. Repeatable."),
    ] = None,
    quarantine_max: Annotated[
        float, typer.Option(metavar="PERCENT", help="More of a stream's events in quarantine count as wrong.")
    ] = 1.0,
    also: Annotated[
        list[Path] | None,
        typer.Option(help="The folder of another run whose services have the same journals. Repeatable."),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Read the target of this sink, and judge it as well. Repeatable."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Sign the verdict into this file; `unerring check-certificate` checks it elsewhere."),
    ] = None,
    signing_key: Annotated[
        Path | None, typer.Option(help="With --certificate: the file of the key that signs (`unerring anchor`).")
    ] = None,
    scratch: Scratch = None,
    html: Annotated[
        Path | None, typer.Option(help="Write the page to this file; by default audit.html beside the log.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole report as one JSON object.")] = False,
    master: Annotated[str, typer.Option(help="The Spark master, such as local[*] or spark://HOST:PORT.")] = "local[*]",
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
) -> None:
    """Recompute the perfect run from the log and compare: false positives, false negatives, duplicates, false order,
    completeness; which events came in, and which were lost on the way.

    For processes it also checks, with the services' journals, that every instance had the effects of one execution,
    that every situation with a reaction has its instance, that every instance that a situation starts has its
    situation, and that every interaction in a journal has its instance. Processes whose nodes are running are not
    checked.

    Exit code 0: nothing is wrong. 1: something is wrong. 2: the run could not be checked.
    """
    from unerring.app import place_of
    from unerring.model import CallerError
    from unerring.runtime import addresses_in

    place = place_of(run, scratch)
    key = _key(certificate, signing_key)
    if addresses_in(place.scratch):
        if key is not None:
            raise CallerError(f"{place} is a run of processes alone: it has no log, and no root to certify under")
        from unerring.cli.process import audit as audit_processes

        audit_processes([app] if app else [], journal, also, as_json, str(place.scratch))

    import msgspec
    from rich.console import Console

    from unerring.app import PAGE, Audit, address_in, certify, check_run, judged_root, keep, load, shown
    from unerring.audit import page
    from unerring.cli._times import time_us
    from unerring.model import TIME_MAX
    from unerring.pipeline import SparkConfig, spark_session
    from unerring.tracing import untold

    console = Console(stderr=True)
    check_run(place)
    loaded = load(app or address_in(place))
    through_us = time_us("--through", through) if through else TIME_MAX
    if key is not None:
        heads = judged_root(place)
        through_us = min([through_us, *(heads[one.name].through_us for one in loaded.streams if one.name in heads)])
    audit = Audit(
        loaded,
        place,
        through_us=through_us,
        leave_out=leave_out or (),
        quarantine_max=quarantine_max / 100,
        sinks=sink or (),
    )
    config = SparkConfig(master=master, memory=memory, log=str(place.scratch / "audit.log"))
    with (
        untold(),
        console.status("starting Spark") as status,
        spark_session(config, f"audit {loaded.name}") as spark,
    ):
        report = audit.run(spark, status.update)
    keep(report, place)
    acted = (
        _judged(place, app or address_in(place), journal or (), also or ()) if addresses_in(place.processes) else None
    )
    if certificate is not None and key is not None:
        certificate.write_bytes(certify(audit, report, key, acted))
    target = html or shown(place.store.locate(PAGE))
    if html is not None:
        html.write_text(page(report))
    wrong = report.wrong or (not isinstance(acted, str) and acted is not None and acted.wrong)
    if as_json:
        document = {"wrong": wrong, **msgspec.to_builtins(report), "processes": msgspec.to_builtins(acted)}
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    else:
        _show(report, Console())
        if isinstance(acted, str):
            console.print(f"processes were not checked: {acted}", highlight=False, soft_wrap=True)
        elif acted is not None:
            from unerring.cli.process import show_verdict

            show_verdict(acted)
        console.print(f"the page: {target}", highlight=False)
    raise SystemExit(1 if wrong else 0)


def _key(certificate: Path | None, signing_key: Path | None) -> SigningKey | None:
    from unerring.log import SigningKey
    from unerring.model import CallerError

    if (certificate is None) != (signing_key is None):
        raise CallerError("--certificate FILE and --signing-key FILE go together: a certificate is signed")
    return None if signing_key is None else SigningKey(signing_key)


def _judged(
    place: Place, address: str, journals: list[str] | tuple[str, ...], also: list[Path] | tuple[Path, ...]
) -> ProcessVerdict | str:
    """The verdict on the run's processes, or why there is none."""
    from unerring.app import keep_processes, running_in
    from unerring.cli.process import judge

    running = running_in(place.processes)
    if running:
        return f"{', '.join(running)} still run; stop the run first"
    verdict = judge(place.processes, [address], journals, also)
    keep_processes(verdict, place)
    return verdict


def _show(report: Report, console: Any) -> None:
    from rich.table import Table

    from unerring.audit import PROMISES, explained, moment

    table = Table("situation", "engine", "delivered", "perfect", "wrong", title_justify="left")
    table.title = f"{report.app}, checked through {moment(report.through_us)}"
    for rule in report.rules:
        findings = _nonzero({name: rule.counts.get(promise, 0) for promise, name in PROMISES.items()})
        table.add_row(rule.stream, rule.engine, f"{rule.delivered:,}", f"{rule.perfect:,}", findings)
    table.columns[0].no_wrap = True
    console.print(table)
    if report.intake:
        came = Table("stream", "producer, epoch", "numbers", "in the stream", "not in it")
        for one in report.intake:
            aside = {f"quarantined ({reason})": count for reason, count in one.quarantined.items()}
            rest = _nonzero({**aside, "lost": one.lost, "unknown": one.missing, "twice": one.doubled})
            numbers = f"{one.first:,} – {one.last:,}"
            came.add_row(one.stream, f"{one.producer[:12]}, {one.epoch}", numbers, f"{one.in_stream:,}", rest)
        came.columns[0].no_wrap = True
        console.print(came)
    for line in explained(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _nonzero(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "–"
