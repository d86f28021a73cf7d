"""The driver's part of an intake: it tells tasks what to do, creates the intake of what they answer, and settles it.

An intake is settled before the next one is made, so at most the newest one is not settled. A driver that starts
settles that first. One that repeats a micro-batch finds the intake of its number, and only settles it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from unerring.log.chain import Chain
from unerring.log.intakes import Intake, Intakes, TakenFile, check_source
from unerring.log.runs import RunFile
from unerring.log.settling import Slicer, settle
from unerring.log.taking import Answer, Order, TakeConfig
from unerring.log.times import Times
from unerring.model import TIME_MAX, TIME_MIN, CallerError, LogError

Job = Callable[[Order], Sequence[Answer]]
"""Runs the tasks of an intake; their answers."""

_RUNS_MAX: Final = 65_536
"""Runs of one intake. Beyond that the lateness holds back too much, or the source has too many partitions."""


class Overtaken(CallerError):
    """Something else has the number of an intake."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a stream is complete, once the newest time of a source is known."""

    lateness_us: int | None = None
    """Rows may come this much after newer ones. None: everything up to the newest time is there."""
    end: bool = False
    """Nothing more will come at all."""

    def after(self, newest_us: int, strict: bool) -> int:
        if self.end:
            return TIME_MAX
        if self.lateness_us is None or newest_us == TIME_MIN:
            return newest_us
        return max(newest_us - self.lateness_us - (0 if strict else 1), TIME_MIN)


def publish_here(intakes: Intakes, names: Sequence[str]) -> None:
    """Let bad rows be in quarantine."""
    for name in names:
        intakes.publish(name)


@dataclass(frozen=True, slots=True)
class Means:
    """How the work that need not be the driver's is done: by itself, unless somebody gives it to tasks."""

    publish: Callable[[Intakes, Sequence[str]], None] = publish_here
    slicer: Callable[[Intake], Slicer | None] = lambda intake: None


class Intaker:
    """Brings one source into one stream, intake by intake."""

    def __init__(
        self, chain: Chain, source: str, times: Times, config: TakeConfig | None = None, means: Means | None = None
    ) -> None:
        self.chain = chain
        self.intakes = Intakes(chain.store, chain.folder, check_source(source))
        self._times = times
        self._config = config or TakeConfig()
        self._means = means or Means()
        self._settled: Intake | None = None

    def newest(self) -> Intake | None:
        """The last intake, settled."""
        newest = self.intakes.newest()
        if newest is not None and newest != self._settled:
            self.settle(newest)
        return newest

    def take(
        self,
        number: int,
        position: str,
        job: Job,
        watermark: Watermark,
        *,
        files: Sequence[TakenFile] = (),
        unchanged: Callable[[], None] = lambda: None,
    ) -> tuple[Intake, bool]:
        """Make intake `number`, or find it made; settled in any case. Whether it was there before comes with it.

        `unchanged` is called between the tasks' end and the commit, and raises if what was read is not what is there.
        """
        before = self._settled if self._settled and self._settled.number == number - 1 else self.newest()
        if before is not None and number <= before.number:
            return self._repeated(number, position, before), True
        if number != (before.number if before else 0) + 1:
            raise LogError(
                f"stream {self.chain.name}: micro-batch {number} of source {self.intakes.source!r} has come, but the "
                f"log has only {before.number if before else 0} of them: the log was rolled back, or the checkpoint is "
                "of another log; restore the log, or use a new checkpoint and another source name"
            )
        self.intakes.claim(number)
        order = self._order(number, before)
        taken = sorted(job(order), key=lambda one: one.lane)
        unchanged()
        made = self.intakes.create(self._intake(order, position, taken, before, watermark, tuple(files)))
        _check_position(made, position, self.chain.name)
        self.settle(made)
        return made, False

    def settle(self, intake: Intake) -> None:
        """Bad rows into quarantine, good ones into the stream."""
        if intake.bad and self._unsettled(intake):
            self._means.publish(self.intakes, intake.bad)
        settle(self.chain, intake, self._means.slicer(intake))
        self.intakes.prune(intake)
        self._settled = intake

    def _unsettled(self, intake: Intake) -> bool:
        self.chain.refresh()
        return self.chain.producers().get(self.intakes.producer, (0, TIME_MIN)) < (intake.number, intake.through_us)

    def _repeated(self, number: int, position: str, newest: Intake) -> Intake:
        made = newest if newest.number == number else self.intakes.get(number)
        if made is None:  # long ago
            return newest
        _check_position(made, position, self.chain.name)
        return made

    def _order(self, number: int, before: Intake | None) -> Order:
        schema = self.chain.schema
        ahead = schema.max_ahead_us
        return Order(
            self.chain.folder,
            schema,
            self.chain.spread,
            self._times,
            self.intakes.source,
            number,
            max(self.chain.refresh(), before.through_us if before else TIME_MIN),
            None if ahead is None else time.time_ns() // 1000 + ahead,
            before.lanes if before else (),
            self._config,
        )

    def _intake(
        self,
        order: Order,
        position: str,
        taken: Sequence[Answer],
        before: Intake | None,
        watermark: Watermark,
        files: tuple[TakenFile, ...],
    ) -> Intake:
        settled_us = before.through_us if before else order.from_us
        newest_us = max([before.newest_us if before else TIME_MIN, *(one.newest_us for one in taken)])
        carried = tuple(run for run in before.runs if run.last_us > settled_us) if before else ()
        own = tuple(run for one in taken for run in one.runs)
        _check_runs(self.chain.name, carried, own)
        counts: dict[str, int] = {}
        for one in taken:
            for reason, count in one.quarantined.items():
                counts[reason] = counts.get(reason, 0) + count
        lanes = dict(enumerate(order.lanes))
        for one in taken:
            lanes[one.lane] = lanes.get(one.lane, 0) + one.rows
        return Intake(
            source=order.source,
            number=order.number,
            position=position,
            settled_us=settled_us,
            from_us=order.from_us,
            through_us=max(settled_us, watermark.after(newest_us, self.chain.schema.strict)),
            newest_us=newest_us,
            runs=(*carried, *own),
            carried=len(carried),
            lanes=tuple(lanes.get(lane, 0) for lane in range(max(lanes, default=-1) + 1)),
            rows=sum(one.rows for one in taken),
            quarantined=dict(sorted(counts.items())),
            bad=tuple(name for one in taken for name in one.bad),
            files=files,
        )


def _check_position(made: Intake, position: str, stream: str) -> None:
    if made.position != position:
        raise Overtaken(
            f"stream {stream}: micro-batch {made.number} of source {made.source!r} is in the log with other offsets "
            f"({_short(made.position)}) than now ({_short(position)}): its checkpoint was lost or is another query's; "
            "restore the checkpoint, or give the source another name"
        )


def _check_runs(stream: str, carried: Sequence[RunFile], own: Sequence[RunFile]) -> None:
    if len(carried) + len(own) > _RUNS_MAX:
        raise CallerError(
            f"stream {stream}: {len(carried)} runs of rows wait for the watermark, and {len(own)} would be added; at "
            f"most {_RUNS_MAX} are allowed: use a smaller lateness, larger micro-batches or fewer partitions"
        )


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
