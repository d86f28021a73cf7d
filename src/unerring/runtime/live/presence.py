"""Which hosts of a list are there, by what is heard of their processes; and so, whose turn it is to do what one or a
few of them do for all.

Nobody agrees on it. Each host counts those before it in the list: two that take their turn at once cost work, and
nothing else may rest on there being one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

SILENT_S = 3.0
"""A host of whose processes nothing was heard for so long is not counted on. Each speaks once a second."""
SETTLED_S = 6.0
"""A host that came back has its turn again after so long: until then, who stood in for it goes on."""


class Presence:
    """As one host of the list sees it. Until it has listened for a while, all others count as there."""

    def __init__(self, hosts: Sequence[str], here: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._hosts = tuple(hosts)
        self._here = here
        self._clock = clock
        self._began_s = clock()
        self._heard_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}

    def hear(self, host: str) -> None:
        """A word from a process of a host."""
        now_s = self._clock()
        if not self.is_there(host) or host not in self._since_s:
            self._since_s[host] = now_s
        self._heard_s[host] = now_s

    def is_there(self, host: str) -> bool:
        return host == self._here or self._clock() - self._heard_s.get(host, self._began_s) <= SILENT_S

    def is_turn(self, count: int, on: bool, among: Sequence[str] = ()) -> bool:
        """Whether this host is one of the first `count` of the list that are there. `on`: it was so far. `among`: only
        these can have a turn."""
        able = [host for host in self._hosts if not among or host in among]
        if self._here not in able:
            return False
        before = [host for host in able[: able.index(self._here)] if self.is_there(host)]
        if on:
            settled_s = self._clock() - SETTLED_S
            before = [host for host in before if self._since_s.get(host, self._began_s) <= settled_s]
        return len(before) < count
