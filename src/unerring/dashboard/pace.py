"""How often somebody may do something: so many times at once, and so many more each second."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

KNOWN_MAX: Final = 1000
"""Of so many it is remembered how much they may still do; who did nothing for longest is forgotten, and begins anew."""


class Pace:
    """The same bound for each."""

    def __init__(self, at_once: int, per_s: float) -> None:
        self.at_once = at_once
        self.per_s = per_s
        self._left: dict[Hashable, tuple[float, float]] = {}
        """How often each may still, and since when."""

    def exceeds(self, who: Hashable, now_s: float) -> bool:
        """Whether this is more than anybody may. What is refused counts for nothing."""
        left, since_s = self._left.pop(who, (float(self.at_once), now_s))
        left = min(left + (now_s - since_s) * self.per_s, self.at_once)
        while len(self._left) >= KNOWN_MAX:
            del self._left[next(iter(self._left))]
        self._left[who] = (left if left < 1 else left - 1), now_s
        return left < 1
