"""A consumer's feed against a plain twin that keeps every sequence by itself (paper, section 3.3)."""

from __future__ import annotations

import random
from itertools import groupby
from typing import Any

import pytest

from unerring.channels.feed import Closing, Feed
from unerring.channels.ledger import Account
from unerring.channels.messages import Frames, Loss

PRODUCER = 7
PLENTY = 1 << 40
Ranges = list[tuple[int, int]]


def frames_of(epoch: int, first: int, last: int, more: bool = False) -> Frames:
    """Three events have one time; a payload is as long as its sequence's last digit."""
    payloads = [b"x" * (n % 10) for n in range(first, last + 1)]
    times = [1000 * epoch + n // 3 for n in range(first, last + 1)]
    more = more or (last + 1) // 3 == last // 3
    return Frames(PRODUCER, epoch, first, times, payloads, None, sum(map(len, payloads)), more=more)


def ranges_of(numbers: list[int]) -> Ranges:
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return [(run[0], run[-1]) for run in runs]


def flat(segment: Frames | Loss) -> list[Any]:
    if isinstance(segment, Loss):
        return [segment]
    events = zip(segment.times, segment.payloads, strict=True)
    return [(segment.epoch, segment.first + at, *event) for at, event in enumerate(events)]


class Twin:
    """What came of each sequence of the present epoch, and all that was handed over."""

    def __init__(self, epoch: int, cut: int, known_last: int) -> None:
        self.accounts: list[Account] = []
        self.before: list[Loss | Frames] = []  # of earlier epochs, not handed over yet
        self.in_hand: list[Loss | Frames] = []
        self.begin(epoch, cut, known_last)

    def begin(self, epoch: int, cut: int, known_last: int) -> None:
        self.epoch = epoch
        self.handed = cut - 1
        self.came: dict[int, Frames | Loss] = {}  # the segment that each sequence came with
        self.accounts.append(Account(PRODUCER, epoch, cut, max(known_last, cut - 1), cut - 1))
        self.watermark: tuple[int, int] | None = None
        self.newest_us = -1
        self.open: Loss | None = None  # an information that stands for nothing, before all that comes

    @property
    def account(self) -> Account:
        return self.accounts[-1]

    @property
    def next(self) -> int:
        at = self.handed + 1
        while at in self.came:
            at += 1
        return at

    def missing(self, first: int, last: int) -> list[int]:
        return [n for n in range(max(first, self.next), last + 1) if n not in self.came]

    def put(self, first: int, last: int, what: Any) -> None:
        for low, high in ranges_of(self.missing(first, last)):
            segment = what(low, high)
            self.came.update(dict.fromkeys(range(low, high + 1), segment))
            self.account.known_last = max(self.account.known_last, high)

    def take(self, frames: Frames) -> None:
        self.account.duplicates += sum(n < self.next for n in range(frames.first, frames.last + 1))
        self.put(frames.first, frames.last, frames.cut)

    def declare(self, first: int, last: int, cause: str) -> None:
        self.put(first, last, lambda low, high: Loss(PRODUCER, self.epoch, low, high, cause))

    def doubt(self, last: int) -> None:
        ready = self.next
        held = {n: segment for n, segment in self.came.items() if n > ready}
        for n, segment in held.items():
            if segment.first > last:
                del self.came[n]
        self.account.known_last = max(last, self.next - 1, *self.came, 0)

    def ready(self) -> list[Frames | Loss]:
        """Segments in order that the application may be handed."""
        own = [self.came[n] for n in range(self.handed + 1, self.next) if self.came[n].first == n]
        return [*self.before, *([self.open] if self.open else []), *own]

    def held(self) -> list[Frames | Loss]:
        return [segment for n, segment in sorted(self.came.items()) if n > self.next and segment.first == n]

    def has_room(self, count: int, most: int) -> bool:
        if not self.in_hand or sum(map(count_of, self.in_hand)) + count <= most:
            return True
        events = [
            (segment.more, event[2])
            for segment in self.in_hand
            if isinstance(segment, Frames)
            for event in flat(segment)
            if event[1] > self.accepted_of(segment.epoch)
        ]
        return bool(events) and events[-1][0] and events[0][1] == events[-1][1]

    def accepted_of(self, epoch: int) -> int:
        return next(account.accepted for account in self.accounts if account.epoch == epoch)

    def hand(self, most: int) -> Frames | Loss | None:
        ready = self.ready()
        if not ready or not self.has_room(count_of(ready[0]), most):
            return None
        segment = ready[0]
        if self.before:
            self.before.pop(0)
        elif self.open is not None:
            self.open = None
        else:
            self.handed = segment.last or 0
        self.in_hand.append(segment)
        return segment

    def accept(self, epoch: int, through: int) -> None:
        for segment in list(self.in_hand):
            account = next(account for account in self.accounts if account.epoch == segment.epoch)
            most = through if segment.epoch == epoch else -1 if segment.epoch > epoch else PLENTY
            if isinstance(segment, Frames):
                taken = [n for n in range(segment.first, segment.last + 1) if account.accepted < n <= most]
                account.delivered += len(taken)
                account.accepted = max([account.accepted, *taken])
                whole = account.accepted >= segment.last
            else:
                whole = (segment.first if segment.last is None else segment.last) <= most
                if whole and segment.last is not None:
                    account.accepted = segment.last
                if whole and segment.count != 0:
                    account.lost.append(segment)
            if not whole:
                return
            self.in_hand.remove(segment)

    def close_epoch(self, epoch: int, known_last: int, ended: int | None, cause: str) -> None:
        self.account.known_last = max(self.account.known_last, ended or 0)
        self.declare(self.next, self.account.known_last, cause)
        self.before = self.ready()
        if ended is None:
            self.before.append(Loss(PRODUCER, self.epoch, self.account.known_last + 1, None, cause))
        self.begin(epoch, 1, known_last)

    def start_over(self, cut: int, information: bytes, cause: str) -> None:
        first, self.open = self.handed + 1, None
        later = {n: after(segment, cut) for n, segment in self.came.items() if n > cut and n > self.handed}
        stands = Loss(PRODUCER, self.epoch, first, max(cut, first - 1), cause, information)
        self.came = dict.fromkeys(range(first, cut + 1), stands) | later
        if cut < first:
            self.open = stands
        self.account.known_last = max(self.account.known_last, cut)

    def position(self) -> tuple[int, int]:
        waiting = [*self.in_hand, *self.ready()]
        epoch = waiting[0].epoch if waiting else self.epoch
        return epoch, self.accepted_of(epoch)


def after(segment: Frames | Loss, cut: int) -> Frames | Loss:
    if segment.first > cut:
        return segment
    if isinstance(segment, Frames):
        return frames_of(segment.epoch, cut + 1, segment.last, segment.more)
    return Loss(segment.producer, segment.epoch, cut + 1, segment.last, segment.cause)


def count_of(segment: Frames | Loss) -> int:
    return len(segment.payloads) if isinstance(segment, Frames) else 1


def agree(feed: Feed, twin: Twin, rng: random.Random) -> None:
    ready, held = twin.ready(), twin.held()
    assert [event for segment in feed.ready for event in flat(segment)] == [e for each in ready for e in flat(each)]
    assert [event for segment in feed.held for event in flat(segment)] == [e for each in held for e in flat(each)]
    assert feed.held_firsts == [segment.first for segment in held]
    assert feed.kept_count == sum(count_of(segment) for segment in (*ready, *held))
    assert feed.kept_bytes == sum(segment.size for segment in (*ready, *held) if isinstance(segment, Frames))
    assert feed.in_hand_count == sum(map(count_of, twin.in_hand))
    assert [*feed.closed, feed.account] == twin.accounts
    assert all(account.balanced for account in twin.accounts)
    assert (feed.epoch, feed.next, feed.handed_through) == (twin.epoch, twin.next, twin.handed)
    assert feed.position == twin.position()
    gaps = ranges_of(twin.missing(twin.next, twin.account.known_last))
    assert feed.missing(1 << 20, PLENTY) == gaps
    most, room = rng.randint(1, 4), rng.randint(1, 6)
    asked = feed.missing(most, room)
    lacking = [n for low, high in gaps[:most] for n in range(low, high + 1)][:room]
    assert asked == ranges_of(lacking), "the lowest, and no more than there is room for"
    low = rng.randint(1, 30)
    high = low + rng.randint(0, 9)
    assert feed.lacking(low, high) == len(twin.missing(low, high))


@pytest.mark.parametrize("seed", range(60))
def test_a_feed_hands_over_what_came_in_order_and_once_and_accounts_for_the_rest(seed: int) -> None:
    rng = random.Random(seed)
    cut, known_last = rng.randint(1, 3), rng.randint(0, 5)
    feed, twin = Feed(PRODUCER, 1, cut, known_last, "here"), Twin(1, cut, known_last)
    for number in range(40):
        step(feed, twin, rng, b"%d" % number)
        agree(feed, twin, rng)
    while (segment := feed.hand(PLENTY)) is not None:
        assert segment == twin.hand(PLENTY)
        feed.accept(segment.epoch, segment.first if segment.last is None else segment.last)
        twin.accept(segment.epoch, segment.first if segment.last is None else segment.last)
        agree(feed, twin, rng)
    assert twin.hand(PLENTY) is None


def step(feed: Feed, twin: Twin, rng: random.Random, word: bytes) -> None:
    """One thing that may happen to both."""
    first = max(1, twin.next + rng.randint(-4, 6))
    last = first + rng.randint(0, 5)
    most = rng.choice((1, 3, 6, PLENTY))
    match rng.choices(range(9), (8, 5, 4, 1, 1, 4, 6, 0.5, 0.5))[0]:
        case 0:
            feed.take(frames_of(twin.epoch, first, last))
            twin.take(frames_of(twin.epoch, first, last))
        case 1:
            fresh = frames_of(twin.epoch, twin.next + rng.choice((0, 0, 0, 1, -1)), twin.next + rng.randint(1, 3))
            in_order = fresh.first == twin.next and not twin.ready() and not twin.held()
            room = twin.has_room(len(fresh.payloads), most)
            passes = in_order and fresh.last >= twin.account.known_last and room
            assert feed.pass_on(fresh, most) == passes
            if passes:
                twin.take(fresh)
                assert twin.hand(PLENTY) == fresh
        case 2:
            feed.learn(last)
            twin.account.known_last = max(twin.account.known_last, last)
        case 3:
            feed.doubt(first)
            twin.doubt(first)
        case 4:
            feed.declare(first, last, "gone")
            twin.declare(first, last, "gone")
        case 5:
            while (segment := twin.hand(most)) is not None:
                assert feed.hand(most) == segment
            assert feed.hand(most) is None
        case 6 if twin.in_hand:
            segment = rng.choice(twin.in_hand)
            through = segment.first if segment.last is None else rng.randint(segment.first - 1, segment.last)
            feed.accept(segment.epoch, through)
            twin.accept(segment.epoch, through)
        case 7:
            ended = rng.choice((None, twin.account.known_last, twin.account.known_last + 2))
            heard = rng.randint(0, 3)
            feed.successor, feed.closing = twin.epoch + 1, Closing(twin.epoch + 1, heard, b"", ended)
            feed.close_epoch(twin.epoch + 1, heard, ended, "closed")
            twin.close_epoch(twin.epoch + 1, heard, ended, "closed")
            assert (feed.successor, feed.closing, feed.attempts) == (None, None, 0)
        case 8 if not twin.open:
            cut = max(0, twin.handed + rng.randint(-1, 6))
            feed.recovering = True
            assert feed.hand(PLENTY) is None, "nothing is handed over meanwhile"
            feed.start_over(cut, word, "recovered")
            twin.start_over(cut, word, "recovered")
            assert not feed.recovering


def test_accounts_of_closed_epochs_are_kept_up_to_a_bound_and_while_anything_of_them_is_open() -> None:
    feed = Feed(PRODUCER, 1, 1, 0, "here")
    for epoch in range(1, 6):
        feed.take(frames_of(epoch, 1, 2))
        feed.close_epoch(epoch + 1, 0, 2, "closed")
    feed.forget_closed(2)
    assert [account.epoch for account in feed.closed] == [1, 2, 3, 4, 5], "nothing was accepted yet"
    for epoch in (1, 2):
        feed.hand(PLENTY)
        feed.accept(epoch, 2)
    feed.forget_closed(4)
    assert [account.epoch for account in feed.closed] == [2, 3, 4, 5]
    feed.forget_closed(2)
    assert [account.epoch for account in feed.closed] == [3, 4, 5], "the third is not accepted"
    for epoch in (3, 4, 5):
        feed.hand(PLENTY)
        feed.accept(epoch, 2)
    feed.forget_closed(2)
    assert [account.epoch for account in feed.closed] == [4, 5]
    assert feed.position == (6, 0)
