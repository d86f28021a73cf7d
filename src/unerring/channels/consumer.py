"""The consumer machine: finds gaps, asks the producer for what is missing, hands events over in order and once, and
declares exactly what is lost (paper, sections 3.1 to 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from unerring.channels.config import ConsumerConfig, Start
from unerring.channels.feed import Closing, Feed
from unerring.channels.ledger import Ledger
from unerring.channels.messages import (
    Ack,
    Evicted,
    Frames,
    Gone,
    Heartbeat,
    Initial,
    Nack,
    Newcomer,
    PresentEpoch,
    Stale,
    Watermark,
    any_epoch,
    check_epoch,
)
from unerring.channels.peers import REPAIRED, Peers
from unerring.channels.signature import KeyOf, Verifier
from unerring.model import MILLISECOND_US, Address, CancelTimer, Deliver, Effects, Entropy, Report, Send, SetTimer

NACK: Final = "nack/"
ACK: Final = "ack"
SILENCE: Final = "silence/"
_PEERS_AFTER: Final = 2
"""Requests that the producer may leave unanswered before its consumers' peers are asked too."""
_ACCOUNTS_KEPT: Final = 64
_SHARED: Final = 4
_IN_HAND_LEAST: Final = 1000
_CLOSED: Final = "the producer restarted without its buffer"
_UNANSWERED: Final = "the producer did not answer"
_EVICTED: Final = "evicted from the producer's buffer"
_GONE: Final = "lost on the way to a relay"
_RECOVERED: Final = "the producer's initial information stands for it"

Position = tuple[int, int]
"""Epoch and the last accepted sequence."""


class Consumer:
    """One consumer of any number of producers.

    `Deliver` effects carry Frames and Loss values, in order for each producer; the driver answers each with `accepted`
    once the application has taken it. A Watermark stands in the same order and is not answered.
    """

    def __init__(
        self,
        entropy: Entropy,
        config: ConsumerConfig | None = None,
        positions: Mapping[int, Position] | None = None,
        present: PresentEpoch = any_epoch,
        key_of: KeyOf | None = None,
    ) -> None:
        """`positions`: where to go on from. `present`: the epoch that a producer which starts at a time would take.
        `key_of`: only what producers signed is believed, by the keys that it knows."""
        self._config = config or ConsumerConfig()
        self._present = present
        self._entropy = entropy
        self._verifier = None if key_of is None else Verifier(key_of)
        self._feeds: dict[int, Feed] = {}
        self._in_hand_max = self._config.in_hand_max
        self.peers = Peers(self._config)
        self._positions = dict(positions or {})

    def believe(self, key_of: KeyOf) -> None:
        """From now on only what producers signed is believed, by these keys."""
        if self._verifier is None:
            self._verifier = Verifier(key_of)
        else:
            self._verifier.renew(key_of)

    def start(self, now: int) -> Effects:
        return [SetTimer(ACK, now + self._config.ack_interval_us)] if self._config.registered else []

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        """ProtocolError: what the sender cannot mean; nothing of it was believed."""
        if self._verifier is not None and not isinstance(message, Nack):
            forged = self._verifier.refusal(sender, message)
            if forged is not None:
                return [forged]
        if isinstance(message, Frames):
            return self._on_frames(sender, message, now)
        if isinstance(message, Heartbeat):
            return self._on_heartbeat(sender, message, now)
        if isinstance(message, Evicted):
            return self._on_evicted(message, now)
        if isinstance(message, Gone):
            return self._on_gone(message, now)
        if isinstance(message, Initial):
            return self._on_initial(sender, message, now)
        if isinstance(message, Nack):
            return self.peers.answer(sender, message)
        return [Report("channel.unexpected", f"{type(message).__name__} from {sender}: a consumer has no use for it")]

    def timer(self, name: str, now: int) -> Effects:
        if name == ACK:
            return [*self._acks(), SetTimer(ACK, now + self._config.ack_interval_us)]
        if name.startswith(SILENCE):
            return self._on_silence(self._feeds[int(name.removeprefix(SILENCE))], now)
        feed = self._feeds[int(name.removeprefix(NACK))]
        feed.armed = False
        return self._ask(feed, now)

    def accepted(self, producer: int, epoch: int, through: int, now: int) -> Effects:
        """The application has taken what it was handed up to here; an open-ended loss counts by its first sequence."""
        feed = self._feeds[producer]
        feed.accept(epoch, through)
        if not feed.ready and not feed.armed and feed.next > feed.account.known_last:
            return []
        effects: Effects = []
        self._hand(feed, effects)
        self._watch(feed, now, effects)
        return effects

    def recover(self, producer: int, now: int) -> Effects:
        """Quit and recover (paper, section 3.4): as a newcomer, ask for the producer's initial information.

        Nothing more of this producer is handed over until it came, or until nobody answered often enough.
        """
        feed = self._feeds[producer]
        feed.recovering = True
        feed.attempts = 0
        effects: Effects = []
        self._watch(feed, now, effects)
        return effects

    # --- what producers say

    def _on_frames(self, sender: Address, frames: Frames, now: int) -> Effects:
        feed = self._feeds.get(frames.producer)
        if feed is None:
            feed = self._meet(frames.producer, frames.epoch, frames.first, sender, now)
            if feed is None:
                return [Report("channel.producers_max", f"frames of one more producer from {sender} refused")]
        if self.peers.asked and self.peers.is_peer(feed, sender):
            return self._on_peer_frames(feed, sender, frames, now)
        if frames.signature:
            self.peers.keep(frames)
        if not feed.armed and feed.pass_on(frames, self._in_hand_max):
            return [Deliver(frames)]
        return self._take(feed, sender, frames, now)

    def _on_peer_frames(self, feed: Feed, sender: Address, frames: Frames, now: int) -> Effects:
        if frames.epoch != feed.epoch:
            return []  # asked for before the epoch was closed
        report = self.peers.check(feed, sender, frames)
        if report.what != REPAIRED:
            return [report]
        self.peers.keep(frames)
        if report.count == 0:
            return []
        feed.attempts = 0
        effects = self._take(feed, sender, frames, now)
        closing = feed.closing
        if closing is not None and closing.ended is not None and feed.next > closing.ended:
            self._end_epoch(feed, closing)
            self._hand(feed, effects)
            self._watch(feed, now, effects)
        return [report, *effects]

    def _take(self, feed: Feed, sender: Address, frames: Frames, now: int) -> Effects:
        effects: Effects = []
        if frames.epoch != feed.epoch:
            if frames.epoch < feed.epoch:
                return [
                    Send(sender, Stale(frames.producer, frames.epoch, feed.epoch)),
                    Report(
                        "channel.stale", f"frames of epoch {frames.epoch} from {sender}; epoch {feed.epoch} is current"
                    ),
                ]
            self._check_epoch(frames.epoch, now)
            # Whether the old epoch's end is known only a heartbeat tells; these frames will be asked for again.
            feed.successor = max(feed.successor or 0, frames.epoch)
            self._watch(feed, now, effects)
            return effects
        if self._full(feed) and (feed.ready or frames.first > feed.next):
            feed.learn(frames.last)
            return [Report("channel.hold_full", count=len(frames.payloads))]
        feed.take(frames)
        self._hand(feed, effects)
        if feed.held or feed.armed or feed.recovering or feed.next <= feed.account.known_last:
            self._watch(feed, now, effects)
        return effects

    def _on_heartbeat(self, sender: Address, beat: Heartbeat, now: int) -> Effects:
        feed = self._feeds.get(beat.producer)
        if feed is None:
            feed = self._meet(beat.producer, beat.epoch, beat.last + 1, sender, now)
            if feed is None:
                return [Report("channel.producers_max", f"a heartbeat of one more producer from {sender} refused")]
        if beat.epoch < feed.epoch:
            return [Send(sender, Stale(beat.producer, beat.epoch, feed.epoch))]
        if beat.epoch > feed.epoch:
            self._check_epoch(beat.epoch, now)
        feed.name = beat.name
        feed.address = beat.direct or sender
        effects = self.peers.learn(feed, beat)
        if feed.peers and not feed.watched:
            feed.watched = True
            effects.append(SetTimer(f"{SILENCE}{feed.producer}", now + self._config.peer_silence_us))
        if beat.epoch > feed.epoch:
            self._on_successor(feed, beat)
        elif beat.last < feed.account.known_last:
            feed.doubt(beat.last)
        else:
            feed.learn(beat.last)
        if beat.epoch == feed.epoch:
            feed.see_watermark(beat.last, beat.watermark_us)
        self._hand(feed, effects)
        self._watch(feed, now, effects)
        return effects

    def _on_successor(self, feed: Feed, beat: Heartbeat) -> None:
        """The old epoch is over. Peers may have what is missing of it; only then is the rest declared."""
        ended = beat.previous_last if beat.previous_epoch == feed.epoch else None
        if feed.closing is not None:
            ended = feed.closing.ended if ended is None else ended
        closing = Closing(beat.epoch, beat.last, beat.key, ended)
        complete = ended is not None and feed.next > ended
        if complete or not self.peers.may_help(feed):
            self._end_epoch(feed, closing)
            return
        if feed.closing is None:
            feed.attempts = 0
        feed.closing, feed.successor = closing, beat.epoch

    def _end_epoch(self, feed: Feed, closing: Closing) -> None:
        self._succeed(feed, closing.epoch, closing.ended)
        feed.key = closing.key or feed.key
        feed.learn(closing.last)

    def _on_silence(self, feed: Feed, now: int) -> Effects:
        """Nothing at all since the last time: the producer may be gone, and others may have more of it."""
        heard = (feed.epoch, feed.account.known_last, feed.beats)
        effects: Effects = self.peers.ask(feed, None, self._room(feed)) if heard == feed.heard else []
        feed.heard = heard
        return [*effects, SetTimer(f"{SILENCE}{feed.producer}", now + self._config.peer_silence_us)]

    def _on_evicted(self, evicted: Evicted, now: int) -> Effects:
        feed = self._feeds.get(evicted.producer)
        if feed is None or evicted.epoch != feed.epoch:
            return []
        effects: Effects = []
        if feed.successor is None:
            last = min(evicted.lowest - 1, feed.account.known_last)
            feed.declare(feed.next, last, _EVICTED)
            self._hand(feed, effects)
        self._watch(feed, now, effects)
        return effects

    def _on_gone(self, gone: Gone, now: int) -> Effects:
        feed = self._feeds.get(gone.producer)
        if feed is None or gone.epoch != feed.epoch or feed.successor is not None:
            return []
        for first, last in gone.ranges:
            feed.declare(first, min(last, feed.account.known_last), _GONE)
        effects: Effects = []
        self._hand(feed, effects)
        self._watch(feed, now, effects)
        return effects

    def _on_initial(self, sender: Address, initial: Initial, now: int) -> Effects:
        feed = self._feeds.get(initial.producer)
        if feed is None or not feed.recovering or initial.epoch < feed.epoch:
            return [Report("channel.unexpected", f"initial information from {sender} that nobody waits for")]
        self._check_epoch(initial.epoch, now)
        feed.name, feed.address = initial.name, initial.direct or sender
        if initial.epoch > feed.epoch:
            self._succeed(feed, initial.epoch, None)
        elif initial.cut < feed.handed_through and not feed.fresh:
            return [Report("channel.unexpected", f"initial information from {sender} that is older than what we have")]
        if feed.fresh:
            feed.begin_at(initial.cut)
        feed.start_over(initial.cut, initial.information, _RECOVERED)
        effects: Effects = []
        self._hand(feed, effects)
        self._watch(feed, now, effects)
        return effects

    def _check_epoch(self, epoch: int, now: int) -> None:
        check_epoch(epoch, self._present(now) + self._config.epoch_ahead_us_max // MILLISECOND_US)

    def _meet(self, producer: int, epoch: int, heard: int, address: Address, now: int) -> Feed | None:
        """A producer not known before. The cut is where this consumer's answer for it begins."""
        self._check_epoch(epoch, now)
        if len(self._feeds) >= self._config.producers_max:
            return None
        position = self._positions.get(producer)
        if position is not None:
            feed = Feed(producer, position[0], position[1] + 1, position[1], address)
        elif self._config.start is Start.EARLIEST:
            feed = Feed(producer, epoch, 1, heard - 1, address)
        else:
            feed = Feed(producer, epoch, heard, heard - 1, address)
            feed.recovering = feed.fresh = self._config.start is Start.INITIAL
        self._feeds[producer] = feed
        share = _SHARED * self._config.in_hand_max // len(self._feeds)
        self._in_hand_max = min(self._config.in_hand_max, max(share, _IN_HAND_LEAST))
        return feed

    def _succeed(self, feed: Feed, epoch: int, ended: int | None) -> None:
        if feed.fresh:
            feed.begin_epoch(epoch)
            return
        feed.close_epoch(epoch, 0, ended, _CLOSED)
        feed.forget_closed(_ACCOUNTS_KEPT)

    # --- gaps

    def _watch(self, feed: Feed, now: int, effects: Effects) -> None:
        """Arm the NACK timer when something is missing and there is room for it; disarm it when nothing is."""
        wanted = (
            feed.recovering
            or feed.successor is not None
            or (feed.next <= feed.account.known_last and self._may_ask(feed))
        )
        if wanted and not feed.armed:
            feed.armed = True
            effects.append(SetTimer(f"{NACK}{feed.producer}", now + self._pause_us(feed)))
        elif not wanted and feed.armed:
            feed.armed = False
            feed.attempts = 0
            effects.append(CancelTimer(f"{NACK}{feed.producer}"))

    def _ask(self, feed: Feed, now: int) -> Effects:
        """One request for all that is missing. Attempts count against the lowest gap: any repair of it starts anew."""
        effects: Effects = []
        if feed.successor is None and not feed.recovering and feed.next != feed.asked_for:
            feed.asked_for = feed.next
            feed.attempts = 0
        if feed.attempts >= self._attempts_max(feed):
            self._give_up(feed)
            self._hand(feed, effects)
        if feed.recovering:
            feed.attempts += 1
            effects.append(Send(feed.address, Newcomer(feed.producer, feed.epoch)))
        elif feed.closing is not None:
            feed.attempts += 1
            effects.extend(self.peers.ask(feed, feed.closing.ended, self._room(feed)))
        elif feed.successor is not None:
            feed.attempts += 1
            effects.append(Send(feed.address, Nack(feed.producer, feed.successor, ())))
        elif self._may_ask(feed):
            # When hold-back is full only the lowest gap helps: it lets the rest go.
            ranges = feed.missing(1 if self._full(feed) else self._config.nack_ranges_max, self._room(feed))
            if ranges:
                feed.attempts += 1
                bytes_max = self._config.answer_bytes_max
                effects.append(Send(feed.address, Nack(feed.producer, feed.epoch, tuple(ranges), bytes_max=bytes_max)))
                if feed.attempts > _PEERS_AFTER:
                    effects.extend(self.peers.ask(feed, feed.account.known_last, self._room(feed)))
        self._watch(feed, now, effects)
        return effects

    def _attempts_max(self, feed: Feed) -> int:
        config = self._config
        return config.nack_attempts_max if feed.closing is None or feed.recovering else config.peer_attempts_max

    def _give_up(self, feed: Feed) -> None:
        if feed.recovering:
            feed.recovering = feed.fresh = False  # nobody answers: go on with what comes
        elif feed.closing is not None:
            self._end_epoch(feed, feed.closing)
        elif feed.successor is not None:
            self._succeed(feed, feed.successor, None)
        else:
            feed.declare(feed.next, feed.account.known_last, _UNANSWERED)
        feed.attempts = 0

    def _pause_us(self, feed: Feed) -> int:
        config = self._config
        if feed.attempts == 0:
            return int(config.nack_delay_us * (0.5 + self._entropy.random()))
        pause = min(max(config.nack_delay_us, 1000) << min(feed.attempts, 20), config.nack_pause_us_max)
        return int(pause * (0.5 + self._entropy.random()))

    def _full(self, feed: Feed) -> bool:
        config = self._config
        return feed.kept_count >= config.hold_count_max or feed.kept_bytes >= config.hold_bytes_max

    def _room(self, feed: Feed) -> int:
        """Events that hold-back can take: more of them need not be sent."""
        return max(self._config.hold_count_max - feed.kept_count, 1)

    def _may_ask(self, feed: Feed) -> bool:
        """A full hold-back whose head waits for the application needs nothing more for now."""
        return not feed.ready or not self._full(feed)

    def _hand(self, feed: Feed, effects: Effects) -> None:
        while (segment := feed.hand(self._in_hand_max)) is not None:
            effects.append(Deliver(segment))
        watermark_us = feed.take_watermark()
        if watermark_us is not None:
            effects.append(Deliver(Watermark(feed.producer, feed.epoch, feed.handed_through, watermark_us)))

    def _acks(self) -> Effects:
        return [
            Send(feed.address, Ack(feed.producer, feed.epoch, self._config.registered, feed.account.accepted))
            for feed in self._feeds.values()
        ]

    # --- what can be seen

    def ledger(self) -> Ledger:
        """Every account this consumer answers for."""
        return Ledger(tuple(account for feed in self._feeds.values() for account in (*feed.closed, feed.account)))

    def met(self) -> list[int]:
        """The producers heard of since the start."""
        return list(self._feeds)

    def positions(self) -> dict[int, Position]:
        """Where to go on from after a restart, by producer."""
        return {**self._positions, **{feed.producer: feed.position for feed in self._feeds.values()}}

    def position(self, producer: int) -> Position | None:
        """The same for one producer, if it was heard of since the start."""
        feed = self._feeds.get(producer)
        return None if feed is None else feed.position

    def name_of(self, producer: int) -> str:
        """The producer's name once a heartbeat has given it; until then its id in hexadecimal."""
        feed = self._feeds.get(producer)
        return feed.name if feed is not None and feed.name else f"{producer:016x}"
