"""The live gear on real processes: kill -9 and SIGSTOP of replicas; what is delivered is what a perfect run delivers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.correlation.live_tree import LiveTree


@pytest.mark.timeout(300)
def test_replicas_are_killed_and_nothing_is_wrong(tmp_path: Path) -> None:
    tree = LiveTree(tmp_path, events=300, seed=3)
    asyncio.run(tree.run(failures=4))
    assert tree.violations() == []
    assert tree.kills > 0
