"""Partitions with all state in files, in a process of their own that is to be killed: it says how far it has come."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from unerring.pipeline import states as states_module
from unerring.pipeline.intervals import next_end
from unerring.pipeline.partition import Partition
from unerring.pipeline.states import States, partition_at
from unerring.pipeline.versions import enter

from .driver import ROWS, level_in
from .worlds import advance


def main(data: Path) -> None:
    states_module.SMALL_BYTES = 0  # type: ignore[misc] # as if these states were large
    level = replace(level_in(data), state_memory_bytes=1)
    enter(level)
    states, chains = States(level), level.chains()
    end_us = chains[level.inputs[0].name].through_us
    newest_us = states.newest(level.sealed_us())
    partitions = [
        Partition(level, bucket) if newest_us is None else partition_at(level, bucket, newest_us)
        for bucket in range(level.buckets)
    ]
    while partitions[0].through_us < end_us:
        advance(level, partitions, next_end(chains, partitions[0].through_us, end_us, ROWS))
        for partition in partitions:
            states.keep(partition)
            print(partition.through_us, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
