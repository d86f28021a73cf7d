"""Definition 1 of the correlation paper: the five properties of strong reliability, each violation with its witness.

`delivered` is one stream of situations in the order in which an application received them; `perfect` is the same stream
of the reference system. While a run goes on, what is not there yet may still come: a false negative is an event that
was skipped. Once it is over (`complete`), everything must be there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from unerring.audit.reference import describe
from unerring.audit.verdict import Violation
from unerring.model import Event, Stamp

FALSE_POSITIVE = "no false positives: every delivered situation is one of the perfect run"
FALSE_NEGATIVE = "no false negatives: no situation of the perfect run is left out"
DUPLICATION = "no duplication: a situation is delivered once"
FALSE_ORDERING = "no false ordering: situations are delivered in the order of their stamps"
COMPLETENESS = "completeness: every situation of the perfect run is delivered in the end"

WITNESSES_MAX = 5


def check_strong_reliability(
    delivered: Sequence[Event], perfect: Sequence[Event], complete: bool = False
) -> list[Violation]:
    """[] if all five properties hold for one stream."""
    return [
        *_false_positives(delivered, perfect),
        *_false_negatives(delivered, perfect),
        *_duplication(delivered),
        *_false_ordering(delivered),
        *(_completeness(delivered, perfect) if complete else ()),
    ]


def _false_positives(delivered: Sequence[Event], perfect: Sequence[Event]) -> list[Violation]:
    by_stamp = {event.stamp: event for event in perfect}
    violations: list[Violation] = []
    for event in delivered:
        expected = by_stamp.get(event.stamp)
        if expected is None:
            violations.append(
                Violation(FALSE_POSITIVE, (f"delivered: {describe(event)}", "perfect: nothing at that stamp"))
            )
        elif expected != event:
            violations.append(
                Violation(FALSE_POSITIVE, (f"delivered: {describe(event)}", f"perfect:   {describe(expected)}"))
            )
    return violations[:WITNESSES_MAX]


def _false_negatives(delivered: Sequence[Event], perfect: Sequence[Event]) -> list[Violation]:
    if not delivered:
        return []
    stamps = {event.stamp for event in delivered}
    latest = max(delivered, key=_stamp)
    return [
        Violation(FALSE_NEGATIVE, (f"left out:  {describe(event)}", f"delivered: {describe(latest)}"))
        for event in perfect
        if event.stamp < latest.stamp and event.stamp not in stamps
    ][:WITNESSES_MAX]


def _duplication(delivered: Sequence[Event]) -> list[Violation]:
    first: dict[Stamp, int] = {}
    violations: list[Violation] = []
    for number, event in enumerate(delivered):
        if event.stamp in first:
            lines = (f"as number {first[event.stamp]} and {number}: {describe(event)}",)
            violations.append(Violation(DUPLICATION, lines))
        first.setdefault(event.stamp, number)
    return violations[:WITNESSES_MAX]


def _false_ordering(delivered: Sequence[Event]) -> list[Violation]:
    return [
        Violation(FALSE_ORDERING, (f"first: {describe(one)}", f"then:  {describe(other)}"))
        for one, other in pairwise(delivered)
        if one.stamp > other.stamp
    ][:WITNESSES_MAX]


def _completeness(delivered: Sequence[Event], perfect: Sequence[Event]) -> list[Violation]:
    stamps = {event.stamp for event in delivered}
    missing = [event for event in perfect if event.stamp not in stamps]
    if not missing:
        return []
    lines = (f"{len(missing)} of {len(perfect)} never came, first {describe(missing[0])}",)
    return [Violation(COMPLETENESS, lines)]


def _stamp(event: Event) -> Stamp:
    return event.stamp
