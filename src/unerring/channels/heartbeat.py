"""When to send the sporadic heartbeat: after a burst went idle, then with growing pauses, never quite stopped."""

from __future__ import annotations

from unerring.channels.config import ProducerConfig
from unerring.model import SetTimer


class HeartbeatPace:
    """One armed timer for a whole burst: it re-arms itself while the burst goes on."""

    def __init__(self, timer: str, config: ProducerConfig) -> None:
        self._timer = timer
        self._idle_us = config.heartbeat_idle_us
        self._pause_us_max = config.heartbeat_pause_us_max
        self._off = config.strict_zero_overhead
        self._pause_us = config.heartbeat_idle_us
        self._armed_at: int | None = None
        self._published_us: int | None = None

    @property
    def on(self) -> bool:
        return not self._off

    def begin(self, now: int) -> SetTimer:
        """The first pause."""
        return self._arm(now + self._pause_us)

    def published(self, now: int) -> SetTimer | None:
        """A burst goes on: pauses are short again. None: the armed timer comes early enough."""
        self._published_us = now
        self._pause_us = self._idle_us
        if self._armed_at is None or self._armed_at <= now + self._pause_us:
            return None
        return self._arm(now + self._pause_us)

    def due(self, now: int) -> tuple[bool, SetTimer]:
        """The timer came: whether to send a heartbeat now, and the next time to look."""
        self._armed_at = None
        if self._published_us is not None and self._published_us + self._idle_us > now:
            return False, self._arm(self._published_us + self._idle_us)
        self._pause_us = min(self._pause_us * 2, self._pause_us_max)
        return True, self._arm(now + self._pause_us)

    def _arm(self, at_us: int) -> SetTimer:
        self._armed_at = at_us
        return SetTimer(self._timer, at_us)
