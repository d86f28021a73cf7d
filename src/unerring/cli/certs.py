"""`unerring certs`: a development CA and certificates for mutual TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from unerring.runtime import make_certificates


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; nothing there is overwritten.")],
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name or address that this node is reached by; may be given several times."),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Sign with the CA in this folder instead of making a new one.")
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificates are valid.")] = 365,
    as_json: Annotated[bool, typer.Option("--json", help="The written files as a JSON list.")] = False,
) -> None:
    """Create certificates for mutual TLS (development only).

    Use the folder as `tls=DIR`. For another host run it again with another folder and `--ca` of the first; `ca.key`
    is needed only for that and may be kept elsewhere.
    """
    written = make_certificates(folder, name or [], ca=ca, days=days)
    if as_json:
        typer.echo(msgspec.json.encode([str(path) for path in written]))
        return
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"use it with tls={folder}")
