"""Where a level's query begins: decided once for each checkpoint of Spark, by what the log and its states hold.

Spark's checkpoint may be lost, and retention may overtake it. Neither costs more than time: the query goes on from the
newest state whose outputs are sealed, or from a savepoint. It begins with nothing only where nothing was before.
"""

from __future__ import annotations

import shutil

from unerring.model import TIME_MIN, LogError
from unerring.pipeline import checkpoints, savepoints
from unerring.pipeline.level import Level
from unerring.pipeline.states import States


def settle(level: Level, start_us: int = TIME_MIN) -> None:
    """Note where the query of a level begins, unless Spark's checkpoint goes on. `start_us`: where a level begins that
    never ran."""
    states = States(level)
    base_us = max((chain.base.from_us for chain in level.chains().values()), default=TIME_MIN)
    if checkpoints.has_begun(level):
        reached_us = checkpoints.committed_us(level)
        reached_us = states.started() if reached_us is None else reached_us
        if reached_us is not None and reached_us >= base_us:
            return
        shutil.rmtree(checkpoints.folder_of(level))  # what it would read next is gone from the log
    states.begin(_beginning(level, states, base_us, start_us))


def _beginning(level: Level, states: States, base_us: int, start_us: int) -> int:
    # A state after what is sealed may belong to an interval that nobody sealed.
    sealed_us = level.sealed_us()
    known = states.newest(sealed_us), savepoints.find(level, sealed_us)
    usable = [time_us for time_us in known if time_us is not None and time_us >= base_us]
    if usable:
        return max(usable)
    began_us = states.started()
    if began_us is not None and began_us < base_us:
        raise LogError(
            f"{level.checkpoint} and {level.address}/savepoints have no state of level {level.number} at or after "
            f"{base_us}, up to where retention removed its inputs; restore one from a copy, or let a new --data folder "
            "begin with this log"
        )
    return max(start_us, base_us)
