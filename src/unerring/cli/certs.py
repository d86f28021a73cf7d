"""`unerring certs`: a CA, and certificates for mutual TLS with roles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from unerring.model import ANY_RUN, Actor, ConfigError
from unerring.runtime import make_certificates


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; nothing there is overwritten.")],
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="The name in its role; a further one is a host name or address that it is reached by.",
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(help=f"What it is: {', '.join(Actor)}; may be given several times. Needed with --ca."),
    ] = None,
    run: Annotated[str, typer.Option(help="The run that it belongs to; by default any.")] = ANY_RUN,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A host name or address that it is reached by; may be given several times."),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Sign with the CA in this folder instead of making a new one.")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 365,
    hours: Annotated[
        int | None, typer.Option(help="For a short-lived certificate: how long it is valid, instead of --days.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The written files as a JSON list.")] = False,
) -> None:
    """Create certificates for mutual TLS, each for a role and a name.

    Use the folder as `tls=DIR`. The first call makes a CA, and a certificate of every role for this host. For everybody
    else call it again with another folder, a `--role`, and `--ca` of the first; then bring the new folder there.
    `ca.key` stays on this host.
    """
    if ca is not None and not role:
        raise ConfigError(f"say what the certificate is for: --role, with one of {', '.join(Actor)}")
    names = [*(name or []), *(host or [])]
    written = make_certificates(folder, names, ca=ca, roles=role, run=run, days=days, hours=hours)
    if as_json:
        typer.echo(msgspec.json.encode([str(path) for path in written]))
        return
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"use it with tls={folder}")
