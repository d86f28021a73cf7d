"""Old names: they work for one release, and say what to write instead."""

from __future__ import annotations

import pytest

import unerring.simulation
from unerring.cli import RENAMED, main
from unerring.model import renamed_keywords


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


def test_an_old_keyword_works_and_warns() -> None:
    @renamed_keywords(old="new")
    def double(*, new: int) -> int:
        return 2 * new

    with pytest.warns(DeprecationWarning, match="the argument old is now new"):
        assert double(old=4) == 8  # type: ignore[call-arg]


def test_an_old_public_name_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"unerring\.Filter is now unerring\.IdempotencyFilter"):
        assert unerring.Filter is unerring.IdempotencyFilter
