"""`unerring check-certificate FILE`: is the verdict what its signer signed, and does the log still say so?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._anchors import anchors_in
from unerring.cli._place import Scratch, checked

if TYPE_CHECKING:
    from unerring.audit import Certificate, JudgedProcesses


def command(
    file: Annotated[Path, typer.Argument(help="What `unerring audit --certificate` wrote.")],
    trusted_key: Annotated[
        Path | None, typer.Option(help="The public key that must have signed it: 64 digits, or PEM.")
    ] = None,
    anchor: Annotated[
        list[Path] | None,
        typer.Option(help="A file with roots that were kept elsewhere (`unerring anchor --to`). Repeatable."),
    ] = None,
    log: Annotated[
        str, typer.Option(metavar="RUN", help="Recompute what it says from this run's log.", callback=checked)
    ] = "",
    scratch: Scratch = None,
    sample: Annotated[int, typer.Option(min=1, help="With --log: so many keys of each rule, chosen at random.")] = 100,
    every: Annotated[bool, typer.Option("--all", help="With --log: all keys.")] = False,
    seed: Annotated[int | None, typer.Option(help="With --log: choose the same keys as another call did.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: what is wrong, and what was checked.")] = (
        False
    ),
) -> None:
    """Check the signature of a verdict, the chain of roots that it names, and that its streams are under them: without
    Spark, and without the run.

    With --log the rules are recomputed by the oracle, which shares nothing with the compiled kernel that the run and
    the audit used, for some keys or for all, and compared with what the run has sealed.

    Exit code 0: the certificate holds (the verdict in it may still be that something is wrong). 1: it does not.
    """
    import secrets

    import msgspec

    from unerring.app import Recomputed, check_run, place_of, recompute
    from unerring.audit import faults_of, read_certificate
    from unerring.log import public_key
    from unerring.model import CallerError

    try:
        content = file.read_bytes()
    except OSError as error:
        raise CallerError(f"cannot read {file} ({error.strerror}); give the certificate's file") from None
    certificate, document = read_certificate(content, str(file))
    anchors = [one for path in anchor or () for one in anchors_in(path)]
    faults = faults_of(certificate, document, "" if trusted_key is None else public_key(trusted_key), anchors)
    seed = secrets.randbits(32) if seed is None else seed
    outcome = Recomputed()
    if log and not faults:
        place = place_of(log, scratch)
        check_run(place)
        outcome = recompute(place, certificate, None if every else sample, seed)
    wrong = [*faults, *outcome.differences]
    if as_json:
        said = {"holds": not wrong, "faults": wrong, "wrong": certificate.wrong, "recomputed": outcome, "seed": seed}
        sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    else:
        _show(certificate, wrong)
        if log and not faults:
            typer.echo(
                f"recomputed by the oracle: {outcome.rules:,} rules, {outcome.keys:,} keys, "
                f"{outcome.situations:,} situations (--seed {seed})"
            )
            for note in outcome.notes:
                typer.echo(note)
    raise typer.Exit(1 if wrong else 0)


def _show(certificate: Certificate, wrong: list[str]) -> None:
    from unerring.audit import moment

    newest = certificate.roots[-1] if certificate.roots else None
    processes = certificate.processes
    found = "nothing is wrong" if not certificate.wrong else f"{certificate.wrong:,} violations"
    typer.echo(f"{certificate.app}, judged through {moment(certificate.through_us)} by release {certificate.release}")
    for rule in certificate.rules:
        typer.echo(
            f"  {rule.stream} ({rule.engine}), rule {rule.rule} {rule.version}: {rule.delivered:,} delivered, "
            f"{rule.perfect:,} perfect, {rule.wrong:,} wrong"
        )
    if processes is not None:
        _show_processes(processes)
    typer.echo(f"the verdict: {found}{'' if _all_judged(processes) else ' in what was judged'}")
    if newest is not None:
        typer.echo(f"root {newest.number} {newest.hash}")
    typer.echo(f"signed by {certificate.key}")
    for sentence in wrong:
        typer.echo(f"does not hold: {sentence}")
    if not wrong:
        typer.echo("the certificate holds")


def _all_judged(processes: JudgedProcesses | None) -> bool:
    return processes is None or not (processes.not_checked or processes.unjudged or processes.unseen)


def _show_processes(processes: JudgedProcesses) -> None:
    if processes.not_checked:
        typer.echo(f"  processes were not checked: {processes.not_checked}")
        return
    counts = ", ".join(f"{count:,} {status}" for status, count in processes.instances.items()) or "none"
    typer.echo(f"  processes: {counts}; {processes.interactions:,} interactions, {processes.wrong:,} wrong")
    for count, words in (
        (processes.unsettled, "instances not settled"),
        (processes.unjudged, "instances not judged"),
        (len(processes.unseen), "actions compared with no journal"),
    ):
        if count:
            typer.echo(f"  {count:,} {words}")
