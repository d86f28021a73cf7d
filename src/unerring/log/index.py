"""The index of a chain: where it begins since retention, and which objects hold what was compacted.

Index objects are numbered and created if absent; the newest counts. What the index names is the chain up to
`Index.through_us`; after it the chain goes on by the names of its segments. So retention and compaction each commit by
creating the next number, and whoever comes second sees that and thinks again. What a process does not know of a newer
index costs it a second look, never an event: sealed rows stay where an index names them.

A year of a busy stream has many objects. The oldest entries move into pages, objects of their own that never change and
are read when somebody asks for that time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec

from unerring.log.producers import Run, Taken
from unerring.log.segments import Footer
from unerring.log.store import Store
from unerring.model import SECOND_US, TIME_MIN, LogError, protect_json, sha256_of, verified_json

INDEX: Final = "index"
COMPACTED: Final = "compacted"
BASE: Final = "base.json"
ENTRIES_MAX: Final = 512
PAGE_ENTRIES: Final = 256
FORMAT: Final = 1
GRACE_S: Final = 3600.0
"""How long what was replaced still lies there, for readers that know no better."""
_PAGES_HELD: Final = 8
_NAME: Final = re.compile(r"(\d{8})\.json\Z")
_NUMBERED: Final = re.compile(r"\d{19}-\d{19}-(\d{8})\.(?:parquet|json)\Z")


class Gone(LogError):
    """An object is not where it was: compaction or retention took it, or it is lost."""


class Removed(LogError):
    """Retention removed what was asked for."""


class Base(msgspec.Struct, frozen=True):
    """Where a chain begins since retention removed what was before."""

    from_us: int
    producers: dict[str, tuple[int, int]] = {}
    digest: str = ""
    """The digest of the last segment that was removed; the first one names it as the one before it."""
    above: dict[str, tuple[Run, ...]] = {}
    away: tuple[str, ...] | None = None

    @property
    def taken(self) -> Taken:
        """What had been taken of each producer."""
        return Taken(self.producers, self.above, None if self.away is None else frozenset(self.away))


class Span(msgspec.Struct, frozen=True, order=True):
    """The interval `(from, through]` of one object of a chain."""

    from_us: int
    through_us: int
    name: str = ""
    """The compacted object that holds it; empty for a segment, which is named by where it starts."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """An object that holds some of a chain: several segments merged, or a large one that is left as it was sealed."""

    from_us: int
    through_us: int
    name: str
    rows: int
    bytes: int
    segments: int
    """How many were sealed."""
    digest: str
    before: str
    """The digest of the segment that was sealed before the first of these."""
    sealed: str
    """The digest of the last segment that was sealed; the next one names it as the one before it."""
    rule: str

    @property
    def span(self) -> Span:
        return Span(self.from_us, self.through_us, self.name)


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Entries in an object of their own."""

    from_us: int
    through_us: int
    name: str
    rows: int
    bytes: int
    segments: int
    sealed: str
    digest: str = ""
    """The SHA-256 hash of the object; empty in an index of an older release."""


class Retired(msgspec.Struct, frozen=True, array_like=True):
    """What an index replaced. It may be deleted when that index is older than the grace time."""

    from_us: int
    through_us: int
    name: str
    """A compacted object; empty for the segments of that time."""
    at_us: int


class Index(msgspec.Struct, frozen=True):
    """What a chain's past is."""

    stream: str
    number: int = 0
    """0: there is none yet."""
    at_us: int = 0
    """When it was made, by its maker's clock."""
    base: Base = Base(TIME_MIN)
    pages: tuple[Page, ...] = ()
    entries: tuple[Entry, ...] = ()
    retired: tuple[Retired, ...] = ()
    kept: tuple[tuple[int, int], ...] = ()
    """Older indexes that still lie there, and when each was made."""
    swept_us: int = TIME_MIN
    """No part that was computed for a time before this one is garbage."""
    format: int = FORMAT

    @property
    def through_us(self) -> int:
        """Up to where the chain is what this index says; after it, what its segments say."""
        last = self._last()
        return self.base.from_us if last is None else last.through_us

    @property
    def sealed(self) -> str:
        """The digest of the last segment up to `through_us`, as it was sealed."""
        last = self._last()
        return self.base.digest if last is None else last.sealed

    def _last(self) -> Entry | Page | None:
        return self.entries[-1] if self.entries else self.pages[-1] if self.pages else None


def entry_of(footer: Footer, size: int, name: str = "") -> Entry:
    """The entry of an object."""
    merged = footer.merged
    return Entry(
        footer.from_us,
        footer.through_us,
        name,
        footer.rows,
        size,
        merged.segments if merged else 1,
        footer.digest,
        footer.before,
        footer.sealed,
        footer.rule,
    )


def object_name(from_us: int, through_us: int, number: int, kind: str = "parquet") -> str:
    """The name of an object that index `number` will name. If that index does not, nobody ever does."""
    return f"{from_us - TIME_MIN:019d}-{through_us - TIME_MIN:019d}-{number:08d}.{kind}"


def number_in(name: str) -> int | None:
    """The number of the index that an object was made for."""
    match = _NUMBERED.match(name)
    return int(match[1]) if match else None


def index_name(number: int) -> str:
    return f"{number:08d}.json"


def index_number(name: str) -> int | None:
    """The other way round; None for another name."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


def successor(index: Index, now_us: int, **changes: Any) -> Index:
    """The next index. Those that lie there longer than the grace time after they were replaced are no longer kept."""
    now_us = max(now_us, index.at_us)  # another host's clock may be behind: nothing ages by that
    made = [pair for pair in (*index.kept, (index.number, index.at_us)) if pair[0]]
    replaced_us = [*(at_us for _, at_us in made[1:]), now_us]
    kept = [pair for pair, at_us in zip(made, replaced_us, strict=False) if at_us + int(GRACE_S * SECOND_US) > now_us]
    following = {"number": index.number + 1, "at_us": now_us, "kept": tuple(kept), "format": FORMAT}
    return msgspec.structs.replace(index, **following, **changes)


def elapsed_clock_s() -> float:
    """Seconds that pass even while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Indexes:
    """The index objects of one stream."""

    def __init__(self, store: Store, folder: str, stream: str) -> None:
        self.store = store
        self.stream = stream
        self._chain = folder
        self.folder = f"{folder}/{INDEX}"
        self.clock_s = elapsed_clock_s
        self._checked_s = 0.0
        """When it was last known that there was no newer one."""
        self._pages: dict[str, tuple[Entry, ...]] = {}

    def newest(self, at_least: int = 0) -> Index:
        """The newest index; number 0 if there is none. `at_least`: a number that somebody has seen."""
        begun_s = self.clock_s()
        listed = [number for number in map(index_number, self.store.names(self.folder)) if number is not None]
        number = max([at_least, *listed])
        index = self.read(number) if number else None
        if number and index is None:
            raise LogError(
                f"{self._where(number)} is missing, but was seen before: the index of stream {self.stream} is behind; "
                "restore the newest one from a copy"
            )
        if index is None:
            index = Index(self.stream, base=self._first_base())
        return self._walk(index, begun_s)

    def newer(self, index: Index) -> Index | None:
        """A newer index than this one, which was the newest when it was last looked at; None if it still is."""
        begun_s = self.clock_s()
        # An index is deleted a grace time after its successor was made: until then the next number is there by name.
        if begun_s - self._checked_s > GRACE_S / 2:
            newest = self.newest(index.number)
        else:
            newest = self._walk(index, begun_s)
        return newest if newest.number > index.number else None

    @property
    def unchecked_s(self) -> float:
        """How long ago it was known that there was no newer one."""
        return self.clock_s() - self._checked_s

    def read(self, number: int) -> Index | None:
        name = f"{self.folder}/{index_name(number)}"
        data = self.store.read(name)
        if data is None:
            return None
        index = verified_json(data, Index, self.store.locate(name))
        if (index.stream, index.number) != (self.stream, number):
            raise LogError(
                f"{self._where(number)} says that it is index {index.number} of stream {index.stream!r}; it was "
                "renamed or copied from elsewhere: restore the right one"
            )
        if index.format > FORMAT:
            raise LogError(
                f"{self._where(number)} has index format {index.format}, this version reads up to {FORMAT}; use the "
                "version that wrote it"
            )
        self._check_links(index)
        return index

    def _check_links(self, index: Index) -> None:
        """What is compacted follows each other, by the digests of the segments at its ends as they were sealed."""
        for one, other in pairwise(index.entries):
            if (one.through_us, one.sealed) != (other.from_us, other.before):
                raise LogError(
                    f"{self._where(index.number)} names objects that do not follow each other at {one.through_us}; "
                    "restore it and what it names from a copy"
                )

    def create(self, index: Index) -> bool:
        """Commit; False if somebody else made this number first. Its entries must be in their objects by then."""
        return self.store.create(f"{self.folder}/{index_name(index.number)}", protect_json(index))

    def delete(self, number: int) -> None:
        self.store.delete(f"{self.folder}/{index_name(number)}")

    def entries(self, index: Index, from_us: int, through_us: int) -> Iterator[Entry]:
        """The entries that hold something of `(from, through]`, in order."""
        for page in index.pages:
            if page.through_us > from_us and page.from_us < through_us:
                yield from _between(self.page(page), max(from_us, index.base.from_us), through_us)
        yield from _between(index.entries, from_us, through_us)

    def page(self, page: Page) -> tuple[Entry, ...]:
        held = self._pages.get(page.name)
        if held is None:
            name = f"{self.folder}/{page.name}"
            data = self.store.read(name)
            if data is None:
                raise Gone(f"{self.store.locate(name)} is missing, but the index names it; restore it from a copy")
            held = verified_json(data, tuple[Entry, ...], self.store.locate(name))
            ends = (page.from_us, page.through_us, page.digest or sha256_of(data))
            if not held or (held[0].from_us, held[-1].through_us, sha256_of(data)) != ends:
                raise LogError(
                    f"{self.store.locate(name)} is not the page that the index names; restore it from a copy"
                )
            while len(self._pages) >= _PAGES_HELD:
                self._pages.pop(next(iter(self._pages)))
            self._pages[page.name] = held
        return held

    def paged(self, index: Index) -> Index:
        """The same index, with its oldest entries in a page if there are too many."""
        if len(index.entries) <= ENTRIES_MAX:
            return index
        old, rest = index.entries[:PAGE_ENTRIES], index.entries[PAGE_ENTRIES:]
        name = object_name(old[0].from_us, old[-1].through_us, index.number, "json")
        data = protect_json(old)
        self.store.create(f"{self.folder}/{name}", data)
        rows, size, segments = (sum(getattr(entry, what) for entry in old) for what in ("rows", "bytes", "segments"))
        page = Page(old[0].from_us, old[-1].through_us, name, rows, size, segments, old[-1].sealed, sha256_of(data))
        return msgspec.structs.replace(index, pages=(*index.pages, page), entries=rest)

    def _walk(self, index: Index, begun_s: float) -> Index:
        """From an index to the newest, by names: a listing may lag."""
        while (following := self.read(index.number + 1)) is not None:
            index = following
        self._checked_s = begun_s
        return index

    def _first_base(self) -> Base:
        """What an older release wrote where retention had cut."""
        name = f"{self._chain}/{BASE}"
        data = self.store.read(name)
        return Base(TIME_MIN) if data is None else verified_json(data, Base, self.store.locate(name))

    def _where(self, number: int) -> str:
        return self.store.locate(f"{self.folder}/{index_name(number)}")


def _between(entries: tuple[Entry, ...], from_us: int, through_us: int) -> Iterator[Entry]:
    for entry in entries:
        if entry.through_us > from_us and entry.from_us < through_us:
            yield entry
