"""What an app is among the editions of a run: its rules and reactions, and which of the editions it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unerring.app.counted_reactions import goes_on
from unerring.app.place import Place
from unerring.pipeline import FIRST, Edition, Proposal, changes_of, current, edition_of, proposal_of, proposals

if TYPE_CHECKING:
    from unerring.app.application import App


def edition(app: App) -> Edition:
    """The rules of an app."""
    return Edition(app.plans, app.streams)


def proposal_by(number: int, address: str, app: App) -> Proposal:
    """An app as an edition, for the run's store."""
    return msgspec.structs.replace(
        proposal_of(number, address, edition(app), app.buckets),
        reactions=tuple((reaction.situation, reaction.process) for reaction in app.reactions),
        given=tuple(reaction.given for reaction in app.reactions),
    )


def same_rules(one: Edition, other: Edition) -> bool:
    changes = changes_of(one, other)
    return not changes.fresh and not changes.removed


def same_reactions(app: App, proposed: Proposal) -> bool:
    """Whether an edition has an app's reactions, as far as it is known what they gave."""
    return len(app.reactions) == len(proposed.reactions) and all(goes_on(one, proposed) for one in app.reactions)


def number_of(place: Place, app: App, *, lags: bool) -> int:
    """The number of the edition that an app has: of the last one, if several are the same. `lags`: others may have let
    a later one take over that has the same rules; else it is the one that counts."""
    if not lags:
        known = current(place.log)
        return FIRST if known is None else known.number
    same = [one for one in proposals(place.log) if same_rules(edition(app), edition_of(one))]
    exactly = [one for one in same if same_reactions(app, one)]
    return max((one.number for one in exactly or same), default=FIRST)
