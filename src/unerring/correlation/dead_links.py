"""LeaderDead between nodes (section V.B of the paper): a leader that cannot reach a receiver tells that one's peers. If
the receiver leads there, they elect another one, which the events do reach.

A link is dead when it ended, or when nothing was heard on it for so long that pings and repeated acks must have come.
It is told again and again until something is heard. Who is told in vain, since it was no leader, does nothing.
"""

from __future__ import annotations

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.detector import Detector
from unerring.correlation.messages import LeaderDead
from unerring.correlation.outgoing import Outgoing
from unerring.correlation.record import node_of
from unerring.model import Address, Effects, Send


class DeadLinks:
    """One leader's links to its receivers."""

    def __init__(self, config: CorrelationConfig) -> None:
        silent_us = 2 * max(config.ping_us, config.ack_repeat_us)
        self._heard = Detector(max(silent_us, config.suspect_us_min), max(silent_us, config.suspect_us_max))
        self._again_us = config.lease_us // 2
        self._ended: set[Address] = set()
        self._told_us: dict[Address, int] = {}

    def hear(self, name: Address, now: int) -> None:
        """Any word from a receiver."""
        self._heard.hear(name, now)
        if self._ended or self._told_us:
            self._ended.discard(name)
            self._told_us.pop(name, None)

    def ended(self, name: Address) -> None:
        """The link to somebody ended."""
        self._ended.add(name)

    def tell(self, outgoing: Outgoing, now: int) -> Effects:
        """As a leader: which receivers cannot be reached, to their peers."""
        effects: Effects = []
        for name in outgoing.receivers() if outgoing.leading else ():
            self._heard.expect(name, now)
            told_us = self._told_us.get(name)
            if name not in self._ended and not self._heard.suspects(name, now):
                continue
            if told_us is None or now - told_us >= self._again_us:
                self._told_us[name] = now
                peers = [other for other in outgoing.record.of(node_of(name)) if other != name]
                effects += [Send(other, LeaderDead(name)) for other in peers]
        return effects
