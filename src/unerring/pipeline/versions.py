"""Changing rules while they run: a new version takes over at an agreed stamp, and the old one ends there.

The agreement is one small file for each change, created once; the first one says which rules a folder began with. A
driver of the old rules takes no interval past the stamp. One that had already begun a longer interval may still seal
it; so the change takes effect at the first boundary of the output chain at or after the stamp, which everybody reads
off the chain itself. Nothing is doubled (segments are named by their start) and nothing is missing (the new version
starts exactly where the chain ends).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from unerring.log import EventLog, LocalStore, join
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ConfigError, StreamSchema, protect_json, verified_json
from unerring.pipeline.agreements import Version
from unerring.pipeline.editions import Edition
from unerring.pipeline.level import Level, is_unkeyed, levels_of
from unerring.rules import Plan

_FOLDER: Final = "rule-versions"
"""No stream has a name with a hyphen."""
_OLDER: Final = ".versions"
"""Its name in earlier releases; some stores do not show names that begin with a dot."""

_READ: Final[dict[str, Version]] = {}
_READ_MAX: Final = 1024


def enter(level: Level) -> None:
    """Begin a folder with these rules, or go on with them; others are refused until a stamp is agreed for them."""
    agreed = versions(level)
    if not agreed:
        write(level, TIME_MIN)
        agreed = versions(level)
    if not any(known.same_as(version_of(level)) for known in agreed):
        if ranked_otherwise(level):
            raise ConfigError(
                f"{level.address} was made by these rules, but with other ranks of streams on level {level.label} (an "
                "older release ranked them as the app lists them); continue with that release, let these take "
                "over at an "
                "agreed time, or use a new --data folder"
            )
        if agreed[-1].version == level.version:
            raise ConfigError(
                f"{level.address} has {agreed[-1].buckets} buckets on level {level.label}, not "
                f"{level.buckets} buckets; change that with `unerring rescale --buckets {level.buckets}`"
            )
        raise ConfigError(
            f"{level.address} was made by other rules on level {level.label} ({agreed[-1]}) than these "
            f"({version_of(level)}); let the new ones take over at an agreed time, or use a new --data folder"
        )


def is_begun_by(level: Level) -> bool:
    """Whether a folder has not begun, or these very rules were agreed for it last."""
    agreed = versions(level)
    return not agreed or agreed[-1].made_by(version_of(level))


def ranked_otherwise(level: Level) -> bool:
    """Whether these very rules made the outputs there are, but with other ranks: another order of equal times."""
    agreed = versions(level)
    own = version_of(level)
    return bool(agreed) and agreed[-1].version != own.version and agreed[-1].made_by(own)


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
    if not write(level, after_us) and version_of(level, after_us) not in versions(level):
        raise CallerError(f"other rules will take over level {level.label} at {after_us}; choose another time")


def versions(level: Level) -> list[Version]:
    """The agreed changes of a level, in time order."""
    own = (level.number, level.unkeyed)
    return sorted(version for version in _all_versions(level.log) if (version.level, version.unkeyed) == own)


def _all_versions(log: EventLog) -> list[Version]:
    # Only folders were written by earlier releases; on a store each listing is a request.
    folders = (_OLDER, _FOLDER) if isinstance(log.store, LocalStore) else (_FOLDER,)
    return [_version(log, f"{folder}/{name}") for folder in folders for name in log.store.names(folder)]


def _version(log: EventLog, name: str) -> Version:
    """One of the small files, read once: it is created once and does not change."""
    where = log.store.locate(name)
    if where not in _READ:
        _READ[where] = verified_json(log.store.read(name) or b"", Version, where)
        if len(_READ) > _READ_MAX:
            del _READ[next(iter(_READ))]
    return _READ[where]


def agreed_levels(
    plans: tuple[Plan, ...], sources: tuple[StreamSchema, ...], address: str, buckets: int, scratch: str = ""
) -> tuple[Level, ...]:
    """The query tree, cut into levels as the folder has them now. What an app says counts for a new folder."""
    unkeyed = {plan.name for plan in plans if is_unkeyed(plan)}
    log = EventLog(join(address, "log"))
    mixed = {
        known.level
        for known in (_all_versions(log) if unkeyed else [])
        if not known.unkeyed and unkeyed & {name for name, _ in known.rules}
    }
    return tuple(map(as_agreed, levels_of(plans, sources, address, buckets, scratch, frozenset(mixed))))


def as_agreed(level: Level) -> Level:
    """The level with the partitions that its folder has now: those that were agreed last, of times that it has
    sealed."""
    agreed = versions(level)
    if not agreed:
        return level
    sealed_us = level.sealed_us() if len(agreed) > 1 else TIME_MIN
    due = [known for known in agreed if known.after_us <= sealed_us] or agreed[:1]
    return replace(level, buckets=due[-1].buckets, ranges=due[-1].ranges)


def end_of(level: Level) -> int:
    """Up to where this version's rules run with these partitions: the time at which others take over, or for ever."""
    agreed, own = versions(level), version_of(level)
    start_us = max((known.after_us for known in agreed if known.same_as(own)), default=TIME_MIN)
    others = [known.after_us for known in agreed if not known.same_as(own) and known.after_us > start_us]
    return min(others, default=TIME_MAX)


def start_of(level: Level) -> int:
    """The time after which this version's outputs count, whatever its partitions were."""
    own, start_us = version_of(level), TIME_MIN
    before: Version | None = None
    for known in versions(level):
        if known.made_by(own) and (before is None or not before.made_by(own)):
            start_us = known.after_us
        before = known
    return start_us


def version_of(level: Level, after_us: int = 0) -> Version:
    rules = tuple((plan.name, plan.version) for plan in level.plans)
    return Version(after_us, level.number, level.version, level.buckets, rules, level.ranges, level.unkeyed)


def write(level: Level, after_us: int) -> bool:
    """Write down that these rules, with these partitions, go on after a time. False: there is such an agreement."""
    name = f"{_FOLDER}/{level.label}-{after_us - TIME_MIN:019d}.json"
    return level.log.store.create(name, protect_json(version_of(level, after_us)))


def reached_by(rules: Edition, log: EventLog) -> int:
    """Up to where a driver of these rules may have got: it reads no further than the streams from outside go. What it
    makes of them may be handed on before it is sealed."""
    ends = {schema.name: _end_of_stream(log, schema.name) for schema in rules.sources}
    reached = TIME_MIN
    for level in levels_of(rules.plans, rules.sources, "", 1):
        level_us = min(ends[schema.name] for schema in level.inputs)
        ends |= {schema.name: level_us for schema in level.outputs}
        reached = max(reached, level_us)
    return reached


def _end_of_stream(log: EventLog, name: str) -> int:
    return TIME_MIN if log.declaration(name) is None else log.chain(name).through_us
