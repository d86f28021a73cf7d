"""Which reactions of a run counted when: by what was agreed upon on its store, and by the app that ran last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from unerring.log import EventLog
from unerring.model import TIME_MAX, TIME_MIN, Event
from unerring.processes import Reaction, digest_of

if TYPE_CHECKING:
    from unerring.pipeline import Proposal

Pair = tuple[str, str]
"""A situation and the process that it starts."""


class Stretch(msgspec.Struct, frozen=True):
    """A time in which a reaction counted."""

    after_us: int
    until_us: int
    reactions: tuple[Reaction, ...]
    """As it was then, and as it was later, when it may have acted on what was left. Empty: that is not known."""


class CountedReaction(msgspec.Struct, frozen=True):
    """One reaction over the whole run. It may have come, gone and changed."""

    reaction: Reaction
    stretches: tuple[Stretch, ...]
    goes_on: bool
    """Whether the app that ran last has it."""

    def counts(self, time_us: int) -> bool:
        return self._at(time_us) is not None

    def given(self, situation: Event) -> tuple[str, ...]:
        """Digests of what the instance of a situation may be given; none: that is not known."""
        stretch = self._at(situation.stamp.time)
        reactions = self._all() if stretch is None else stretch.reactions
        return tuple(digest_of(one.process, one.values(situation)) for one in reactions)

    def _at(self, time_us: int) -> Stretch | None:
        return next((one for one in self.stretches if one.after_us < time_us <= one.until_us), None)

    def _all(self) -> tuple[Reaction, ...]:
        known = all(stretch.reactions for stretch in self.stretches)
        return tuple({one: None for stretch in self.stretches for one in stretch.reactions}) if known else ()


def reactions_in(proposed: Proposal) -> dict[Pair, Reaction | None]:
    """The reactions of an edition. None: the release that wrote it down did not say what the process is given."""
    given = (*proposed.given, *[None] * (len(proposed.reactions) - len(proposed.given)))
    return {
        pair: None if one is None else Reaction(*pair, one) for pair, one in zip(proposed.reactions, given, strict=True)
    }


def goes_on(reaction: Reaction, following: Proposal) -> bool:
    """Whether a reaction is the same in the edition that follows."""
    known = reactions_in(following)
    pair = reaction.situation, reaction.process
    return pair in known and known[pair] in (None, reaction)


def counted_reactions(log: EventLog, own: Iterable[Reaction]) -> list[CountedReaction]:
    """All that ever counted. `own`: those of the app that ran last.

    A reaction that came without an upgrade, as it may where the rules are the same, goes on where it had ended, or
    begins with the log.
    """
    from unerring.pipeline import agreed_upgrades, proposals

    ends = [agreed.at_us for agreed in agreed_upgrades(log)]
    editions = [reactions_in(proposed) for proposed in proposals(log)[: len(ends) + 1]] or [{}]
    last: dict[Pair, Reaction | None] = {(one.situation, one.process): one for one in own}
    pairs = dict.fromkeys(pair for edition in (*editions, last) for pair in edition)
    bounds = list(zip([TIME_MIN, *ends], [*ends, TIME_MAX], strict=True))
    return [
        CountedReaction(
            last.get(pair) or Reaction(*pair, ()),
            tuple(_stretches(pair, [*editions, last], bounds)),
            pair in last,
        )
        for pair in pairs
    ]


def _stretches(
    pair: Pair, editions: list[dict[Pair, Reaction | None]], bounds: list[tuple[int, int]]
) -> Iterator[Stretch]:
    """`editions`: the app that ran last is the last one."""
    came = pair in editions[-1] and pair not in editions[-2]
    for number, (after_us, until_us) in enumerate(bounds):
        if came or pair in editions[number]:
            since = dict.fromkeys(edition[pair] for edition in editions[number:] if pair in edition)
            known = tuple(one for one in since if one is not None)
            yield Stretch(after_us, until_us, known if len(known) == len(since) else ())
