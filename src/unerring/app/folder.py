"""What a run's folder says of itself: which application it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from unerring.log import LocalStore
from unerring.model import CallerError

FILE: Final = "run.json"
LOG: Final = "log"


class Remembered(msgspec.Struct, frozen=True):
    """Written when a run starts, so that an audit need not be told."""

    app: str


def remember(data: Path, address: str) -> None:
    """Write down which app runs here."""
    LocalStore(data).replace(FILE, msgspec.json.encode(Remembered(address)))


def address_in(data: Path) -> str:
    """The address of the app that ran here last."""
    told = LocalStore(data).read(FILE)
    if told is None:
        raise CallerError(f"{data} does not say which app ran in it; name it with --app module:attribute")
    try:
        return msgspec.json.decode(told, type=Remembered).app
    except msgspec.DecodeError as error:
        raise CallerError(f"{data / FILE} cannot be read ({error}); name the app with --app module:attribute") from None


def check_run(data: Path) -> None:
    """A sentence, unless this is the folder of a run."""
    if not data.is_dir():
        raise CallerError(f"there is no folder {data}; give the run's folder, the --data of `unerring run`")
    if not (data / LOG).is_dir():
        raise CallerError(
            f"{data} is not a run's folder: it has no {LOG}/ in it; give the folder that `unerring run --data` names"
        )
