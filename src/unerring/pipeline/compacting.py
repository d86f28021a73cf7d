"""Compaction of whole streams as a Spark job: tasks merge objects, the driver lets an index name what they made.

A run compacts itself as it goes. This is for a log that nobody compacted, or for a time when the cluster is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from unerring.log import CompactionConfig, Compactor, Entry, EventLog, Span, merge, plan, sweep, wall_us
from unerring.pipeline.asking import ask_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Compacted(msgspec.Struct, frozen=True):
    """What became of one stream."""

    objects_before: int
    objects: int
    deleted: int
    """Objects that had been replaced longer than the grace time ago, or that nobody names."""


def compact_log(
    spark: SparkSession, address: str, streams: Sequence[str] | None = None, config: CompactionConfig | None = None
) -> dict[str, Compacted]:
    """Merge everything that can be merged in some streams of a log (or all of them), and delete what is due."""
    config = config or CompactionConfig()
    log = EventLog(address)
    names = log.streams() if streams is None else list(streams)
    compactors = {name: Compactor(log.chain(name), config) for name in names}
    before = {name: compactor.chain.objects_held for name, compactor in compactors.items()}
    while True:
        jobs: list[tuple[str, list[Span]]] = []
        for name, compactor in compactors.items():
            compactor.chain.refresh()
            jobs += [(name, spans) for spans in plan(compactor.chain, config, everything=True)]
        if not jobs:
            break
        made = _run(spark, address, jobs, {name: one.chain.index.number for name, one in compactors.items()}, config)
        for name, compactor in compactors.items():
            entries = [entry for stream, some in made if stream == name for entry in some]
            if entries:
                compactor.commit(entries)
    outcome: dict[str, Compacted] = {}
    for name, compactor in compactors.items():
        deleted = sweep(compactor.chain, wall_us(), deletes_max=1 << 62, whole=True).deleted
        outcome[name] = Compacted(before[name], compactor.chain.objects_held, deleted)
    return outcome


def _run(
    spark: SparkSession,
    address: str,
    jobs: list[tuple[str, list[Span]]],
    numbers: dict[str, int],
    config: CompactionConfig,
) -> list[tuple[str, list[Entry]]]:
    """Each job in a task of its own; the entries that they made."""
    asked = [msgspec.msgpack.encode(job) for job in jobs]
    what = f"compact {', '.join(dict.fromkeys(stream for stream, _ in jobs))}"
    answers = ask_tasks(spark, asked, _task(address, numbers, config), what)
    return [msgspec.msgpack.decode(answer, type=tuple[str, list[Entry]]) for answer in answers]


def _task(address: str, numbers: dict[str, int], config: CompactionConfig) -> Callable[[bytes], bytes]:
    def task(asked: bytes) -> bytes:
        name, spans = msgspec.msgpack.decode(asked, type=tuple[str, list[Span]])
        chain: Any = EventLog(address).known_chain(name, spans)
        entries = merge(chain, spans, config, number=numbers[name] + 1)
        return msgspec.msgpack.encode((name, entries))

    return task
