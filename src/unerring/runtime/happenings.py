"""What happened to the parts of a run, in one file of its folder: who started, died, was elected, was evicted, when.

Every process of a run appends whole lines to it, so that failures and elections are on one time line, also after the
run. It is for people: a line that cannot be written is left out, and nothing waits for one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "happenings.jsonl"
BEFORE: Final = "happenings.before.jsonl"
BYTES_MAX: Final = 8 << 20
"""A file that has grown so large becomes the one before, and that one is gone."""
LINE_BYTES_MAX: Final = 2000
"""Short lines are appended in one piece, whoever else does so at the time."""


class What:
    """The words for what can happen. Strings on disk; the first four are failures and what ends them."""

    DIED: Final = "died"
    STARTED: Final = "started"
    ENDED: Final = "ended"
    KILLED: Final = "killed"  # by an operator, who is told apart from fate
    VOTE: Final = "vote"
    LEADS: Final = "leads"
    STEPPED_DOWN: Final = "stepped down"
    JOINS: Final = "joins"
    CAUGHT_UP: Final = "caught up"
    EVICTED: Final = "evicted"
    VIEW: Final = "view"
    UNDOES: Final = "undoes"
    RESTARTED: Final = "restarted"


REPORTED: Final = {
    "correlation.election": What.VOTE,
    "correlation.leader": What.LEADS,
    "correlation.stepped_down": What.STEPPED_DOWN,
    "correlation.joins_anew": What.JOINS,
    "correlation.caught_up": What.CAUGHT_UP,
    "correlation.evicted": What.EVICTED,
    "process.view_change": What.VIEW,
    "process.compensating": What.UNDOES,
}
"""What machines report of themselves, and its word here."""


class Happening(msgspec.Struct, frozen=True):
    at_us: int
    """Wall time."""
    who: str
    what: str
    said: str = ""


def note(folder: Path, who: str, what: str, said: str = "") -> None:
    """Append one line."""
    line = msgspec.json.encode(Happening(time.time_ns() // 1000, who, what, said[:LINE_BYTES_MAX]))
    with contextlib.suppress(OSError):
        with (folder / FILE).open("ab") as file:
            file.write(line + b"\n")
            grown = file.tell() > BYTES_MAX
        if grown:
            _turn(folder)


def _turn(folder: Path) -> None:
    """One of those who find the file too large renames it, the others find it small again."""
    with (folder / FILE).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / FILE)) and file.tell() > BYTES_MAX:
                os.replace(folder / FILE, folder / BEFORE)


class Happenings:
    """Reads a folder's happenings, and later only what was added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offset = 0
        self._inode = 0
        self._found: list[Happening] = []
        with contextlib.suppress(OSError):
            self._take((folder / BEFORE).read_bytes())

    def all(self) -> list[Happening]:
        """Everything so far, as it was written."""
        with contextlib.suppress(OSError), (self._folder / FILE).open("rb") as file:
            if os.fstat(file.fileno()).st_ino != self._inode:
                self._inode, self._offset = os.fstat(file.fileno()).st_ino, 0
            file.seek(self._offset)
            added = file.read()
            whole = added.rfind(b"\n") + 1
            self._offset += whole
            self._take(added[:whole])
        return self._found

    def _take(self, lines: bytes) -> None:
        for line in lines.splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                self._found.append(msgspec.json.decode(line, type=Happening))
