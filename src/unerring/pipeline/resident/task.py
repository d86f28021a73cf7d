"""A task of the pool, in a Python worker of an executor: it holds partitions, and advances them when it is told to."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from unerring.model import UnerringError, invariant
from unerring.pipeline.answers import stage
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.resident.handing import received
from unerring.pipeline.resident.wire import Advance, Answered, Drop, End, Failed, Greet, Kept, Take, ToHub, ToTask, Wire
from unerring.pipeline.states import States, partition_at
from unerring.pipeline.walking import advanced, nothing_handed, walk
from unerring.tracing import send_waiting

if TYPE_CHECKING:
    import pyarrow as pa

WARM_S: Final = 20.0
"""How long a task compiles before it greets."""


class Holder:
    """The partitions of a task."""

    def __init__(self, levels: tuple[Level, ...], warms: bool = True) -> None:
        """`warms`: rules are compiled before they get their first row; otherwise once they have had many."""
        self._levels = levels
        self._warms = warms
        self._states = [States(level) for level in levels]
        self._partitions: dict[tuple[int, int], Partition] = {}
        self._tenures: dict[tuple[int, int], int] = {}

    def warm(self) -> None:
        """Have all rules compiled, so that a partition is soon taken over; as many as there is time for."""
        until_s = time.monotonic() + (WARM_S if self._warms else 0.0)
        for level in self._levels:
            if time.monotonic() < until_s:
                Partition(level, 0).warm()

    def handle(self, message: ToTask) -> Iterator[ToHub]:
        """Do what was asked for; what to say of it, as it is known."""
        match message:
            case Take(line, bucket, at_us, tenure, sealed):
                partition = partition_at(self._levels[line], bucket, at_us)
                if self._warms:
                    partition.warm()
                if sealed is not None:
                    for _ in walk(partition, sealed, nothing_handed):
                        pass
                self._partitions[line, bucket] = partition
                self._tenures[line, bucket] = tenure
            case Advance(line, bucket, interval, keep, handed):
                partition = self._partitions[line, bucket]
                invariant(partition.through_us == interval.from_us, "a partition is advanced from where it stands")
                steps = interval.steps
                outputs, rows = advanced(partition, interval, lambda n: received(partition, handed, *steps[n]))
                level, ends = self._levels[line], (interval.from_us, partition.through_us)
                staged = {stream: stage(level, stream, table, *ends) for stream, table in outputs.items() if len(table)}
                sizes = (partition.keys, rows, partition.kept_bytes)
                yield Answered(line, bucket, self._tenures[line, bucket], *ends, staged, *sizes)
                if keep:
                    self._states[line].keep(partition)
                    yield Kept(line, bucket, partition.through_us)
            case Drop(line, bucket):
                self._partitions.pop((line, bucket), None)


def serve(
    levels: tuple[Level, ...], address: tuple[str, int], secret: bytes, warms: bool = True
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of the job: one task of the pool, until the hub ends it or is gone."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        holder = Holder(levels, warms)
        holder.warm()
        wire = Wire(socket.create_connection(address), secret, dialled=True)
        try:
            _serve(wire, holder, Greet(f"{socket.gethostname()}/{os.getpid()}"))
        finally:
            wire.close()
            send_waiting()
        yield from ()

    return run


def _serve(wire: Wire, holder: Holder, greeting: Greet) -> None:
    wire.send(greeting)
    while (message := wire.to_task()) is not None and not isinstance(message, End):
        try:
            for reply in holder.handle(message):
                wire.send(reply)
        except UnerringError as error:
            line, bucket = message.line, message.bucket
            wire.send(Failed(line, bucket, str(error)))
        except OSError:  # the hub is gone
            return
