"""`unerring new`: a small application to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Argument(help="The new application's name: small letters, digits and _.")],
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to create; by default the application's name.")
    ] = None,
) -> None:
    """Create a small application: a rule, a process that reacts to it, and their tests."""
    from unerring.app import make_app

    where = folder or Path(name)
    for path in make_app(name, where):
        typer.echo(f"wrote {path}")
    typer.echo(f"now: cd {where} && python -m pytest")
