"""The record on a run's store of the application that it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from unerring import __version__
from unerring.app.place import LOG, Where, place_of
from unerring.model import CallerError, protect_json, verified_json

FILE: Final = "run.json"
FORMAT: Final = 2
"""The format of a run's folder as a whole; it rises when an older release could misread it."""
UNPROTECTED: Final = 1
"""The format of a folder whose files have no digests; it is still read."""
RESTORING: Final = 0
"""The format of a place that does not have all of a backup yet. Every release refuses it."""


class Remembered(msgspec.Struct, frozen=True):
    """Written when a run starts, so that an audit finds the app by itself."""

    app: str
    version: str = ""
    """The release that ran it last."""
    format: int = FORMAT


def remember(where: Where, address: str) -> str:
    """Write down which app runs here; a folder that another release wrote is refused, not overwritten. What there is
    to say of an older one that is read."""
    place = place_of(where)
    before = run_in(place)
    place.store.replace(FILE, protect_json(Remembered(address, __version__)))
    if before is not None and before.format == UNPROTECTED:
        return (
            f"{place} was begun by an older release: what that one wrote has no digests, so damage to it is not found; "
            "what is written from now on is protected"
        )
    return ""


def address_in(where: Where) -> str:
    """The address of the app that ran here last."""
    remembered = run_in(where)
    if remembered is None:
        raise CallerError(f"{place_of(where)} does not say which app ran in it; name it with --app module:attribute")
    return remembered.app


def run_in(where: Where) -> Remembered | None:
    """What the store remembers of the run, if an app ran there."""
    place = place_of(where)
    content = place.store.read(FILE)
    if content is None:
        return None
    remembered = verified_json(
        content, Remembered, place.store.locate(FILE), "restore it, or remove it and name the app with --app"
    )
    if remembered.format == RESTORING:
        raise CallerError(
            f"{place} has only a part of a backup: its restore was interrupted; enter the `unerring restore` again"
        )
    if not UNPROTECTED <= remembered.format <= FORMAT:
        raise CallerError(
            f"{place} was written by release {remembered.version or 'unknown'} in format {remembered.format}, and this "
            f"release ({__version__}) reads up to {FORMAT}; use the release that wrote it"
        )
    return remembered


def check_run(where: Where) -> None:
    """A sentence, unless a run is there."""
    place = place_of(where)
    place.check(writing=False)
    names = place.store.names("")
    if LOG in names:
        run_in(place)
        return
    if not names and not place.is_folder:
        raise CallerError(f"there is nothing at {place}; give the run's address, the --data of `unerring run`")
    if not names and not Path(place.address).is_dir():
        raise CallerError(f"there is no folder {place}; give the run's folder, the --data of `unerring run`")
    runs = [name for name in names if LOG in place.store.names(name)]
    inside = f"the one of a run in it: {', '.join(runs[:4])}" if runs else ""
    instead = inside or "the folder that `unerring run --data` names"
    raise CallerError(f"{place} is not a run's folder: it has no {LOG}/ in it; give {instead}")
