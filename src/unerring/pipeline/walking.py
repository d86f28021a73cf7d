"""A partition's way through an interval, step after step. While the rules run a step, the rows of the next are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from unerring.pipeline.partition import Partition
from unerring.pipeline.shuffling import Interval
from unerring.pipeline.spreading import Lane

if TYPE_CHECKING:
    import pyarrow as pa

    Handed = Callable[[int], dict[Lane, pa.Table | None]]
    """The rows of a step that others read for the partition; asked for in the order of the steps."""


def nothing_handed(step: int) -> dict[Lane, pa.Table | None]:
    """A partition that reads all itself."""
    return {}


def walk(partition: Partition, interval: Interval, handed: Handed) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    """The end of each step, and the outputs of it by stream."""
    steps = interval.steps

    def rows(step: int) -> dict[Lane, pa.Table]:
        return partition.read(*steps[step], interval.spans, handed(step))

    if len(steps) == 1:
        yield steps[0][1], partition.run(steps[0][1], rows(0))
        return
    with ThreadPoolExecutor(1, "read-ahead") as reader:
        following: Future[dict[Lane, pa.Table]] = reader.submit(rows, 0)
        for step, (_, end_us) in enumerate(steps):
            tables = following.result()
            if step + 1 < len(steps):
                following = reader.submit(rows, step + 1)
            yield end_us, partition.run(end_us, tables)


def advanced(
    partition: Partition, interval: Interval, handed: Callable[[int], dict[Lane, pa.Table | None]]
) -> tuple[dict[str, pa.Table], int]:
    """Advance a partition through an interval; its outputs by stream, and how many rows it read."""
    import pyarrow as pa

    rows = 0
    parts_of: dict[str, list[pa.Table]] = {}
    for _, outputs in walk(partition, interval, handed):
        for stream, table in outputs.items():
            parts_of.setdefault(stream, []).append(table)
        rows += partition.rows
    return {stream: pa.concat_tables(parts) for stream, parts in parts_of.items()}, rows
