"""Which of several drivers of one query seals an interval.

All of them compute every interval. The one that leads seals at once; the others hold what they have until the log shows
that interval sealed, which is the log's acknowledgement, or until they lead. The log cannot ask when nothing comes, so
whoever holds an interval for longer than its patience seals it, whoever seems to lead: an election buys peace, and
nothing rests on it. Two that seal at once do no harm: one of them finds it done.

Holding is the back-pressure too: a micro-batch is not over before its interval is sealed, and no next one begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from unerring.log import Chain

PATIENCE_S: Final = 0.25
SEALED_LOOK_S: Final = 0.005
"""How often a driver that holds an interval looks whether it is sealed, in a folder."""


class SealingOrder:
    """Says to one driver whether it seals. The threads of its queries ask `leads` whether it leads now."""

    def __init__(
        self, leads: Callable[[], bool], patience_s: float = PATIENCE_S, look_s: float = SEALED_LOOK_S
    ) -> None:
        self.sealed = 0
        """Intervals that were this driver's to seal."""
        self.held = 0
        """Intervals that another driver sealed."""
        self._leads = leads
        self._patience_s = max(patience_s, 3 * look_s)
        self._look_s = look_s
        self._ended = threading.Event()

    def __call__(self, chains: dict[str, Chain], through_us: int) -> bool:
        """Wait; whether this driver seals the interval that ends here."""
        until_s = time.monotonic() + self._patience_s
        while not all(chain.refresh() >= through_us for chain in chains.values()):
            if self._leads() or time.monotonic() > until_s or self._ended.wait(self._look_s):
                self.sealed += 1
                return True
        self.held += 1
        return False

    def end(self) -> None:
        """Release everybody who waits."""
        self._ended.set()
