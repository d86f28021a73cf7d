"""What the hosts of a run agree on, for scenarios with upgrades: objects on a store that all of them reach.

Each object is created if it is absent: whoever comes later goes by what is there. Nothing is ever taken back, so that
a host which was away finds all steps that the others have taken.
"""

from __future__ import annotations

from typing import Final

from unerring.correlation import Switch, Topology
from unerring.model import TIME_MAX

UNDER_WAY: Final = "another upgrade is under way"
PAST: Final = "its time is in the past"


class Agreements:
    """Upgrades are numbered from 1. Step 2n-1 has the nodes of both editions of upgrade n, step 2n those that stay."""

    def __init__(self, first: Topology) -> None:
        self.steps = [first]
        self.ready: set[int] = set()
        """The upgrades whose new nodes are: from now on their time can be agreed on."""
        self._asked: list[int | None] = []
        self.agreed: dict[int, Switch] = {}

    @property
    def number(self) -> int:
        """Of the last upgrade that was begun."""
        return len(self._asked)

    @property
    def done(self) -> bool:
        """Whether no upgrade is under way."""
        return len(self.steps) > 2 * self.number

    def propose(self, at_us: int | None, reached_us: int) -> str:
        """Begin an upgrade that takes over not before a time; why not, if it is refused: then nothing is written."""
        if not self.done:
            return UNDER_WAY
        if at_us is not None and at_us < reached_us:
            return PAST
        self._asked.append(at_us)
        return ""

    def arrange(self, step: int, topology: Topology) -> bool:
        """Write down the nodes of a step; False: somebody was first."""
        if len(self.steps) > step:
            return False
        self.steps.append(topology)
        return True

    def settle(self, host: str, number: int, reached_us: int) -> None:
        """Agree on the time of an upgrade that is ready: how far the log was when it was looked at after that."""
        if number not in self.agreed:
            self.agreed[number] = self._switch(number, reached_us)

    def switch(self, host: str) -> Switch | None:
        """What was agreed last, as a host sees it."""
        return next(reversed(self.agreed.values()), None)

    def _switch(self, number: int, reached_us: int) -> Switch:
        asked_us = self._asked[number - 1]
        at_us = max(reached_us, 0, 0 if asked_us is None else asked_us)
        return Switch(number, min(at_us, TIME_MAX - 1))


class EachItsOwn(Agreements):
    """Each host goes by the time that it has found itself."""

    def __init__(self, first: Topology) -> None:
        super().__init__(first)
        self._own: dict[str, Switch] = {}

    def settle(self, host: str, number: int, reached_us: int) -> None:
        known = self._own.get(host)
        if known is None or known.number < number:
            self._own[host] = self._switch(number, reached_us)
        super().settle(host, number, reached_us)

    def switch(self, host: str) -> Switch | None:
        return self._own.get(host) or super().switch(host)
