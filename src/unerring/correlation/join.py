"""Joining (and joining anew): enter the record, register at every upstream replica, take a snapshot, be granted.

| step | why in this order |
|---|---|
| enter the record with a new incarnation | an upstream that joins later reads it and pins for us |
| register at every upstream replica in it | one that has not read it pins for us from its answer on |
| take a snapshot at or after all marks received | what we lack then is pinned at all of them |
| ask to be caught up | granted only if every upstream then in the record has confirmed |

Until then the joiner counts as failed.
"""

from __future__ import annotations

from unerring.correlation.intake import Intake
from unerring.correlation.messages import (
    MEMBERSHIP,
    AskSnapshot,
    CaughtUp,
    Register,
    Registered,
    SnapshotPart,
    WaitsFor,
)
from unerring.correlation.record import Record, Standing, node_of
from unerring.correlation.snapshot import Assembly, Snapshot
from unerring.correlation.switching import AskLog
from unerring.model import Address, Deliver, Effects, FrameError, ProtocolError, Report, Send, Stamp

_RETRY_NEVER = -(1 << 62)


class Join:
    """One attempt of one incarnation. The replica carries it on at every tick until the record says caught up."""

    def __init__(self, name: str, incarnation: int, retry_us: int, from_log: bool) -> None:
        """`from_log`: its node came with an upgrade, so that its state can be made of the log where nobody has one."""
        self.name = name
        self.incarnation = incarnation
        self._from_log = from_log
        self.holding = False
        """Whether a snapshot is in place."""
        self._marks: dict[tuple[str, int], dict[str, tuple[Stamp, int]]] = {}
        """The marks that each upstream (replica, incarnation) has confirmed, with their numbers."""
        self._retry_us = retry_us
        self._tried_us = _RETRY_NEVER
        self._asked_us: dict[tuple[str, int], int] = {}
        """When each replica was asked last, by the incarnation it stands in: an answer of one asks no other again."""
        self._giver = -1
        self._assembly = Assembly()

    def registered(self, sender: Address, answer: Registered, record: Record) -> bool:
        """Whether it stands in a record that is newer than this one."""
        counts = answer.counts or (0,) * len(answer.marks)
        if len(counts) != len(answer.marks):
            raise ProtocolError(f"{len(answer.marks)} marks from {sender}, and the numbers of {len(counts)}")
        marks = zip(answer.marks, counts, strict=True)
        self._marks[sender, answer.incarnation] = {stream: (mark, count) for (stream, mark), count in marks}
        member = record.members.get(sender)
        return member is None or member.incarnation < answer.incarnation

    def carry_on(self, record: Record, intake: Intake, now: int, at_once: bool = False) -> Effects:
        """The next step that is not answered yet, again after a pause."""
        if not at_once and now - self._tried_us < self._retry_us:
            return []
        self._tried_us = now
        self._asked_us = {key: asked for key, asked in self._asked_us.items() if now - asked < self._retry_us}
        upstream = intake.upstream()
        missing = [name for name in upstream if (name, record.members[name].incarnation) not in self._marks]
        effects: Effects = [
            Send(name, Register(self.incarnation, record.version)) for name in missing if self._asks(name, record, now)
        ]
        # Founding members that never came are waited for as long as nobody needs them: now somebody does.
        absent = tuple(name for name in missing if not record.members[name].token)
        if absent:
            effects.append(Send(MEMBERSHIP, WaitsFor(absent)))
        if not self.holding or not self._at_marks(record, upstream, intake):
            self.holding = False
            return effects if missing else effects + self._ask(record, upstream, intake)
        if missing:
            return effects
        confirmed = tuple((name, record.members[name].incarnation) for name in upstream)
        return [Send(MEMBERSHIP, CaughtUp(self.name, self.incarnation, confirmed))]

    def _asks(self, name: str, record: Record, now: int) -> bool:
        """Whether it is to be asked now: not while its answer may be on the way."""
        key = name, record.members[name].incarnation
        if key in self._asked_us:
            return False
        self._asked_us[key] = now
        return True

    def _at_marks(self, record: Record, upstream: list[Address], intake: Intake) -> bool:
        """Whether the state in place is at or after every mark that counts."""
        for name in upstream:
            marks = self._marks.get((name, record.members[name].incarnation), {})
            for stream, (mark, _) in marks.items():
                if stream in intake.streams and not intake.is_after(stream, name, mark):
                    return False
        return True

    def _latest(self, record: Record, upstream: list[Address], intake: Intake) -> dict[str, tuple[Stamp, int]]:
        """By stream, the last mark of those that make it now."""
        latest: dict[str, tuple[Stamp, int]] = {}
        for name in upstream:
            for stream, mark in self._marks.get((name, record.members[name].incarnation), {}).items():
                if stream in intake.streams and node_of(name) == intake.maker(stream):
                    latest[stream] = max(mark, latest.get(stream, mark))
        return latest

    def _ask(self, record: Record, upstream: list[Address], intake: Intake) -> Effects:
        """One caught-up peer after the other, and, of a node that came with an upgrade, the log."""
        peers = [
            name
            for name, member in record.of(node_of(self.name)).items()
            if name != self.name and member.standing is Standing.CAUGHT_UP
        ]
        if not peers and not self._from_log:
            return [Report("correlation.nobody_to_join", f"{self.name}: no caught-up replica of its node is left")]
        self._giver += 1
        giver = self._giver % (len(peers) + self._from_log)
        if giver == len(peers):
            return [Deliver(AskLog(self.incarnation, self._latest(record, upstream, intake)))]
        return [Send(peers[giver], AskSnapshot(self.incarnation))]

    def part(self, part: SnapshotPart) -> tuple[Snapshot | None, Effects]:
        """A piece arrived; the snapshot when it was the last one."""
        if part.incarnation != self.incarnation or self.holding:
            return None, []
        try:
            return self._assembly.add(part), []
        except FrameError as error:
            self._tried_us = _RETRY_NEVER
            return None, [Report("correlation.snapshot_refused", f"{self.name}: {error}")]
