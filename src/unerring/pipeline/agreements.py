"""What is agreed about the rules of a run, on its store: the editions of its rules, and from when each of them counts.

An upgrade is one object, created if absent under the number that follows the last one: the new edition, as plain data.
Whoever sees it settles when it takes over, and writes that down once, in a second object (see `versions`). A third one
says that it has happened. Objects are read by their names, which follow from each other: no listing is asked.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from unerring.log import EventLog
from unerring.model import CallerError, StreamSchema, protect_json, verified_json
from unerring.pipeline.editions import Edition
from unerring.rules import StoredPlan, restored, stored

FOLDER: Final = "rule-upgrades"
"""No stream has a name with a hyphen."""
FIRST: Final = 0
"""The number of the edition that a run began with."""
_READ: Final[dict[str, msgspec.Struct]] = {}
_READ_MAX: Final = 1024
_EDITIONS: Final[dict[tuple[tuple[tuple[str, str], ...], tuple[StreamSchema, ...]], Edition]] = {}
_EDITIONS_MAX: Final = 64

T = TypeVar("T", bound=msgspec.Struct)


class Version(msgspec.Struct, frozen=True, order=True):
    """After this time the outputs of a level's streams come from this version of its rules."""

    after_us: int
    level: int
    version: str
    buckets: int
    rules: tuple[tuple[str, str], ...]
    """None: the level ends."""
    ranges: bool = False
    """Whether its partitions are ranges of the key's hash; those of earlier releases are not."""
    unkeyed: bool = False
    upgrade: int = 0
    """The edition that came with it; 0: only the partitions are others."""

    def made_by(self, other: Version) -> bool:
        """Whether the rules are the same; how keys are divided does not count."""
        return sorted(self.rules) == sorted(other.rules)

    def same_as(self, other: Version) -> bool:
        """Whether rules, ranks and partitions are the same: all but the time."""
        return (self.version, self.buckets, self.ranges) == (other.version, other.buckets, other.ranges)

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.rules) + f", {self.buckets} buckets"


class Proposal(msgspec.Struct, frozen=True):
    """An edition of a run's rules."""

    number: int
    app: str
    """`module:attribute` of the application."""
    plans: tuple[StoredPlan, ...]
    sources: tuple[StreamSchema, ...]
    buckets: int
    token: str = ""
    """Who proposed it."""
    at_us: int | None = None
    """It takes over after this time, or as soon after it as nobody has got; None: as soon as possible."""
    from_beginning: bool = False
    """Rules that look back without end begin with the log."""
    reactions: tuple[tuple[str, str], ...] = ()
    """Which situation starts which process."""
    shards: dict[str, int] = {}
    """Of a live run: among how many each node of this edition is divided."""
    prepared: bool = False
    """It is for a live run that is going on: its time is agreed on once the new nodes are ready."""
    given: tuple[tuple[tuple[str, str], ...], ...] = ()
    """For each of the reactions, which column gives which variable. Earlier releases did not write it down."""


class Agreement(msgspec.Struct, frozen=True):
    """When an edition takes over, and what that means for the levels that change."""

    number: int
    at_us: int
    levels: tuple[Version, ...]


class Ready(msgspec.Struct, frozen=True):
    """The new nodes of a live run have read the log, and follow its streams: the time can be agreed on."""

    number: int


class Done(msgspec.Struct, frozen=True):
    """The states that an edition begins with are there."""

    number: int


def proposal_of(number: int, app: str, edition: Edition, buckets: int) -> Proposal:
    return Proposal(number, app, tuple(map(stored, edition.plans)), edition.sources, buckets)


def edition_of(proposed: Proposal) -> Edition:
    """The rules of a proposal."""
    known_by = tuple((one.rule, one.version) for one in proposed.plans), proposed.sources
    if known_by not in _EDITIONS:
        _EDITIONS[known_by] = Edition(tuple(map(restored, proposed.plans)), proposed.sources)
        if len(_EDITIONS) > _EDITIONS_MAX:
            del _EDITIONS[next(iter(_EDITIONS))]
    return _EDITIONS[known_by]


def create(log: EventLog, what: Proposal | Agreement | Ready | Done) -> bool:
    """False: there is one already."""
    return log.store.create(_name(what.number, type(what)), protect_json(what))


def renew(log: EventLog, first: Proposal) -> None:
    """Another first edition, where nothing has begun with the one that is there."""
    name = _name(first.number, Proposal)
    log.store.replace(name, protect_json(first))
    _READ.pop(log.store.locate(name), None)


def proposal(log: EventLog, number: int) -> Proposal | None:
    return _read(log, number, Proposal)


def agreement(log: EventLog, number: int) -> Agreement | None:
    return _read(log, number, Agreement)


def is_ready(log: EventLog, number: int) -> bool:
    """Whether the new nodes of a live run are."""
    return _read(log, number, Ready) is not None


def is_done(log: EventLog, number: int) -> bool:
    """Whether an edition has taken over."""
    return number == FIRST or _read(log, number, Done) is not None


def proposals(log: EventLog) -> list[Proposal]:
    """All editions, the first one first; none in a run that has not begun, or that an earlier release began."""
    found: list[Proposal] = []
    while (following := proposal(log, len(found))) is not None:
        found.append(following)
    return found


def current(log: EventLog) -> Proposal | None:
    """The edition that has taken over last."""
    known = [one for one in proposals(log) if is_done(log, one.number)]
    return known[-1] if known else None


def pending(log: EventLog) -> Proposal | None:
    """The edition that is still to take over."""
    known = proposals(log)
    return known[-1] if known and not is_done(log, known[-1].number) else None


def propose(log: EventLog, proposed: Proposal) -> None:
    """Begin an upgrade; a sentence if there is another one."""
    if not create(log, proposed):
        other = proposal(log, proposed.number)
        if other is None or other.token != proposed.token:
            raise CallerError(
                f"another upgrade of {log.store.locate('')} was started at the same time (to "
                f"{'another app' if other is None else other.app}); wait until it has happened, then try again"
            )


def _read(log: EventLog, number: int, kind: type[T]) -> T | None:
    """An object that does not change once it is there."""
    name = _name(number, kind)
    where = log.store.locate(name)
    known = _READ.get(where)
    if known is None:
        data = log.store.read(name)
        if data is None:
            return None
        known = _READ[where] = verified_json(data, kind, where)
        if len(_READ) > _READ_MAX:
            del _READ[next(iter(_READ))]
    return known if isinstance(known, kind) else None


def _name(number: int, kind: type[msgspec.Struct]) -> str:
    what = {Proposal: "", Ready: "-ready", Agreement: "-agreed", Done: "-done"}[kind]
    return f"{FOLDER}/{number:06d}{what}.json"
