"""The driver's side of a pool: tasks greet it, and it hands them partitions of the levels.

There are two threads for each level (see `running`) and one for each task. A task that ends or stalls costs its
partitions one hand-over: another task begins with the last state that was kept and runs the intervals since. Nobody is
fenced off: see `line`.
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

from unerring.model import FrameError, ProtocolError, UnerringError, WorldError
from unerring.pipeline.beginnings import beginning
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level
from unerring.pipeline.resident.line import Line
from unerring.pipeline.resident.running import KEEP_S, PAUSE_S, OnSealed, Planner, RunningLevel, Sealer, connect
from unerring.pipeline.resident.wire import FRAME_BYTES_MAX, Answered, End, Failed, Greet, Kept, ToTask, Wire
from unerring.pipeline.streaming import MaySeal, outputs_in, seal_at_once
from unerring.pipeline.versions import enter

GREET_S: Final = 10.0
GREETING_MAX: Final = 64
"""Connections that have not greeted yet; more are closed at once, and a task tries again."""
END_S: Final = 3.0
"""How long tasks have to end by themselves."""
ROWS_PER_STEP: Final = 250_000
"""A backlog is worked off in intervals of about so many events, so that a task that takes over is soon done."""


@dataclass(frozen=True)
class Address:
    """Where a hub listens, and under which name its tasks find it. Port 0: any that is free."""

    host: str
    known_as: str
    port: int = 0


LOOPBACK: Final = Address("127.0.0.1", "127.0.0.1")


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
        once: bool = False,
    ) -> None:
        """`once`: its levels end with what is there now; see `finished`."""
        bounds = bounds or Bounds()
        self.bounds = replace(bounds, rows_per_batch=min(bounds.rows_per_batch, ROWS_PER_STEP))
        self.secret = secrets.token_bytes(32)
        self.error: UnerringError | None = None
        """What ended it."""
        self.final = False
        """Whether it would end again: rules, log or disk are wrong."""
        self.failed = ""
        """The level that ended it."""
        self._lock = threading.RLock()
        self._ending = False
        self._tasks: list[Task] = []
        self._threads: list[threading.Thread] = []
        outputs = [outputs_in(level) for level in levels]  # before levels above look for them
        self.lines = [Line(n, level, self._beginning(level), copies) for n, level in enumerate(levels)]
        self._levels = [RunningLevel(line, self._lock, made) for line, made in zip(self.lines, outputs, strict=True)]
        connect(self._levels)
        self._planners = [Planner(level, self.bounds, keep_s, once) for level in self._levels]
        self._sealers = [Sealer(level, self.bounds, may_seal, on_sealed) for level in self._levels]
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
        with self._lock:
            return [task.name for task in self._tasks]

    def sealed_us(self, number: int) -> int:
        """Up to where this pool has sealed a level, or found it sealed."""
        return self._levels[number].sealed_us

    @property
    def finished(self) -> bool:
        """Whether all that was there is sealed, and the states after it are kept."""
        with self._lock:
            return all(level.finished for level in self._levels)

    @property
    def is_short(self) -> bool:
        """Whether what there is to read now is one interval: a single task is soon done with it."""
        return sum(planner.rows() for planner in self._planners) <= self.bounds.rows_per_batch

    def start(self) -> None:
        self._thread("pool: greetings", self._accept)
        for planner, sealer in zip(self._planners, self._sealers, strict=True):
            label = planner.own.label
            self._thread(f"pool: plan level {label}", self._run, planner)
            self._thread(f"pool: seal level {label}", self._run, sealer)

    def stop(self) -> None:
        """End the tasks and the threads. What is sealed stays."""
        with self._lock:
            self._ending = True
            for task in self._tasks:
                task.send(End())
            self._wake_all()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # or whoever accepts does not wake up
        self._listening.close()
        until_s = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        with self._lock:
            for task in self._tasks:
                task.wire.close()
        for thread in self._threads:
            thread.join()

    def fail(self, error: UnerringError, level: str = "", final: bool = False) -> None:
        """The pool cannot go on."""
        with self._lock:
            if self.error is None:
                self.error, self.failed, self.final = error, level, final
            self._wake_all()

    def _wake_all(self) -> None:
        for level in self._levels:
            level.wake()
            level.numbered.notify()

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
            with self._lock:
                match message:
                    case Answered(line=line):
                        self._line(line, task).answered(task, message, time.monotonic())
                        if self.lines[line].ready() is not None:
                            self._levels[line].wake()
                    case Kept(line, bucket, at_us):
                        self._line(line, task).kept(bucket, at_us, time.monotonic())
                    case Failed(line, _, why):
                        label = self._line(line, task).level.label
                        self.fail(WorldError(f"level {label} stopped: {why}"), label, final=True)
                    case Greet():
                        raise ProtocolError(f"{task.name} greets twice")

    def _line(self, number: int, task: Task) -> Line:
        if not 0 <= number < len(self.lines):
            raise ProtocolError(f"{task.name} speaks of level number {number}")
        return self.lines[number]

    def _join(self, task: Task) -> None:
        with self._lock:
            if self._ending:
                task.send(End())
            self._tasks.append(task)
            self._assign()
            self._balance(task)

    def _leave(self, task: Task) -> None:
        with self._lock:
            self._tasks.remove(task)
            for line in self.lines:
                line.lost(task)
            self._assign()

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

    def _run(self, work: Planner | Sealer) -> None:
        """A thread of a level: there is something to do, or it waits for that."""
        own = work.own
        try:
            pause_s = PAUSE_S
            while not self._ending and self.error is None:
                if work.step():
                    pause_s = PAUSE_S
                    continue
                with self._lock:
                    self._assign()
                    if not work.has_work():
                        work.wait(max(pause_s, self.bounds.look_s))
                pause_s = min(pause_s * 1.5, work.pause_s_max)
        except UnerringError as error:
            self.fail(WorldError(f"level {own.label} stopped: {error}"), own.label, final=True)
        except Exception as error:
            self.fail(WorldError(f"level {own.label} stopped: {type(error).__name__}: {error}"), own.label)
            raise

    def _thread(self, name: str, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, name=name, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive() or not one.ident]
        self._threads.append(thread)
        thread.start()
