"""One producer as one consumer sees it: what is in hand, what is ready, what is held back, what is missing
(paper, section 3.3)."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator

import msgspec

from unerring.channels.ledger import Account
from unerring.channels.messages import Frames, Loss, Range
from unerring.model import Address, invariant

Segment = Frames | Loss


class Closing(msgspec.Struct, frozen=True, gc=False):
    """A producer goes on in a higher epoch: which one, its last sequence, its key, and where the old one ended."""

    epoch: int
    last: int
    key: bytes
    ended: int | None


class Feed:
    """Sequences of one epoch, in four stretches:

        accepted | in hand (at the application) | ready (in order, waiting for room) | held back, with gaps between

    `next` is the first sequence that is not in order yet. Ready and in-hand segments may belong to an earlier epoch.
    """

    def __init__(self, producer: int, epoch: int, cut: int, known_last: int, address: Address) -> None:
        self.producer = producer
        self.address = address
        self.name = ""
        self.in_hand: deque[Segment] = deque()
        self.in_hand_count = 0
        self.ready: deque[Segment] = deque()
        self.closed: list[Account] = []
        self.successor: int | None = None
        self.closing: Closing | None = None
        """Set while peers are asked for what they have of this epoch, before it is closed."""
        self.key = b""
        """The public key that checks the producer's batches when a peer sends them; the first one received counts."""
        self.peers: list[Address] = []
        self.beats = 0
        """Heartbeats so far; and what was known when silence was last looked for."""
        self.heard = (0, 0, 0)
        self.watched = False
        self.recovering = False
        """Waits for the producer's initial information; nothing is handed over meanwhile."""
        self.fresh = False
        """Has answered for nothing yet: its cut will be that of the initial information."""
        self.attempts = 0
        self.asked_for = 0
        self.armed = False
        self._begin(epoch, cut, known_last)

    def _begin(self, epoch: int, cut: int, known_last: int) -> None:
        self.epoch = epoch
        self.next = cut
        self.held: list[Segment] = []
        self.held_firsts: list[int] = []
        self.account = Account(self.producer, epoch, cut, max(known_last, cut - 1), cut - 1)
        self._watermark: tuple[int, int] | None = None  # behind which sequence, and up to which time
        self._watermark_us: int | None = None
        self.kept_count = sum(map(_count, self.ready))
        self.kept_bytes = sum(map(_size, self.ready))

    # --- receiving

    def learn(self, last: int) -> None:
        """The producer has published up to `last`."""
        if last > self.account.known_last:
            self.account.known_last = last

    def doubt(self, last: int) -> None:
        """The producer says that it has published up to `last` only, and something beyond it was heard of: a word that
        came late, or one that was a lie. Nobody waits for a lie, and what came late is heard again."""
        while self.held and self.held[-1].first > last:
            segment = self.held.pop()
            self.held_firsts.pop()
            self.kept_count -= _count(segment)
            self.kept_bytes -= _size(segment)
        heard = self.held[-1].last or 0 if self.held else self.next - 1
        self.account.known_last = max(last, heard)

    def pass_on(self, frames: Frames, in_hand_max: int) -> bool:
        """The common case at once: the next frames in order, nothing waiting, and room in the application's hands."""
        if frames.first != self.next or self.ready or self.held or frames.epoch != self.epoch or self.recovering:
            return False
        count = len(frames.payloads)
        last = frames.first + count - 1
        account, in_hand_count = self.account, self.in_hand_count + count
        if last < account.known_last or (in_hand_count > in_hand_max and not self._has_room(count, in_hand_max)):
            return False
        self.next = last + 1
        account.known_last = last
        self.in_hand.append(frames)
        self.in_hand_count = in_hand_count
        return True

    def take(self, frames: Frames) -> None:
        """Keep what is new of `frames`; the rest are duplicates (paper, section 3.1)."""
        first, last = frames.first, frames.last
        if first == self.next and not self.held:
            self._make_ready(frames)
            return
        if first < self.next:
            self.account.duplicates += min(last, self.next - 1) - first + 1
        for gap_first, gap_last in list(self._gaps(max(first, self.next), last)):
            part = frames.cut(gap_first, gap_last)
            if gap_first == self.next:
                self._make_ready(part)
            else:
                self._hold(part)
        self._advance()

    def declare(self, first: int, last: int, cause: str) -> None:
        """Every missing sequence of [first, last] is lost for good."""
        for gap_first, gap_last in list(self._gaps(max(first, self.next), last)):
            self._hold(Loss(self.producer, self.epoch, gap_first, gap_last, cause))
        self._advance()

    def close_epoch(self, epoch: int, known_last: int, ended: int | None, cause: str) -> None:
        """The producer goes on in a higher epoch. `ended`: where the old one ended, if anyone knows."""
        if ended is not None:
            self.learn(ended)
        self.declare(self.next, self.account.known_last, cause)
        invariant(not self.held, "a closed epoch has no gaps left")
        if ended is None:
            self.ready.append(Loss(self.producer, self.epoch, self.next, None, cause))
        self.closed.append(self.account)
        self._begin(epoch, 1, known_last)
        self.successor = self.closing = None
        self.attempts = 0

    @property
    def handed_through(self) -> int:
        """The last sequence of this epoch that the application was handed."""
        first = next((segment.first for segment in self.ready if segment.epoch == self.epoch), self.next)
        return first - 1

    def start_over(self, cut: int, information: bytes, cause: str) -> None:
        """The initial information stands for all up to the cut that the application has not been handed yet."""
        own = [segment for segment in self.ready if segment.epoch == self.epoch]
        first = self.handed_through + 1
        later = [_after(segment, cut) for segment in (*own, *self.held) if (segment.last or 0) > cut]
        self.ready = deque(segment for segment in self.ready if segment.epoch != self.epoch)
        self.held, self.held_firsts, self.next = [], [], first
        self.kept_count = sum(map(_count, self.ready))
        self.kept_bytes = sum(map(_size, self.ready))
        self._make_ready(Loss(self.producer, self.epoch, first, max(cut, first - 1), cause, information))
        self._place(later)
        self.recovering = self.fresh = False
        self.attempts = 0

    def begin_epoch(self, epoch: int) -> None:
        """A newcomer that waits for its initial information answers for nothing of the epoch before."""
        self.ready.clear()
        self._begin(epoch, 1, 0)
        self.successor = self.closing = None

    def begin_at(self, cut: int) -> None:
        """A newcomer's answer begins behind the cut that its initial information stands for."""
        later = [_after(segment, cut) for segment in (*self.ready, *self.held) if (segment.last or 0) > cut]
        self.ready.clear()
        self._begin(self.epoch, cut + 1, self.account.known_last)
        self._place(later)

    def _place(self, segments: list[Segment]) -> None:
        """Segments in the order of their sequences: ready as far as nothing is missing, held back behind a gap."""
        for segment in segments:
            if segment.first == self.next:
                self._make_ready(segment)
            else:
                self._hold(segment)

    def missing(self, most: int, room: int) -> list[Range]:
        """The lowest gaps up to what is known to exist: so many at the most, and so many events."""
        gaps: list[Range] = []
        for first, last in self._gaps(self.next, self.account.known_last):
            gaps.append((first, min(last, first + room - 1)))
            room -= last - first + 1
            if len(gaps) == most or room <= 0:
                break
        return gaps

    def lacking(self, first: int, last: int) -> int:
        """How many of [first, last] are neither in order nor held back."""
        return sum(high - low + 1 for low, high in self._gaps(max(first, self.next), last))

    def see_watermark(self, last: int, watermark_us: int | None) -> None:
        """Whatever comes behind `last` is stamped later than this time."""
        if watermark_us is not None and (self._watermark_us is None or watermark_us > self._watermark_us):
            self._watermark, self._watermark_us = (last, watermark_us), watermark_us

    # --- the application's side

    def take_watermark(self) -> int | None:
        """The newest watermark, once everything before it was handed over."""
        if self._watermark is None or self.recovering or self.handed_through < self._watermark[0]:
            return None
        _, watermark_us = self._watermark
        self._watermark = None
        return watermark_us

    def hand(self, in_hand_max: int) -> Segment | None:
        """The next segment for the application, when there is one and the application has room for it."""
        if not self.ready or self.recovering or not self._has_room(_count(self.ready[0]), in_hand_max):
            return None
        segment = self.ready.popleft()
        self.kept_count -= _count(segment)
        self.kept_bytes -= _size(segment)
        self.in_hand.append(segment)
        self.in_hand_count += _count(segment)
        return segment

    def _has_room(self, count: int, in_hand_max: int) -> bool:
        """Whether the application takes so many more. The bound does not end inside a time: who keeps whole times can
        accept nothing of one before it is over, and would wait for what is not handed over."""
        if not self.in_hand or self.in_hand_count + count <= in_hand_max:
            return True
        first = next((segment for segment in self.in_hand if isinstance(segment, Frames)), None)
        last = next((segment for segment in reversed(self.in_hand) if isinstance(segment, Frames)), None)
        if first is None or last is None or not last.more:
            return False
        accepted = max(self._account(first.epoch).accepted + 1 - first.first, 0)
        return first.times[accepted] == last.times[-1]

    def accept(self, epoch: int, through: int) -> None:
        """The application accepted everything up to (epoch, through): only now does the sequence move on."""
        in_hand = self.in_hand
        if len(in_hand) == 1 and through == self.next - 1 and epoch == self.epoch and not self.ready:
            # The common case at once: all that was handed over, of the present epoch.
            segment = in_hand[0]
            if type(segment) is Frames and segment.epoch == epoch:
                in_hand.popleft()
                self.in_hand_count = 0
                account = self.account
                account.delivered += through - account.accepted
                account.accepted = through
                return
        while self.in_hand and _before(self.in_hand[0], epoch, through):
            segment = self.in_hand.popleft()
            self.in_hand_count -= _count(segment)
            account = self._account(segment.epoch)
            if isinstance(segment, Loss):
                if segment.count != 0:
                    account.lost.append(segment)
                if segment.last is not None:
                    account.accepted = segment.last
            else:
                account.delivered += segment.last - account.accepted
                account.accepted = segment.last
        if self.in_hand:
            head = self.in_hand[0]
            account = self._account(head.epoch)
            if isinstance(head, Frames) and head.epoch == epoch and through > account.accepted:
                account.delivered += through - account.accepted
                account.accepted = through

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and sequence up to which everything is accepted; an earlier epoch's while any of it is not."""
        account = self._account(self._oldest_epoch())
        return account.epoch, account.accepted

    def forget_closed(self, kept: int) -> None:
        """Drop the oldest closed accounts beyond `kept`, never one with something still to accept."""
        while len(self.closed) > kept and self.closed[0].epoch < self._oldest_epoch():
            del self.closed[0]

    def _oldest_epoch(self) -> int:
        if self.in_hand:
            return self.in_hand[0].epoch
        return self.ready[0].epoch if self.ready else self.epoch

    def _account(self, epoch: int) -> Account:
        if epoch == self.epoch:
            return self.account
        return next(account for account in self.closed if account.epoch == epoch)

    # --- order

    def _make_ready(self, segment: Segment) -> None:
        self.ready.append(segment)
        self.kept_count += _count(segment)
        self.kept_bytes += _size(segment)
        last = segment.last
        invariant(last is not None, "only the end of an epoch is open")
        self.next = (last or 0) + 1
        self.learn(last or 0)

    def _hold(self, segment: Segment) -> None:
        at = bisect_left(self.held_firsts, segment.first)
        self.held.insert(at, segment)
        self.held_firsts.insert(at, segment.first)
        self.kept_count += _count(segment)
        self.kept_bytes += _size(segment)
        self.learn(segment.last or 0)

    def _advance(self) -> None:
        """Make ready what was held back and is now in order."""
        done = 0
        for segment in self.held:
            if segment.first != self.next:
                break
            self.kept_count -= _count(segment)
            self.kept_bytes -= _size(segment)
            self._make_ready(segment)
            done += 1
        if done:
            del self.held[:done]
            del self.held_firsts[:done]

    def _gaps(self, first: int, last: int) -> Iterator[Range]:
        """The parts of [first, last] that are not held back, in order."""
        at = max(bisect_left(self.held_firsts, first) - 1, 0)
        while first <= last and at < len(self.held):
            segment = self.held[at]
            segment_last = segment.last or 0
            if segment_last >= first:
                if segment.first > last:
                    break
                if segment.first > first:
                    yield first, segment.first - 1
                first = segment_last + 1
            at += 1
        if first <= last:
            yield first, last


def _after(segment: Segment, cut: int) -> Segment:
    if segment.first > cut:
        return segment
    if isinstance(segment, Frames):
        return segment.cut(cut + 1, segment.last)
    return Loss(segment.producer, segment.epoch, cut + 1, segment.last, segment.cause)


def _count(segment: Segment) -> int:
    return len(segment.payloads) if isinstance(segment, Frames) else 1


def _size(segment: Segment) -> int:
    return segment.size if isinstance(segment, Frames) else 0


def _before(segment: Segment, epoch: int, through: int) -> bool:
    if segment.epoch != epoch:
        return segment.epoch < epoch
    return (segment.first if segment.last is None else segment.last) <= through
