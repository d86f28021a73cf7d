"""Changing rules while they run: a new version takes over at an agreed stamp, and the old one ends there.

The agreement is one small file for each change, created once; the first one says which rules a folder began with. A
driver of the old rules takes no interval past the stamp. One that had already begun a longer interval may still seal
it; so the change takes effect at the first boundary of the output chain at or after the stamp, which everybody reads
off the chain itself. Nothing is doubled (segments are named by their start) and nothing is missing (the new version
starts exactly where the chain ends).
"""

from __future__ import annotations

from typing import Final

import msgspec

from unerring.log import EventLog
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ConfigError, protect_json, verified_json
from unerring.pipeline.level import Level

_FOLDER: Final = ".versions"


class Version(msgspec.Struct, frozen=True, order=True):
    """After this time the outputs of a level's streams come from this version of its rules."""

    after_us: int
    level: int
    version: str
    buckets: int
    rules: tuple[tuple[str, str], ...]

    def made_by(self, rules: tuple[tuple[str, str], ...], buckets: int) -> bool:
        return (sorted(self.rules), self.buckets) == (sorted(rules), buckets)

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in self.rules) + f", {self.buckets} buckets"


def enter(level: Level) -> None:
    """Begin a folder with these rules, or go on with them; others are refused until a stamp is agreed for them."""
    agreed = versions(level.log, level.number)
    if not agreed:
        _write(level, TIME_MIN)
        agreed = versions(level.log, level.number)
    if not any(known.version == level.version for known in agreed):
        if ranked_otherwise(level):
            raise ConfigError(
                f"{level.address} was made by these rules, but with other ranks of streams on level {level.number} (an "
                "older release ranked them as the app lists them); continue with that release, let these take "
                "over at an "
                "agreed time, or use a new --data folder"
            )
        raise ConfigError(
            f"{level.address} was made by other rules on level {level.number} ({agreed[-1]}) than these "
            f"({_version_of(level, 0)}); let the new ones take over at an agreed time, or use a new --data folder"
        )


def ranked_otherwise(level: Level) -> bool:
    """Whether these very rules made the outputs there are, but with other ranks: another order of equal times."""
    agreed = versions(level.log, level.number)
    own = _version_of(level, 0)
    return bool(agreed) and agreed[-1].version != own.version and agreed[-1].made_by(own.rules, own.buckets)


def agree(level: Level, after_us: int) -> None:
    """Let this level's rules take over after a time that the old ones have not sealed yet."""
    for schema in level.outputs:
        if level.log.declaration(schema.name) is None:
            continue
        reached = level.log.chain(schema.name).through_us
        if reached > after_us:
            raise CallerError(
                f"stream {schema.name} is sealed through {reached} by the rules that run now, so new ones cannot take "
                f"over at {after_us}; choose a later time"
            )
    if not _write(level, after_us) and _version_of(level, after_us) not in versions(level.log, level.number):
        raise CallerError(f"other rules will take over level {level.number} at {after_us}; choose another time")


def versions(log: EventLog, level: int) -> list[Version]:
    """The agreed changes of a level, in time order."""
    all_levels = []
    for name in log.store.names(_FOLDER):
        data = log.store.read(f"{_FOLDER}/{name}") or b""
        all_levels.append(verified_json(data, Version, log.store.locate(f"{_FOLDER}/{name}")))
    return sorted(version for version in all_levels if version.level == level)


def end_of(level: Level) -> int:
    """Up to where this version's rules run: the stamp at which others take over, or for ever."""
    agreed = versions(level.log, level.number)
    start_us = max((v.after_us for v in agreed if v.version == level.version), default=TIME_MIN)
    return min((v.after_us for v in agreed if v.version != level.version and v.after_us > start_us), default=TIME_MAX)


def start_of(level: Level) -> int:
    """The time after which this version's outputs count."""
    agreed = [v.after_us for v in versions(level.log, level.number) if v.version == level.version]
    return max(agreed, default=TIME_MIN)


def _version_of(level: Level, after_us: int) -> Version:
    rules = tuple((plan.name, plan.version) for plan in level.plans)
    return Version(after_us, level.number, level.version, level.buckets, rules)


def _write(level: Level, after_us: int) -> bool:
    name = f"{_FOLDER}/{level.number}-{after_us - TIME_MIN:019d}.json"
    return level.log.store.create(name, protect_json(_version_of(level, after_us)))
