"""The registered consumers of a producer: it keeps what they have not acknowledged, and forgets those that are no more.

The first acknowledgement registers. Whoever never comes again after it was nobody: its registration expires, or one
message would hold everything up for good. The second one confirms it; a confirmed consumer may be away as long as it
likes, unless a limit is set for that too.
"""

from __future__ import annotations

from collections.abc import Iterable

from unerring.channels.config import ProducerConfig


class Registrations:
    """Consumers, and what each has accepted."""

    def __init__(self, config: ProducerConfig) -> None:
        self.accepted: dict[str, int] = {}
        self._config = config
        self._heard_us: dict[str, int] = {}
        self._unconfirmed: dict[str, None] = {}

    def restore(self, consumers: Iterable[str], unconfirmed: Iterable[str]) -> None:
        """After a restart they say again what they have."""
        self.accepted = dict.fromkeys(consumers, 0)
        self._unconfirmed = dict.fromkeys(unconfirmed)

    def begin(self, now: int) -> None:
        """Nobody could be heard before."""
        self._heard_us = dict.fromkeys(self.accepted, now)

    @property
    def full(self) -> bool:
        return len(self.accepted) >= self._config.registered_max

    @property
    def lowest(self) -> int | None:
        """What all of them have accepted; None: there are none."""
        return min(self.accepted.values(), default=None)

    def add(self, consumer: str, accepted: int, now: int) -> None:
        self.accepted[consumer] = accepted
        self._heard_us[consumer] = now
        self._unconfirmed[consumer] = None

    def hear(self, consumer: str, accepted: int, now: int) -> bool:
        """A registered one acknowledges; whether that confirms it."""
        self.accepted[consumer] = max(accepted, self.accepted[consumer])
        self._heard_us[consumer] = now
        return self._unconfirmed.pop(consumer, self) is None

    def remove(self, consumer: str) -> None:
        del self.accepted[consumer]
        self._heard_us.pop(consumer, None)
        self._unconfirmed.pop(consumer, None)

    def expire(self, now: int) -> list[str]:
        """Forget those that were silent for too long; their names."""
        silence_us = self._config.registered_silence_us_max
        if not self._unconfirmed and not silence_us:
            return []
        limits = {True: self._config.unconfirmed_us_max, False: silence_us}
        gone = [
            consumer
            for consumer, heard_us in self._heard_us.items()
            if 0 < limits[consumer in self._unconfirmed] < now - heard_us
        ]
        for consumer in gone:
            self.remove(consumer)
        return gone
