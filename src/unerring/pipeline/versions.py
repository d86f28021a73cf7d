"""Which version of its rules, and which partitions, a level has from when on.

There is one small file for what a folder began with, and one for each time that it was rescaled; an upgrade's
agreement has those of all levels that it changes. A driver takes no interval past such a time. Where it is only
rescaled, one that had begun a longer interval may still seal it. An upgrade takes over at one time everywhere: nobody
can have got further when it is agreed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from unerring.log import EventLog, LocalStore, join
from unerring.model import (
    TIME_MAX,
    TIME_MIN,
    ConfigError,
    LogError,
    StreamSchema,
    protect_json,
    verified_json,
)
from unerring.pipeline.agreements import (
    Agreement,
    Proposal,
    Version,
    agreement,
    create,
    edition_of,
    is_ready,
    proposal,
    proposals,
)
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
    agreed = versions_of(level)
    if not agreed:
        write(level, TIME_MIN)
        agreed = versions_of(level)
    if not any(known.same_as(version_of(level)) for known in agreed):
        if ranked_otherwise(level):
            raise ConfigError(
                f"{level.address} was made by these rules, but with other ranks of streams on level {level.label} (an "
                "older release ranked them as the app lists them); continue with that release, let these take "
                "over with `unerring upgrade`, or use a new --data folder"
            )
        if agreed[-1].version == level.version:
            raise ConfigError(
                f"{level.address} has {agreed[-1].buckets} buckets on level {level.label}, not "
                f"{level.buckets} buckets; change that with `unerring rescale --buckets {level.buckets}`"
            )
        raise ConfigError(
            f"{level.address} was made by other rules on level {level.label} ({agreed[-1]}) than these "
            f"({version_of(level)}); let the new ones take over with `unerring upgrade`, or use a new --data folder"
        )


def is_begun_by(level: Level) -> bool:
    """Whether a folder has not begun, or these very rules were agreed for it last."""
    agreed = versions_of(level)
    return not agreed or agreed[-1].made_by(version_of(level))


def ranked_otherwise(level: Level) -> bool:
    """Whether these very rules made the outputs there are, but with other ranks: another order of equal times."""
    agreed = versions_of(level)
    own = version_of(level)
    return bool(agreed) and agreed[-1].version != own.version and agreed[-1].made_by(own)


def versions_of(level: Level) -> list[Version]:
    """The agreed changes of a level, in time order."""
    own = (level.number, level.unkeyed)
    return sorted(version for version in _all_versions(level.log) if (version.level, version.unkeyed) == own)


def _all_versions(log: EventLog) -> list[Version]:
    return [*_noted(log), *(version for agreed in agreed_upgrades(log) for version in agreed.levels)]


def _noted(log: EventLog) -> list[Version]:
    """What a folder began with, and what was rescaled."""
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
    mixed = _mixed(plans, _all_versions(EventLog(join(address, "log"))) if any(map(is_unkeyed, plans)) else [])
    return tuple(map(as_agreed, levels_of(plans, sources, address, buckets, scratch, mixed)))


def _mixed(plans: Sequence[Plan], agreed: Sequence[Version]) -> frozenset[int]:
    """The levels that have rules with and without a key, as those of earlier releases may."""
    unkeyed = {plan.name for plan in plans if is_unkeyed(plan)}
    return frozenset(
        known.level for known in agreed if not known.unkeyed and unkeyed & {name for name, _ in known.rules}
    )


def agreed_upgrades(log: EventLog) -> list[Agreement]:
    """When each edition after the first takes over. One that is only proposed is settled by whoever sees it first: a
    driver looks here after it has looked how far its inputs go, and before it goes there."""
    found: list[Agreement] = []
    for proposed in proposals(log)[1:]:
        if proposed.prepared and not is_ready(log, proposed.number):
            break  # its nodes are still to start
        found.append(agreement(log, proposed.number) or _settle(log, proposed, found))
    return found


def _settle(log: EventLog, proposed: Proposal, before: Sequence[Agreement]) -> Agreement:
    """Agree on the time at which an edition takes over. A driver that had not seen the proposal when it planned its
    interval goes no further than its inputs went then: that is at or before what they have reached now."""
    newest: dict[tuple[int, bool], Version] = {}
    known = sorted([*_noted(log), *(version for agreed in before for version in agreed.levels)])
    for version in known:
        newest[version.level, version.unkeyed] = version
    old, new = proposal(log, proposed.number - 1), edition_of(proposed)
    if old is None:
        raise LogError(f"{log.store.locate('')} has an upgrade and not the rules before it; restore them from a copy")
    begun_us = max((version.after_us + 1 for version in known), default=TIME_MIN)
    asked_us = TIME_MIN if proposed.at_us is None else proposed.at_us
    reached_us = furthest(edition_of(old), log) if proposed.prepared else reached_by(edition_of(old), log)
    at_us = max(asked_us, reached_us, begun_us)
    changed: list[Version] = []
    spread = max((version.buckets for version in newest.values() if not version.unkeyed), default=proposed.buckets)
    for level in levels_of(new.plans, new.sources, "", spread, "", _mixed(new.plans, known)):
        last = newest.pop((level.number, level.unkeyed), None)
        if last is None or not last.rules or last.version != level.version:
            changed.append(msgspec.structs.replace(version_of(level, at_us), upgrade=proposed.number))
    ended = [last for last in newest.values() if last.rules]
    changed += [
        msgspec.structs.replace(last, after_us=at_us, version="", rules=(), upgrade=proposed.number) for last in ended
    ]
    agreed = Agreement(proposed.number, at_us, tuple(changed))
    create(log, agreed)
    return agreement(log, proposed.number) or agreed


def as_agreed(level: Level) -> Level:
    """The level with the partitions that its folder has now: those that were agreed last, of times that it has
    sealed."""
    agreed = versions_of(level)
    if not agreed:
        return level
    sealed_us = level.sealed_us() if len(agreed) > 1 else TIME_MIN
    due = [known for known in agreed if known.after_us <= sealed_us] or agreed[:1]
    return replace(level, buckets=due[-1].buckets, ranges=due[-1].ranges)


def end_of(level: Level) -> int:
    """Up to where this version's rules run with these partitions: the time at which others take over, or for ever."""
    agreed, own = versions_of(level), version_of(level)
    start_us = max((known.after_us for known in agreed if known.same_as(own)), default=TIME_MIN)
    others = [known.after_us for known in agreed if not known.same_as(own) and known.after_us > start_us]
    return min(others, default=TIME_MAX)


def start_of(level: Level) -> int:
    """The time after which this version's outputs count, whatever its partitions were."""
    own, start_us = version_of(level), TIME_MIN
    before: Version | None = None
    for known in versions_of(level):
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


def furthest(rules: Edition, log: EventLog) -> int:
    """Up to where a live source may have got: each follows its stream by itself."""
    ends = [_end_of_stream(log, schema.name) for schema in rules.sources]
    return max((end_us for end_us in ends if end_us < TIME_MAX), default=TIME_MIN)


def _end_of_stream(log: EventLog, name: str) -> int:
    return TIME_MIN if log.declaration(name) is None else log.chain(name).through_us
