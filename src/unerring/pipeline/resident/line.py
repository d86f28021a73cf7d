"""One level of a pool: its intervals in order, who holds each partition, and what was answered.

Holds no socket and no thread: the hub calls it under its lock, and it says things to members. All partitions answer
every interval; the first answer of a partition counts. An interval that all have answered is numbered, and what is
numbered is sealed, in order, as much as there is at a time. What a new holder of a partition needs is the last state
that was kept of all of them and the intervals since: those that are sealed it runs as one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from unerring.log import PartRows, Span
from unerring.model import ProtocolError
from unerring.pipeline.level import Level
from unerring.pipeline.resident.wire import Advance, Answered, Drop, Take, ToTask
from unerring.pipeline.shuffling import Interval

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW: Final = 8
"""How many intervals are on their way to one holder of a partition: so few fit into any buffer."""
UNNUMBERED_MAX: Final = 2
"""How many intervals are on their way to being numbered. So few, and what comes meanwhile is one interval: when the
machine is busy intervals become longer, not more."""
UNSEALED_MAX: Final = 16
"""How many intervals are on their way to their seal: what is numbered while the disk is busy is sealed as one."""
STALL_S: Final = 0.75
"""Whoever owes an answer for longer is not waited for, and another task gets the partition, too."""
ROW_S: Final = 20e-6
"""What is added to that for every event of the interval."""
FIRST_S: Final = 30.0
"""How long a task may take that has to load a state and perhaps compile its rules."""
ROWS_AT_ONCE: Final = 1_000_000
"""About so many events of what is sealed are run at a time by a task that takes a partition over."""


class Member(Protocol):
    """A task of the pool, as the hub knows it."""

    name: str

    def send(self, message: ToTask) -> None:
        """Say something; what cannot be said is lost, and so is the member."""
        ...


@dataclass(frozen=True)
class Numbered:
    """What all partitions found in an interval, in order and with ordinals: for each output stream; None: no event."""

    outputs: dict[str, pa.Table | PartRows | None]
    keys: int
    rows: int
    state_bytes: int = 0


@dataclass
class Step:
    """An interval, and what is known of it as long as it is not sealed."""

    number: int
    interval: Interval
    rows: int
    keep: bool
    handed: dict[str, bytes]
    """Inputs that other levels of the pool have found and perhaps not sealed yet."""
    answers: dict[int, Answered] = field(default_factory=dict)
    numbered: Numbered | None = None
    """As long as it is numbered and not sealed."""

    @property
    def through_us(self) -> int:
        return self.interval.ends_us[-1]


@dataclass(eq=False)
class Holding:
    """One task that holds a partition."""

    member: Member
    next: int
    """The number of the interval that it is told next."""
    answered: int
    """The number after that of the last one it has answered."""
    tenure: int = 0
    """Since when it holds it: a number that rises."""
    owes_s: float = math.inf
    """When it is no longer waited for; by a monotonic clock."""

    def stalls(self, now_s: float) -> bool:
        return now_s > self.owes_s


class Line:
    """A level."""

    def __init__(self, number: int, level: Level, from_us: int, copies: int = 1, ahead: int = UNNUMBERED_MAX) -> None:
        self.number = number
        self.level = level
        self.copies = copies
        self._ahead = ahead
        self.end_us = from_us
        """Up to where intervals are planned."""
        self.numbered = 0
        """The number of the interval that is numbered next."""
        self.sealed = 0
        """The number of the interval that is sealed next."""
        self.state_us = from_us
        """The newest time of which every partition's state was kept."""
        self.holdings: list[list[Holding]] = [[] for _ in range(level.buckets)]
        self._steps: deque[Step] = deque()
        self._first = 0
        """The number of the first interval that is remembered."""
        self._after_state = 0
        """The number of the interval after `state_us`."""
        self._numbers: dict[int, int] = {}
        """The numbers of remembered intervals, by their ends."""
        self._kept: dict[int, set[int]] = {}
        self._tenures = 0

    # --- intervals ---

    @property
    def planned(self) -> int:
        """The number of the interval that is planned next."""
        return self._first + len(self._steps)

    @property
    def has_room(self) -> bool:
        return self.planned - self.numbered < self._ahead and self.planned - self.sealed < UNSEALED_MAX

    @property
    def since_state(self) -> int:
        """How many intervals a new holder has to run."""
        return self.planned - self._after_state

    def plan(
        self, interval: Interval, rows: int, keep: bool, now_s: float, handed: dict[str, bytes] | None = None
    ) -> None:
        step = Step(self.planned, interval, rows, keep, handed or {})
        self._steps.append(step)
        self._numbers[step.through_us] = step.number
        self.end_us = step.through_us
        for bucket, held in enumerate(self.holdings):
            for holding in held:
                self._feed(bucket, holding, now_s)

    def ready(self) -> Step | None:
        """The next interval to number, if every partition has answered it."""
        if self.numbered >= self.planned:
            return None
        step = self._step(self.numbered)
        return step if len(step.answers) == self.level.buckets else None

    def was_numbered(self, numbered: Numbered) -> None:
        """The one that was ready."""
        step = self._step(self.numbered)
        step.answers.clear()
        step.numbered = numbered
        self.numbered += 1

    def to_seal(self, rows_max: int) -> list[Step]:
        """What is numbered and not sealed, in order: of intervals with so many events one at a time."""
        steps: list[Step] = []
        rows = 0
        for number in range(self.sealed, self.numbered):
            step = self._step(number)
            rows += step.rows
            if steps and rows > rows_max:
                break
            steps.append(step)
        return steps

    def was_sealed(self, count: int, now_s: float) -> None:
        """The first so many of them."""
        for number in range(self.sealed, self.sealed + count):
            self._step(number).numbered = None
        self.sealed += count
        self._trim(now_s)

    def settled(self, stream: str, through_us: int) -> None:
        """An input that was handed over is sealed up to here: whoever needs it again reads the log."""
        for step in self._steps:
            if step.through_us > through_us:
                return
            step.handed.pop(stream, None)

    # --- holders ---

    def take(self, bucket: int, member: Member, now_s: float) -> None:
        """Let a task hold a partition, beside those that do."""
        holding = Holding(member, self._after_state, self._after_state)
        self.holdings[bucket].append(holding)
        self._begin(bucket, holding, now_s)

    def lost(self, member: Member) -> None:
        for held in self.holdings:
            held[:] = [holding for holding in held if holding.member is not member]

    def holds(self, member: Member) -> int:
        """How many partitions a task holds, but for those that others are about to take over."""
        return sum(any(holding.member is member for holding in held[-self.copies :]) for held in self.holdings)

    def vacant(self, now_s: float) -> Iterator[int]:
        """Partitions that too few tasks hold which may be waited for."""
        for bucket, held in enumerate(self.holdings):
            if sum(not holding.stalls(now_s) for holding in held) < self.copies:
                yield bucket

    def movable(self, member: Member) -> int | None:
        """A partition that a task holds, and nobody is about to take over."""
        for bucket, held in enumerate(self.holdings):
            if len(held) == self.copies and any(holding.member is member for holding in held):
                return bucket
        return None

    def answered(self, member: Member, answer: Answered, now_s: float) -> None:
        """ProtocolError: an answer that nobody can have asked for."""
        if not 0 <= answer.bucket < self.level.buckets:
            raise ProtocolError(f"{member.name} answers for partition {answer.bucket}")
        holding = self._holding(answer.bucket, member)
        number = self._numbers.get(answer.through_us)
        if number is None:
            return  # it is sealed, and so is what came after
        step = self._step(number)
        if answer.from_us != step.interval.from_us:
            raise ProtocolError(
                f"{member.name} answers for {answer.from_us} to {answer.through_us}, which is no interval"
            )
        if number >= self.numbered:
            step.answers.setdefault(answer.bucket, answer)
        if holding is None or holding.tenure != answer.tenure:
            return  # it was dropped meanwhile; its answer is as good as any, and so are the states that it keeps
        if number != holding.answered or number >= holding.next:
            raise ProtocolError(f"{member.name} answers for {answer.from_us} to {answer.through_us} out of turn")
        holding.answered += 1
        self._owe(holding, now_s)
        self._feed(answer.bucket, holding, now_s)
        if holding.answered >= self.planned - 1:
            self._settle(answer.bucket, holding)

    def kept(self, bucket: int, at_us: int, now_s: float) -> None:
        """A partition's state is on the store; when all are, new holders begin there."""
        number = self._numbers.get(at_us)
        if number is None or at_us <= self.state_us:
            return
        buckets = self._kept.setdefault(at_us, set())
        buckets.add(bucket)
        if len(buckets) == self.level.buckets:
            self.state_us, self._after_state = at_us, number + 1
            self._kept = {time_us: known for time_us, known in self._kept.items() if time_us > at_us}
            self._trim(now_s)

    # --- its own ---

    def _step(self, number: int) -> Step:
        return self._steps[number - self._first]

    def _holding(self, bucket: int, member: Member) -> Holding | None:
        return next((holding for holding in self.holdings[bucket] if holding.member is member), None)

    def _begin(self, bucket: int, holding: Holding, now_s: float) -> None:
        self._tenures += 1
        passed = [self._step(number) for number in range(self._after_state, self.sealed)]
        holding.next = holding.answered = max(self._after_state, self.sealed)
        holding.tenure, holding.owes_s = self._tenures, math.inf
        sealed = _as_one(passed) if passed else None
        holding.member.send(Take(self.number, bucket, self.state_us, holding.tenure, sealed))
        self._feed(bucket, holding, now_s, FIRST_S + ROW_S * sum(step.rows for step in passed))

    def _feed(self, bucket: int, holding: Holding, now_s: float, more_s: float = 0.0) -> None:
        """Tell a holder what it has room for."""
        idle = holding.next == holding.answered
        while holding.next < self.planned and holding.next - holding.answered < WINDOW:
            step = self._step(holding.next)
            holding.next += 1
            holding.member.send(Advance(self.number, bucket, step.interval, step.keep, step.handed))
        if idle:
            self._owe(holding, now_s, more_s)

    def _owe(self, holding: Holding, now_s: float, more_s: float = 0.0) -> None:
        if holding.answered >= holding.next:
            holding.owes_s = math.inf
        else:
            holding.owes_s = now_s + STALL_S + more_s + self._step(holding.answered).rows * ROW_S

    def _settle(self, bucket: int, caught_up: Holding) -> None:
        """One that has caught up takes the place of those before it, if there are too many."""
        held = self.holdings[bucket]
        while len(held) > self.copies and held[0] is not caught_up:
            held.pop(0).member.send(Drop(self.number, bucket))

    def _trim(self, now_s: float) -> None:
        """Forget intervals that are sealed and before the last state. Who is still busy with them begins again with
        that state: it has less to do then."""
        while self._steps and self._first < min(self.sealed, self._after_state):
            del self._numbers[self._steps.popleft().through_us]
            self._first += 1
        for bucket, held in enumerate(self.holdings):
            for holding in held:
                if holding.answered < self._first:
                    self._begin(bucket, holding, now_s)


def _as_one(steps: list[Step]) -> Interval:
    """Intervals that follow each other as one."""
    ends: list[int] = []
    rows = 0
    for step in steps:
        rows += step.rows
        if ends and rows <= ROWS_AT_ONCE:
            ends[-1] = step.through_us
        else:
            ends.append(step.through_us)
            rows = step.rows
    spans: dict[str, list[Span]] = {}
    for stream in steps[0].interval.spans:
        joined = _joined([step.interval.spans.get(stream, []) for step in steps])
        if joined:
            spans[stream] = joined
    return Interval(steps[0].interval.from_us, tuple(ends), spans)


def _joined(pieces: list[list[Span]]) -> list[Span]:
    """The spans of a stream in several intervals; none if they do not follow each other: a piece may have been handed
    over without any, or compaction may have cut otherwise. Whoever runs it looks for them then."""
    if not all(pieces):
        return []
    spans = list(dict.fromkeys(span for piece in pieces for span in piece))
    follow = all(before.through_us == after.from_us for before, after in pairwise(spans))
    return spans if follow else []
