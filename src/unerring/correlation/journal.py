"""Durable mode: a snapshot on stable storage and, behind it, the batches accepted since.

What is acknowledged is persisted first, so that a replica comes back with the incarnation and all it had acknowledged,
and the loss of *all* replicas of a node loses nothing. Outputs are not kept: the same inputs make them again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.correlation import snapshot
from unerring.correlation.messages import Batch, NotMember, Registered
from unerring.model import TIME_MIN, Effects, Persist, Stamp

STATE_KEY = "correlation/state"
"""Under which key a replica keeps its snapshot."""
_LOG = "correlation/log/"
_TOKEN = "correlation/token"


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    incarnation: int
    first: int
    """The first batch that counts on top of the snapshot."""
    snapshot: snapshot.Snapshot


def handed_after(kept: bytes | None, stream: str) -> int:
    """The time after which a replica may need an output stream again that its engine hands over, by its record."""
    if kept is None:
        return TIME_MIN
    outputs = msgspec.msgpack.decode(kept, type=_Kept).snapshot.outputs
    # More of the mark's own time may follow it.
    return next((output.mark.time - 1 for output in outputs if output.stream == stream and output.mark_count), TIME_MIN)


class Journal:
    """The disk of a durable replica."""

    def __init__(self, records: Mapping[str, bytes], every_events: int) -> None:
        self.incarnation = 0
        self.snapshot: snapshot.Snapshot | None = None
        self.batches: list[Batch] = []
        """Accepted after the snapshot, in order."""
        self._every_events = every_events
        self._events = 0
        self._first = self._next = 0
        self._promised: tuple[tuple[tuple[str, Stamp], ...], int] | None = None
        self.token = records.get(_TOKEN, b"").decode()
        """Under which this replica has asked to enter. One that died before it held a state asks again as the same: it
        has acknowledged nothing, and all replicas of a node may die so at once."""
        kept = records.get(STATE_KEY)
        if kept is None:
            return
        state = msgspec.msgpack.decode(kept, type=_Kept)
        self.incarnation = state.incarnation
        self.snapshot = state.snapshot
        self._first = self._next = state.first
        decoder = msgspec.msgpack.Decoder(Batch)
        while (data := records.get(self._key(self._next))) is not None:
            self.batches.append(decoder.decode(data))
            self._next += 1

    @property
    def due(self) -> bool:
        """Whether the log is long enough for a new snapshot."""
        return self._events >= self._every_events

    def ask(self, token: str) -> Effects:
        """A new token, before anybody hears of it."""
        self.token = token
        return [Persist(((_TOKEN, token.encode()),))]

    def keep(self, batch: Batch, events: int) -> Effects:
        """One accepted batch."""
        key = self._key(self._next)
        self._next += 1
        self._events += max(1, events)
        return [Persist(((key, msgspec.msgpack.encode(batch)),))]

    def is_due_after(self, events: int) -> bool:
        """Outputs of an engine that hands them over again after a restart: not kept, but the next snapshot has them."""
        self._events += events
        return self.due

    def replace(self, incarnation: int, whole: snapshot.Snapshot) -> Effects:
        """A new snapshot takes the place of the log."""
        self.incarnation = incarnation
        deletes = tuple(self._key(number) for number in range(self._first, self._next))
        self._first = self._next
        self._events = 0
        data = msgspec.msgpack.encode(_Kept(incarnation, self._first, whole))
        return [Persist(((STATE_KEY, data),), deletes)]

    def promises(self, answer: Registered | NotMember | None, version_min: int) -> bool:
        """Whether an answer to a joiner says what is to be on disk before. Started again with older marks, a replica
        would keep more for the joiner than it has room for, and never come to what the joiner begins with."""
        if not isinstance(answer, Registered) or (answer.marks, version_min) == self._promised:
            return False
        self._promised = answer.marks, version_min
        return True

    def forget(self) -> None:
        """The incarnation is gone; the state on disk is replaced when the next one has its own."""
        self.incarnation = 0
        self.snapshot = None
        self.batches = []

    def _key(self, number: int) -> str:
        return f"{_LOG}{number:012d}"
