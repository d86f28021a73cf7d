"""Pairs of a fault and a state: counted, sought, and replayed from the seed and the pair, or from the schedule."""

from __future__ import annotations

from collections import Counter

import pytest

from unerring.model import CallerError
from unerring.night import Part, Piece, Trial
from unerring.night.division import Division
from unerring.simulation import (
    Sought,
    decode_schedule,
    encode_schedule,
    favours,
    find,
    least_reached,
    names,
    run,
    schedule_of,
)

SEED = 460_002_001
FAVOUR = "Crash, a master executes a group"


def test_a_favour_is_a_run_that_the_schedule_repeats() -> None:
    kind = find("processes")
    sought = run(kind, SEED, favour=FAVOUR)
    schedule = schedule_of(kind, SEED, FAVOUR)
    assert any(isinstance(fault, Sought) for fault in schedule)
    again = run(kind, SEED, schedule=decode_schedule(encode_schedule(schedule)))
    assert sought.pairs[FAVOUR] >= 1
    assert (sought.digest, sought.pairs) == (again.digest, again.pairs)
    assert FAVOUR not in run(kind, SEED).pairs


def test_a_pair_that_does_not_exist_is_refused() -> None:
    for favour in ("Crash", "Crash, nothing", "Nothing, a master executes a group"):
        with pytest.raises(CallerError, match="has no pair"):
            run(find("processes"), SEED, favour=favour)


def test_the_least_reached_pair_is_next_and_none_is_sought_for_ever() -> None:
    sought = {"s": ("Crash", "Pause"), "t": ("Crash",)}
    assert favours(sought) == ["Crash, s", "Pause, s", "Crash, t"]
    assert least_reached(sought, {"Crash, s": 3}, {}) == "Pause, s"
    assert least_reached(sought, {"Crash, s": 3}, {"Pause, s": 1}) == "Crash, t"
    assert least_reached({}, {}, {}) == ""


def test_the_states_that_may_be_sought_are_known_words() -> None:
    told = {name: find(name).sought for name in names()}
    assert {"channels", "correlation", "processes"} <= {name for name, sought in told.items() if sought}


def test_half_of_a_scenario_s_pieces_seek_what_was_reached_least() -> None:
    part = Part("seeds", "processes")
    division = Division([part], {part.name: 1}, {})
    known, sought = favours(find("processes").sought), Counter[str]()
    for _ in range(2 * len(known)):
        piece = division.next_piece(1_000.0)
        assert piece is not None
        sought[piece.favour] += 1
        pairs = {known[0]: piece.count} if piece.favour != known[0] else {}
        division.add(piece, Trial(piece.count, pairs=pairs), 0.1 * piece.count)
    assert sought[""] >= len(known) - 2
    assert len(sought) > len(known) // 2
    assert sought[known[0]] <= 1
    again = Division([part], {part.name: 1}, {})
    again.resume(Piece(part, 1, 10, favour=known[0]))
    first = [again.next_piece(1_000.0) for _ in range(2)]
    assert known[0] not in [piece.favour for piece in first if piece is not None]
