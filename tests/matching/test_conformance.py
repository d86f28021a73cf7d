"""The interpreter gives what the oracle gives: 6000 random rules of every kind here, millions in the campaign.

Those that compile are held together with machine code, in `test_machine_code.py`: 20 400 more pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from unerring.matching import oracle
from unerring.matching.interpreter import Interpreter, search
from unerring.matching.outputs import Output, Row
from unerring.model import RuleError

from .conformance import check, check_stamps
from .generators import endless_pair, looking_pair, pair

PAIRS = 6000
CHUNKS = 6

SEEDS_KEPT = [1303, 5766]
"""Seeds that once failed."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_interpreter_is_the_oracle(chunk: int) -> None:
    outputs = sum(check(Interpreter, pair(seed)) for seed in range(chunk, PAIRS, CHUNKS))
    assert outputs > PAIRS // CHUNKS, "the pairs give too little to compare"


def test_the_interpreter_is_the_oracle_on_wilder_patterns() -> None:
    assert sum(check(Interpreter, pair(seed, "q")) for seed in range(1000)) > 1000


def test_the_interpreter_is_the_oracle_on_aggregates_that_look_around() -> None:
    assert sum(check(Interpreter, looking_pair(seed)) for seed in range(600)) > 600


def without_within() -> int:
    return sum(check(Interpreter, endless_pair(seed)) for seed in range(600))


def test_the_interpreter_is_the_oracle_without_within() -> None:
    assert without_within() > 600


def test_a_memory_for_the_next_start_that_forgets_gaps_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails after a row need not fail at a start: a gap's time counts from the row before."""
    made = search.SearchPlan.__init__

    def forgetful(self: search.SearchPlan, *args: Any) -> None:
        made(self, *args)
        self.shares = self.within_us is None and self.file.forgets_starts

    monkeypatch.setattr(search.SearchPlan, "__init__", forgetful)
    with pytest.raises(AssertionError):
        without_within()


@pytest.mark.parametrize("seed", SEEDS_KEPT)
def test_kept_seeds(seed: int) -> None:
    check(Interpreter, pair(seed))


def test_output_stamps_strictly_increase() -> None:
    for seed in range(1000):
        made = pair(seed)
        try:
            events = oracle.run(made.plan, made.events, made.ranks, made.through)
        except RuleError:
            continue
        check_stamps(events)


class Forgetful(Interpreter):
    """A mutant: it loses its last row's worth of state in a snapshot."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        for key in list(self._keys)[:1]:
            del self._keys[key]


class Coarse(Interpreter):
    """A mutant: of several events at one time it takes the first alone."""

    def feed(self, rows: Sequence[Row], through: int) -> list[Output]:
        first = {row.event.stamp.time: row for row in reversed(rows)}
        return super().feed([first[time] for time in sorted(first)], through)


def compare(mutant: type[Interpreter]) -> None:
    for seed in range(300):
        check(mutant, pair(seed))


@pytest.mark.parametrize("mutant", [Forgetful, Coarse])
def test_a_broken_matcher_is_caught(mutant: type[Interpreter]) -> None:
    with pytest.raises(AssertionError):
        compare(mutant)
