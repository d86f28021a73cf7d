"""The scenarios and machines of these tests are modules of their own, also for processes that the tests start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SRC = HERE.parent.parent / "src"

sys.path.insert(0, str(HERE))


@pytest.fixture
def environment() -> dict[str, str]:
    """For a process that can import what these tests import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(SRC), str(HERE))), "NO_COLOR": "1", "COLUMNS": "200"}
