"""The checker of Definition 1: right histories pass, every kind of wrong one is named."""

from __future__ import annotations

import pytest

from unerring.audit.strong_reliability import (
    COMPLETENESS,
    DUPLICATION,
    FALSE_NEGATIVE,
    FALSE_ORDERING,
    FALSE_POSITIVE,
    check_strong_reliability,
)
from unerring.model import Event, Stamp


def event(time: int, value: int = 0) -> Event:
    return Event("s", Stamp(time), (), {"v": value})


PERFECT = [event(1), event(2), event(3)]


def promises(delivered: list[Event], complete: bool = False) -> list[str]:
    return [violation.promise for violation in check_strong_reliability(delivered, PERFECT, complete)]


def test_a_perfect_history_passes() -> None:
    assert promises(PERFECT, complete=True) == []


def test_a_prefix_passes_until_the_run_is_over() -> None:
    assert promises(PERFECT[:2]) == []
    assert promises(PERFECT[:2], complete=True) == [COMPLETENESS]


@pytest.mark.parametrize(
    ("delivered", "promise"),
    [
        ([event(1), event(9)], FALSE_POSITIVE),
        ([event(1), event(2, value=7)], FALSE_POSITIVE),
        ([event(1), event(3)], FALSE_NEGATIVE),
        ([event(1), event(2), event(2)], DUPLICATION),
        ([event(2), event(1)], FALSE_ORDERING),
    ],
)
def test_a_wrong_history_is_named_with_its_witness(delivered: list[Event], promise: str) -> None:
    found = check_strong_reliability(delivered, PERFECT)
    assert promise in [violation.promise for violation in found]
    assert all(violation.witness for violation in found)
