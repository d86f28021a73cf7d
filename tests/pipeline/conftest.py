"""Most of these tests share one Spark session, so they run in one worker. Others start drivers of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

OWN_DRIVERS = ("test_intake_kills", "test_interrupts", "test_kills", "test_standby")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        shares = item.path.stem not in OWN_DRIVERS or "spark" in getattr(item, "fixturenames", ())
        if Path(__file__).parent in item.path.parents and shares:
            item.add_marker(pytest.mark.xdist_group("spark"))
