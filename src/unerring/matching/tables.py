"""A pattern over tables, by whichever matcher is asked: rows in by partition, output rows out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

from unerring.matching.outputs import Output, Row, merge_order
from unerring.model import TIME_MAX, Event, RuleError
from unerring.rules import PatternPlan


class TableMatcher(StrEnum):
    """The matchers for tables. All give the same rows."""

    INTERPRETER = "interpreter"
    """Runs everything and starts at once. It takes a partition as a whole."""
    KERNEL = "kernel"
    """The matcher of streams: compiled where the plan compiles, interpreted where not."""
    ORACLE = "oracle"
    """The definition of every rule: slow."""


Partitions = Sequence[tuple[int, list[Event]]]
Payloads = Iterator[tuple[int, dict[str, Any]]]


def outputs_of(
    plan: PatternPlan,
    partitions: Partitions,
    place: str,
    matcher: TableMatcher = TableMatcher.INTERPRETER,
    attempts_max: int | None = None,
) -> Payloads:
    """Partition and payload of every output row, partition by partition, in the order of the matches.

    `place` says in errors where the pattern stands. `attempts_max` bounds the ways to match that are tried from one
    row; each matcher has a bound of its own, which None stands for.
    """
    run = {
        TableMatcher.INTERPRETER: _by_interpreter,
        TableMatcher.KERNEL: _by_kernel,
        TableMatcher.ORACLE: _by_oracle,
    }[matcher]
    try:
        yield from run(plan, partitions, attempts_max)
    except RuleError as error:
        raise RuleError(f"{place}: {error}") from None
    except RecursionError:
        raise RuleError(f"{place}: a match is too long for {matcher}, which recurses; use the interpreter") from None


def _by_interpreter(plan: PatternPlan, partitions: Partitions, attempts_max: int | None) -> Payloads:
    from unerring.matching.interpreter.matching import KeyMatching, PatternRules

    rules = PatternRules(plan, attempts_max, of_table=True)
    for partition, events in partitions:
        outputs: list[Output] = []
        KeyMatching(rules, (partition,), outputs).take_table(events)
        for output in outputs:
            yield partition, output.payload


def _by_oracle(plan: PatternPlan, partitions: Partitions, attempts_max: int | None) -> Payloads:
    from unerring.matching import oracle

    bound = oracle.ATTEMPTS_MAX if attempts_max is None else attempts_max
    for partition, events in partitions:
        for output in oracle.outputs_of(plan, [Row(0, event) for event in events], attempts_max=bound):
            yield partition, output.payload


def _by_kernel(plan: PatternPlan, partitions: Partitions, attempts_max: int | None) -> Payloads:
    """All partitions at once, merged by time as a stream's keys are."""
    from unerring.matching.choice import matcher_for

    rows = sorted((Row(0, event) for _, events in partitions for event in events), key=merge_order)
    outputs = matcher_for(plan, attempts_max=attempts_max).feed(rows, TIME_MAX)
    payloads: dict[Any, list[Any]] = {}
    for output in sorted(outputs, key=lambda one: (one.time, one.rank, one.ordinal, one.index)):
        payloads.setdefault(output.key[0], []).append(output.payload)
    for partition, _ in partitions:
        for payload in payloads.get(partition, ()):
            yield partition, payload
