"""The demonstrations, as a person would start them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unerring.app.demo.factory import Factory, Shape
from unerring.model import CallerError


def played(*arguments: str) -> tuple[int, dict[str, Any], str]:
    ran = subprocess.run(
        [sys.executable, "-m", "unerring", "demo", "--json", *arguments], capture_output=True, text=True, timeout=900
    )
    return ran.returncode, json.loads(ran.stdout or "{}"), ran.stderr


def test_mistakes_are_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="there is no mutant 'sparrow'; choose one of lost-event"):
        Factory(tmp_path, 1, Shape(), print, "sparrow")
    (tmp_path / "something").touch()
    with pytest.raises(CallerError, match="is not empty"):
        Factory(tmp_path, 1, Shape(), print)
