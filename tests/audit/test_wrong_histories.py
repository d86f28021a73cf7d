"""The checkers are tried too: random histories that are right pass, and with one thing wrong the place is named."""

from __future__ import annotations

from random import Random

import pytest

from tests.audit import wrong_histories
from tests.audit.wrong_histories import CHECKERS
from unerring import audit

CHEAP = 150


def failures(name: str, seeds: range) -> tuple[list[str], set[str]]:
    """What a checker got wrong, and the kinds of changes that it was tried with."""
    found: list[str] = []
    kinds: set[str] = set()
    for seed in seeds:
        tried = CHECKERS[name](Random(f"{name} {seed}"))
        kinds.add(tried.wrong.change)
        if tried.right:
            found.append(f"seed {seed}: a right history was refused: {tried.right[0]}")
        if not tried.wrong.caught:
            found.append(f"seed {seed}: {tried.wrong.change}: {tried.wrong}")
    return found, kinds


@pytest.mark.parametrize("name", list(CHECKERS))
def test_a_right_history_passes_and_a_wrong_one_is_caught_at_its_place(name: str) -> None:
    found, kinds = failures(name, range(CHEAP))
    assert not found, found[:3]
    assert len(kinds) >= 3


def test_every_checker_is_tried() -> None:
    checkers = [name for name in audit.__all__ if name.startswith("check_")]
    assert len(checkers) > 10
    assert [name for name in checkers if not hasattr(wrong_histories, name)] == [], "add it to CHECKERS"
