"""Ports: what a machine, and the driver around it, may ask of the world. `runtime` and `simulation` implement them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from unerring.model.effects import Address, Effects, Persist


class Machine(Protocol):
    """A protocol as a plain object that is fed and answers. `now` is monotonic microseconds.

    A machine that keeps records is built anew after a crash from what `StableStorage.load` gives.
    """

    def start(self, now: int) -> Effects:
        """First effects after construction or recovery: timers to set, greetings to send."""
        ...

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        """One message from one peer."""
        ...

    def timer(self, name: str, now: int) -> Effects:
        """A timer that this machine set has come."""
        ...


class Entropy(Protocol):
    """Randomness, handed in: `random.Random` fits it, and the simulator seeds it."""

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


class StableStorage(Protocol):
    """A small ordered table of records that survives a crash once `write` returned."""

    def load(self, prefix: str = "") -> Mapping[str, bytes]:
        """All records whose key starts with `prefix`, in key order."""
        ...

    def write(self, batch: Iterable[Persist]) -> None:
        """Apply in order, as one group commit, synced. Raises DiskError: the caller must then stop."""
        ...
