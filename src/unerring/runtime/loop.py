"""The production driver: one machine on an asyncio event loop.

Two things go on at once. *Handling* feeds messages and due timers to the machine and queues its effects; *carrying out*
takes them from the queue in order. An effect behind a Persist waits until that record is synced; meanwhile handling
goes on, and all records queued by then make the next group commit. Timers and reports touch nothing outside the
machine, so they take effect at once: a machine never sees a timer that it has already replaced.

The simulator follows the same order (its `engine`), so that what it finds is true here.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from unerring.model import (
    Address,
    Broadcast,
    CancelTimer,
    Deliver,
    DiskError,
    Effect,
    Effects,
    InvariantBreach,
    Machine,
    PeerError,
    Persist,
    ProcessConfig,
    Report,
    Send,
    SetTimer,
    StableStorage,
    Stop,
    breach,
    check,
    invariant,
)
from unerring.runtime.halt import guard_loop, halt
from unerring.runtime.reports import Reports

TURN_INPUTS_MAX: Final = 256
"""Inputs handled before the event loop gets its turn: sockets must be read while a machine is busy."""


class DriverConfig(ProcessConfig, frozen=True):
    """Bounds of one machine's driver."""

    inbox_max: int = 10_000
    """Messages that wait to be handled. At half of it the driver asks for quiet, at all of it `offer` says no."""
    effects_max: int = 10_000
    """Effects that wait to be carried out. Past it nothing is handled until some are."""
    sync_inline: bool = False
    """Sync on the event loop's own thread. Saves two thread switches a commit; meanwhile the whole process waits."""

    def __post_init__(self) -> None:
        check(self, "inbox_max", 2, 10_000_000)
        check(self, "effects_max", 1, 10_000_000)


class Carrier(Protocol):
    """How a machine's messages leave: links between nodes, or an event service. Neither waits; both may lose."""

    def send(self, to: Address, message: Any) -> None: ...

    def broadcast(self, message: Any) -> None: ...


def monotonic_us() -> int:
    """The machine's clock."""
    return time.monotonic_ns() // 1000


class Driver:
    """Runs one machine until it stops, its disk fails, or `stop` is called.

    `deliver` is the application: it may be a coroutine function, and effects that follow wait for it.
    `before_sync` is called before a sync that holds up the event loop: what waits for the loop's next turn can leave.
    `on_fault(sender, error)` is told of a message that broke its protocol: nothing of it was believed.
    `on_congestion(True)` asks whoever feeds messages to pause, `on_congestion(False)` to go on.
    """

    def __init__(
        self,
        machine: Machine,
        carrier: Carrier,
        *,
        storage: StableStorage | None = None,
        deliver: Callable[[Any], Awaitable[None] | None] | None = None,
        reports: Reports | None = None,
        config: DriverConfig | None = None,
        clock: Callable[[], int] = monotonic_us,
        on_congestion: Callable[[bool], None] | None = None,
        on_fault: Callable[[Address, PeerError], None] | None = None,
        before_sync: Callable[[], None] | None = None,
        on_breach: Callable[[InvariantBreach], None] = halt,
    ) -> None:
        self.machine = machine
        self.reports = reports or Reports()
        self.on_congestion = on_congestion
        self.on_fault = on_fault
        self._carrier = carrier
        self._storage = storage
        self._deliver = deliver
        self._config = config or DriverConfig()
        self._clock = clock
        self._before_sync = before_sync
        self._on_breach = on_breach
        self._inbox: deque[tuple[Address, Any]] = deque()
        self._congested = False
        self._space = asyncio.Event()
        self._inputs = asyncio.Event()
        self._timers = _Timers()
        self._alarm: asyncio.TimerHandle | None = None
        self._effects: deque[Effect] = deque()
        self._unsynced: list[Persist] = []
        """The Persists in `_effects` that no commit has covered yet."""
        self._synced = 0
        """How many Persists at the front of `_effects` a commit has covered."""
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping: Stop | None = None
        self._running = False

    # Feeding

    def offer(self, sender: Address, message: Any) -> bool:
        """A message for the machine. False: the inbox is full, the message was not taken."""
        if self._stopping is not None or len(self._inbox) >= self._config.inbox_max:
            self.reports.count("driver.refused")
            return False
        self._inbox.append((sender, message))
        self._inputs.set()
        if not self._congested and len(self._inbox) * 2 > self._config.inbox_max:
            self._set_congested(True)
        return True

    async def put(self, sender: Address, message: Any) -> None:
        """A message for the machine; waits while the inbox is full."""
        while self._stopping is None and len(self._inbox) >= self._config.inbox_max:
            self._space.clear()
            await self._space.wait()
        self.offer(sender, message)

    def stop(self, why: str) -> None:
        """End in order: what the machine has asked for so far is carried out, nothing more is handled."""
        if self._stopping is None:
            self._queue([Stop(why)])
            self._inputs.set()

    def _set_congested(self, congested: bool) -> None:
        self._congested = congested
        if self.on_congestion is not None:
            self.on_congestion(congested)

    # Running

    async def run(self) -> Stop:
        """Start the machine and drive it. Returns its Stop; raises DiskError, or what the application raised."""
        invariant(not self._running, "a driver runs once")
        self._running = True
        guard_loop()
        disk = ThreadPoolExecutor(1, thread_name_prefix="unerring-disk")
        self._feed(lambda: self.machine.start(self._clock()))
        handling = asyncio.create_task(self._handle_inputs())
        carrying = asyncio.create_task(self._carry_out(disk))
        try:
            done, _ = await asyncio.wait((handling, carrying), return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            invariant(self._stopping is not None, "both ended without an error, so the machine was stopped")
            return self._stopping or breach("a driver ends with a Stop")
        except InvariantBreach as error:
            self._on_breach(error)
            raise
        finally:
            self._stopping = self._stopping or Stop("the driver ended")
            handling.cancel()
            carrying.cancel()
            await asyncio.gather(handling, carrying, return_exceptions=True)
            if self._alarm is not None:
                self._alarm.cancel()
            self._inbox.clear()
            self._space.set()
            disk.shutdown(wait=False)

    # Handling

    async def _handle_inputs(self) -> None:
        while self._stopping is None:
            if len(self._effects) > self._config.effects_max:
                self._room.clear()
                await self._room.wait()
                continue
            self._inputs.clear()
            if self._handle_some():
                await asyncio.sleep(0)
            else:
                self._set_alarm()
                await self._inputs.wait()

    def _handle_some(self) -> bool:
        """Due timers first, then messages, up to a turn's worth. False: there was nothing to handle."""
        handled = 0
        while handled < TURN_INPUTS_MAX and self._stopping is None and len(self._effects) <= self._config.effects_max:
            now = self._clock()
            name = self._timers.due(now)
            if name is not None:
                self._feed(lambda name=name, now=now: self.machine.timer(name, now))  # type: ignore[misc]
            elif self._inbox:
                sender, message = self._inbox.popleft()
                try:
                    self._feed(lambda: self.machine.handle(sender, message, now))  # noqa: B023
                except PeerError as error:
                    self._blame(sender, error)
            else:
                break
            handled += 1
        self.reports.count("driver.handled", handled)
        self._space.set()
        if self._congested and len(self._inbox) * 8 <= self._config.inbox_max:
            self._set_congested(False)
        return handled > 0

    def _feed(self, step: Callable[[], Effects]) -> None:
        try:
            self._queue(step())
        except InvariantBreach as error:
            self._on_breach(error)
            raise

    def _blame(self, sender: Address, error: PeerError) -> None:
        """A bad peer costs its link, never the process."""
        self.reports.note("peer.protocol_error", f"{sender}: {error}")
        if self.on_fault is not None:
            self.on_fault(sender, error)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        at_us = self._timers.next_us()
        if at_us is not None:
            left_s = max(0, at_us - self._clock()) / 1e6
            self._alarm = asyncio.get_running_loop().call_later(left_s, self._inputs.set)

    def _queue(self, effects: Effects) -> None:
        for effect in effects:
            if self._stopping is not None:
                return  # nothing comes after a Stop
            if isinstance(effect, SetTimer):
                self._timers.set(effect.name, effect.at_us)
            elif isinstance(effect, CancelTimer):
                self._timers.cancel(effect.name)
            elif isinstance(effect, Report):
                self.reports.take(effect)
            else:
                self._effects.append(effect)
                if isinstance(effect, Persist):
                    self._unsynced.append(effect)
                elif isinstance(effect, Stop):
                    self._stopping = effect
        if self._effects:
            self._work.set()

    # Carrying out

    async def _carry_out(self, disk: ThreadPoolExecutor) -> None:
        while True:
            if not self._effects:
                self._work.clear()
                await self._work.wait()
            effect = self._effects.popleft()
            if len(self._effects) <= self._config.effects_max:
                self._room.set()
            if isinstance(effect, Send):
                self._carrier.send(effect.to, effect.message)
            elif isinstance(effect, Broadcast):
                self._carrier.broadcast(effect.message)
            elif isinstance(effect, Persist):
                await self._sync(disk)
            elif isinstance(effect, Deliver):
                await self._hand_over(effect.what)
            elif isinstance(effect, Stop):
                return
            else:
                breach(f"{effect!r} is no effect")

    async def _sync(self, disk: ThreadPoolExecutor) -> None:
        """Make sure that the Persist just taken from the queue is on disk, together with all that are queued by now."""
        if self._synced == 0:
            batch, self._unsynced = self._unsynced, []
            invariant(self._storage is not None, "a machine that persists has a storage")
            storage = self._storage or breach("a machine that persists has a storage")
            try:
                if self._config.sync_inline:
                    if self._before_sync is not None:
                        self._before_sync()
                    storage.write(batch)
                else:
                    await asyncio.get_running_loop().run_in_executor(disk, storage.write, batch)
            except DiskError as error:
                # Nothing that follows may be seen by anyone: it rests on a promise that was not kept.
                self._effects.clear()
                self._stopping = Stop("the disk failed", error)
                self.reports.note("driver.disk_failed", str(error))
                raise
            self._synced = len(batch)
            self.reports.count("driver.commits")
            self.reports.count("driver.persisted", len(batch))
        self._synced -= 1

    async def _hand_over(self, what: Any) -> None:
        self.reports.count("driver.delivered")
        if self._deliver is not None:
            answer = self._deliver(what)
            if inspect.isawaitable(answer):
                await answer


class _Timers:
    """Named timers, in order of time; of two at one time the one set first comes first."""

    def __init__(self) -> None:
        self._set: dict[str, tuple[int, int]] = {}
        self._queue: list[tuple[int, int, str]] = []
        self._order = 0

    def set(self, name: str, at_us: int) -> None:
        self._order += 1
        self._set[name] = at_us, self._order
        heapq.heappush(self._queue, (at_us, self._order, name))
        if len(self._queue) > 64 and len(self._queue) > 4 * len(self._set):
            self._queue = [(at_us, order, name) for name, (at_us, order) in self._set.items()]
            heapq.heapify(self._queue)

    def cancel(self, name: str) -> None:
        self._set.pop(name, None)

    def next_us(self) -> int | None:
        """When the next one comes."""
        while self._queue:
            at_us, order, name = self._queue[0]
            if self._set.get(name) == (at_us, order):
                return at_us
            heapq.heappop(self._queue)  # replaced or cancelled
        return None

    def due(self, now_us: int) -> str | None:
        """Take the next one that has come."""
        at_us = self.next_us()
        if at_us is None or at_us > now_us:
            return None
        _, _, name = heapq.heappop(self._queue)
        del self._set[name]
        return name
