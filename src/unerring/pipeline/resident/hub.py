"""The driver's side of a pool: tasks greet it, it hands them partitions, plans intervals, and seals what they answer.

There is a thread for each level and one for each task. A task that ends or stalls costs its partitions one hand-over:
another task begins with the last state that was kept and runs the intervals since. Nobody is fenced off: see `line`.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from unerring.log import Chain
from unerring.model import FrameError, ProtocolError, UnerringError, WorldError
from unerring.pipeline.beginnings import beginning
from unerring.pipeline.intervals import Bounds, Front, spans_of, steps_of
from unerring.pipeline.level import Level
from unerring.pipeline.resident.line import Line
from unerring.pipeline.resident.wire import FRAME_BYTES_MAX, Answered, End, Failed, Greet, Kept, ToTask, Wire
from unerring.pipeline.shuffling import Interval
from unerring.pipeline.states import States
from unerring.pipeline.streaming import MaySeal, Sealed, output_chains, seal_answers, seal_at_once
from unerring.pipeline.versions import enter

KEEP_S: Final = 5.0
"""How often states are kept."""
KEEP_STEPS: Final = 512
"""So many intervals are run again at the most by a task that takes a partition over."""
SWEEP_KEEPS: Final = 8
PAUSE_S: Final = 0.002
PAUSE_S_MAX: Final = 0.016
"""How often a level looks for something new: less often when nothing comes."""
GREET_S: Final = 10.0
GREETING_MAX: Final = 64
"""Connections that have not greeted yet; more are closed at once, and a task tries again."""
END_S: Final = 3.0
"""How long tasks have to end by themselves."""
ROWS_PER_STEP: Final = 250_000
"""A backlog is worked off in intervals of about so many events, so that a task that takes over is soon done."""

OnSealed = Callable[[Level, Sealed], None]


@dataclass(frozen=True)
class Address:
    """Where a hub listens, and under which name its tasks find it. Port 0: any that is free."""

    host: str
    port: int
    known_as: str


LOOPBACK: Final = Address("127.0.0.1", 0, "127.0.0.1")


class Task:
    """A task that has greeted."""

    def __init__(self, name: str, wire: Wire) -> None:
        self.name = name
        self.wire = wire

    def send(self, message: ToTask) -> None:
        try:
            self.wire.send(message)
        except OSError:
            self.wire.close()  # whoever receives from it finds that out


class Hub:
    """The pool of a run's levels."""

    def __init__(
        self,
        levels: Sequence[Level],
        bounds: Bounds | None = None,
        *,
        on_sealed: OnSealed = lambda level, sealed: None,
        may_seal: MaySeal = seal_at_once,
        address: Address = LOOPBACK,
        copies: int = 1,
        keep_s: float = KEEP_S,
    ) -> None:
        bounds = bounds or Bounds()
        self.bounds = replace(bounds, rows_per_batch=min(bounds.rows_per_batch, ROWS_PER_STEP))
        self.secret = secrets.token_bytes(32)
        self.error: UnerringError | None = None
        """What ended it."""
        self.final = False
        """Whether it would end again: rules, log or disk are wrong."""
        self.failed = ""
        """The level that ended it."""
        self._on_sealed = on_sealed
        self._may_seal = may_seal
        self._keep_s = keep_s
        self._changed = threading.Condition()
        self._ending = False
        self._tasks: list[Task] = []
        self._threads: list[threading.Thread] = []
        self._outputs = [output_chains(level) for level in levels]  # before levels above look for them
        self.lines = [Line(n, level, self._beginning(level), copies) for n, level in enumerate(levels)]
        self._sealed_us = [line.end_us for line in self.lines]
        self._known_as = address.known_as
        self._listening = socket.create_server((address.host, address.port))
        self._greeting = threading.Semaphore(GREETING_MAX)

    @property
    def address(self) -> tuple[str, int]:
        """Where tasks find it."""
        return self._known_as, self._listening.getsockname()[1]

    @property
    def tasks(self) -> list[str]:
        """The names of those who are there."""
        with self._changed:
            return [task.name for task in self._tasks]

    def sealed_us(self, number: int) -> int:
        """Up to where this pool has sealed a level, or found it sealed."""
        return self._sealed_us[number]

    def start(self) -> None:
        self._thread("pool: greetings", self._accept)
        for line in self.lines:
            self._thread(f"pool: level {line.level.label}", self._run, line)

    def stop(self) -> None:
        """End the tasks and the threads. What is sealed stays."""
        with self._changed:
            self._ending = True
            for task in self._tasks:
                task.send(End())
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # or whoever accepts does not wake up
        self._listening.close()
        until_s = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        with self._changed:
            for task in self._tasks:
                task.wire.close()
        for thread in self._threads:
            thread.join()

    def fail(self, error: UnerringError, level: str = "", final: bool = False) -> None:
        """The pool cannot go on."""
        with self._changed:
            if self.error is None:
                self.error, self.failed, self.final = error, level, final
            self._changed.notify_all()

    # --- tasks ---

    def _accept(self) -> None:
        while not self._ending:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._thread("pool: task", self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        """One connection, from its greeting to its end."""
        task = self._greeted(connection)
        if task is None:
            connection.close()
            return
        try:
            self._join(task)
            try:
                self._hear(task)
            finally:
                self._leave(task)
        except (FrameError, ProtocolError, OSError):  # a task that is broken costs its connection
            return
        finally:
            task.wire.close()

    def _greeted(self, connection: socket.socket) -> Task | None:
        """The task at the other end; None: no task of ours, or there are too many at once."""
        if not self._greeting.acquire(blocking=False):
            return None
        try:
            connection.settimeout(GREET_S)
            wire = Wire(connection, self.secret, dialled=False)
            greeting = wire.to_hub()
            if not isinstance(greeting, Greet):
                return None
            connection.settimeout(None)
            wire.bytes_max = FRAME_BYTES_MAX
            return Task(greeting.name, wire)
        except (FrameError, OSError):
            return None
        finally:
            self._greeting.release()

    def _hear(self, task: Task) -> None:
        while (message := task.wire.to_hub()) is not None:
            with self._changed:
                match message:
                    case Answered(line=line):
                        self._line(line, task).answered(task, message, time.monotonic())
                    case Kept(line, bucket, at_us):
                        self._line(line, task).kept(bucket, at_us, time.monotonic())
                    case Failed(line, _, why):
                        label = self._line(line, task).level.label
                        self.fail(WorldError(f"level {label} stopped: {why}"), label, final=True)
                    case Greet():
                        raise ProtocolError(f"{task.name} greets twice")
                self._changed.notify_all()

    def _line(self, number: int, task: Task) -> Line:
        if not 0 <= number < len(self.lines):
            raise ProtocolError(f"{task.name} speaks of level number {number}")
        return self.lines[number]

    def _join(self, task: Task) -> None:
        with self._changed:
            if self._ending:
                task.send(End())
            self._tasks.append(task)
            self._assign()
            self._balance(task)
            self._changed.notify_all()

    def _leave(self, task: Task) -> None:
        with self._changed:
            self._tasks.remove(task)
            for line in self.lines:
                line.lost(task)
            self._assign()
            self._changed.notify_all()

    def _assign(self) -> None:
        """Give partitions that nobody can be waited for to those who hold the fewest."""
        now_s = time.monotonic()
        for line in self.lines:
            for bucket in list(line.vacant(now_s)):
                held = {id(holding.member) for holding in line.holdings[bucket]}
                free = [task for task in self._tasks if id(task) not in held]
                if free:
                    line.take(bucket, min(free, key=self._load), now_s)

    def _balance(self, newcomer: Task) -> None:
        """Let a new task take over from those who hold the most."""
        while self._tasks:
            busiest = max(self._tasks, key=self._load)
            if self._load(busiest) - self._load(newcomer) < 2:
                return
            line = max(self.lines, key=lambda line: line.holds(busiest) - line.holds(newcomer))
            bucket = line.movable(busiest)
            if bucket is None:
                return
            line.take(bucket, newcomer, time.monotonic())

    def _load(self, task: Task) -> int:
        return sum(line.holds(task) for line in self.lines)

    # --- levels ---

    def _beginning(self, level: Level) -> int:
        enter(level)
        return beginning(level, self.bounds.start_us)

    def _run(self, line: Line) -> None:
        """The thread of a level: plan, seal, look after the tasks, wait."""
        try:
            work = _Work(self, line)
            pause_s = PAUSE_S
            while not self._ending and self.error is None:
                if work.step():
                    pause_s = PAUSE_S
                    continue
                with self._changed:
                    self._assign()
                    self._changed.wait(max(pause_s, self.bounds.look_s))
                pause_s = min(pause_s * 1.5, PAUSE_S_MAX)
        except UnerringError as error:
            label = line.level.label
            self.fail(WorldError(f"level {label} stopped: {error}"), label, final=True)
        except Exception as error:
            label = line.level.label
            self.fail(WorldError(f"level {label} stopped: {type(error).__name__}: {error}"), label)
            raise

    def _thread(self, name: str, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, name=name, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive() or not one.ident]
        self._threads.append(thread)
        thread.start()


class _Work:
    """What a level's thread does."""

    def __init__(self, hub: Hub, line: Line) -> None:
        self._hub = hub
        self._line = line
        self._front = Front(line.level, hub.bounds)
        self._outputs: dict[str, Chain] = hub._outputs[line.number]
        self._states = States(line.level)
        self._keep_s = time.monotonic() + hub._keep_s
        self._keeps = 0

    def step(self) -> bool:
        """Whether there was something to do."""
        planned = self._plan()
        return self._seal() or planned

    def _plan(self) -> bool:
        line, front = self._line, self._front
        if not line.has_room:
            return False
        from_us = line.end_us
        end_us = front.next_end(from_us)
        if end_us <= from_us:
            return False
        ends = steps_of(front.chains, from_us, end_us, self._hub.bounds.rows_at_once)
        interval = Interval(from_us, tuple(ends), spans_of(front.chains, from_us, end_us))
        rows = sum(chain.count(from_us, end_us) for chain in front.chains.values())
        now_s = time.monotonic()
        keep = now_s >= self._keep_s or line.since_state >= KEEP_STEPS
        if keep:
            self._keep_s = now_s + self._hub._keep_s
        with self._hub._changed:
            line.plan(interval, rows, keep, now_s)
        if keep:
            self._sweep()
        return True

    def _sweep(self) -> None:
        self._keeps += 1
        if self._keeps % SWEEP_KEEPS == 0:
            self._states.drop_before(self._hub.sealed_us(self._line.number))

    def _seal(self) -> bool:
        hub, line = self._hub, self._line
        with hub._changed:
            step = line.ready()
        if step is None:
            return False
        level, from_us, through_us = line.level, step.interval.from_us, step.through_us
        answers = [step.answers[bucket] for bucket in range(level.buckets)]
        found = [(stream, data) for answer in answers for stream, data in answer.outputs.items()]
        added = seal_answers(level, self._outputs, found, from_us, through_us, hub._may_seal)
        keys, rows = sum(answer.keys for answer in answers), sum(answer.rows for answer in answers)
        hub._sealed_us[line.number] = through_us
        hub._on_sealed(level, Sealed(step.number, through_us, added, keys, rows))
        with hub._changed:
            line.was_sealed(time.monotonic())
            hub._changed.notify_all()
        return True
