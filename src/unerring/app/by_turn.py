"""Parts of a run that any of its hosts can do, and some do: those whose turn it is.

Two hosts may believe at once that it is their turn, and for a while nobody may. What is done by turn must bear both:
writers of a stream race for the next segment, a process is started by its id, a delivery carries its position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unerring.app.parts import Part

Turn = Callable[[bool], bool]
"""Whether it is this host's turn; it is told whether it was so far."""


def always(on: bool) -> bool:
    """On one host it always is."""
    return True


class ByTurn:
    """A part that is made and started when this host's turn comes, and stopped when it is over."""

    def __init__(self, name: str, make: Callable[[], Part], turn: Turn, say: Callable[[str], Any]) -> None:
        self._name = name
        self._make = make
        self._turn = turn
        self._say = say
        self._part: Part | None = None

    def start(self, say: Callable[[str], None]) -> None:
        """The turn is taken at the first check: the others have to be heard first."""

    def check(self) -> None:
        turn = self._turn(self._part is not None)
        if turn and self._part is None:
            self._say(f"{self._name} is done here from now on")
            self._part = self._make()
            self._part.start(self._say)
        elif not turn and self._part is not None:
            self._say(f"{self._name} is left to another host")
            self.stop()
        if self._part is not None:
            self._part.check()

    def stop(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.stop()
