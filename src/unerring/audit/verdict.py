"""What a checker says: nothing, or what was violated with the smallest part of the history that shows it."""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """One promise that a history breaks. A checker is a pure function from a history to a list of these."""

    promise: str
    """What should have held, in a few words: the same words for every violation of that promise."""
    witness: tuple[str, ...]
    """The lines of the history that show it, in order; enough to believe it without running anything."""

    def __str__(self) -> str:
        return "\n    ".join((self.promise, *self.witness))
