"""`unerring new`: nothing is overwritten. That what it makes runs, docs/tutorial.md shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.app.new import make_app
from unerring.model import CallerError


def test_nothing_is_overwritten_and_a_bad_name_is_refused(tmp_path: Path) -> None:
    make_app("plant", tmp_path)
    (tmp_path / "plant" / "app.py").write_text("mine")
    with pytest.raises(CallerError, match="already exists; choose another name or an empty folder"):
        make_app("plant", tmp_path)
    assert (tmp_path / "plant" / "app.py").read_text() == "mine"
    for name in ("My Plant", "class", "unerring", "../plant"):
        with pytest.raises(CallerError, match="cannot be the name of a Python module"):
            make_app(name, tmp_path)
