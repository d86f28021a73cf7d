"""Nodes that come back with an empty disk, with one rule removed each."""

from __future__ import annotations

from unerring.model import Address
from unerring.processes import Clean, Incarnations, Memory, Recall, Rejoin, Replica, State


class TakesPartAtOnce(Rejoin):
    """Votes, and does everything else, before it has caught up."""

    def begin(self, now: int) -> None:
        super().begin(now)
        self._remember(now)


class AsksTooFew(Rejoin):
    """Takes the word of f others for that of f+1."""

    @property
    def enough(self) -> int:
        return super().enough - 1


class AnswersFromAnEmptyDisk(Rejoin):
    """Tells others what it knows, though that is nothing, because its own disk is empty as well."""

    def on_recall(self, sender: Address, message: Recall, now: int) -> None:
        incarnations = self._shared.incarnations
        lives = incarnations.lives
        incarnations.change(whole=True)
        super().on_recall(sender, message, now)
        incarnations.change(whole=lives.whole)


class SameIncarnation(Rejoin):
    """Comes back under the number that it had before."""

    def number(self, known: int, now: int) -> int:
        return 1


class _CountsAll(Incarnations):
    def counts(self, sender: Address, known: object) -> bool:
        return True


class CountsOldVotes(Rejoin):
    """Counts votes and acknowledgements of incarnations that are replaced."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self._shared.incarnations.__class__ = _CountsAll


class SaysClean(Replica):
    """Says that it has nothing left to undo, though it does not know."""

    def clean(self) -> Clean | None:
        clean = super().clean()
        return None if clean is None else Clean(clean.instance, clean.view, clean.group)


class TakesUpOldNamings(Replica):
    """Takes up what it was named for before it lost its disk."""

    def remember(self, memory: Memory) -> None:
        super().remember(memory)
        self.slot._naming = None
        self.context.forget("naming")


class BeginsAgain(Replica):
    """Begins an instance in view 0, where it may have begun it before."""

    def propose_start(self, state: State, first: bool, now: int) -> None:
        lives = self.context.shared.incarnations
        lives.lives, before = type(lives.lives)(known=lives.known), lives.lives
        super().propose_start(state, first, now)
        lives.lives = before
