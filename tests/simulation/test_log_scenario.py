"""A log on a faulty store, simulated: readers see each event once, in order, and logs broken on purpose are caught."""

from __future__ import annotations

import pytest

from unerring.model import Stamp
from unerring.simulation import find, run
from unerring.simulation.log_checks import check_seen
from unerring.simulation.log_programs import Row, Seen, Truth
from unerring.simulation.scenarios.log import LogOnStore
from unerring.simulation.turns import Program

SEEDS = 12
FOUND = (980, 20_001_194)
"""Seeds that found something: an overtaken writer that gave way to one segment, a sweep while retention cuts."""


def test_readers_see_each_event_once_in_order_whatever_the_others_do() -> None:
    reached: set[str] = set()
    for seed in (*range(SEEDS), *FOUND):
        outcome = run(LogOnStore, seed)
        assert not outcome.violations, f"unerring simulate log --seed {seed}\n{outcome.violations[0]}"
        reached |= set(outcome.reached)
    assert set(LogOnStore.must_reach) <= reached


def test_a_seed_is_a_run() -> None:
    assert run(LogOnStore, 3).digest == run(LogOnStore, 3).digest
    assert run(LogOnStore, 3).digest != run(LogOnStore, 4).digest


@pytest.mark.parametrize("name", LogOnStore.mutants)
def test_a_log_that_is_broken_on_purpose_is_caught(name: str) -> None:
    broken = find("log", name)
    assert any(run(broken, seed).violations for seed in range(LogOnStore.mutants[name].seeds_max))


TRUTH = Truth([Row(time, 0, "m", time) for time in range(1, 6)], [], 6)


def seen(*times: int, after: int = 0) -> Seen:
    return Seen("r", "Source", Stamp(after, 0), [Row(time, 0, "m", time) for time in times])


@pytest.mark.parametrize(
    ("rows", "whole", "right"),
    [
        (seen(1, 2, 3), False, True),
        (seen(3, 4, after=2), False, True),
        (seen(), False, True),
        (seen(1, 2, 3, 4, 5), True, True),
        (seen(1, 2, 3), True, False),
        (seen(1, 3), False, False),
        (seen(1, 2, 2), False, False),
        (seen(2, 1), False, False),
        (seen(1, 2, 3, 4, 5, 6), False, False),
        (seen(2, 3, after=2), False, False),
    ],
)
def test_the_checker_takes_a_piece_without_a_gap_and_nothing_else(rows: Seen, whole: bool, right: bool) -> None:
    assert (check_seen(TRUTH, [rows], whole) == []) is right


def test_a_program_runs_up_to_its_next_request_and_dies_where_it_waits() -> None:
    done: list[int] = []

    def body() -> None:
        for number in range(3):
            program.wait_for_turn()
            done.append(number)

    program = Program("p", body)
    program.turn()
    assert done == []
    program.turn()
    assert done == [0]
    program.kill()
    assert done == [0]
    assert program.ended
    assert not program.finished
    whole = program = Program("q", body)
    for _ in range(4):
        whole.turn()
    assert whole.finished
    assert done == [0, 0, 1, 2]
