"""Durable mode: what is on disk is a snapshot and the batches accepted since, and nothing else."""

from __future__ import annotations

import pytest

from unerring.correlation.journal import STATE_KEY, Journal, handed_after
from unerring.correlation.messages import Batch, NotMember, Registered
from unerring.correlation.snapshot import OutputState, Snapshot
from unerring.matching import MergeState
from unerring.model import BEFORE_ALL, TIME_MIN, Effects, Event, Persist, Stamp


def batch(number: int) -> Batch:
    prev = Stamp(number) if number else BEFORE_ALL
    return Batch("a", prev, number, (Event("a", Stamp(number + 1), (), {"v": number}),), number + 1)


def state(through: int, *outputs: OutputState) -> Snapshot:
    return Snapshot((), MergeState(through, ()), b"", outputs, (), ())


class Disk(dict[str, bytes]):
    def take(self, effects: Effects) -> None:
        [effect] = effects
        assert isinstance(effect, Persist)
        self.update(effect.puts)
        for key in effect.deletes:
            del self[key]  # what was never written is not to be deleted


def restarted(disk: Disk) -> tuple[int, Snapshot | None, list[Batch]]:
    journal = Journal(disk, 5)
    return journal.incarnation, journal.snapshot, journal.batches


def test_what_a_replica_finds_after_a_restart_is_its_last_snapshot_and_what_it_accepted_since() -> None:
    disk = Disk()
    assert restarted(disk) == (0, None, [])
    journal = Journal(disk, 5)
    disk.take(journal.replace(3, state(1)))
    assert restarted(disk) == (3, state(1), [])
    for number in range(3):
        disk.take(journal.keep(batch(number), 1))
    assert restarted(disk) == (3, state(1), [batch(0), batch(1), batch(2)])
    again = Journal(disk, 5)
    disk.take(again.keep(batch(3), 1))
    assert restarted(disk) == (3, state(1), [batch(number) for number in range(4)])
    disk.take(again.replace(4, state(2)))
    assert list(disk) == [STATE_KEY], "the log is in the snapshot"
    assert again.incarnation == 4
    disk.take(again.keep(batch(4), 1))
    assert restarted(disk) == (4, state(2), [batch(4)])
    disk.take(again.replace(4, state(3)))
    assert list(disk) == [STATE_KEY]


def test_a_batch_that_a_crash_left_behind_a_gap_does_not_count() -> None:
    disk = Disk()
    journal = Journal(disk, 5)
    disk.take(journal.replace(1, state(1)))
    for number in range(3):
        disk.take(journal.keep(batch(number), 1))
    del disk[sorted(key for key in disk if "log" in key)[1]]
    assert restarted(disk) == (1, state(1), [batch(0)])


def test_a_snapshot_is_due_after_as_many_events_as_the_bound_says() -> None:
    disk = Disk()
    journal = Journal(disk, 5)
    assert not journal.due
    disk.take(journal.keep(batch(0), 2))
    disk.take(journal.keep(batch(1), 0))  # a watermark takes room on disk, too
    disk.take(journal.keep(batch(2), 1))
    assert not journal.due
    assert not journal.is_due_after(0)
    assert journal.is_due_after(1), "what an engine hands over is in the next snapshot"
    assert journal.due
    disk.take(journal.replace(1, state(1)))
    assert not journal.due
    disk.take(journal.keep(batch(3), 4))
    assert not journal.due
    disk.take(journal.keep(batch(4), 1))
    assert journal.due


def test_an_answer_is_on_disk_before_a_joiner_hears_it_once_for_what_it_says() -> None:
    journal = Journal({}, 5)
    answer = Registered(2, (("s", Stamp(3)),), (1,))
    assert journal.promises(answer, 7)
    assert not journal.promises(answer, 7)
    assert journal.promises(answer, 8), "another version of the record"
    assert journal.promises(Registered(2, (("s", Stamp(4)),), (2,)), 8), "other marks"
    assert not journal.promises(NotMember(9), 8)
    assert not journal.promises(None, 10)


def test_a_replica_that_was_given_up_has_no_state() -> None:
    disk = Disk()
    journal = Journal(disk, 5)
    disk.take(journal.ask("a token"))
    assert (journal.token, Journal(disk, 5).token) == ("a token", "a token")
    disk.take(journal.replace(3, state(1)))
    disk.take(journal.keep(batch(0), 1))
    again = Journal(disk, 5)
    again.forget()
    assert (again.incarnation, again.snapshot, again.batches) == (0, None, [])
    disk.take(again.replace(4, state(2)))
    assert restarted(disk) == (4, state(2), []), "the new one's state takes the place of the old one's"


@pytest.mark.parametrize(
    ("outputs", "after_us"),
    [
        ((), TIME_MIN),
        ((OutputState("s", Stamp(30, 2), 5, 40, ()),), 29),  # more of the mark's own time may follow it
        ((OutputState("s", BEFORE_ALL, 0, 40, ()),), TIME_MIN),
        ((OutputState("other", Stamp(9), 2, 9, ()), OutputState("s", Stamp(30), 1, 40, ())), 29),
        ((OutputState("other", Stamp(9), 2, 9, ()),), TIME_MIN),
    ],
)
def test_an_engine_hands_over_again_what_follows_the_mark(outputs: tuple[OutputState, ...], after_us: int) -> None:
    disk = Disk()
    disk.take(Journal({}, 5).replace(1, state(40, *outputs)))
    assert handed_after(disk[STATE_KEY], "s") == after_us
    assert handed_after(None, "s") == TIME_MIN
