"""The driver of a sink: reads what is sealed, hands it to the target chunk by chunk, and never assumes an answer.

It holds nothing that must survive. Whenever something went wrong it opens the target again and asks where it is: a lost
answer, a kill, a driver that was asleep for a day and one that works at the same time are the same case.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Final

import msgspec

from unerring.log import Chain, Positions, Removed
from unerring.model import (
    SECOND_US,
    TIME_MAX,
    TIME_MIN,
    CallerError,
    LogError,
    ProcessConfig,
    Stamp,
    WorldError,
    check,
)
from unerring.sinks.chunks import chunks, start_of
from unerring.sinks.port import ORDINAL_MAX, Overtaken, Target, last_stamp
from unerring.sinks.record import SinkRecord

_COUNTED_MAX: Final = 2_000
"""What is waiting is counted in the log's index, and in the footers of segments that it does not name yet, if they are
not more than this: a long past that nobody compacted is not opened for a figure."""


class DeliveryConfig(ProcessConfig, frozen=True):
    """The bounds of one delivery."""

    rows_max: int = 50_000
    """Rows of a chunk, unless a single time has more."""
    every_s: float = 0.0
    """At least so long between two looks at a stream that is caught up with: fewer, larger writes."""
    look_s: float = 0.05
    """The pause before the next look for something new."""
    pause_s_min: float = 0.1
    pause_s_max: float = 30.0
    """A target that is away is tried again after pauses that double up to this, for ever."""
    note_s: float = 1.0
    """How often the position is written down for retention, and what is waiting is counted."""
    hold_us: int = 7 * 86_400 * SECOND_US
    """Retention waits for what the target does not have yet, but not for what is older than this by event time."""

    def __post_init__(self) -> None:
        check(self, "rows_max", 1, 10_000_000)
        check(self, "every_s", 0, 86_400)
        check(self, "look_s", 0.001, 3_600)
        check(self, "pause_s_min", 0.001, 3_600)
        check(self, "pause_s_max", self.pause_s_min, 3_600)
        check(self, "note_s", 0.01, 3_600)
        check(self, "hold_us", 0, TIME_MAX)


class Progress(msgspec.Struct):
    """How a delivery does, as status and metrics tell it."""

    name: str
    stream: str
    to: str
    state: str = "starting"
    """starting; delivering; waiting: the target is away and is tried again; stopped: somebody has to do something."""
    why: str = ""
    """The reason, if it is waiting or stopped."""
    position: tuple[int, int] | None = None
    """The last stamp that the target has."""
    delivered: int = 0
    """Rows that this driver has brought."""
    waiting: int = 0
    """Sealed rows that the target does not have yet."""
    lag_us: int = 0
    """From the target's position to the end of the sealed stream, in event time; 0 if nothing is waiting."""
    failures: int = 0
    """Since this driver started."""


class Delivery:
    """One sink at work, in the thread that calls `run`."""

    chunks = staticmethod(chunks)

    def __init__(
        self,
        chain: Chain,
        record: SinkRecord,
        opening: Callable[[], Target],
        config: DeliveryConfig | None = None,
        say: Callable[[str], Any] = lambda text: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`opening`: connects to the target, and makes its table if there is none."""
        self.chain = chain
        self.record = record
        self.config = config or DeliveryConfig()
        self.progress = Progress(record.name, record.stream, record.to)
        self._opening = opening
        self._say = say
        self._now_s = now_s
        self._positions = Positions(chain.store, chain.folder)
        self._target: Target | None = None
        self._after: Stamp | None = None
        self._read_us = TIME_MIN
        """Up to here everything that is sealed was handed to the target, or was before its position."""
        self._pinned = self._positions.get(record.reader)
        self._noted_s = -1e9
        self._reading = ThreadPoolExecutor(1, thread_name_prefix=f"sink-{record.name}-reading")

    def run(self, stopping: threading.Event, follow: bool = True) -> None:
        """Deliver until `stopping`, or, without `follow`, until the target has what is sealed. Raises what nobody can
        repair by waiting."""
        pause_s = self.config.pause_s_min
        try:
            while not stopping.is_set():
                try:
                    moved = self._deliver(stopping)
                except (CallerError, LogError) as error:
                    if not isinstance(error, Removed) or self._target is None:
                        self._fail("stopped", error)
                        raise
                    # Another driver may have been here, and retention behind it: the target knows.
                    self._fail("waiting", error)
                    continue
                except WorldError as error:
                    self._fail("waiting", error)
                    self._note_while_away()
                    if isinstance(error, Overtaken):
                        pause_s = self.config.pause_s_min
                    stopping.wait(pause_s)
                    pause_s = min(2 * pause_s, self.config.pause_s_max)
                    continue
                pause_s = self.config.pause_s_min
                if not moved and not follow:
                    return
                if follow:
                    stopping.wait(max(self.config.look_s, self.config.every_s))
        finally:
            self._close()

    def rewind(self, to_us: int) -> None:
        """Set the target to an event time. A driver that works meanwhile is overtaken, and goes on from there."""
        target = self._opening()
        try:
            target.rewind(Stamp(to_us, ORDINAL_MAX))
        finally:
            target.close()
        self._positions.commit(self.record.reader, Stamp(to_us, ORDINAL_MAX))

    def _deliver(self, stopping: threading.Event) -> bool:
        """Bring everything that is sealed now; whether there was anything."""
        target = self._opened()
        through_us = self.chain.refresh()
        waiting = self.chunks(self.chain, self._after, self.config.rows_max, self._read_us)
        chunk = next(waiting, None)
        moved = chunk is not None
        while chunk is not None and not stopping.is_set():
            # The next one is read while the target takes this one; nobody else uses the chain meanwhile.
            following = self._reading.submit(next, waiting, None)
            try:
                target.write(chunk, self._after)
            finally:
                wait([following])
            self._after = last_stamp(chunk)
            self.progress.delivered += len(chunk)
            self._read_us = self._after.time  # a chunk ends with a whole time
            chunk = following.result()
            self._note()
        if chunk is None:
            self._read_us = through_us
        self._note(caught_up=chunk is None)
        return moved

    def _opened(self) -> Target:
        if self._target is None:
            target = self._opening()
            try:
                self._after = self._checked(target.position())
                self._read_us = start_of(self.chain, self._after)
            except BaseException:
                target.close()
                raise
            self._target = target
            self._pin()
            self._noted_s = self._now_s()
        if self.progress.state != "delivering":
            if self.progress.state == "waiting":
                self._say(f"sink {self.record.name} delivers again")
            self.progress.state, self.progress.why = "delivering", ""
        return self._target

    def _checked(self, position: Stamp | None) -> Stamp | None:
        """A position that the log can go on from."""
        if position is not None and position.time > self.chain.refresh():
            self.chain.refresh_index()  # retention may have removed what came next here, behind another driver
        through_us, base_us = self.chain.refresh(), self.chain.base.from_us
        name, where = self.record.name, self.record.to
        if position is not None and position.time > through_us:
            raise CallerError(
                f"sink {name}: {where} has situations up to {position.time}, and stream {self.record.stream} of this "
                f"run ends at {through_us}: the run was rolled back, or another copy of it delivers; restore the run, "
                f"or rewind the sink with: unerring deliver RUN --name {name} --rewind {through_us}"
            )
        if position is not None and position.time < base_us:
            raise CallerError(
                f"sink {name}: {where} has situations up to {position.time}, and retention has removed those up to "
                f"{base_us}; go on without them with: unerring deliver RUN --name {name} --rewind {base_us}"
            )
        return position

    def _fail(self, state: str, error: Exception) -> None:
        self._close()
        progress = self.progress
        progress.failures += 1
        if (progress.state, progress.why) != (state, str(error)):
            again = " and is tried again" if state == "waiting" else ""
            self._say(f"sink {self.record.name} is {state}{again}: {error}")
        progress.state, progress.why = state, str(error)

    def _note(self, caught_up: bool = False) -> None:
        """How far the target is, and how far retention may go; now and then, since both cost requests to a store."""
        progress, from_us = self.progress, self._from_us
        progress.position = None if self._after is None else (self._after.time, self._after.ordinal)
        due = self._now_s() - self._noted_s >= self.config.note_s
        if caught_up:
            progress.waiting = 0
        elif due and self.chain.tail_segments <= _COUNTED_MAX:
            with contextlib.suppress(Removed):  # another driver and retention were here: the next look asks the target
                progress.waiting = self.chain.count(from_us, self.chain.through_us)
        progress.lag_us = max(0, self.chain.through_us - from_us) if progress.waiting else 0
        if due:
            self._noted_s = self._now_s()
            self._pin()

    @property
    def _from_us(self) -> int:
        return self.chain.base.from_us if self._after is None else max(self._after.time, self.chain.base.from_us)

    def _note_while_away(self) -> None:
        """The stream goes on, and so does its retention, as far as it may."""
        with contextlib.suppress(WorldError):
            self.chain.refresh()
            self._note()

    def _pin(self) -> None:
        """Retention keeps what comes after this. What the target has is known once it was opened."""
        pin = self._after or self._pinned
        through_us = self.chain.through_us
        if through_us < TIME_MAX:
            pin = max(pin, Stamp(max(through_us - self.config.hold_us, TIME_MIN)))
        if pin != self._pinned:
            self._positions.commit(self.record.reader, pin)
            self._pinned = pin

    def _close(self) -> None:
        if self._target is not None:
            target, self._target = self._target, None
            target.close()
            self._noted_s = -1e9
            self._note(caught_up=not self.progress.waiting)
