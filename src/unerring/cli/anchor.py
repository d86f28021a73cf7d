"""`unerring anchor RUN`: the root of a run's log, to keep where the run's owner cannot reach it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._place import Scratch, checked

if TYPE_CHECKING:
    from unerring.log import Root

POST_S = 30.0


def command(
    run: Annotated[
        str, typer.Argument(help="Where the run is: a folder, or an address such as s3://bucket/run.", callback=checked)
    ] = "",
    scratch: Scratch = None,
    signing_key: Annotated[
        Path | None, typer.Option(help="Sign the root with the key in this file, which only you can read.")
    ] = None,
    to: Annotated[
        str, typer.Option(help="Also append it to this file as a line of JSON, or POST it to this https:// address.")
    ] = "",
    newest: Annotated[bool, typer.Option("--newest", help="Print the newest root that is there; seal none.")] = False,
    new_key: Annotated[
        Path | None, typer.Option(help="Make a signing key in this new file, print its public half, and end.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, as `unerring verify --anchor` reads it.")
    ] = (False),
) -> None:
    """Seal a root of the run's log as it is now, unless the newest one says the same, and print it.

    A root is one hash over the chains of all streams and what an audit relies on beside them. Whoever keeps it
    elsewhere can tell later, with `unerring verify RUN --anchor FILE`, whether the run still has that history. A run
    seals roots itself, every ten minutes and when it ends.
    """
    import msgspec

    from unerring.log import anchor_of, new_key as make_key
    from unerring.model import CallerError

    if new_key is not None:
        typer.echo(make_key(new_key))
        return
    if not run:
        raise CallerError("give the run whose root is wanted, or --new-key FILE")
    root = _root(run, scratch, signing_key, newest)
    anchor = anchor_of(root)
    line = msgspec.json.encode(anchor)
    if to:
        _publish(line, to)
    if as_json:
        typer.echo(line.decode())
        return
    signed = f"signed by {anchor.key}" if anchor.key else "not signed"
    typer.echo(f"root {anchor.number} {anchor.hash}\n{signed}; {len(root.streams):,} streams")


def _root(run: str, scratch: Path | None, signing_key: Path | None, newest: bool) -> Root:
    from unerring.app import RootSealer, check_run, place_of
    from unerring.log import Roots, SigningKey
    from unerring.model import CallerError

    place = place_of(run, scratch)
    check_run(place)
    known = Roots(place.store).newest() if newest or signing_key is None else None
    if newest and known is None:
        raise CallerError(f"{place} has no root yet; leave --newest out to seal one")
    if known is not None and (newest or known.key):
        if not newest:
            typer.echo("the roots of this run are signed; give --signing-key to seal one of now", err=True)
        return known
    return RootSealer(place, None if signing_key is None else SigningKey(signing_key)).seal()


def _publish(line: bytes, to: str) -> None:
    import os

    from unerring.model import CallerError, DiskError, NetworkError

    if to.startswith(("https://", "http://127.0.0.1:")):
        import httpx

        try:
            answer = httpx.post(to, content=line, headers={"Content-Type": "application/json"}, timeout=POST_S)
        except httpx.HTTPError as error:
            raise NetworkError(f"cannot publish the root to {to}: {error}; try again") from None
        if answer.is_error:
            raise NetworkError(f"{to} answered {answer.status_code} to the root; check the address")
        return
    if "://" in to:
        raise CallerError(f"--to {to!r}: a root goes to a file, or to an https:// address")
    try:
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DiskError(f"cannot write the root to {to}: {error.strerror}") from None
