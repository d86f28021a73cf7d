"""Hostile messages into every machine, the short form; tests/campaign/test_hostile_campaign.py has the long one."""

from __future__ import annotations

import pytest

from unerring.simulation.hostile import rain


@pytest.mark.parametrize("name", ["channels", "correlation", "correlation-durable", "processes"])
def test_altered_messages_cost_a_peer_its_link_and_nothing_else(name: str) -> None:
    fell = rain(name, 7, 1_000)
    assert fell.findings == []
    assert fell.sent > 400
    assert min(fell.refused_by_codec, fell.refused, fell.taken) > 0


@pytest.mark.parametrize("name", ["channels", "correlation", "correlation-durable", "processes"])
def test_old_messages_that_come_again_change_nothing(name: str) -> None:
    fell = rain(name, 3, 300, repeated=True)
    assert fell.findings == []
    assert fell.taken == fell.sent > 0


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("correlation", 39),  # another node confirmed an eviction; both replicas were gone
        ("processes", 31),  # a naming reached another node too, and both executed the group in one view
    ],
)
def test_seeds_of_repeated_messages_that_once_failed(name: str, seed: int) -> None:
    assert rain(name, seed, repeated=True).findings == []


@pytest.mark.parametrize("seed", [9, 220950035, 220950059])
def test_nodes_that_are_said_to_be_replaced_catch_up(seed: int) -> None:
    """One that was there from the beginning went on asking under the number of nobody. Several waited for each other.
    One believed a number of the far future, from its own name."""
    assert rain("processes", seed, 1_000).findings == []
