"""The record in a run's folder of the application that it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from unerring import __version__
from unerring.log import LocalStore
from unerring.model import CallerError, protect_json, verified_json

FILE: Final = "run.json"
LOG: Final = "log"
FORMAT: Final = 2
UNPROTECTED: Final = 1
"""The format of a folder whose files have no digests; it is still read."""
"""The format of a run's folder as a whole; it rises when an older release could misread it."""


class Remembered(msgspec.Struct, frozen=True):
    """Written when a run starts, so that an audit finds the app by itself."""

    app: str
    version: str = ""
    """The release that ran it last."""
    format: int = FORMAT


def remember(data: Path, address: str) -> str:
    """Write down which app runs here; a folder that another release wrote is refused, not overwritten. What there is
    to say of an older one that is read."""
    before = run_in(data)
    LocalStore(data).replace(FILE, protect_json(Remembered(address, __version__)))
    if before is not None and before.format == UNPROTECTED:
        return (
            f"{data} was begun by an older release: what that one wrote has no digests, so damage to it is not found; "
            "what is written from now on is protected"
        )
    return ""


def address_in(data: Path) -> str:
    """The address of the app that ran here last."""
    remembered = run_in(data)
    if remembered is None:
        raise CallerError(f"{data} does not say which app ran in it; name it with --app module:attribute")
    return remembered.app


def run_in(data: Path) -> Remembered | None:
    """What the folder remembers of the run, if an app ran there."""
    content = LocalStore(data).read(FILE)
    if content is None:
        return None
    remembered = verified_json(
        content, Remembered, str(data / FILE), "restore it, or remove it and name the app with --app"
    )
    if remembered.format not in (FORMAT, UNPROTECTED):
        raise CallerError(
            f"{data} was written by release {remembered.version or 'unknown'} in format {remembered.format}, and this "
            f"release ({__version__}) reads format {FORMAT}; use the release that wrote it"
        )
    return remembered


def check_run(data: Path) -> None:
    """A sentence, unless this is the folder of a run."""
    if not data.is_dir():
        raise CallerError(f"there is no folder {data}; give the run's folder, the --data of `unerring run`")
    if not (data / LOG).is_dir():
        raise CallerError(
            f"{data} is not a run's folder: it has no {LOG}/ in it; give the folder that `unerring run --data` names"
        )
