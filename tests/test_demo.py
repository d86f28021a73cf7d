"""The demonstrations, as a person would start them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unerring.app.demo import mutants
from unerring.app.demo.factory import Factory, Shape
from unerring.model import CallerError


def played(*arguments: str) -> tuple[int, dict[str, Any], str]:
    ran = subprocess.run(
        [sys.executable, "-m", "unerring", "demo", "--json", *arguments], capture_output=True, text=True, timeout=900
    )
    return ran.returncode, json.loads(ran.stdout or "{}"), ran.stderr


def test_the_channels_ledger_balances() -> None:
    code, verdict, said = played("channels", "--fast", "--seed", "7")
    assert code == 0, said
    assert verdict["holds"] is True
    assert verdict["published"] > 500
    assert verdict["lost_in_transit"] > 0, "the networks did lose something"
    assert all("–? of epoch " in ranges for ranges in verdict["declared_lost"].values()), "the kill left an open end"


def test_mistakes_are_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="there is no mutant 'sparrow'; choose one of lost-event"):
        Factory(tmp_path, 1, Shape(), print, "sparrow")
    (tmp_path / "something").touch()
    with pytest.raises(CallerError, match="is not empty"):
        Factory(tmp_path, 1, Shape(), print)
    code, _, said = played("circus")
    assert code == 2
    assert "there is no demo 'circus'; choose factory or channels" in said
    code, _, said = played("channels", "--mutant", next(iter(mutants.MUTANTS)))
    assert code == 2
    assert "leave --mutant out" in said
