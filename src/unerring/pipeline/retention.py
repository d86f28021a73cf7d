"""Retention: removes old segments, by an explicit call, and leaves what an audit and a new query need to start from.

What is left is a savepoint of every level at the cut, or before it, and the chains from there on. A stream is cut only
where nobody needs what is before: no level's savepoint, no reader's position, no running query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from unerring.log import cut
from unerring.model import CallerError
from unerring.pipeline import savepoints
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.level import Level

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def retain(
    spark: SparkSession, levels: tuple[Level, ...], before_us: int, needed_after: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Remove what lies before a time; how many segments went, by stream.

    The levels must have sealed through that time: it is their past that is let go. `needed_after`: streams of which
    somebody else may ask for what comes after a time.
    """
    saved: dict[int, int] = {}
    for level in levels:
        for schema in level.outputs:
            reached = level.log.chain(schema.name).through_us
            if reached < before_us:
                raise CallerError(
                    f"stream {schema.name} has only been detected through {reached}; let the run get past {before_us} "
                    "before its inputs are removed"
                )
        saved[level.number] = detect_batch(spark, level, through_us=before_us)
    needed: dict[str, int] = {}
    for level in levels:
        for schema in level.inputs:
            needed[schema.name] = min(needed.get(schema.name, before_us), saved[level.number])
        for schema in level.outputs:
            needed.setdefault(schema.name, before_us)
    others = needed_after or {}
    log = levels[0].log
    removed = {name: cut(log.chain(name), min(time_us, others.get(name, time_us))) for name, time_us in needed.items()}
    for level in levels:
        savepoints.drop_before(level, saved[level.number])
    return removed
