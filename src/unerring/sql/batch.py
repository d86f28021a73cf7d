"""A MATCH_RECOGNIZE over a table, by whichever engine runs plans: rows in by partition, output rows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from unerring.matching.outputs import Row, merge_order
from unerring.model import TIME_MAX, Event, RuleError
from unerring.rules.plan import PatternPlan
from unerring.sql.backtrack import STEPS_MAX, Matcher
from unerring.sql.recognition import Recognition


class BatchEngine(StrEnum):
    """What looks for the matches. All give the same rows."""

    BACKTRACK = "backtrack"
    """Backtracking with a memory: runs everything, starts at once."""
    KERNEL = "kernel"
    """The engine of streams: compiled where the plan compiles, interpreted where not."""
    ORACLE = "oracle"
    """The definition of every rule: slow."""


Partitions = Sequence[tuple[int, list[Event]]]
Found = Iterator[tuple[int, dict[str, Any]]]


def outputs_of(
    recognition: Recognition,
    partitions: Partitions,
    engine: BatchEngine = BatchEngine.BACKTRACK,
    steps_max: int | None = None,
) -> Found:
    """Partition and payload of every output row, partition by partition, in the order of the matches.

    `steps_max` bounds the attempts from one row; each engine has a bound of its own, which None stands for.
    """
    plan = recognition.batch_plan()
    try:
        if engine is BatchEngine.BACKTRACK:
            yield from _backtrack(plan, partitions, steps_max)
        elif engine is BatchEngine.KERNEL:
            yield from _kernel(plan, partitions, steps_max)
        else:
            yield from _oracle(plan, partitions, steps_max)
    except RuleError as error:
        raise RuleError(f"{recognition.place}: {error}") from None
    except RecursionError:
        raise RuleError(
            f"{recognition.place}: a match is too long for engine {engine}, which recurses; use engine backtrack"
        ) from None


def _backtrack(plan: PatternPlan, partitions: Partitions, steps_max: int | None) -> Found:
    matcher = Matcher(plan, STEPS_MAX if steps_max is None else steps_max)
    for partition, rows in partitions:
        for payload in matcher.run(rows, (partition,)):
            yield partition, payload


def _oracle(plan: PatternPlan, partitions: Partitions, steps_max: int | None) -> Found:
    from unerring.matching import oracle

    bound = oracle.ATTEMPTS_MAX if steps_max is None else steps_max
    for partition, rows in partitions:
        for output in oracle.outputs_of(plan, [Row(0, event) for event in rows], attempts_max=bound):
            yield partition, output.payload


def _kernel(plan: PatternPlan, partitions: Partitions, steps_max: int | None) -> Found:
    """All partitions at once, merged by time as a stream's keys are."""
    from unerring.matching.choice import engine_for

    rows = sorted((Row(0, event) for _, events in partitions for event in events), key=merge_order)
    outputs = engine_for(plan, steps_max).feed(rows, TIME_MAX)
    found: dict[Any, list[Any]] = {}
    for output in sorted(outputs, key=lambda one: (one.time, one.rank, one.ordinal, one.index)):
        found.setdefault(output.key[0], []).append(output.payload)
    for partition, _ in partitions:
        for payload in found.get(partition, ()):
            yield partition, payload
