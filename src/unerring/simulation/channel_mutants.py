"""Channel machines broken on purpose: each lacks one rule, and the simulation must catch it."""

from __future__ import annotations

from typing import Any

import msgspec

from unerring.channels import REPAIRED, Consumer, Feed, Frames, Nack, Peers, Position, Producer, Relay
from unerring.model import Broadcast, Effects, Persist, Report, Send


class PositionBeforeAcceptance(Consumer):
    """Moves the sequence on when it hands an event over."""

    def positions(self) -> dict[int, Position]:
        return {feed.producer: (feed.epoch, feed.next - 1) for feed in self._feeds.values()}


class NoDuplicateFilter(Consumer):
    """Hands everything over that arrives."""

    def _on_frames(self, sender: str, frames: Frames, now: int) -> Effects:
        feed = self._feeds.get(frames.producer)
        if feed is not None and frames.epoch == feed.epoch and frames.last < feed.next:
            feed.ready.append(frames)
        return super()._on_frames(sender, frames, now)


class _GaplessFeed(Feed):
    def take(self, frames: Frames) -> None:
        if frames.first > self.next:
            self.next = frames.first
        super().take(frames)


class NoGapDetection(Consumer):
    """Goes on with whatever comes next."""

    def _meet(self, producer: int, epoch: int, heard: int, address: str, now: int) -> Feed | None:
        feed = super()._meet(producer, epoch, heard, address, now)
        if feed is not None:
            feed.__class__ = _GaplessFeed
        return feed


class EpochBlind(Consumer):
    """Takes a restarted producer's first events for old ones."""

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        feed = self._feeds.get(getattr(message, "producer", 0))
        if feed is not None and hasattr(message, "epoch"):
            message = msgspec.structs.replace(message, epoch=feed.epoch)
        return super().handle(sender, message, now)


class SilentEpochEnd(Consumer):
    """Goes over to the next epoch without a word about the old one's missing end."""

    def _succeed(self, feed: Feed, epoch: int, ended: int | None) -> None:
        super()._succeed(feed, epoch, feed.next - 1)
        feed.account.cut = 1


class AsksOnce(Consumer):
    """Never repeats a request that was lost."""

    def _ask(self, feed: Feed, now: int) -> Effects:
        effects = super()._ask(feed, now)
        feed.armed = True
        return [effect for effect in effects if type(effect).__name__ != "SetTimer"]


class GivesUpSilently(Consumer):
    """Passes over a gap that nobody answers for, without declaring it."""

    def _give_up(self, feed: Feed) -> None:
        if feed.held:
            feed.next = feed.held[0].first
            feed._advance()


class SameEpochAgain(Producer):
    """A restarted producer that counts from one again in its old epoch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.epoch = 1


class NoHeartbeat(Producer):
    """Leaves a loss at the end of a burst for ever unseen."""

    def timer(self, name: str, now: int) -> Effects:
        return []


class ForgetsItsWatermark(Producer):
    """Goes on above its watermark after a restart, and does not tell it again."""

    def _go_on_above(self, stamp: tuple[int, int] | None) -> None:
        self._last_stamp = stamp


class NumbersReplayWrongly(Producer):
    """Answers a NACK with the right frames under the wrong numbers."""

    def _replay(self, to: str | None, first: int, last: int, bytes_max: int, effects: Effects) -> tuple[int, int]:
        before = len(effects)
        sent = super()._replay(to, first, last, bytes_max, effects)
        for at in range(before, len(effects)):
            message = getattr(effects[at], "message", None)
            if isinstance(message, Frames) and message.first > 1:
                shifted = msgspec.structs.replace(message, first=message.first - 1)
                effects[at] = msgspec.structs.replace(effects[at], message=shifted)
        return sent


class SendsBeforeDisk(Producer):
    """Sends a durable event before it is on disk: after a crash its number is given away again."""

    def publish(self, *arguments: Any) -> Effects | None:
        effects = super().publish(*arguments)
        return None if effects is None else sorted(effects, key=lambda effect: isinstance(effect, Persist))


class DeclaresTooSoon(Producer):
    """Says with every event that its time is over, and publishes more of that time all the same."""

    def _signed(self, message: Any) -> Any:
        told = msgspec.structs.replace(message, more=False) if isinstance(message, Frames) else message
        return super()._signed(told)


class RenumberingRelay(Relay):
    """Numbers what it passes on by itself, which hides what it lost."""

    def _pass_on(self, effects: Effects, now: int) -> Effects:
        counts: dict[tuple[int, int], int] = self.__dict__.setdefault("counts", {})
        out = super()._pass_on(effects, now)
        for at, effect in enumerate(out):
            if isinstance(effect, Broadcast) and isinstance(effect.message, Frames):
                frames = effect.message
                first = counts.get((frames.producer, frames.epoch), 0) + 1
                counts[frames.producer, frames.epoch] = first + len(frames.payloads) - 1
                out[at] = Broadcast(msgspec.structs.replace(frames, first=first))
        return out


class SilentRelay(Relay):
    """Passes on, and says nothing when a burst is over."""

    def timer(self, name: str, now: int) -> Effects:
        return [] if name.startswith("beat/") else super().timer(name, now)


class WelcomesAhead(Producer):
    """Hands initial information over at a cut that it does not stand for."""

    def welcome(self, consumer: str, information: bytes, now: int) -> Effects:
        self.last += 1
        effects = super().welcome(consumer, information, now)
        self.last -= 1
        return effects


class LyingPeers(Peers):
    """No mutant but a liar among honest machines: it hands on what was never published, under true signatures."""

    def answer(self, sender: str, nack: Nack) -> Effects:
        effects = super().answer(sender, nack)
        for at, effect in enumerate(effects):
            if isinstance(effect, Send) and isinstance(effect.message, Frames):
                frames: Frames = effect.message
                forged = msgspec.structs.replace(frames, payloads=[b"forged" for _ in frames.payloads])
                if frames.first % 2 == 0:
                    forged = msgspec.structs.replace(frames, first=frames.first + 1)
                effects[at] = Send(effect.to, forged)
        return effects


class _BelievingPeers(Peers):
    def check(self, feed: Feed, sender: str, frames: Frames) -> Report:
        return Report(REPAIRED, count=feed.lacking(frames.first, frames.last))


class BelievesPeers(Consumer):
    """Takes what peers send without looking at the signature."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.peers = _BelievingPeers(self._config)
