"""Watches who leads an instance, and how long it may be silent (t_h and t_b of the paper)."""

from __future__ import annotations

from typing import Final

from unerring.model import SECOND_US, Address
from unerring.processes.context import Context

START_US: Final = SECOND_US
"""How much longer the first replica, if it is heard, gets for a start than a leader for its next sign."""


class Watch:
    """This replica's knowledge of the instance's leader. `started`, as an argument: it has accepted a state."""

    __slots__ = ("_context", "_patience_us", "elections", "leader", "leaderless_us", "led_us")

    def __init__(self, context: Context, now: int) -> None:
        self._context = context
        self.led_us = now
        """When a leader of the highest view last spoke of the instance."""
        self.leader: Address = ""
        """The leader that was last heard."""
        self.elections = 0
        """Candidacies since somebody led."""
        self.leaderless_us: int | None = None
        """While this replica wants to lead because nobody does: when the last leader was last heard."""
        self._patience_us = self._draw_patience()

    def _draw_patience(self) -> int:
        """t_h and a random t_b, which grows while elections fail: candidates that collide must part."""
        config = self._context.config
        backoff_us = config.backoff_us << min(self.elections, 6)
        return config.suspect_us + int(self._context.shared.entropy.random() * backoff_us)

    @property
    def _pause_us(self) -> int:
        """t_b once the link to a leader broke: nothing for the next one in turn, and a whole t_b more for the others,
        who would only collide with it."""
        drawn_us, members = self._patience_us - self._context.config.suspect_us, self._context.members
        after = members.index(self.leader) + 1 if self.leader in members else 0
        next_in_turn = members[after % len(members)]
        return 0 if next_in_turn == self._context.me else self._context.config.backoff_us + drawn_us

    def led(self, now: int, by: Address = "") -> None:
        self.led_us, self.elections, self.leaderless_us = now, 0, None
        self.follow(by)

    def lost(self) -> None:
        """Nobody leads, as far as can be known here."""
        if self.leaderless_us is None:
            self.leaderless_us = max(self.led_us, self._context.shared.hearing.heard_us.get(self.leader, 0))

    def won(self, now: int) -> int | None:
        """A state of this replica's own view is decided: how long nobody led, if it was a candidate for that."""
        since_us, self.leaderless_us = self.leaderless_us, None
        return None if since_us is None else max(now - since_us, 0)

    def candidacy(self, now: int) -> None:
        """This replica wants to lead."""
        self.elections += 1
        self.led_us, self._patience_us = now, self._draw_patience()

    def follow(self, leader: Address) -> None:
        if leader == self.leader:
            return
        followed, instance = self._context.shared.followed, self._context.instance
        if self.leader:
            followed[self.leader].pop(instance, None)
        if leader:
            followed.setdefault(leader, {})[instance] = None
        self.leader = leader

    def led_until_us(self, started: bool) -> int:
        """The leader is trusted for a round of heartbeats after it named the instance, and while it is heard at all."""
        named_until_us = self.named_until_us(started)
        if not self.leader:
            return named_until_us
        hearing = self._context.shared.hearing
        gone_until_us = hearing.gone_until_us(self.leader)
        if gone_until_us is not None:
            return min(gone_until_us + self._pause_us, named_until_us)
        heard_us = max(self.led_us, hearing.slept_us, hearing.heard_us.get(self.leader, 0))
        return min(heard_us + self._patience_us + hearing.slack_us(self.leader), named_until_us)

    def named_until_us(self, started: bool) -> int:
        """As long as its leader is heard, or somebody may lead it who has not spoken of it yet."""
        hearing = self._context.shared.hearing
        round_us = hearing.round_us(self.leader) + (START_US if self.leader and not started else 0)
        slept_us = hearing.slept_us
        if not self.leader:  # a candidate whose every tick is late would wait for its votes for ever
            slept_us = min(slept_us, self.led_us + self._context.config.suspect_us)
        return max(self.led_us, slept_us) + round_us + self._patience_us + hearing.slack_us(self.leader)
