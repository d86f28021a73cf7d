"""Deletes what no index names any more: what compaction replaced, what lost a race, what tasks left behind.

Whatever is deleted here is named by nobody who looks now, and never will be: objects carry the number of the index that
was to name them, segments before the index's end are named by it or not at all, and parts carry the interval that they
were computed for. What an index replaced is left for the grace time, for readers that know an older one; they would
find the newer one, but it costs them a second look.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from unerring.log.chain import Chain
from unerring.log.index import COMPACTED, GRACE_S, INDEX, Entry, Gone, Index, Removed, Retired, index_number, number_in
from unerring.log.intakes import waiting
from unerring.log.objects import SEGMENTS
from unerring.log.parts import PARTS, part_interval
from unerring.log.positions import Positions
from unerring.log.segments import segment_start
from unerring.model import SECOND_US, TIME_MIN

DELETES_MAX: Final = 4096
READ_GRACE_S: Final = 300.0
"""What every registered reader is past goes after this time already."""


class Swept(msgspec.Struct, frozen=True):
    """What a sweep did, for the next index to write down."""

    deleted: int
    complete: bool
    """Whether nothing that is due is left."""
    pending: tuple[Retired, ...]
    """What was replaced and must still lie there."""
    cleared: tuple[Retired, ...]
    """What was replaced and is gone."""
    swept_us: int


def wall_us() -> int:
    """The clock by which index objects are dated."""
    return time.time_ns() // 1000


def sweep(chain: Chain, now_us: int, deletes_max: int = DELETES_MAX, *, whole: bool = False) -> Swept:
    """Delete what is due, at most so many objects. `whole`: look at all of the chain's past, and not only at what is
    not in pages yet."""
    chain.refresh_index()
    index = chain.index
    pending = _pending(chain, now_us)
    if not index.number:
        return Swept(0, complete=True, pending=(), cleared=(), swept_us=TIME_MIN)
    # All is listed before the first is deleted.
    due = _Due(chain, index, pending, whole).names()
    for name in due[:deletes_max]:
        chain.store.delete(f"{chain.folder}/{name}")
    swept_us = min([index.through_us, *(one.from_us for one in pending)])
    cleared = tuple(one for one in index.retired if one not in pending)
    return Swept(min(len(due), deletes_max), len(due) <= deletes_max, pending, cleared, swept_us)


def _pending(chain: Chain, now_us: int) -> tuple[Retired, ...]:
    readers = [stamp.time for stamp in Positions(chain.store, chain.folder).all().values()]
    passed_us = min(readers) if readers else TIME_MIN
    waiting: list[Retired] = []
    for one in chain.index.retired:
        grace_s = READ_GRACE_S if one.through_us <= passed_us else GRACE_S
        if one.at_us + int(grace_s * SECOND_US) > now_us:
            waiting.append(one)
    return tuple(waiting)


class _Due:
    """Finds what is garbage."""

    def __init__(self, chain: Chain, index: Index, pending: tuple[Retired, ...], whole: bool) -> None:
        self._chain = chain
        self._index = index
        self._pending = pending
        self._settled_us = index.pages[-1].through_us if index.pages and not whole else TIME_MIN
        """Before this time pages name all that lies there, and only retention removes anything."""
        self._swept_us = TIME_MIN if whole else index.swept_us
        from_us = max(self._settled_us, index.base.from_us)
        self._entries: list[Entry] = list(chain.indexes.entries(index, from_us, index.through_us))

    def names(self) -> list[str]:
        return [*self._segments(), *self._compacted(), *self._indexes(), *self._parts()]

    def _list(self, folder: str) -> list[str]:
        return self._chain.store.names(f"{self._chain.folder}/{folder}")

    def _is_kept(self, from_us: int) -> bool:
        return self._index.base.from_us <= from_us < self._settled_us

    def _segments(self) -> list[str]:
        """Segments before the index's end that it does not name: replaced, or made by a sleeper under an old name."""
        named = {entry.from_us for entry in self._entries if not entry.name}
        waiting = [one for one in self._pending if not one.name]
        due: list[str] = []
        for name in self._list(SEGMENTS):
            start = segment_start(name)
            if start is None or start >= self._index.through_us:
                break
            if start in named or self._is_kept(start):
                continue
            if not any(one.from_us <= start < one.through_us for one in waiting):
                due.append(f"{SEGMENTS}/{name}")
        return due

    def _compacted(self) -> list[str]:
        named = {entry.name for entry in self._entries} | {one.name for one in self._pending}
        due: list[str] = []
        for name in self._list(COMPACTED):
            number = number_in(name)
            if number is None or number > self._index.number or name in named:
                continue
            if not self._is_kept(int(name[:19]) + TIME_MIN):
                due.append(f"{COMPACTED}/{name}")
        return due

    def _indexes(self) -> list[str]:
        pages = {page.name for page in self._index.pages}
        kept = {number for number, _ in self._index.kept}
        due: list[str] = []
        for name in self._list(INDEX):
            number, made_for = index_number(name), number_in(name)
            old = number is not None and number < self._index.number and number not in kept
            if old or (made_for is not None and made_for <= self._index.number and name not in pages):
                due.append(f"{INDEX}/{name}")
        return due

    def _parts(self) -> list[str]:
        """Parts of a time that the index has, which no segment names."""
        due: list[str] = []
        names = self._list(PARTS)
        kept = waiting(self._chain.store, self._chain.folder, self._chain.producers())
        for name in () if kept.claimed else names:
            interval = part_interval(name)
            if interval is None or interval[1] > self._index.through_us or name in kept.names:
                continue
            if interval[1] <= self._index.base.from_us or (
                interval[0] >= self._swept_us and not self._is_named(name, *interval)
            ):
                due.append(f"{PARTS}/{name}")
        return due

    def _is_named(self, name: str, from_us: int, through_us: int) -> bool:
        if any(one.from_us < through_us and one.through_us > from_us for one in self._pending):
            return True  # perhaps; it is looked at again
        entries = self._chain.indexes.entries(self._index, max(from_us, self._index.base.from_us), through_us)
        try:
            for entry in entries:
                if not entry.name and any(part.name == name for part in self._chain.footer(entry.span).parts):
                    return True
        except (Gone, Removed):
            if self._chain.index.number == self._index.number:
                raise
            return True  # somebody committed meanwhile; it is looked at again
        return False
