"""An adaptive failure detector (Figure 3, line 1): a slow peer is not a dead one.

It learns how far apart a peer's signs of life are, and how much that varies, and suspects a peer whose silence is long
measured by that, within two bounds. Suspicion costs messages, never correctness: nothing is evicted on it.
"""

from __future__ import annotations

_WEIGHT = 8  # How many of the latest pauses an average stands for.
_DEVIATIONS = 6


class Detector:
    """Signs of life of named peers."""

    def __init__(self, suspect_us_min: int, suspect_us_max: int) -> None:
        self._min_us = suspect_us_min
        self._max_us = suspect_us_max
        self._heard_us: dict[str, int] = {}
        self._mean_us: dict[str, int] = {}
        self._spread_us: dict[str, int] = {}

    def hear(self, peer: str, now: int) -> None:
        """A sign of life."""
        heard_us = self._heard_us.get(peer)
        self._heard_us[peer] = now
        if heard_us is None:
            return
        pause_us = min(now - heard_us, self._max_us)
        mean_us = self._mean_us.get(peer, pause_us)
        error_us = pause_us - mean_us
        self._mean_us[peer] = mean_us + error_us // _WEIGHT
        spread_us = self._spread_us.get(peer, 0)
        self._spread_us[peer] = spread_us + (abs(error_us) - spread_us) // _WEIGHT

    def expect(self, peer: str, now: int) -> None:
        """Watch a peer from now on, if it is not watched yet."""
        self._heard_us.setdefault(peer, now)

    def forget(self, peer: str) -> None:
        for table in (self._heard_us, self._mean_us, self._spread_us):
            table.pop(peer, None)

    def patience_us(self, peer: str) -> int:
        """How long this peer may be silent."""
        learnt_us = 2 * self._mean_us.get(peer, 0) + _DEVIATIONS * self._spread_us.get(peer, 0)
        return max(self._min_us, min(learnt_us, self._max_us))

    def suspects(self, peer: str, now: int) -> bool:
        """Whether its silence is too long. One never heard of nor expected is suspected."""
        heard_us = self._heard_us.get(peer)
        return heard_us is None or now - heard_us > self.patience_us(peer)
