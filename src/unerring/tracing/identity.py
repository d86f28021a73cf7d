"""The ids of traces and spans. They follow from what they are about, so that nothing has to travel with an event.

A trace is a moment of event time: its id is a hash of the namespace and the time in microseconds. An event, what a rule
makes of it at once, and what is started for that have one time, so they are in one trace, whoever looks at them; the
other events that a situation is made of are linked. Runs of one namespace that take the same events tell of the same
traces; what each tells there has spans of its own if it has a name. Whether a trace is kept follows from its id, as
OpenTelemetry's `traceidratio` defines it: the producer's decision is everybody's. A span's id is a hash of its trace
and its name, so a replay makes the same span again, and a child names its parent without having met it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import numpy as np

_MASK: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
PUBLISH: Final = "publish"
_COLUMNS_MIN: Final = 32
"""So many times at once are hashed as a column."""
_STARTED: Final = re.compile(r"(?P<root>.+-(?P<time>-?[0-9]+)-[0-9]+)(?![0-9])")
"""The id of what a situation starts, and of its children, which begin with it."""


class Ref(msgspec.Struct, frozen=True):
    """A span: the time, or the instance, whose trace it is in, and its name there."""

    of: int | str
    name: tuple[str, ...]


class Ids:
    """Ids in one namespace. `rate`: the share of traces that are kept. `run`: its name, if another run takes the same
    events."""

    def __init__(self, namespace: str, rate: float, run: str = "") -> None:
        self._run = run
        self._seed = int.from_bytes(hashlib.blake2b(namespace.encode(), digest_size=8).digest(), "big")
        self.share(rate)

    def share(self, rate: float) -> None:
        """Keep this share of traces from now on: of a smaller one, some of those of a larger one."""
        self._bound = round(rate * (1 << 64))

    def low(self, of: int | str) -> int:
        """The lower half of a trace's id, which decides whether it is kept (the finalizer of splitmix64)."""
        if isinstance(of, str):
            of = int.from_bytes(hashlib.blake2b(of.encode(), digest_size=8).digest(), "big")
        z = ((of ^ self._seed) + _STEP) & _MASK
        z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
        z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
        return z ^ (z >> 31)

    def trace(self, of: int | str) -> int:
        low = self.low(of)
        high = int.from_bytes(hashlib.blake2b(low.to_bytes(8, "big"), digest_size=8).digest(), "big")
        return ((high << 64) | low) or 1

    def span(self, ref: Ref) -> int:
        of_run = (self._run,) if self._run and ref.name[0] != PUBLISH else ()  # an event is published once, for all
        told = "\0".join((str(self.trace(ref.of)), *ref.name, *of_run))
        return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "big") or 1

    def kept(self, of: int | str) -> bool:
        return self.low(of) < self._bound

    def among(self, times: Sequence[int] | np.ndarray[Any, Any]) -> list[int]:
        """The places of those times whose traces are kept."""
        if self._bound > _MASK:
            return list(range(len(times)))
        if len(times) < _COLUMNS_MIN:
            return [at for at, time_us in enumerate(times) if self.low(int(time_us)) < self._bound]
        import numpy as np

        told = times.astype(np.int64) if isinstance(times, np.ndarray) else np.fromiter(times, np.int64, len(times))
        z = told.view(np.uint64)  # a copy of our own, mixed in place: this is most of what tracing costs a channel
        z ^= np.uint64(self._seed)
        z += np.uint64(_STEP)
        z ^= z >> np.uint64(30)
        z *= np.uint64(_MIX_1)
        z ^= z >> np.uint64(27)
        z *= np.uint64(_MIX_2)
        z ^= z >> np.uint64(31)
        places: list[int] = np.flatnonzero(z < np.uint64(self._bound)).tolist()
        return places


def published_ref(stream: str, time_us: int, epoch: int, sequence: int) -> Ref:
    """An event is published."""
    return Ref(time_us, (PUBLISH, stream, str(epoch), str(sequence)))


def received_ref(stream: str, time_us: int, epoch: int, sequence: int) -> Ref:
    """An event comes out of its channel."""
    return Ref(time_us, ("channel", stream, str(epoch), str(sequence)))


def sealed_ref(stream: str, time_us: int) -> Ref:
    """The events or situations of a stream and a time are in the log."""
    return Ref(time_us, ("log", stream))


def rule_ref(stream: str, time_us: int) -> Ref:
    """A rule makes the situations of a stream and a time."""
    return Ref(time_us, ("rule", stream))


def process_ref(instance: str) -> Ref:
    """An instance is started; a child's is that of the instance that a situation started."""
    started = _STARTED.match(instance)
    root = started["root"] if started else instance
    return Ref(int(started["time"]) if started else instance, ("process", root))


def instance_ref(instance: str, iid: str, attempt: str) -> Ref:
    """A service is asked for an interaction."""
    return Ref(process_ref(instance).of, ("interaction", instance, iid, attempt))


def effect_time_us(instance: str) -> int | None:
    """The time of the situation that started an instance; None: none did."""
    of = process_ref(instance).of
    return of if isinstance(of, int) else None
