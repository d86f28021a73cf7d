"""Consumers that repair each other's losses when the producer cannot.

Everyone who can be reached keeps the signed batches that came by, and tells the producer so; its heartbeats tell the
others. When an epoch is over, or the producer does not answer, whoever lacks something asks them. A peer can only hand
batches on: it cannot make one up, since it cannot sign, and nothing that it says declares a loss.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final

from unerring.channels.config import ConsumerConfig
from unerring.channels.feed import Feed
from unerring.channels.messages import SEQUENCE_MAX, Frames, Heartbeat, Nack, Peer, Range
from unerring.channels.signature import genuine
from unerring.model import Address, Effects, Report, Send

_TOGETHER: Final = 3
"""Peers asked at once; the next attempt asks the next ones."""
_PEERS_KNOWN_MAX: Final = 32
_ASKED_MAX: Final = 4096


class Peers:
    """One consumer among its peers. `address` is where they reach it; empty: nowhere, and it keeps nothing for them."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.address: Address = ""
        self._config = config
        self._kept = KeptBatches(config.peer_bytes_max)
        self.asked: dict[Address, None] = {}  # what comes from these must be signed
        self._turn = 0

    # --- giving

    def keep(self, frames: Frames) -> None:
        if self.address:
            self._kept.add(frames)

    def answer(self, sender: Address, nack: Nack) -> Effects:
        budget = self._config.peer_answer_bytes_max
        effects: Effects = []
        for first, last in nack.ranges:
            for frames in self._kept.batches(nack.producer, nack.epoch, first, last):
                if effects and frames.size > budget:
                    return effects
                budget -= frames.size
                effects.append(Send(sender, frames))
        return effects or [Report("channel.not_kept", f"{sender} asked for frames that were never kept here")]

    # --- taking

    def learn(self, feed: Feed, beat: Heartbeat) -> Effects:
        """Note who else listens, and the producer's key; announce this peer to the producer if it is not listed."""
        feed.beats += 1
        if not beat.key:
            return []
        feed.key = feed.key or beat.key
        effects: Effects = []
        if beat.epoch == feed.epoch and beat.key != feed.key:
            effects.append(Report("channel.key_changed", f"{beat.name}, epoch {beat.epoch}: its first key stays"))
        known = dict.fromkeys((*beat.peers, *feed.peers))
        feed.peers = [peer for peer in known if peer != self.address][:_PEERS_KNOWN_MAX]
        if self.address and self.address not in beat.peers:
            effects.append(Send(feed.address, Peer(feed.producer, beat.epoch, self.address)))
        return effects

    def may_help(self, feed: Feed) -> bool:
        return bool(feed.peers and feed.key) and not feed.recovering

    def ask(self, feed: Feed, through: int | None, room: int) -> Effects:
        """Some of them, in turn, for all that is missing, and for what may exist beyond. None: nobody knows the end."""
        ranges = feed.missing(self._config.nack_ranges_max, room)
        beyond: Range = max(feed.account.known_last + 1, feed.next), SEQUENCE_MAX if through is None else through
        if beyond[0] <= beyond[1]:
            ranges.append(beyond)
        if not ranges or not self.may_help(feed):
            return []
        request = Nack(feed.producer, feed.epoch, tuple(ranges), signed=True)
        count = len(feed.peers)
        chosen = [feed.peers[(self._turn + n) % count] for n in range(min(_TOGETHER, count))]
        self._turn += len(chosen)
        effects: Effects = []
        for peer in chosen:
            if peer in self.asked or len(self.asked) < _ASKED_MAX:
                self.asked[peer] = None
                effects.append(Send(peer, request))
        return effects

    def is_peer(self, feed: Feed, sender: Address) -> bool:
        return sender in self.asked and sender != feed.address

    def check(self, feed: Feed, sender: Address, frames: Frames) -> Report:
        """The report on a peer's batch: `channel.peer_repaired`, or why it is refused."""
        what = f"epoch {frames.epoch}, sequences {frames.first} to {frames.last} from {sender}"
        if not frames.signature:
            return Report("channel.unsigned", f"{what}: a part of a batch proves nothing; refused")
        if not genuine(frames, feed.key):
            if sender in feed.peers:
                feed.peers.remove(sender)  # it is not asked again
            return Report("channel.forged", f"{what}: not signed by this producer; refused")
        return Report(REPAIRED, count=feed.lacking(frames.first, frames.last))


REPAIRED: Final = "channel.peer_repaired"


class KeptBatches:
    """Signed batches of any producers, the oldest making room. None lies within another one of its epoch."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._epochs: dict[tuple[int, int], tuple[list[int], list[int], list[Frames]]] = {}  # firsts, lasts, batches
        self._oldest: deque[Frames] = deque()

    def add(self, frames: Frames) -> None:
        if frames.size > self._bytes_max:
            return
        firsts, lasts, batches = self._epochs.setdefault((frames.producer, frames.epoch), ([], [], []))
        first, last = frames.first, frames.last
        if lasts and lasts[-1] >= last:
            at = bisect_left(lasts, last)
            if firsts[at] <= first:
                return
        at = bisect_left(firsts, first)
        while at < len(firsts) and lasts[at] <= last:
            self._bytes -= batches[at].size
            del firsts[at], lasts[at], batches[at]
        firsts.insert(at, first)
        lasts.insert(at, last)
        batches.insert(at, frames)
        self._oldest.append(frames)
        self._bytes += frames.size
        while self._bytes > self._bytes_max or len(self._oldest) > 2 * self._bytes_max:
            self._forget(self._oldest.popleft())

    def _forget(self, frames: Frames) -> None:
        """Unless a longer one has taken its place already."""
        key = (frames.producer, frames.epoch)
        firsts, lasts, batches = self._epochs.get(key, ([], [], []))
        at = bisect_left(firsts, frames.first)
        if at < len(firsts) and batches[at] is frames:
            self._bytes -= frames.size
            del firsts[at], lasts[at], batches[at]
            if not firsts:
                del self._epochs[key]

    def batches(self, producer: int, epoch: int, first: int, last: int) -> list[Frames]:
        """Whole batches that hold any of [first, last], in order."""
        kept = self._epochs.get((producer, epoch))
        if kept is None:
            return []
        firsts, lasts, batches = kept
        return batches[bisect_left(lasts, first) : bisect_left(firsts, last + 1)]
