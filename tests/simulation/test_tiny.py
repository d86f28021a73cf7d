"""Bounds made very small in some seeds: everything that can be full is full, and other seeds are what they were."""

from __future__ import annotations

import msgspec
import pytest

from unerring.correlation import CorrelationConfig
from unerring.processes import ClusterBounds, ProcessesConfig
from unerring.simulation import World, find, run
from unerring.simulation.scenarios.processes import Processes
from unerring.simulation.tiny import BOUNDS, NIGHTS_FROM, SEARCHED, is_tiny, tiny


def test_seeds_that_stay_as_tests_keep_their_configuration() -> None:
    config = CorrelationConfig()
    for seed in (0, 9_000_403, 221_002_633, 631_000_128, 801_000_029, 811_000_013):
        assert not is_tiny(seed)
        assert tiny(seed, config) is config


@pytest.mark.parametrize("first", [NIGHTS_FROM, SEARCHED.start])
def test_a_quarter_of_the_seeds_of_a_night_draws_each_bound_with_a_coin(first: int) -> None:
    seeds = [seed for seed in range(first, first + 1_000) if is_tiny(seed)]
    assert 200 < len(seeds) < 300
    for kind, bounds in BOUNDS.items():
        plain = kind()
        drawn = [tiny(seed, plain) for seed in seeds]
        for name, values in bounds.items():
            found = {getattr(config, name) for config in drawn}
            assert found == {getattr(plain, name), *values}, f"{kind.__name__}.{name}"
            assert all(value <= getattr(plain, name) for value in values)


def test_every_bound_is_one_of_its_configuration() -> None:
    for kind, bounds in BOUNDS.items():
        assert bounds.keys() <= {field.name for field in msgspec.structs.fields(kind)}
    assert {CorrelationConfig, ProcessesConfig, ClusterBounds} <= BOUNDS.keys()


@pytest.mark.parametrize("seed", [652_001_163, 652_001_266, 652_001_353])
def test_what_is_published_finds_its_instance_where_there_is_no_room(seed: int) -> None:
    """Published messages that were kept for others kept out what an instance waited for."""
    outcome = run(find("processes"), seed)
    assert outcome.violations == (), outcome.violations
    assert outcome.rested < 0.5


def test_instances_that_wait_for_each_other_have_longer() -> None:
    played = find("processes")()
    assert isinstance(played, Processes)
    world = World(SEARCHED.start + 3)
    played.build(world)
    rest_us = played.rest_us(world)
    played.config = msgspec.structs.replace(played.config, instances_max=len(played.instances) + 1)
    played.resting = played.new_resting()
    assert rest_us > played.rest_us(world)
