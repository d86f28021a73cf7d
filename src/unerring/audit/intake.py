"""What came into the log: for each producer and epoch, every number is in the stream, in quarantine, or declared lost.

Promise 1 as a log can show it. A loss is declared up to a mark: what is missing just below a mark of kind `lost` was
declared with it, and so is everything above the last mark of an epoch whose end nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from unerring.audit.loss_ledger import DECLARED, ONCE
from unerring.audit.verdict import Violation

LOST: Final = "lost"
_WITNESSES_MAX: Final = 5

Incarnation = tuple[str, int]
"""A producer and its epoch."""
Range = tuple[int, int]
"""First and last number of a run without gaps."""


class Intake(msgspec.Struct, frozen=True):
    """The account of one producer's epoch in one stream."""

    stream: str
    producer: str
    epoch: int
    first: int
    last: int
    in_stream: int
    quarantined: dict[str, int]
    """By reason, losses left out."""
    lost: int
    """Numbers that the channel declared lost."""
    missing: int
    """Numbers of which nobody knows anything. Must be 0."""
    doubled: int
    """Numbers that are in the stream more than once. Must be 0."""


def check_intake(
    stream: str, taken: Mapping[Incarnation, Sequence[Range]], marks: Iterable[tuple[str, int, int, str]]
) -> tuple[list[Intake], list[Violation]]:
    """`taken`: runs of numbers in the stream, in any order, perhaps overlapping; `marks`: producer, epoch, number and
    reason of what is in quarantine. The account begins with the first number that anybody saw."""
    kept: dict[Incarnation, dict[int, str]] = {}
    for producer, epoch, number, reason in marks:
        kept.setdefault((producer, epoch), {})[number] = reason
    accounts: list[Intake] = []
    violations: list[Violation] = []
    for producer, epoch in sorted({*taken, *kept}):
        account, found = _account(
            stream, producer, epoch, taken.get((producer, epoch), ()), kept.get((producer, epoch), {})
        )
        accounts.append(account)
        violations += found
    return accounts, violations


def _account(
    stream: str, producer: str, epoch: int, ranges: Sequence[Range], kept: Mapping[int, str]
) -> tuple[Intake, list[Violation]]:
    who = f"stream {stream}, producer {producer}, epoch {epoch}"
    runs, doubled = _merged([*ranges, *((n, n) for n, reason in kept.items() if reason != LOST)])
    lost = sum(reason == LOST for reason in kept.values())
    missing = 0
    gaps: list[str] = []
    everything, _ = _merged([*runs, *((n, n) for n in kept)])
    for (_, end), (start, _) in pairwise(everything):
        if kept.get(start) == LOST:
            lost += start - end - 1
        else:
            missing += start - end - 1
            gaps.append(f"{who}: nobody knows anything of {_numbers(end + 1, start - 1)}")
    reasons: dict[str, int] = {}
    for reason in sorted(reason for reason in kept.values() if reason != LOST):
        reasons[reason] = reasons.get(reason, 0) + 1
    account = Intake(
        stream,
        producer,
        epoch,
        everything[0][0],
        everything[-1][1],
        sum(last - first + 1 for first, last in ranges) - sum(last - first + 1 for first, last in doubled),
        reasons,
        lost,
        missing,
        sum(last - first + 1 for first, last in doubled),
    )
    found = [Violation(DECLARED, (gap,)) for gap in gaps[:_WITNESSES_MAX]]
    found += [Violation(ONCE, (f"{who}: twice in the stream: {_numbers(*span)}",)) for span in doubled[:_WITNESSES_MAX]]
    return account, found


def _merged(ranges: Iterable[Range]) -> tuple[list[Range], list[Range]]:
    """Runs without gaps, in order, and what was covered more than once."""
    runs: list[Range] = []
    doubled: list[Range] = []
    for first, last in sorted(ranges):
        if runs and first <= runs[-1][1]:
            doubled.append((first, min(last, runs[-1][1])))
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, last))
    return runs, doubled


def _numbers(first: int, last: int) -> str:
    return f"number {first}" if first == last else f"numbers {first} to {last}"
