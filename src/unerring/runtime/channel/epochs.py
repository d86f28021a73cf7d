"""Fresh epochs for producers: a later one is higher, within this process and after its restart.

Milliseconds, since a supervisor brings a killed producer back within less than a second: with the same epoch its new
events would be taken for duplicates of the old ones.
"""

from __future__ import annotations

import threading
import time
from typing import Final

_SINCE_MS: Final = 1_577_836_800_000
"""The year 2020, so that five bytes are enough until 2054."""

_turn = threading.Lock()
_last = 0


def present_epoch(now: int) -> int:
    """The epoch from the wall clock; `now`, a machine's monotonic clock, cannot give it."""
    return time.time_ns() // 1_000_000 - _SINCE_MS


def fresh_epoch() -> int:
    """The wall clock's, and never one that this process has used. A clock set back makes consumers answer `Stale`."""
    global _last
    with _turn:
        _last = max(_last + 1, present_epoch(0))
        return _last
