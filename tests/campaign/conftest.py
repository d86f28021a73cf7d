"""What a night hands to its real faults, and what it asks of them: a fresh seed, and how many blows there were."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def seed() -> int:
    """That of the night, so that no night repeats another; by itself a test is the same each time."""
    return int(os.environ.get("UNERRING_SEED", "1"))


@pytest.fixture
def blows() -> Iterator[Counter[str]]:
    """How often each kind of fault struck. A night adds them up, of tests that failed too."""
    struck: Counter[str] = Counter()
    yield struck
    if told := os.environ.get("UNERRING_BLOWS"):
        with Path(told).open("a") as file:
            file.write(json.dumps(struck) + "\n")
