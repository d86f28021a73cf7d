"""What came into the log: for each producer and epoch, every number is in the stream, in quarantine, or declared lost.

Promise 1 as a log can show it. A loss is declared from a number up to a mark; another writer may have had some of it.
Where the first number is not known, what is missing just below a mark of kind `lost` was declared with it. So is
everything above the last mark of an epoch whose end nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from unerring.audit.loss_ledger import DECLARED, ONCE
from unerring.audit.verdict import Violation

LOST: Final = "lost"
AHEAD: Final = "ahead"
_IN_THE_STREAM: Final = frozenset({"rule", "process"})
"""Reasons of events that are in their stream all the same: what came after it could do nothing with them."""
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
    stream: str,
    taken: Mapping[Incarnation, Sequence[Range]],
    marks: Iterable[tuple[str, int, int, str]],
    excused: Mapping[Incarnation, Sequence[Range]] | None = None,
    declared: Mapping[Incarnation, Sequence[Range]] | None = None,
) -> tuple[list[Intake], list[Violation]]:
    """`taken`: runs of numbers in the stream, in any order, perhaps overlapping; `marks`: producer, epoch, number and
    reason of what is in quarantine. The account begins with the first number that anybody saw. `excused`: numbers that
    are not in it: a writer still holds them, or retention has removed them. `declared`: numbers that a writer declared
    lost together."""
    kept: dict[Incarnation, dict[int, str]] = {}
    for producer, epoch, number, reason in marks:
        kept.setdefault((producer, epoch), {})[number] = reason
    accounts: list[Intake] = []
    violations: list[Violation] = []
    for producer, epoch in sorted({*taken, *kept}):
        account, faults = _account(
            stream,
            producer,
            epoch,
            taken.get((producer, epoch), ()),
            kept.get((producer, epoch), {}),
            (excused or {}).get((producer, epoch), ()),
            (declared or {}).get((producer, epoch), ()),
        )
        accounts.append(account)
        violations += faults
    return accounts, violations


def check_quarantined(accounts: Sequence[Intake], share_max: float) -> tuple[list[str], list[Violation]]:
    """What is kept out of each stream: a note for a little, a violation for more than `share_max` of what came."""
    notes: list[str] = []
    violations: list[Violation] = []
    for stream in dict.fromkeys(account.stream for account in accounts):
        own = [account for account in accounts if account.stream == stream]
        reasons: dict[str, int] = {}
        for account in own:
            for reason, count in account.quarantined.items():
                if reason not in _IN_THE_STREAM:
                    reasons[reason] = reasons.get(reason, 0) + count
        kept_out = sum(reasons.values())
        came = kept_out + sum(account.in_stream for account in own)
        if not kept_out:
            continue
        why = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
        share = f"{kept_out:,} of {came:,} events ({100 * kept_out / came:.3g} %)"
        sentence = f"stream {stream}: {share} are in quarantine ({why})"
        if kept_out > share_max * came:
            violations.append(
                Violation(f"at most {100 * share_max:g} % of a stream's events are in quarantine", (sentence,))
            )
        else:
            notes.append(sentence)
    return notes, violations


def _account(
    stream: str,
    producer: str,
    epoch: int,
    ranges: Sequence[Range],
    kept: Mapping[int, str],
    excused: Sequence[Range],
    declared: Sequence[Range],
) -> tuple[Intake, list[Violation]]:
    # What was too far ahead for one writer, another one may have let in a moment later: then it is in the stream.
    kept = {n: why for n, why in kept.items() if why != AHEAD or not any(low <= n <= high for low, high in ranges)}
    who = f"stream {stream}, producer {producer}, epoch {epoch}"
    runs, doubled = _merged([*ranges, *((n, n) for n, reason in kept.items() if reason != LOST)])
    lost = sum(reason == LOST for reason in kept.values())
    missing = 0
    gaps: list[str] = []
    everything, _ = _merged([*runs, *((n, n) for n in kept)])
    ends = everything[0][0], everything[-1][1]
    known = _merged([*everything, *_within(ends, excused)])[0]
    accounted, known = known, _merged([*known, *_within(ends, declared)])[0]
    lost += _size(known) - _size(accounted)
    for at, ((_, end), (start, _)) in enumerate(pairwise(known), 1):
        if _declared(known[at:], kept):
            lost += start - end - 1
        else:
            missing += start - end - 1
            gaps.append(f"{who}: no record of {_numbers(end + 1, start - 1)}")
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
    violations = [Violation(DECLARED, (gap,)) for gap in gaps[:_WITNESSES_MAX]]
    violations += [
        Violation(ONCE, (f"{who}: twice in the stream: {_numbers(*span)}",)) for span in doubled[:_WITNESSES_MAX]
    ]
    return account, violations


def _declared(above: Sequence[Range], kept: Mapping[int, str]) -> bool:
    """Whether what is missing below these numbers was declared lost. A loss has its mark at its end; another writer may
    have had some of what one lost, and put it into quarantine."""
    for first, last in above:
        for number in range(first, last + 1):
            if kept.get(number) == LOST:
                return True
            if number not in kept:
                return False
    return False


def _within(ends: Range, ranges: Sequence[Range]) -> list[Range]:
    return [(max(low, ends[0]), min(high, ends[1])) for low, high in ranges if low <= ends[1] and high >= ends[0]]


def _size(runs: Sequence[Range]) -> int:
    return sum(last - first + 1 for first, last in runs)


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
