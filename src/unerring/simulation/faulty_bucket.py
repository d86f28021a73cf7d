"""A bucket in memory whose requests go wrong as those of a real one do, by a seed.

It is a client: the log's object store runs on it unchanged, with its tokens and its repeats. Several clients share one
`Objects`, as several processes share a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Final, NamedTuple

from unerring.log import ABSENT, Conflict, Got, ObjectStore, Patience, Unsure

_TRIES_MAX: Final = 100
"""More than in production: every other request may fail here."""


@dataclass(frozen=True, slots=True)
class StoreFaults:
    """How likely each fault is, for every request that it can happen to."""

    lost_reply: float = 0.0
    """It was carried out, and the answer was lost: a time-out, or a 503 of something in between."""
    lost_request: float = 0.0
    """It never arrived: a time-out, or a 503."""
    late: float = 0.0
    """A put timed out and is carried out later, among other requests."""
    conflict: float = 0.0
    """A conditional put is refused with 409 although its condition holds, and nothing is written."""
    cut: float = 0.0
    """The body of an answer ends early."""
    lag: float = 0.0
    """A listing shows an earlier state."""
    lag_changes_max: int = 6

    @staticmethod
    def all(likelihood: float) -> StoreFaults:
        """Every fault, equally likely; listings lag more often, since that is not rare in practice."""
        p = likelihood
        return StoreFaults(lost_reply=p, lost_request=p, late=p, conflict=p, cut=p, lag=min(1.0, 3 * p))


class _Object(NamedTuple):
    data: bytes
    token: str
    tag: str


@dataclass
class Objects:
    """What a bucket holds, and how that came about."""

    held: dict[str, _Object] = field(default_factory=dict)
    changes: list[tuple[str, bool]] = field(default_factory=list)
    """Names that came (True) and went (False), in order: what a listing may not know of yet."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Puts that timed out and were not carried out yet."""

    def write(self, path: str, made: _Object, tag: str | None) -> None:
        there = self.held.get(path)
        if tag is not None and tag != (ABSENT if there is None else there.tag):
            raise Conflict
        if there is None:
            self.changes.append((path, True))
        self.held[path] = made

    def remove(self, path: str) -> None:
        if self.held.pop(path, None) is not None:
            self.changes.append((path, False))

    def listed(self, behind: int) -> list[str]:
        """The names as they were some changes ago."""
        names = set(self.held)
        for path, came in reversed(self.changes[len(self.changes) - min(behind, len(self.changes)) :]):
            (names.discard if came else names.add)(path)
        return sorted(names)


class FaultyBucket:
    """One process's client of a bucket in memory. `before` is called before each request: a place to let others act."""

    def __init__(
        self,
        objects: Objects,
        random: Random,
        faults: StoreFaults,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self.objects = objects
        self.faults = faults
        self.injected = 0
        self._random = random
        self._before = before

    def put(self, path: str, data: bytes, token: str, tag: str | None = None) -> str:
        made = _Object(bytes(data), token, blake2b(data, digest_size=8).hexdigest())

        def write() -> None:
            self.objects.write(path, made, tag)

        self._arrive()
        if self._happens(self.faults.late):
            self.objects.waiting.append(write)
            raise Unsure("timed out")
        if tag is not None and self._happens(self.faults.conflict):
            raise Conflict
        write()
        self._reply()
        return made.tag

    def get(self, path: str, start: int, end: int) -> Got | None:
        self._arrive()
        there = self.objects.held.get(path)
        self._reply()
        if there is None:
            return None
        data = there.data[start:end]
        if data and self._happens(self.faults.cut):
            data = data[: self._random.randrange(len(data))]
        return Got(data, len(there.data), there.tag, there.token)

    def head(self, path: str) -> Got | None:
        self._arrive()
        there = self.objects.held.get(path)
        self._reply()
        return None if there is None else Got(b"", len(there.data), there.tag, there.token)

    def names(self, prefix: str, after: str) -> list[str]:
        self._arrive()
        lags = self._happens(self.faults.lag)
        listed = self.objects.listed(self._random.randint(1, self.faults.lag_changes_max) if lags else 0)
        self._reply()
        return [
            path[len(prefix) :].split("/")[0] for path in listed if path.startswith(prefix) and path > prefix + after
        ]

    def delete(self, path: str) -> None:
        self._arrive()
        self.objects.remove(path)
        self._reply()

    def _arrive(self) -> None:
        self._before()
        while self.objects.waiting and self._random.random() < 0.5:
            late = self.objects.waiting.pop(self._random.randrange(len(self.objects.waiting)))
            try:
                late()
            except Conflict:
                continue
        if self._happens(self.faults.lost_request):
            raise Unsure("503 SlowDown")

    def _reply(self) -> None:
        if self._happens(self.faults.lost_reply):
            raise Unsure("timed out")

    def _happens(self, likelihood: float) -> bool:
        happens = self._random.random() < likelihood
        self.injected += happens
        return happens


def faulty_store(bucket: FaultyBucket, seed: int, pause: Callable[[float], None] = lambda _: None) -> ObjectStore:
    """The object store on such a client, with tokens that follow from the seed."""
    random = Random(seed)
    return ObjectStore(
        bucket,
        "memory://simulated",
        "",
        Patience(tries_max=_TRIES_MAX),
        pause,
        lambda: f"{random.getrandbits(64):016x}",
    )
