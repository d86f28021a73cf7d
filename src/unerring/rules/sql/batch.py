"""A MATCH_RECOGNIZE over a table, by whichever engine runs plans: rows in by partition, output rows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from unerring.model import Event, RuleError
from unerring.rules.outputs import Row
from unerring.rules.sql.backtrack import STEPS_MAX, Matcher
from unerring.rules.sql.recognition import Recognition


class BatchEngine(StrEnum):
    """What looks for the matches."""

    BACKTRACK = "backtrack"
    """Backtracking with a memory: complete, quick to start, for tables that fit in memory."""
    ORACLE = "oracle"
    """The definition of every rule: slow."""


def outputs_of(
    recognition: Recognition,
    partitions: Sequence[tuple[int, list[Event]]],
    engine: BatchEngine = BatchEngine.BACKTRACK,
    steps_max: int = STEPS_MAX,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Partition and payload of every output row, partition by partition, in the order of the matches."""
    plan = recognition.batch_plan()
    try:
        if engine is BatchEngine.BACKTRACK:
            matcher = Matcher(plan, steps_max)
            for partition, rows in partitions:
                for payload in matcher.run(rows, (partition,)):
                    yield partition, payload
            return
        from unerring.rules import oracle

        for partition, rows in partitions:
            outputs = oracle.outputs_of(plan, [Row(0, event) for event in rows])
            for output in outputs:
                yield partition, output.payload
    except RuleError as error:
        raise RuleError(f"{recognition.place}: {error}") from None
    except RecursionError:
        raise RuleError(
            f"{recognition.place}: a match is too long for the oracle, which recurses; use it on small tables"
        ) from None
