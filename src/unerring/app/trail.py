"""The audit trail of a run: who changed or was refused what, when, and from where, as objects of the run's store.

Each process notes it on a timeline, which is a file of one host. Before a root is sealed, what came since goes into an
object that names the hash of the one before it, and stays. So roots cover it: whatever is changed, taken out or put in
later is found, here and on the timeline.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from unerring.app.place import Place, matching
from unerring.log import Judged
from unerring.model import LogError, protect_json, sha256_of, verified_json
from unerring.runtime import Entry, Timeline, What, lines, timeline

FOLDER: Final = "trail"
PATTERN: Final = f"{FOLDER}/*/*.json"
KEPT: Final = (What.LOGIN, What.COMMANDED, What.KILLED, What.REFUSED)
"""Of a timeline's entries; the others are failures and elections."""
ENTRIES_MAX: Final = 5_000
"""Of one object."""


class Stretch(msgspec.Struct, frozen=True):
    """Entries of one host, in the order in which they were found."""

    number: int
    before: str
    """The hash of the object before it; empty for the first."""
    folder: str
    """The host's folder for the run, whose timelines have them."""
    entries: tuple[Entry, ...]


def host_name() -> str:
    """This host, as it stands in the names of its objects."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:64].strip(".") or "host"


def _timelines(folder: Path) -> list[Path]:
    return [folder, folder / "live", folder / "processes"]


class TrailSealer:
    """Seals what this host's timelines have. Not from several threads."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._trail = Trail(place, host_name())
        self._timelines = [Timeline(folder) for folder in _timelines(place.scratch)]
        self._waiting: list[Entry] = []
        """Found, and not in an object yet."""

    def seal(self) -> None:
        """Every entry is in an object once this returns; what somebody else put into one is not put into another."""
        found = [entry for reader in self._timelines for entry in reader.added() if entry.what in KEPT]
        self._waiting += sorted(found, key=lambda entry: entry.at_us)
        while self._waiting:
            last, sealed = self._trail.newest(self._waiting[0].at_us)
            self._waiting = [entry for entry in self._waiting if entry not in sealed]
            if self._waiting and self._trail.add(last, str(self._place.scratch), self._waiting[:ENTRIES_MAX]):
                del self._waiting[:ENTRIES_MAX]


class Trail:
    """The objects of one host."""

    def __init__(self, place: Place, host: str) -> None:
        self._store = place.store
        self._host = host

    def where(self, number: int) -> str:
        return self._store.locate(self._name(number))

    def _name(self, number: int) -> str:
        return f"{FOLDER}/{self._host}/{number:08d}.json"

    def read(self, number: int) -> tuple[Stretch, str] | None:
        """One of them, and its hash."""
        content = self._store.read(self._name(number))
        if content is None:
            return None
        stretch = verified_json(content, Stretch, self.where(number))
        if stretch.number != number:
            raise LogError(f"{self.where(number)} says that it is number {stretch.number}: restore the right one")
        return stretch, sha256_of(content)

    def newest(self, since_us: int) -> tuple[tuple[int, str], set[Entry]]:
        """The last number and its hash, and all entries since then."""
        number = max([0, *self.numbers()])
        while self.read(number + 1) is not None:  # a listing may lag, reading by name may not
            number += 1
        digest, sealed = "", set[Entry]()
        for earlier in range(number, 0, -1):
            read = self.read(earlier)
            if read is None:
                raise LogError(f"{self.where(earlier)} is missing from the audit trail; restore it from a copy")
            digest = digest or read[1]
            sealed.update(read[0].entries)
            if _ends(read[0]) < since_us:
                break
        return (number, digest), sealed

    def numbers(self) -> list[int]:
        names = self._store.names(f"{FOLDER}/{self._host}")
        return sorted(int(name[:8]) for name in names if name[:8].isdigit() and name.endswith(".json"))

    def add(self, last: tuple[int, str], folder: str, entries: Sequence[Entry]) -> bool:
        """Put entries into the object after the last one; False: somebody else did at the same time."""
        number, before = last
        stretch = Stretch(number + 1, before, folder, tuple(entries))
        return self._store.create(self._name(stretch.number), protect_json(stretch))

    def walk(self) -> Iterator[tuple[Stretch | None, str]]:
        """Each from the first to the newest, and what is wrong with it (empty: nothing)."""
        before = ""
        for number in range(1, max([0, *self.numbers()]) + 1):
            try:
                read = self.read(number)
            except LogError as error:
                yield None, str(error)
                return
            if read is None:
                yield None, f"{self.where(number)} is missing from the audit trail; restore it from a copy"
                return
            stretch, digest = read
            follows = stretch.before == before
            yield stretch, "" if follows else f"{self.where(number)} does not follow the one before it: one was changed"
            before = digest


def _ends(stretch: Stretch) -> int:
    return max((entry.at_us for entry in stretch.entries), default=0)


def judge_trail(place: Place) -> Judged:
    """Whether the objects of all hosts follow each other, and this host's timelines still have what is in them."""
    judged = Judged()
    for host in sorted({name.split("/")[1] for name in matching(place.store, PATTERN)}):
        sealed: list[Entry] = []
        for stretch, fault in Trail(place, host).walk():
            if fault:
                judged.damage.append(fault)
            if stretch is not None and host == host_name() and stretch.folder == str(place.scratch):
                sealed += stretch.entries
        judged.damage += _lost(place.scratch, sealed)
    return judged


def _lost(folder: Path, sealed: Sequence[Entry]) -> list[str]:
    """A sentence if timelines lack what was sealed of them. Their oldest lines go when they grow too large."""
    known: set[Entry] = set()
    since_us = 0
    for one in _timelines(folder):
        entries = Timeline(one).added()
        known.update(entries)
        if entries and lines.before(one / timeline.FILE).exists():
            since_us = max(since_us, min(entry.at_us for entry in entries))
    lost = [entry for entry in sealed if entry.at_us >= since_us and entry not in known]
    if not lost:
        return []
    first = f"{lost[0].who} {lost[0].what}: {lost[0].said}"
    what = f"lacks {len(lost)} entries of the audit trail, the first of them ({first})"
    return [f"{folder / timeline.FILE} {what}: a line was changed or removed; what is in {FOLDER}/ is right"]
