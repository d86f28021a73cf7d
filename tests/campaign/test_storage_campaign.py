"""Every kind of file of a run is struck in every way: named, or harmless, or known not to be found by `verify`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.app.blows import runs, strike, unexplained


def test_a_blow_at_a_file_is_named_or_harmless_or_known(tmp_path: Path) -> None:
    blows = strike(*runs(tmp_path))
    for blow in blows:
        sys.stdout.write(f"{blow.kind}, {blow.blow}: {blow.tried}, {blow.named} named, {blow.harmless} harmless\n")
    assert {blow.blow for blow in blows} == {"truncated", "flipped", "removed", "rolled back", "swapped"}
    assert not unexplained(blows)
