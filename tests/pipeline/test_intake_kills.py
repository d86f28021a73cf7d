"""Kill -9 of a driver and of workers while files come in: the sealed bytes are those of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.log import EventLog, Quarantine

from .intake_kills import prepare, sealed_bytes, storm, undisturbed


@pytest.mark.long
def test_kills_leave_what_an_undisturbed_intake_seals(java: Path, tmp_path: Path) -> None:
    tables = prepare(tmp_path, 1, 4)
    wanted, kept_out = undisturbed(tables)
    assert len(wanted) == 4
    assert kept_out.keys() == {"late", "schema"}
    hit = storm(tmp_path, "local[2,4]", [("driver's JVM", "runs written", 1), ("Python workers", "planned", 2)])
    assert hit
    assert sealed_bytes(tmp_path) == wanted
    assert Quarantine(EventLog(tmp_path / "log").store, "Reading").counts() == kept_out
