"""The error tree: whose fault it is, and the breach that nothing may swallow."""

from __future__ import annotations

import re

import pytest

from unerring.model import (
    CallerError,
    InstanceFailed,
    InvariantBreach,
    MessageLoss,
    PeerError,
    Refused,
    UnerringError,
    WorldError,
    breach,
    errors,
    invariant,
)


def descendants(error: type[BaseException]) -> set[type[BaseException]]:
    found = {error}
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            found |= descendants(child)
    return found


def test_the_drawing_at_the_top_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^((?:[│ ]   )*(?:[├└]── ))?([A-Z]\w+)(  |$)", line):
            depth = len(match[1] or "") // 4
            path[depth:] = [match[2]]
            drawn[match[2]] = path[depth - 1] if depth else ""
    real = {kind.__name__: kind.__mro__[1].__name__ for kind in descendants(UnerringError)}
    real |= {"UnerringError": "", "InvariantBreach": ""}
    assert drawn == real


def test_every_error_is_somebodys_fault_but_for_how_a_process_went() -> None:
    for kind in descendants(UnerringError) - {UnerringError, InstanceFailed, Refused}:
        assert sum(issubclass(kind, whose) for whose in (CallerError, PeerError, WorldError)) == 1


def test_a_breach_is_not_swallowed_by_except_exception() -> None:
    assert not issubclass(InvariantBreach, Exception)
    with pytest.raises(InvariantBreach, match="invariant broken: stamps rise"):
        invariant([], "stamps rise")
    with pytest.raises(InvariantBreach, match="invariant broken: cannot be"):
        breach("cannot be")


def test_an_invariant_that_holds_says_nothing() -> None:
    invariant(1 < 2, "arithmetic")


@pytest.mark.parametrize(("last", "until"), [(9, "to 9 of"), (None, "to an unknown end of")])
def test_a_loss_names_producer_epoch_range_and_cause(last: int | None, until: str) -> None:
    loss = MessageLoss("press-7", 3, 4, last, "evicted")
    assert (loss.producer, loss.epoch, loss.first, loss.last, loss.cause) == ("press-7", 3, 4, last, "evicted")
    for part in ("'press-7'", "epoch 3", "events 4", until, "evicted", "on_loss="):
        assert part in str(loss)
