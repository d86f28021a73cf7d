"""Where a level begins when a driver or a batch starts: decided by what the log and the states on the store hold.

It goes on from the newest state whose outputs are sealed, or from a savepoint. What belongs to a host has no say in it:
a driver that starts anywhere, with an empty scratch folder, computes only the rest. A level begins with nothing only
where nothing was before.
"""

from __future__ import annotations

from unerring.model import TIME_MAX, TIME_MIN, LogError
from unerring.pipeline import checkpoints, savepoints
from unerring.pipeline.level import Level
from unerring.pipeline.states import SAVEPOINTS, States


def settle(level: Level, start_us: int = TIME_MIN) -> int:
    """Where the query of a level begins, with an empty checkpoint of Spark for it. `start_us`: where a level begins
    that never ran."""
    from_us = beginning(level, start_us)
    checkpoints.renew(level, from_us)
    return from_us


def beginning(level: Level, start_us: int = TIME_MIN, at_most_us: int = TIME_MAX) -> int:
    """The newest time, at or before one, for which all partitions have a state and all outputs are sealed."""
    states = States(level)
    base_us = max((chain.base.from_us for chain in level.chains().values()), default=TIME_MIN)
    # A state after what is sealed may belong to an interval that nobody sealed.
    sealed_us = min(at_most_us, level.sealed_us())
    known = states.newest(sealed_us), savepoints.find(level, sealed_us)
    usable = [time_us for time_us in known if time_us is not None and time_us >= base_us]
    if usable:
        return max(usable)
    if base_us > TIME_MIN and savepoints.of_older_release(level):
        raise LogError(
            f"{States(level, SAVEPOINTS).folder} holds states of level {level.label} in the form of an earlier "
            f"release, which this one does not read, and retention removed its inputs up to {base_us}; finish this run "
            "with that release, or let a new --data folder begin with this log"
        )
    states.begin(max(start_us, base_us))
    began_us = states.began()
    if began_us is None or began_us < base_us:
        raise LogError(
            f"{states.folder} has no state of level {level.label} at or after {base_us}, up to where retention "
            "removed its inputs; restore one from a copy, or let a new --data folder begin with this log"
        )
    return began_us
