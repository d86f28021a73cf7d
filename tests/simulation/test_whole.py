"""The whole line in one world: mutants of its joints are caught, and only by who compares the two ends."""

from __future__ import annotations

import pytest

from unerring.audit import effects
from unerring.simulation import World, calm, find, inject, run
from unerring.simulation.scenarios.whole import Whole

FIRST = 460_001_000
SOON = {
    "an id of who reads the situation": effects.ONE_INSTANCE,
    "all of a batch are given what the last says": effects.ASKED_SO,
    "a reaction to what is not sealed": effects.SEALED_FIRST,
}
"""Mutants that the first seed shows; the others' seeds take minutes, and a night runs them."""


@pytest.mark.parametrize(("name", "promise"), SOON.items())
def test_a_mutant_of_a_joint_is_seen_by_nobody_but_who_compares_the_ends(name: str, promise: str) -> None:
    world, played = World(FIRST), find("whole", name)()
    assert isinstance(played, Whole)
    played.build(world)
    inject(world, played.faults(world, world.draw))
    world.run_until(played.faults_us)
    calm(world)
    for _ in range(600):
        world.run_until(world.now_us + 100_000)
        if played.settled(world):
            break
    promises = {violation.promise for violation in played.safety(world)}
    assert promise in promises
    assert not list(played.parts(world, finished=True))


def test_a_seed_is_a_run() -> None:
    assert run(Whole, FIRST + 3).digest == run(Whole, FIRST + 3).digest
