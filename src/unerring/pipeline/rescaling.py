"""Another number of partitions for a run: agreed at a time, while it runs or stopped.

A level's partitions are ranges of the key's hash. Whoever drives it ends at the agreed time and goes on with the new
partitions, each of which takes its keys from the states of the partitions that had them. One that had already begun a
longer interval may still seal it: stamps and results do not depend on partitions, so nothing else does on the time.
Segments that were written before stay as they are, and are read by filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unerring.log import BUCKETS_MAX
from unerring.model import TIME_MIN, CallerError
from unerring.pipeline.agreements import Version
from unerring.pipeline.level import Level
from unerring.pipeline.versions import version_of, versions_of, write


def rescale(levels: Sequence[Level], buckets: int, at_us: int | None = None) -> dict[int, int]:
    """Agree that these levels have so many partitions from a time on, by default from what each has sealed; at which
    time each level changes. Rules without a key stay in one partition."""
    if not 1 <= buckets <= BUCKETS_MAX:
        raise CallerError(f"{buckets} buckets; choose between 1 and {BUCKETS_MAX}")
    address, levels = levels[0].address, [level for level in levels if not level.unkeyed]
    if not levels:
        raise CallerError(f"no rule of {address} has a key, so each runs in one partition; there is nothing to rescale")
    times = {level.number: _time_for(level, buckets, at_us) for level in levels}
    agreed = {number: time_us for number, time_us in times.items() if time_us is not None}
    if not agreed:
        raise CallerError(f"{address} has {buckets} buckets already; choose another number")
    for level in levels:
        if level.number in agreed:
            _agree(replace(level, buckets=buckets, ranges=True), agreed[level.number])
    log = levels[0].log
    for name in dict.fromkeys(schema.name for level in levels for schema in (*level.inputs, *level.outputs)):
        log.respread(name, buckets)
    return agreed


def successor(level: Level) -> Level | None:
    """The same rules with the partitions that follow; None if there are none, or their time has not come."""
    agreed, own = versions_of(level), version_of(level)
    begun_us = max((known.after_us for known in agreed if known.same_as(own)), default=TIME_MIN)
    later = [known for known in agreed if known.after_us > begun_us]
    if not later or later[0].upgrade or not later[0].made_by(own) or level.sealed_us() < later[0].after_us:
        return None
    return replace(level, buckets=later[0].buckets, ranges=later[0].ranges)


def _time_for(level: Level, buckets: int, at_us: int | None) -> int | None:
    """When a level changes; None if it has this number already."""
    agreed = versions_of(level)
    if not agreed:
        raise CallerError(
            f"{level.address} has not begun, so there is nothing to rescale; begin it with App(..., buckets={buckets})"
        )
    newest, sealed_us = agreed[-1], level.sealed_us()
    if not newest.made_by(version_of(level)):
        raise CallerError(
            f"{level.address} has other rules on level {level.number} ({newest}) than this app; rescale it with the "
            "app that runs there"
        )
    if newest.after_us > sealed_us and newest.after_us > TIME_MIN:
        raise CallerError(
            f"a change to {newest.buckets} buckets is under way in {level.address}: level {level.number} has sealed "
            f"through {sealed_us} and changes at {newest.after_us}; let it run until then"
        )
    if (newest.buckets, newest.ranges) == (buckets, True):
        return None
    _check_state(level, newest)
    if sealed_us == TIME_MIN:
        raise CallerError(f"level {level.number} of {level.address} has sealed nothing yet; let it run first")
    if at_us is not None and at_us < sealed_us:
        raise CallerError(
            f"level {level.number} of {level.address} has sealed through {sealed_us}, so it cannot change at {at_us}; "
            "choose a later time"
        )
    return max(sealed_us if at_us is None else at_us, newest.after_us + 1)


def _check_state(level: Level, newest: Version) -> None:
    """States of partitions that are no ranges cannot be divided: the level is computed again, if its inputs are all
    there."""
    base_us = max((chain.base.from_us for chain in level.chains().values()), default=TIME_MIN)
    if not newest.ranges and base_us > TIME_MIN:
        raise CallerError(
            f"level {level.number} of {level.address} has partitions of an earlier release, whose state cannot be "
            f"divided, and retention removed events up to {base_us}, so it cannot be computed again either; begin a "
            "new --data folder for another number of buckets"
        )


def _agree(level: Level, after_us: int) -> None:
    if not write(level, after_us) and version_of(level, after_us) not in versions_of(level):
        raise CallerError(
            f"level {level.number} of {level.address} changes otherwise at {after_us}; choose another time with --at"
        )
