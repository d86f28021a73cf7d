"""User operators: a class of one's own, for situations that no pattern, window or join describes.

class Storage(Operator):
    def on_event(self, event): ...        # one event of this key, in merged order; gives payloads
    def on_time(self, time_us): ...       # merged time has passed `deadline_us`
    def snapshot(self): ...               # the whole state as bytes
    def restore(self, state): ...

One instance lives for each key. It must be deterministic: no clock, no chance, no state outside of itself. An event on
which it raises goes to quarantine, and the instance is as it was before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from unerring.model import Event

Payload = Mapping[str, Any]


class Operator(ABC):
    """The base of an operator: a deterministic class of your own, one instance for each key."""

    deadline_us: int | None = None
    """When `on_time` is next to be called; None: not. It may change in `on_event` and `on_time`."""

    @abstractmethod
    def on_event(self, event: Event) -> Iterable[Payload]:
        """Take one event of this key; return the payloads of the complex events that it makes certain."""

    def on_time(self, time_us: int) -> Iterable[Payload]:
        """Merged time has passed `deadline_us` (which is None again unless this sets it)."""
        return ()

    @abstractmethod
    def snapshot(self) -> bytes:
        """The state as bytes: equal states give equal bytes."""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Take over the state of this snapshot."""
