"""Ports: what a machine, and the driver around it, may ask of the world. `runtime` and `simulation` implement them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

    def load(self, prefix: str = "", without: str = "") -> Mapping[str, bytes]:
        """All records whose key starts with `prefix`, in key order; not those whose key ends with `without`."""
        ...

    def write(self, batch: Iterable[Persist]) -> None:
        """Apply in order, as one group commit, synced. Raises DiskError: the caller must then stop."""
        ...


Receive = Callable[[Address, bytes], None]
"""Called with the sender's address and the bytes that came, on the event loop; must not block."""


class Outlet(Protocol):
    """The producer's side of an event service that gives nothing but "push bytes to all subscribers", best effort,
    and of the direct way beside it, on which consumers reach this producer and are answered."""

    @property
    def direct(self) -> Address:
        """Where consumers reach this producer directly. Known once open."""
        ...

    async def open(self, receive: Receive) -> None:
        """Start; what comes in on the direct way goes to `receive`."""
        ...

    def push(self, data: bytes) -> None:
        """To all subscribers. Never waits; may lose, repeat or reorder, as the service does."""
        ...

    def send(self, to: Address, data: bytes) -> None:
        """Directly to one consumer. Never waits; may lose."""
        ...

    async def ready(self) -> None:
        """Wait until a push would not overflow a bounded queue, or until patience with a slow subscriber ends."""
        ...

    async def close(self) -> None:
        """Flush within a bound, then stop."""
        ...


class Inlet(Protocol):
    """A consumer's side: pushed and direct bytes both come in through `receive`."""

    async def open(self, receive: Receive) -> None:
        """Subscribe, and re-subscribe by itself whenever the service was away."""
        ...

    def send(self, to: Address, data: bytes) -> None:
        """Directly to a producer. Never waits; may lose."""
        ...

    def pause_reading(self) -> None:
        """Take nothing in for now. A service without back-pressure may lose what comes meanwhile."""
        ...

    def resume_reading(self) -> None:
        """Go on after `pause_reading`."""
        ...

    async def close(self) -> None:
        """Unsubscribe and stop."""
        ...
