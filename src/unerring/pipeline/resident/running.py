"""A level of a pool at work, in two threads: one plans intervals and numbers what was answered, one seals.

While the disk is busy with one seal, intervals are planned, answered, numbered and handed to the levels above; what was
numbered meanwhile is sealed as one. A level is never sealed beyond what it has read: what was handed to it has to be
sealed first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from unerring.log import PartRows, agree_on
from unerring.pipeline.intervals import Bounds, Front, spans_of, steps_of
from unerring.pipeline.level import Level
from unerring.pipeline.resident.handing import Fresh
from unerring.pipeline.resident.line import Line, Numbered, Step
from unerring.pipeline.shuffling import Interval
from unerring.pipeline.states import States
from unerring.pipeline.streaming import MaySeal, Outputs, Sealed, numbered_by_stream, seal_numbered

if TYPE_CHECKING:
    import pyarrow as pa

KEEP_S: Final = 5.0
"""How often states are kept."""
KEEP_STEPS: Final = 512
"""So many intervals are run again at the most by a task that takes a partition over."""
SWEEP_SEALS: Final = 2048
"""After so many seals, states are removed that nothing rests on any more."""
PAUSE_S: Final = 0.002
PAUSE_S_MAX: Final = 0.016
"""How often a level looks for something new in the log: less often when nothing comes."""
WOKEN_S: Final = 0.1
"""The same for those who are woken."""

OnSealed = Callable[[Level, Sealed], None]


class RunningLevel:
    """What the threads of a level share, and those of others with it; under the hub's lock."""

    def __init__(self, line: Line, lock: threading.RLock, outputs: Outputs) -> None:
        self.line = line
        self.lock = lock
        self.outputs = outputs
        """Its chains are for the thread that seals."""
        self.answered = threading.Condition(lock)
        """There is something to number, or to plan."""
        self.numbered = threading.Condition(lock)
        """There is something to seal."""
        self.sealed_us = line.end_us
        """Up to where this pool has sealed it, or found it sealed."""
        self.fresh = {schema.name: Fresh(schema) for schema in line.level.outputs}
        self.hands_over_us: int | None = None
        """From where on its rows are handed over: after its first seal. What was there before may be an older
        version's."""
        self.above: list[RunningLevel] = []
        self.below: dict[str, RunningLevel] = {}
        """Who makes its inputs, of those that levels of this pool make."""
        self.news = 0
        """Rises with all that may let it plan."""
        self.last_us: int | None = None
        """Where it ends, if it is to end with what is there now, as far as that can be known before."""
        self.rests = False
        """Whether it has planned all of that."""
        self.keeps_us = line.state_us
        """The newest time of which states are to be kept."""

    @property
    def finished(self) -> bool:
        """Whether all that it has planned is sealed, and it plans no more."""
        return self.rests and self.sealed_us >= self.line.end_us and self.line.state_us >= self.keeps_us

    @property
    def label(self) -> str:
        return self.line.level.label

    def wake(self) -> None:
        """There is something new for who plans."""
        self.news += 1
        self.answered.notify()

    def ahead(self) -> dict[str, int]:
        """Inputs that are handed over beyond what is planned, and up to where."""
        from_us = self.line.end_us
        ends = {name: maker.fresh[name].end_us(from_us) for name, maker in self.below.items()}
        return {name: end_us for name, end_us in ends.items() if end_us > from_us}

    def settle(self) -> None:
        """What was handed over and is sealed now need not be held."""
        for name, maker in self.below.items():
            self.line.settled(name, maker.sealed_us)
        self.numbered.notify()


def connect(levels: Sequence[RunningLevel]) -> None:
    """Tell levels of each other."""
    for level in levels:
        read = {schema.name for schema in level.line.level.inputs}
        for other in levels:
            made = [name for name in other.fresh if name in read]
            if made:
                level.below |= dict.fromkeys(made, other)
                other.above.append(level)


class Planner:
    """Plans intervals, and numbers what was answered."""

    def __init__(self, own: RunningLevel, bounds: Bounds, keep_s: float, once: bool = False) -> None:
        """`once`: it ends with what is there now."""
        self.own = own
        self._line = own.line
        self._bounds = bounds
        self._front = Front(own.line.level, bounds)
        if once and own.below:
            made = {name: maker.last_us for name, maker in own.below.items() if maker.last_us is not None}
            own.last_us = self._front.reached_us(made)
        elif once:
            own.last_us = self._front.stop_at_present()
        self._keep_every_s = keep_s
        self._keep_s = time.monotonic() + keep_s
        follows = set(self._front.chains) - set(own.below)
        self.pause_s_max = PAUSE_S_MAX if follows else WOKEN_S
        self._seen = 0
        self._look_s = 0.0
        """When it looks at the log next for what levels of this pool make: another driver may have sealed it."""

    def has_work(self) -> bool:
        return self._seen != self.own.news

    def wait(self, timeout_s: float) -> None:
        self.own.answered.wait(timeout_s)

    def step(self) -> bool:
        """Whether there was something to do."""
        self._seen = self.own.news
        planned = self._plan()
        worked = self._number() or planned
        if not worked and self.own.last_us is not None:
            self._rest()
        return worked

    def rows(self) -> int:
        """How many events there are to read."""
        line, chains = self._line, self._front.chains.values()
        return sum(chain.count(line.end_us, max(chain.through_us, line.end_us)) for chain in chains)

    def _rest(self) -> None:
        """Nothing is to be planned any more, if nothing is there beyond the last interval and nobody makes more."""
        with self.own.lock:
            made = all(maker.finished for maker in self.own.below.values())
        self.own.rests = made and self._front.next_end(self._line.end_us) <= self._line.end_us

    def _plan(self) -> bool:
        line, front, lock = self._line, self._front, self.own.lock
        if not line.has_room:
            return False
        with lock:
            ahead = self.own.ahead()
        from_us = line.end_us
        if self._waits(ahead, from_us):
            return False
        end_us = front.next_end(from_us, ahead)
        if end_us <= from_us:
            return False
        chains = {name: chain for name, chain in front.chains.items() if name not in ahead}
        ends = steps_of(chains, from_us, end_us, self._bounds.rows_at_once)
        interval = Interval(from_us, tuple(ends), spans_of(chains, from_us, end_us))
        rows = sum(chain.count(from_us, end_us) for chain in chains.values())
        now_s = time.monotonic()
        keep = now_s >= self._keep_s or line.since_state >= KEEP_STEPS or end_us == self.own.last_us
        if keep:
            self._keep_s = now_s + self._keep_every_s
            self.own.keeps_us = end_us
        with lock:
            handed = {name: self.own.below[name].fresh[name].rows(from_us, end_us) for name in ahead}
            rows += sum(count for count, _ in handed.values())
            line.plan(interval, rows, keep, now_s, {name: data for name, (_, data) in handed.items()})
            self.own.settle()  # some may have been sealed meanwhile
        return True

    def _waits(self, ahead: dict[str, int], from_us: int) -> bool:
        """Whether a level of this pool is to make something first; the log need not be asked then, but now and then."""
        behind = [name for name, maker in self.own.below.items() if name not in ahead and maker.sealed_us <= from_us]
        now_s = time.monotonic()
        if not behind or now_s >= self._look_s:
            self._look_s = now_s + WOKEN_S
            return False
        return True

    def _number(self) -> bool:
        own, line = self.own, self._line
        with own.lock:
            step = line.ready()
        if step is None:
            return False
        answers = [step.answers[bucket] for bucket in range(line.level.buckets)]
        found = [(stream, data) for answer in answers for stream, data in answer.outputs.items()]
        from_us, through_us = step.interval.from_us, step.through_us
        tables = numbered_by_stream(own.outputs.chains, found, from_us, through_us)
        sizes = [(answer.keys, answer.rows, answer.state_bytes) for answer in answers]
        keys, rows, state_bytes = (sum(column) for column in zip(*sizes, strict=True))
        with own.lock:
            line.was_numbered(Numbered(tables, keys, rows, state_bytes))
            if own.hands_over_us is not None and from_us >= own.hands_over_us:
                for name, fresh in own.fresh.items():
                    fresh.add(from_us, through_us, tables[name])
                for other in own.above:
                    other.wake()
            own.numbered.notify()
        return True


class Sealer:
    """Seals what is numbered."""

    pause_s_max = WOKEN_S

    def __init__(self, own: RunningLevel, bounds: Bounds, may_seal: MaySeal, on_sealed: OnSealed) -> None:
        self.own = own
        self._line = own.line
        self._rows_max = bounds.rows_per_batch
        self._may_seal = may_seal
        self._on_sealed = on_sealed
        self._states = States(own.line.level)
        self._seals = 0

    def has_work(self) -> bool:
        return bool(self._ready())

    def wait(self, timeout_s: float) -> None:
        self.own.numbered.wait(timeout_s)

    def _ready(self) -> list[Step]:
        """Intervals that can be sealed as one: what they have read is sealed, and tasks have not written their rows."""
        steps: list[Step] = []
        for step in self._line.to_seal(self._rows_max):
            parts = step.numbered is not None and any(isinstance(t, PartRows) for t in step.numbered.outputs.values())
            if step.handed or (parts and steps):
                break
            steps.append(step)
            if parts:
                break
        return steps

    def step(self) -> bool:
        """Whether there was something to do."""
        own, level = self.own, self._line.level
        with own.lock:
            steps = self._ready()
        numbered = [step.numbered for step in steps if step.numbered is not None]
        if not numbered:
            return False
        from_us, through_us = steps[0].interval.from_us, steps[-1].through_us
        tables = {name: _joined([one.outputs[name] for one in numbered]) for name in own.outputs.chains}
        added = seal_numbered(own.outputs, tables, from_us, through_us, self._may_seal)
        if own.hands_over_us is not None:
            self._check(tables, added, max(from_us, own.hands_over_us), through_us)
        self._tell(steps, through_us)
        rows = sum(one.rows for one in numbered)
        last = numbered[-1]
        self._on_sealed(level, Sealed(steps[-1].number, through_us, added, last.keys, rows, last.state_bytes))
        return True

    def _check(
        self, tables: dict[str, pa.Table | PartRows | None], added: dict[str, int], from_us: int, through_us: int
    ) -> None:
        """Levels above have been handed these rows: where others sealed some of them, they are the same."""
        for name, table in tables.items():
            if added[name] != (0 if table is None else len(table)):
                agree_on(self.own.outputs.chains[name], from_us, through_us, table)

    def _tell(self, steps: list[Step], through_us: int) -> None:
        own = self.own
        with own.lock:
            own.sealed_us = through_us
            if own.hands_over_us is None and through_us > own.outputs.start_us:
                own.hands_over_us = through_us
            self._line.was_sealed(len(steps), time.monotonic())
            own.wake()
            for other in own.above:
                other.settle()
                other.wake()
        self._seals += len(steps)
        if self._seals >= SWEEP_SEALS:
            self._seals = 0
            self._states.drop_before(through_us)


def _joined(tables: list[pa.Table | PartRows | None]) -> pa.Table | PartRows | None:
    """Rows of intervals that follow each other; those that tasks have written come alone."""
    import pyarrow as pa

    rows = [table for table in tables if table is not None]
    if len(rows) < 2:
        return rows[0] if rows else None
    return pa.concat_tables(rows)
