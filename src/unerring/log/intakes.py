"""Intakes: what one micro-batch of a source brought to a stream, as one object that is created if absent.

Intake n of a source says up to where the source was read, which runs tasks wrote of it, which bad rows they kept aside,
and the watermark after it. It also names the runs of intakes before it that still have rows after the watermark before
it. So what is sealed up to the watermark follows from the newest intake alone, and several drivers that repeat a
micro-batch, or race for it, seal the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from unerring.log.quarantine import Quarantine
from unerring.log.runs import RunFile
from unerring.log.store import Store
from unerring.model import TIME_MIN, CallerError, LogError, protect_json, verified_json

INTAKE: Final = "intake"
FORMAT: Final = 1
KEPT: Final = 64
"""How many intakes of a streaming source stay after newer ones are sealed: a driver that slept meanwhile must find
those that it would make again."""
BAD: Final = "bad"
_CLAIM: Final = "claim.json"
_NAME: Final = re.compile(r"(\d{10})\.json\Z")
_SOURCE: Final = re.compile(r"[^\x00-\x1f]{1,512}\Z")


class TakenFile(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A file as it was when it was read."""

    path: str
    bytes: int
    changed_ms: int


class Intake(msgspec.Struct, frozen=True):
    """One micro-batch of a source in a stream."""

    source: str
    number: int
    """From 1 on."""
    position: str
    """The source's own words for what this is: its offsets. Whoever repeats it must find the same."""
    settled_us: int
    """Up to this time earlier intakes have settled everything: the watermark before this one."""
    from_us: int
    """Rows at or before this time were late when they came."""
    through_us: int
    """The watermark after it."""
    newest_us: int
    """The newest time of all rows so far."""
    runs: tuple[RunFile, ...]
    """Those of earlier intakes that have rows after `settled_us`, then its own; in the order in which rows of one time
    follow each other."""
    carried: int
    """How many of the runs are of earlier intakes."""
    lanes: tuple[int, ...]
    """How many rows of each lane (the source's partitions, by their number) were numbered up to now."""
    rows: int
    """Rows that the source gave, good and bad."""
    quarantined: dict[str, int]
    bad: tuple[str, ...] = ()
    """Bad rows, in objects that tasks wrote before."""
    files: tuple[TakenFile, ...] = ()
    """Which files it was, of a source that is files and is read in batches."""
    format: int = FORMAT

    @property
    def added(self) -> int:
        """Rows that it brought, wherever they are now."""
        return sum(run.rows for run in self.runs[self.carried :])


class Claim(msgspec.Struct, frozen=True):
    """A driver is at work on this intake: what tasks write for it is not garbage, though nothing names it yet."""

    number: int


def producer_of(source: str) -> str:
    """The name under which a chain knows a source."""
    return f"spark-{hashlib.blake2b(source.encode(), digest_size=6).hexdigest()}"


def check_source(source: str) -> str:
    """A sentence unless this can be a source's name."""
    if not _SOURCE.match(source):
        raise CallerError(f"source name {source!r}: use 1 to 512 printable characters")
    return source


class Intakes:
    """The intakes of one source in one stream."""

    def __init__(self, store: Store, folder: str, source: str) -> None:
        self.store = store
        self.stream = folder
        self.source = source
        self.producer = producer_of(source)
        self.folder = f"{folder}/{INTAKE}/{self.producer}"

    def get(self, number: int) -> Intake | None:
        data = self.store.read(self._name(number))
        if data is None:
            return None
        where = self.store.locate(self._name(number))
        intake = verified_json(data, Intake, where)
        if intake.format > FORMAT:
            raise LogError(
                f"{where} has intake format {intake.format}, this version reads up to {FORMAT}; use the version "
                "that wrote it"
            )
        if (intake.source, intake.number) != (self.source, number):
            raise LogError(
                f"{where} says that it is intake {intake.number} of source {intake.source!r}; it does not belong here: "
                "restore the right one from a copy"
            )
        return intake

    def numbers(self) -> list[int]:
        """Those that are there, as far as a listing knows."""
        matches = (_NAME.match(name) for name in self.store.names(self.folder))
        return [int(match[1]) for match in matches if match]

    def newest(self) -> Intake | None:
        """The last one. A listing may lag, so what would follow it is looked up by its name."""
        number = max(self.numbers(), default=0)
        newest = self.get(number) if number else None
        while (following := self.get(number + 1)) is not None:
            newest, number = following, number + 1
        return newest

    def create(self, intake: Intake) -> Intake:
        """The intake of that number: ours, unless another driver made it first."""
        if self.store.create(self._name(intake.number), protect_json(intake)):
            return intake
        made = self.get(intake.number)
        if made is None:
            where = self.store.locate(self._name(intake.number))
            raise LogError(f"{where} was made by another driver and has disappeared; restore it from a copy")
        return made

    def claim(self, number: int) -> None:
        """Before tasks write anything for an intake."""
        self.store.replace(f"{self.folder}/{_CLAIM}", protect_json(Claim(number)))

    def bad_name(self, number: int, data: bytes) -> str:
        """Where a task keeps bad rows until the intake names them."""
        return f"{BAD}/{number:010d}-{hashlib.blake2b(data, digest_size=8).hexdigest()}.parquet"

    def publish(self, name: str) -> None:
        """Let bad rows that an intake names be in the stream's quarantine."""
        data = self.store.read(f"{self.folder}/{name}")
        if data is None:
            where = self.store.locate(f"{self.folder}/{name}")
            raise LogError(f"{where} is missing, but an intake names it; restore it from a copy")
        Quarantine(self.store, self.stream).put(data)

    def prune(self, settled: Intake) -> None:
        """Delete what is of no more use once an intake is settled: bad rows that are in quarantine by now, and old
        intakes of a source that counts for itself."""
        for name in self.store.names(f"{self.folder}/{BAD}"):
            if name[:10].isdigit() and int(name[:10]) <= settled.number - KEPT:
                self.store.delete(f"{self.folder}/{BAD}/{name}")
        if not settled.files:
            for number in self.numbers():
                if number <= settled.number - KEPT:
                    self.store.delete(self._name(number))

    def _name(self, number: int) -> str:
        return f"{self.folder}/{number:010d}.json"


class Waiting(msgspec.Struct, frozen=True):
    """What intakes hold of a stream beyond its chain."""

    claimed: bool
    """Somebody may be about to make an intake."""
    runs: tuple[tuple[int, RunFile], ...]
    """Runs that may have rows which are not settled yet, each with the time up to which it is settled."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(run.name for _, run in self.runs)


def waiting(store: Store, folder: str, marks: dict[str, tuple[int, int]]) -> Waiting:
    """What is not settled yet; `marks`: the producers of the chain. Whatever tasks had written before this was called
    is named here, or claimed, or settled, or garbage."""
    claimed = False
    runs: list[tuple[int, RunFile]] = []
    for name in store.names(f"{folder}/{INTAKE}"):
        inside = f"{folder}/{INTAKE}/{name}"
        data = store.read(f"{inside}/{_CLAIM}")  # before the intakes are looked at: it is written before they are
        claim = 0 if data is None else verified_json(data, Claim, store.locate(f"{inside}/{_CLAIM}")).number
        source = _source_in(store, inside)
        newest = None if source is None else Intakes(store, folder, source).newest()
        claimed = claimed or claim > (newest.number if newest else 0)
        if newest is not None:
            settled_us = max(newest.settled_us, marks.get(name, (0, TIME_MIN))[1])
            runs += [(settled_us, run) for run in newest.runs if run.last_us > settled_us]
    return Waiting(claimed, tuple(runs))


def _source_in(store: Store, folder: str) -> str | None:
    """Whose intakes a folder holds."""
    for name in reversed(store.names(folder)):
        data = store.read(f"{folder}/{name}") if _NAME.match(name) else None
        if data is not None:
            return verified_json(data, Intake, store.locate(f"{folder}/{name}")).source
    return None


def files_taken(intakes: Iterable[Intake]) -> dict[str, TakenFile]:
    """The files of some intakes, by their path."""
    return {file.path: file for intake in intakes for file in intake.files}
