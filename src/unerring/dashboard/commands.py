"""Killing and restarting processes of a run, for who has the token."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from unerring.app import RunStatus
from unerring.model import CallerError, Who
from unerring.runtime import What, find, timeline

VERBS: Final = {"kill": (signal.SIGKILL, What.KILLED), "restart": (signal.SIGTERM, What.KILLED)}
SAID: Final = {
    "kill": "killed from the dashboard (kill -9)",
    "restart": "restarted from the dashboard",
}


def check(who: Who | None, given: str, allowed: bool, what: str) -> Who:
    """Who changes something; a sentence, unless it may."""
    if who is None and not given:
        raise CallerError("this changes the run, so it needs the token that `unerring dashboard` printed")
    if who is None:
        raise CallerError("wrong token: use the one that `unerring dashboard` printed; nothing was changed")
    if not allowed:
        raise CallerError(f"{who} has no right '{what}'; nothing was changed")
    return who


def check_origin(origin: str, host: str) -> None:
    """A sentence, if a page from elsewhere asks. Browsers say where a page is from; scripts need not say anything."""
    if origin and origin.partition("://")[2] != host:
        raise CallerError(f"the request came from a page of {origin}, not from the dashboard; nothing was changed")


def command(status: RunStatus, verb: str, who: str, by: str = "") -> str:
    """Carry it out on a process of this machine; whoever supervises it starts it again. `by`: who asks, from where."""
    if verb not in VERBS:
        raise CallerError(f"there is no command {verb!r}; use kill or restart")
    folder = _folder_of(status, who)
    process = find(folder, who)
    if process is None:
        raise CallerError(f"{who} does not run on this machine now, so there is nothing to {verb}")
    number, what = VERBS[verb]
    timeline.note(folder, who, what, f"{SAID[verb]}{by}")
    process.signal(number)
    return f"{who} (process {process.pid}) was {SAID[verb]}; its supervisor starts it again"


def _folder_of(status: RunStatus, who: str) -> Path:
    document = status.look()
    for folder, names in (
        (status.place.live, [process["name"] for process in document["live"]["processes"]]),
        (status.actions_folder, [process["name"] for process in document["processes"]["nodes"]]),
    ):
        if who in names:
            return folder
    raise CallerError(f"this run has no supervised process {who!r}; `unerring status` lists them")
