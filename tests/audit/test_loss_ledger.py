"""The checker of promise 1 is itself checked: a right history passes, and one wrong in a single place does not."""

from __future__ import annotations

import pytest

from unerring.audit import Claim, Declared, Delivered, check_channel, loss_ledger

PUBLISHED = {(7, 1): [b"a", b"b", b"c", b"d", b"e"], (7, 2): [b"f", b"g"]}
TOLD: list[Delivered | Declared] = [
    Delivered(7, 1, 2, b"b"),
    Delivered(7, 1, 3, b"c"),
    Declared(7, 1, 4, 4),
    Declared(7, 1, 5, None),
    Delivered(7, 2, 1, b"f"),
    Delivered(7, 2, 2, b"g"),
]
CLAIMS = [Claim(7, 1, cut=2, accepted=4, delivered=2, declared_lost=1), Claim(7, 2, 1, 2, 2, 0)]


def promises(told: list[Delivered | Declared], claims: list[Claim], finished: bool = True) -> list[str]:
    return [found.promise for found in check_channel("c", PUBLISHED, told, claims, finished=finished)]


def test_a_right_history_passes() -> None:
    assert promises(TOLD, CLAIMS) == []


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (lambda told: [told[1], told[0], *told[2:]], loss_ledger.FIFO),
        (lambda told: [told[0], told[0], *told[1:]], loss_ledger.ONCE),
        (lambda told: [told[0], Delivered(7, 1, 3, b"z"), *told[2:]], loss_ledger.GENUINE),
        (lambda told: [*told, Delivered(7, 2, 3, b"h")], loss_ledger.GENUINE),
        (lambda told: [told[0], *told[2:]], loss_ledger.DECLARED),
        (lambda told: [*told[:2], *told[3:]], loss_ledger.DECLARED),
        (lambda told: [*told[:2], Declared(7, 1, 3, 4), *told[3:]], loss_ledger.NOT_BOTH),
        (lambda told: [*told[:5]], loss_ledger.DECLARED),
    ],
)
def test_a_history_wrong_in_one_place_is_caught(change: object, promise: str) -> None:
    assert promise in promises(change(list(TOLD)), CLAIMS)  # type: ignore[operator]


def test_a_ledger_that_counts_wrongly_is_caught() -> None:
    wrong = [Claim(7, 1, 2, 4, 3, 1), CLAIMS[1]]
    assert promises(TOLD, wrong) == [loss_ledger.BALANCE]


def test_pending_is_allowed_only_while_faults_last() -> None:
    told = TOLD[:5]
    claims = [CLAIMS[0], Claim(7, 2, 1, 1, 1, 0)]
    assert promises(told, claims, finished=False) == []
    assert check_channel("c", PUBLISHED, told, claims) == [], "nobody said that they were over"
    assert promises(told, claims) == [loss_ledger.COMPLETE]


def test_the_witness_names_consumer_producer_epoch_and_sequence() -> None:
    (violation,) = check_channel("till", PUBLISHED, TOLD[:2] + TOLD[3:], [Claim(7, 1, 2, 4, 2, 0), CLAIMS[1]])
    assert violation.witness == ("till: producer 7, epoch 1, sequence 4: the consumer moved on to 4 without it",)
