"""Schedules: an instance at each due time. Due times are a function of the schedule, and an instance's id of its due
time, so that every node may start it and it is started once. What a node keeps is only up to where all was started:
after an outage it goes on from there, late rather than never.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import ProcessError, to_datetime
from unerring.processes.config import ProcessesConfig
from unerring.processes.graph import BAD_IN_NAMES
from unerring.processes.messages import Start
from unerring.processes.out import Out

if TYPE_CHECKING:
    from unerring.processes.build import Process

MARK: Final = "mark"
"""The key of how far a schedule has come, by its name."""


class Schedule(msgspec.Struct, frozen=True):
    """When instances of a process are due, in wall microseconds."""

    name: str
    process: str
    period_us: int
    first_us: int = 0
    last_us: int = 0
    """0: for ever."""
    given: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.period_us < 1_000_000 and not self.last_us:
            raise ProcessError(
                f"schedule {self.name}: a period of {self.period_us} µs is too short; give a second or more"
            )
        bad = not self.name or not self.name.isprintable() or any(c in self.name for c in BAD_IN_NAMES)
        if self.period_us < 1 or bad:
            raise ProcessError(f"schedule {self.name!r}: give it a period, and a printable name without {BAD_IN_NAMES}")

    def due_after(self, mark_us: int) -> int | None:
        """The first due time after a moment, if there is one."""
        passed = max(0, (mark_us - self.first_us) // self.period_us + 1)
        due_us = self.first_us + passed * self.period_us
        return None if self.last_us and due_us > self.last_us else due_us

    def missed(self, mark_us: int, now_us: int) -> int:
        """How many due times lie after the mark and not after now."""
        until_us = min(now_us, self.last_us) if self.last_us else now_us
        if until_us < self.first_us:
            return 0
        passed = (until_us - self.first_us) // self.period_us
        return max(0, passed - max(-1, (mark_us - self.first_us) // self.period_us))

    def start(self, due_us: int) -> Start:
        """The instance of a due time."""
        return Start(f"{self.name}-{to_datetime(due_us):%Y%m%dT%H%M%S.%f}Z", self.process, self.given)


class Timetable:
    """A node's schedules, and up to where each was started."""

    def __init__(self, processes: Iterable[Process], out: Out, config: ProcessesConfig) -> None:
        self.schedules = {name: schedule for process in processes for name, schedule in process.schedules.items()}
        self.out = out
        self.config = config
        self.marks: dict[str, int] = {}
        """By schedule, the last due time that exists on a majority; on disk."""
        self.starting: dict[str, tuple[str, int]] = {}
        """By instance: the schedule and due time of a start that is not decided yet."""

    def due(self, wall_us: int) -> list[Start]:
        """The starts that are due now; repeated until they are done."""
        due = []
        self.deployed(wall_us)
        for schedule in self.schedules.values():
            mark_us = self.marks[schedule.name]
            missed = schedule.missed(mark_us, wall_us)
            if missed > self.config.catch_up_max:
                skipped = missed - self.config.catch_up_max
                self.out.report("schedule_skipped", f"{schedule.name}: {skipped} due times are too long ago")
                self._mark(schedule.name, mark_us + skipped * schedule.period_us)
            due_us = schedule.due_after(self.marks[schedule.name])
            if due_us is not None and due_us <= wall_us:
                start = schedule.start(due_us)
                self.starting[start.instance] = (schedule.name, due_us)
                due.append(start)
        return due

    def started(self, instance: str) -> None:
        """It exists on a majority: the next one may be due."""
        if instance in self.starting:
            name, due_us = self.starting.pop(instance)
            if due_us > self.marks.get(name, -1):
                self._mark(name, due_us)

    def deployed(self, wall_us: int) -> None:
        """A schedule begins when it is deployed."""
        for name in self.schedules:
            if name not in self.marks:
                self._mark(name, wall_us)

    def set_mark(self, name: str, mark_us: int) -> None:
        """Other nodes say how far it has come."""
        if name in self.schedules:
            self._mark(name, mark_us)

    def _mark(self, name: str, mark_us: int) -> None:
        self.marks = {**self.marks, name: mark_us}
        self.out.keep(f"{name}|{MARK}", mark_us)
