"""What a process node has seen of each service: how long it takes, and since when it fails and why."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from unerring.model import Histogram
from unerring.processes import Answer, Reply, Request
from unerring.tracing import effect_time_us

WHY_MAX: Final = 300
CLOCKED_S: Final = 3600.0
"""Event time that is further from this clock is not the time of publishing: nothing is measured from it."""


class ServiceSeen(msgspec.Struct):
    """A service, as one node has seen it since it started."""

    name: str
    address: str = ""
    asked: int = 0
    failed: int = 0
    """Requests of which nothing is known, or that did not get there."""
    failing_since_us: int = 0
    """Wall time of the first of these after the last answer; 0: it has answered since."""
    answered_us: int = 0
    """Wall time of the last answer."""
    why: str = ""
    """Of the last failure."""
    took: Histogram = msgspec.field(default_factory=Histogram)
    """From request to answer."""
    effects: Histogram = msgspec.field(default_factory=Histogram)
    """From the event that decided a situation, by its producer's clock, to the answer that its effect is done."""


class Asked:
    """Keeps it of one service."""

    def __init__(self, name: str, address: str, clock: Callable[[], float] = time.time) -> None:
        self.seen = ServiceSeen(name, address)
        self._clock = clock

    def take(self, request: Request, reply: Reply, began_s: float) -> None:
        """A reply to a request that was made at `began_s`, by this clock."""
        seen, now_s = self.seen, self._clock()
        if reply.answer == Answer.WAIT:
            return
        seen.asked += 1
        seen.took.add(max(0.0, now_s - began_s))
        if reply.answer in (Answer.UNKNOWN, Answer.UNREACHED):
            seen.failed += 1
            seen.failing_since_us = seen.failing_since_us or int(began_s * 1e6)
            seen.why = str(reply.value)[:WHY_MAX] or "it gave no answer"
            return
        seen.failing_since_us, seen.answered_us = 0, int(now_s * 1e6)
        caused_us = effect_time_us(request.instance)
        if reply.answer == Answer.DONE and request.mode == "do" and caused_us is not None:
            took_s = now_s - caused_us / 1e6
            if -1.0 <= took_s <= CLOCKED_S:
                seen.effects.add(max(0.0, took_s))
