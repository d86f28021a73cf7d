"""docs/tour.md follows one event through the code; every file and every name that it shows is there."""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.test_layout import rows

ROOT = Path(__file__).parent.parent
TOUR = (ROOT / "docs" / "tour.md").read_text()
PROSE = re.sub(r"```.*?```", "", TOUR, flags=re.DOTALL)
SHOWN = re.findall(r"`([^`\s]+)`", PROSE)
PATH = re.compile(r"(?P<file>[\w/]+(?:\.py|\.tla|/)|(?:tests|examples|bench)/[\w/]+)(?::(?P<name>\w+(?:\.\w+)?))?")
PLACES = sorted({shown for shown in SHOWN if PATH.fullmatch(shown)})


def _found(place: str) -> Path | None:
    """The file or folder, below src/unerring or below the repository."""
    return next((root / place for root in (ROOT / "src" / "unerring", ROOT) if (root / place).exists()), None)


def _names(tree: ast.Module | ast.ClassDef) -> dict[str, ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {statement.name: statement for statement in tree.body if isinstance(statement, kinds)}


def defines(source: str, name: str) -> bool:
    """Whether a module defines this function or class, or `Class.method`."""
    owner, _, method = name.partition(".")
    there = _names(ast.parse(source))
    if not method:
        return owner in there
    found = there.get(owner)
    return isinstance(found, ast.ClassDef) and method in _names(found)


def test_the_tour_names_many_places() -> None:
    assert len(PLACES) > 60, "the pattern of this test misses them"
    loose = [shown for shown in SHOWN if shown.endswith(".py") and "/" not in shown]
    assert not loose, f"write the path from the package on: {loose}"


@pytest.mark.parametrize("place", PLACES)
def test_what_the_tour_shows_is_there(place: str) -> None:
    shown = PATH.fullmatch(place)
    assert shown is not None
    file = _found(shown["file"])
    assert file is not None, f"docs/tour.md shows {shown['file']}, which is not there"
    if shown["name"] is not None:
        assert defines(file.read_text(), shown["name"]), f"{shown['file']} does not define {shown['name']}"


@pytest.mark.parametrize(("name", "there"), [("f", True), ("C", True), ("C.m", True), ("m", False), ("C.f", False)])
def test_a_name_that_is_not_there_is_noticed(name: str, there: bool) -> None:
    assert defines("async def f(): ...\nclass C:\n    def m(self): ...", name) is there


def test_the_way_of_an_event_is_short() -> None:
    """No package is entered three times, and every stop is in the package that it is said to be in."""
    _, _, after = TOUR.partition("\n## The way at a glance\n")
    way = rows(after.partition("\n## ")[0])
    for package, stops, _ in way:
        assert all(stop.strip().startswith(f"{package}/") for stop in stops.split(",")), (package, stops)
    entered = [package for package, _ in groupby(package for package, _, _ in way)]
    assert [package for package in set(entered) if entered.count(package) > 2] == []
    assert (entered[0], entered[-1]) == ("runtime", "runtime"), "from publish to a service call"
