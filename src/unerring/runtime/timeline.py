"""The timeline of a run, in one file of its folder: who started, died, was elected, was evicted, and when.

Every process of a run appends whole lines to it, so that failures and elections are on one time line, also after the
run.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from unerring.runtime import lines

FILE: Final = "timeline.jsonl"
OLD_FILE: Final = "happenings.jsonl"
"""The file's name in earlier releases; it is still read."""
LINE_BYTES_MAX: Final = 2000
"""Short lines are appended in one piece, whoever else does so at the time."""


class What:
    """The words for what can happen. Strings on disk; the first four are failures and what ends them."""

    DIED: Final = "died"
    STARTED: Final = "started"
    ENDED: Final = "ended"
    KILLED: Final = "killed"  # by an operator, not by a fault
    VOTE: Final = "vote"
    LEADS: Final = "leads"
    STEPPED_DOWN: Final = "stepped down"
    JOINS: Final = "joins"
    CAUGHT_UP: Final = "caught up"
    EVICTED: Final = "evicted"
    VIEW: Final = "view"
    UNDOES: Final = "undoes"
    RESTARTED: Final = "restarted"
    UPGRADED: Final = "upgraded"
    REFUSED: Final = "refused"  # a message that its sender cannot mean; what nobody has a right to
    COMMANDED: Final = "commanded"  # something was changed from outside: by whom, from where
    LOGIN: Final = "login"


REPORTED: Final = {
    "correlation.election": What.VOTE,
    "correlation.leader": What.LEADS,
    "correlation.stepped_down": What.STEPPED_DOWN,
    "correlation.joins_anew": What.JOINS,
    "correlation.caught_up": What.CAUGHT_UP,
    "correlation.evicted": What.EVICTED,
    "peer.protocol_error": What.REFUSED,
    "process.view_change": What.VIEW,
    "process.absent": What.JOINS,
    "process.whole": What.CAUGHT_UP,
    "process.compensating": What.UNDOES,
}
"""The reports of machines that belong on the timeline, and their words there."""


class Entry(msgspec.Struct, frozen=True):
    at_us: int
    """Wall time."""
    who: str
    what: str
    said: str = ""


def note(folder: Path, who: str, what: str, detail: str = "") -> None:
    """Append one line."""
    lines.append(folder / FILE, Entry(time.time_ns() // 1000, who, what, detail[:LINE_BYTES_MAX]))


def note_start(folder: Path, who: str, detail: str) -> None:
    """Note the start of an unsupervised process: if it ran before and did not note its end, it died meanwhile."""
    before = [one for one in Timeline(folder).added() if one.who == who]
    if before and before[-1].what == What.STARTED:
        note(folder, who, What.DIED, "without a word; this was seen when it was started again")
    note(folder, who, What.STARTED, detail)


class Timeline:
    """Reads a folder's timeline, and later only what was added."""

    def __init__(self, folder: Path) -> None:
        self._followers = [lines.Follower(folder / name, Entry) for name in (OLD_FILE, FILE)]

    def added(self) -> list[Entry]:
        """Since the last call, as it was written."""
        return [entry for follower in self._followers for entry in follower.added()]

    @property
    def damaged(self) -> str:
        """A sentence, once a damaged line was passed over."""
        return next((follower.damaged for follower in self._followers if follower.damaged), "")
