"""Half a million hostile messages into every machine: recorded traffic, altered field by field."""

from __future__ import annotations

import os
from itertools import count

import pytest

from unerring.simulation.hostile import Rain, rain

MESSAGES = int(os.environ.get("UNERRING_CAMPAIGN_MESSAGES", "600000"))
SHARES = {
    "channels": 0.3,
    "correlation": 0.15,
    "correlation-durable": 0.1,
    "correlation-async": 0.05,
    "correlation-standby": 0.05,
    "processes": 0.35,
}


@pytest.mark.fixed_seeds
@pytest.mark.parametrize("name", SHARES)
def test_altered_messages(name: str) -> None:
    fell = Rain()
    for seed in count(1):
        fell.add(rain(name, seed))
        assert fell.findings == [], f"seed {seed}"
        if fell.sent >= MESSAGES * SHARES[name]:
            break
    print(fell)


@pytest.mark.fixed_seeds
@pytest.mark.parametrize("name", SHARES)
def test_repeated_messages(name: str) -> None:
    for seed in range(100):
        assert rain(name, seed, repeated=True).findings == [], f"seed {seed}"


@pytest.mark.fixed_seeds
@pytest.mark.parametrize("seed", [980_949_267_762_000_002, 980_949_267_762_000_061, 77_000_000_011])
def test_what_a_night_found(seed: int) -> None:
    """Bounds of one are full of instances that never were; a view of millions; nobody calls a node by its own name."""
    assert rain("processes", seed).findings == []
