"""A node's own time: whether its ticks come late, whether it could win a view now, and its heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from unerring.model import SECOND_US, Address
from unerring.processes.context import Shared
from unerring.processes.messages import Heartbeat
from unerring.processes.pacing import Beats, Leading

LATE_US_MAX: Final = 30 * SECOND_US


class Pulse:
    """The pulse of one node."""

    def __init__(self, shared: Shared, now: int) -> None:
        self._shared = shared
        self._peers: tuple[Address, ...] = tuple(node for node in shared.nodes if node != shared.me)
        self.beats = Beats(shared.config)
        self.ticked_us = now
        self._next_heartbeat_us = 0
        self._late_since_us: int | None = None
        """Since when every tick has been late."""
        self.could_win = False
        """Whether it could have won a view at the last tick."""

    def tick(self, now: int) -> bool:
        """Whether this node slept, or was cut off: messages that the others sent meanwhile are still unread."""
        before, self.could_win = self.could_win, self._can_win(now)
        slept = self._was_late(now) or self.could_win > before
        self.ticked_us = now
        return slept

    def _was_late(self, now: int) -> bool:
        """Whether this node was paused, or had too much to do, since its last tick. One that is late for very long is
        just slow: it must not for ever take everybody's silence for its own."""
        if now - self.ticked_us <= self._shared.config.suspect_us // 2:
            self._late_since_us = None
            return False
        if self._late_since_us is None:
            self._late_since_us = now
        return now - self._late_since_us < LATE_US_MAX

    def _can_win(self, now: int) -> bool:
        """Whether enough nodes are heard that a view can be won. One that has just come back, or is cut off, does not
        ask for any: when it hears the others again, they will tell it what they lead."""
        hearing = self._shared.hearing
        return sum(not hearing.silent(peer, now) for peer in self._peers) >= self._shared.bounds.f

    def beat(self, instances: Mapping[str, Leading], now: int) -> None:
        """Heartbeats, if it is time."""
        if now >= self._next_heartbeat_us:
            self._next_heartbeat_us = now + self._shared.config.heartbeat_us
            for peer, leads in self.beats.next(instances, self._peers, now).items():
                self._shared.out.send(peer, Heartbeat(leads, self.beats.round_us))

    def tell_end(self, replica: Leading) -> None:
        """An instance that this node leads has ended: its other replicas, and whoever waits there, learn it now and not
        with the next heartbeat, which repeats it should it be lost. Whether they are clean has time until then: many
        instances are settled with one commit."""
        lead = replica.lead()
        if lead is not None:
            early = Heartbeat((msgspec.structs.replace(lead, ask_clean=False),), self.beats.round_us, early=True)
            for member in replica.others:
                self._shared.out.send(member, early)
