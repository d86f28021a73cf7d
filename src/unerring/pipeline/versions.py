"""Changing rules while they run: a new version takes over at an agreed stamp, and the old one ends there.

The agreement is one small file for each change, created once. A driver of the old rules takes no interval past the stamp. One
that had already begun a longer interval may still seal it; so the change takes effect at the first boundary of the output
chain at or after the stamp, which everybody reads off the chain itself. Nothing is doubled (segments are named by their
start) and nothing is missing (the new version starts exactly where the chain ends).
"""

from __future__ import annotations

import msgspec

from unerring.log import EventLog
from unerring.model import TIME_MAX, CallerError
from unerring.pipeline.level import Level

_FOLDER = "versions"


class Version(msgspec.Struct, frozen=True, order=True):
    """From this time on the outputs of a level's streams come from this version of its rules."""

    after_us: int
    level: int
    version: str


def agree(level: Level, after_us: int) -> None:
    """Let this level's rules take over after a time that the old ones have not sealed yet."""
    log = level.log
    for schema in level.outputs:
        if log.declaration(schema.name) is None:
            continue
        reached = log.chain(schema.name).through_us
        if reached > after_us:
            raise CallerError(
                f"stream {schema.name} is sealed through {reached} by the rules that run now, so new ones cannot take over "
                f"at {after_us}; choose a later time"
            )
    name = f"{_FOLDER}/{after_us + TIME_MAX:020d}-{level.number}.json"
    told = Version(after_us, level.number, level.version)
    if not log.store.create(f".{name}", msgspec.json.encode(told)):
        found = log.store.read(f".{name}")
        if found is None or msgspec.json.decode(found, type=Version) != told:
            raise CallerError(f"other rules were already agreed to take over level {level.number} at {after_us}; choose another time")


def versions(log: EventLog, level: int) -> list[Version]:
    """The agreed changes of a level, in time order."""
    found = []
    for name in log.store.names(f".{_FOLDER}"):
        data = log.store.read(f".{_FOLDER}/{name}")
        if data is not None:
            found.append(msgspec.json.decode(data, type=Version))
    return sorted(version for version in found if version.level == level)


def end_of(level: Level) -> int:
    """Up to where this version's rules run: the stamp at which others take over, or for ever."""
    agreed = versions(level.log, level.number)
    mine = max((v.after_us for v in agreed if v.version == level.version), default=None)
    later = [v.after_us for v in agreed if v.version != level.version and (mine is None or v.after_us > mine)]
    return min(later, default=TIME_MAX)


def start_of(level: Level) -> int | None:
    """After which time this version's outputs count; None if it was there from the beginning."""
    agreed = [v.after_us for v in versions(level.log, level.number) if v.version == level.version]
    return max(agreed, default=None)
