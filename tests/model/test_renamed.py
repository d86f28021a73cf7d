"""Old names: they work for one release, and say what to write instead."""

from __future__ import annotations

import pytest

import unerring.simulation
from unerring.cli import RENAMED, main


def test_an_old_name_is_the_new_thing_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"unerring\.simulation\.canary is now unerring\.simulation\.mutant"):
        old = unerring.simulation.canary
    assert old is unerring.simulation.mutant


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = unerring.simulation.nothing_of_the_kind


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_option_works_and_warns(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "counter-of-nobody", f"{old}=x"])
    assert f"unerring: {old} is now {new}" in capsys.readouterr().err
