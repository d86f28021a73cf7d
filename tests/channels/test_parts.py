"""The parts of a channel at their bounds, and beside plain twins."""

from __future__ import annotations

import random

import pytest

from unerring.channels import Frames, Loss, ProducerConfig
from unerring.channels.buffer import ReplayBuffer
from unerring.channels.ledger import Account, Ledger
from unerring.channels.messages import joined
from unerring.channels.peers import KeptBatches
from unerring.channels.registrations import Registrations
from unerring.channels.repair import MergedRepairs, RepairPace
from unerring.model import SECOND_US


def batch(first: int, last: int, size: int = 0, producer: int = 1, epoch: int = 1) -> Frames:
    return Frames(producer, epoch, first, tuple(range(first, last + 1)), [b"x"] * (last - first + 1), None, size)


# --- repairs


def test_repairs_are_paced_by_a_bucket_of_one_second() -> None:
    pace = RepairPace(ProducerConfig(repair_bytes_per_s=2048))
    assert [pace.budget(most, 0) for most in (100, 2048, 9000)] == [100, 2048, 2048]
    pace.spend(2000)
    assert pace.budget(9000, 0) == 48
    pace.spend(100)
    assert pace.budget(9000, 0) == 1, "one event always"
    assert pace.budget(9000, SECOND_US // 4) == 512, "nothing is owed"
    assert pace.budget(9000, 2 * SECOND_US) == 2048
    pace.spend(1024)
    assert pace.budget(9000, 2 * SECOND_US + SECOND_US // 8) == 1280


def test_what_enough_consumers_lack_within_the_window_is_pushed_once() -> None:
    merged = MergedRepairs(ProducerConfig(merge_consumers_min=3, merge_window_us=20))
    assert [merged.ask((1, 2), consumer, 0) for consumer in ("a", "b", "a", "b")] == ["one"] * 4
    assert merged.ask((1, 3), "c", 0) == "one", "another range"
    assert merged.ask((1, 2), "c", 20) == "all"
    assert [merged.ask((1, 2), consumer, 40) for consumer in ("a", "d")] == ["done", "done"]
    assert merged.ask((1, 2), "a", 41) == "one", "whoever lacks it still has not heard the push"
    assert merged.ask((1, 2), "b", 61) == "one"
    assert merged.ask((1, 2), "c", 62) == "one", "the first of them asked too long ago"
    assert merged.ask((1, 2), "a", 62) == "one"
    assert merged.ask((1, 2), "b", 62) == "all"


def test_only_so_many_ranges_are_watched_and_the_oldest_is_forgotten() -> None:
    for others, answer in ((255, "all"), (256, "one")):
        merged = MergedRepairs(ProducerConfig(merge_consumers_min=2))
        merged.ask((1, 1), "a", 0)
        for n in range(others):
            merged.ask((n + 10, n + 10), "a", 0)
        assert merged.ask((1, 1), "b", 0) == answer
    for others, answer in ((255, "done"), (256, "one")):
        merged = MergedRepairs(ProducerConfig(merge_consumers_min=2))
        for n in (1, *range(10, 10 + others)):
            assert [merged.ask((n, n), consumer, 0) for consumer in "ab"] == ["one", "all"]
        assert merged.ask((1, 1), "c", 0) == answer


# --- registrations


def test_a_registration_expires_behind_its_limit_and_not_at_it() -> None:
    limits = ProducerConfig(unconfirmed_us_max=10_000, registered_silence_us_max=1, registered_max=2)
    known = Registrations(limits)
    assert (known.lowest, known.full) == (None, False)
    known.add("ghost", 4, 0)
    known.add("log", 3, 0)
    assert (known.lowest, known.full) == (3, True)
    assert [known.hear("log", accepted, 9_999) for accepted in (7, 5)] == [True, False]
    assert known.accepted == {"ghost": 4, "log": 7}, "what was accepted stays so"
    assert known.expire(10_000) == []
    assert known.expire(10_001) == ["ghost", "log"]
    assert (known.accepted, known.full, known.lowest) == ({}, False, None)


def test_those_from_before_a_restart_are_silent_from_its_beginning_on() -> None:
    known = Registrations(ProducerConfig(unconfirmed_us_max=1_000))
    known.restore(["ghost", "log"], ["ghost"])
    assert known.expire(9_000) == [], "nobody could be heard before"
    known.begin(9_000)
    assert known.accepted == {"ghost": 0, "log": 0}
    assert known.expire(10_000) == []
    assert known.expire(10_001) == ["ghost"]
    known.remove("log")
    assert known.accepted == {}
    awaited = Registrations(ProducerConfig(registered_silence_us_max=1))
    awaited.add("log", 1, 0)
    awaited.remove("log")
    assert awaited.expire(1 << 50) == [], "who was removed does not expire too"


# --- the ledger


def test_a_ledger_adds_its_accounts_up_and_tells_when_they_do_not_balance() -> None:
    whole = Account(1, 1, 3, 9, 8, 4, [Loss(1, 1, 5, 6, "gone")], duplicates=2)
    assert (whole.published, whole.declared_lost, whole.pending, whole.open_end) == (7, 2, 1, False)
    ended = Account(1, 2, 1, 2, 2, 2, [Loss(1, 2, 3, None, "closed")], duplicates=1)
    assert (ended.published, ended.declared_lost, ended.pending, ended.open_end) == (2, 0, 0, True)
    ledger = Ledger((whole, ended))
    assert (ledger.published, ledger.delivered, ledger.declared_lost, ledger.pending) == (9, 6, 2, 1)
    assert (ledger.duplicates, ledger.balanced) == (3, True)
    for wrong in (Account(1, 1, 3, 9, 8, 5, [Loss(1, 1, 5, 6, "gone")]), Account(1, 1, 3, 9, 8, 4)):
        assert not Ledger((ended, wrong)).balanced


# --- buffers


def test_a_replay_buffer_finds_what_it_has_not_evicted() -> None:
    rng, buffer, twin, next_one = random.Random(1), ReplayBuffer(), [], 1
    for now in range(6_000):
        if rng.random() < 0.4 and twin:
            assert (buffer.oldest, buffer.oldest_us) == twin[0]
            assert buffer.evict_oldest() == twin.pop(0)[0].first
        elif now < 5_000:
            frames = batch(next_one, next_one + rng.randint(0, 2), rng.randint(0, 9))
            next_one = frames.last + 1
            buffer.append(frames, now)
            twin.append((frames, now))
        if now % 10 == 0:
            low = rng.randint(max(1, next_one - 2_000), next_one)
            high = low + rng.randint(0, 9)
            wanted = [frames for frames, _ in twin if frames.last >= low and frames.first <= high]
            assert list(buffer.batches(low, high)) == wanted
            assert list(buffer.between(low, high)) == [frames.cut(low, high) for frames in wanted]
            assert buffer.count == sum(len(frames.payloads) for frames, _ in twin)
            assert buffer.bytes == sum(frames.size for frames, _ in twin)
            assert (bool(buffer), buffer.lowest) == (bool(twin), twin[0][0].first if twin else None)
    buffer.restamp(7)
    assert buffer.oldest_us == 7
    while buffer:
        buffer.evict_oldest()
    assert (buffer.lowest, buffer.count, buffer.bytes) == (None, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_kept_batches_are_the_newest_that_have_room_and_none_lies_within_another(seed: int) -> None:
    rng, kept, twin = random.Random(seed), KeptBatches(30), list[Frames]()
    for _ in range(40):
        first = rng.randint(1, 12)
        new = batch(first, first + rng.randint(0, 4), rng.choice((1, 5, 10, 29, 30, 31)), rng.randint(1, 2), 1)
        kept.add(new)
        beside = [old for old in twin if old.producer == new.producer]
        if new.size <= 30 and not any(old.first <= new.first and new.last <= old.last for old in beside):
            within = [old for old in beside if new.first <= old.first and old.last <= new.last]
            twin = [*(old for old in twin if all(old is not one for one in within)), new]
            while sum(old.size for old in twin) > 30:
                del twin[0]
        for producer in (1, 2):
            own = sorted((old for old in twin if old.producer == producer), key=lambda old: old.first)
            assert kept.batches(producer, 1, 1, 99) == own
            assert kept.batches(producer, 2, 1, 99) == []
            low = rng.randint(1, 12)
            assert kept.batches(producer, 1, low, low + 2) == [
                old for old in own if old.last >= low and old.first <= low + 2
            ]


def test_batches_without_payloads_are_bounded_too() -> None:
    kept = KeptBatches(1)
    for first in range(1, 6):
        kept.add(Frames(1, 1, first, (first,), [b""], None, 0, b"s"))
    assert [frames.first for frames in kept.batches(1, 1, 1, 9)] == [4, 5]


# --- frames


def test_a_part_of_a_batch_has_its_stamps_and_says_whether_more_of_its_time_follows() -> None:
    whole = Frames(1, 2, 5, (7, 7, 8, 8), (b"a", b"bb", b"", b"ccc"), (0, 1, 0, 4), 6, b"s" * 64, False)
    assert whole.last == 8
    assert whole.cut(1, 99) is whole
    assert whole.cut(5, 8) is whole
    assert whole.cut(6, 7) == Frames(1, 2, 6, (7, 8), (b"bb", b""), (1, 0), 2, b"", True)
    assert whole.cut(8, 9) == Frames(1, 2, 8, (8,), (b"ccc",), (4,), 3, b"", False)
    assert whole.cut(1, 5) == Frames(1, 2, 5, (7,), (b"a",), (0,), 1, b"", True)
    rejoined = Frames(1, 2, 5, [7, 7, 8, 8], [b"a", b"bb", b"", b"ccc"], [0, 1, 0, 4], 6)
    assert joined([whole.cut(5, 5), whole.cut(6, 7), whole.cut(8, 8)]) == [rejoined]
    assert joined([whole.cut(5, 5), whole.cut(6, 7)])[0].more
    assert joined([batch(1, 1), batch(2, 3)])[0].ordinals is None
    assert joined([]) == []
