"""Many wrong histories for every checker; a new day has new ones."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest

from tests.audit.test_wrong_histories import failures
from tests.audit.wrong_histories import CHECKERS

HISTORIES = 20_000


@pytest.mark.parametrize("name", list(CHECKERS))
def test_many_histories(name: str) -> None:
    first = datetime.now(UTC).toordinal() * HISTORIES
    found, kinds = failures(name, range(first, first + HISTORIES))
    sys.stdout.write(f"{name}: {HISTORIES} histories from seed {first}, {len(kinds)} kinds of changes\n")
    assert not found, found[:5]
