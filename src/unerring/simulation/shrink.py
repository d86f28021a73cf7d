"""The fewest faults that still make a seed fail: what a person wants to read first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from unerring.model import UNDECODABLE, CallerError, ConfigError
from unerring.simulation.faults import AnyFault, Fault
from unerring.simulation.scenario import Outcome, Scenario, run, schedule_of

RUNS_MAX: Final = 300
"""Runs that a search may take; what it has by then is its answer."""


def shrink(
    scenario: type[Scenario],
    seed: int,
    runs_max: int = RUNS_MAX,
    tried: Callable[[int, int], object] | None = None,
    favour: str = "",
) -> tuple[Outcome, tuple[Fault, ...]]:
    """Leave out faults, first many at once and then one by one, as long as the same promise stays broken.

    `tried(runs, faults)` is called after every run, with how many faults are left.
    """
    kept = tuple(schedule_of(scenario, seed, favour))
    outcome = run(scenario, seed, schedule=kept)
    if not outcome.violations:
        raise CallerError(f"seed {seed} of {scenario.name} has no violation; there is nothing to shrink")
    promise = outcome.violations[0].promise
    runs, size = 1, max(1, len(kept) // 2)
    while runs < runs_max and kept:
        removed = False
        at = 0
        while at < len(kept) and runs < runs_max:
            fewer = kept[:at] + kept[at + size :]
            attempt = run(scenario, seed, schedule=fewer)
            runs += 1
            if any(violation.promise == promise for violation in attempt.violations):
                kept, outcome, removed = fewer, attempt, True
            else:
                at += size
            if tried is not None:
                tried(runs, len(kept))
        if size == 1 and not removed:
            break
        size = max(1, size // 2)
    return outcome, kept


def encode_schedule(schedule: Sequence[Fault]) -> bytes:
    """A schedule as JSON, one fault a line."""
    return b"".join(msgspec.json.encode(fault) + b"\n" for fault in schedule)


def decode_schedule(data: bytes) -> tuple[Fault, ...]:
    """The schedule that `encode_schedule` wrote, or a person edited."""
    decoder = msgspec.json.Decoder(AnyFault)
    schedule: list[Fault] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                schedule.append(decoder.decode(line))
            except UNDECODABLE as error:
                raise ConfigError(f"line {number} of the schedule is not a fault: {error}") from None
    return tuple(schedule)
