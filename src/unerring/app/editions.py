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


def same_edition(app: App, proposed: Proposal) -> bool:
    return same_rules(edition(app), edition_of(proposed)) and same_reactions(app, proposed)


def number_of(place: Place, app: App) -> int:
    """The number of the edition that an app has: of the last one, if several are the same. One with other reactions
    than were ever agreed on goes with the rules that count."""
    exactly = [one.number for one in proposals(place.log) if same_edition(app, one)]
    known = current(place.log)
    return max(exactly, default=FIRST if known is None else known.number)
