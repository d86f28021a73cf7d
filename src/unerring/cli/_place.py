"""How commands take the place of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

_PLACE: Final = "Where the run is: a folder, or an address such as s3://bucket/run."
HERE: Final = "unerring-data"


def checked(where: str) -> str:
    """The same, unless nobody can read there: then a sentence, before anything else is done."""
    from unerring.app import place_of

    if where:
        place_of(where)
    return where


Data = Annotated[str, typer.Option(help=_PLACE, callback=checked)]
Run = Annotated[str, typer.Argument(help=_PLACE, callback=checked)]
Scratch = Annotated[
    Path | None,
    typer.Option(help="This host's folder for what need not survive it. Default: the run's folder, if it has one."),
]
HostFolder = Annotated[
    str, typer.Option(help="Where the run is, or its scratch folder on this host.", callback=checked)
]
