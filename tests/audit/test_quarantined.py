"""A run that kept most of its events out of the streams is not a run with which nothing is wrong."""

from __future__ import annotations

from unerring.audit.intake import Intake, check_intake, check_quarantined
from unerring.audit.page import explained, page
from unerring.audit.report import Report


def report(*accounts: Intake, share_max: float = 0.01) -> Report:
    notes, violations = check_quarantined(accounts, share_max)
    return Report("cards", "run", 0, 9, (), accounts, tuple(violations), notes=tuple(notes))


def account(stream: str, in_stream: int, **quarantined: int) -> Intake:
    reasons = {reason.replace("_", " "): count for reason, count in quarantined.items()}
    return Intake(stream, "file-1", 0, 0, in_stream, in_stream, reasons, 0, 0, 0)


def test_most_of_a_file_in_quarantine_is_wrong_and_the_verdict_names_the_share() -> None:
    found = report(account("Txn", 85_488, not_increasing=914_512), account("Card", 10))
    assert found.wrong == 1
    said = list(explained(found))
    assert said[-1] == "1 thing is wrong."
    assert "at most 1 % of a stream's events are in quarantine" in said[0]
    assert "stream Txn: 914,512 of 1,000,000 events (91.5 %) are in quarantine (914,512 not increasing)" in said[0]
    assert "914,512 of 1,000,000 events (91.5 %)" in page(found)
    assert "Nothing is wrong." not in page(found)


def test_a_little_is_named_and_is_not_wrong() -> None:
    found = report(account("Txn", 990, late=6, schema=4))
    assert not found.wrong
    assert list(explained(found)) == [
        "stream Txn: 10 of 1,000 events (1 %) are in quarantine (6 late, 4 schema)",
        "Nothing is wrong.",
    ]
    assert report(account("Txn", 990, late=6, schema=4), share_max=0.009).wrong == 1


def test_it_is_counted_over_all_producers_of_a_stream_and_only_what_is_kept_out() -> None:
    assert not report(account("Txn", 10, late=10), account("Txn", 10_000)).wrong
    assert not report(account("Txn", 10, rule=10)).notes, "such an event is in the stream"
    accounts, _ = check_intake("Txn", {("p", 1): [(1, 2)]}, [("p", 1, 3, "late"), ("p", 1, 4, "lost")])
    assert report(*accounts).intake_violations[0].witness == (
        "stream Txn: 1 of 3 events (33.3 %) are in quarantine (1 late)",
    )
