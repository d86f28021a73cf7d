"""The production driver: one machine on an asyncio event loop.

It feeds messages and due timers to the machine; the executor carries out what the machine answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from unerring.model import (
    MILLISECOND_US,
    Address,
    InvariantBreach,
    Machine,
    PeerError,
    ProcessConfig,
    StableStorage,
    Stop,
    breach,
    check,
    invariant,
)
from unerring.runtime.executor import Carrier, Executor
from unerring.runtime.halt import guard_loop, halt
from unerring.runtime.reports import Reports
from unerring.runtime.timers import monotonic_us

TURN_INPUTS_MAX: Final = 256
"""Inputs handled before the event loop gets its turn: sockets must be read while a machine is busy."""
TURN_US_MAX: Final = 50 * MILLISECOND_US
"""The same where inputs take long, as those do that make a replica run a slow rule."""


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


class Driver:
    """Runs one machine until it stops, its disk fails, or `stop` is called.

    `deliver` is the application: it may be a coroutine function, and effects that follow wait for it.
    `before_sync` is called before a sync that holds up the event loop: what waits for the loop's next turn can leave.
    `on_fault(sender, error)` is called for a message that broke its protocol; nothing of it had an effect.
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
        self._config = config or DriverConfig()
        self._clock = clock
        self._inbox: deque[tuple[Address, Any]] = deque()
        self._congested = False
        self._space = asyncio.Event()
        self._awake = asyncio.Event()
        """Set when there may be something to do: a message, a timer, room for effects, the end."""
        self._running = False
        self._executor = Executor(
            carrier,
            storage=storage,
            deliver=deliver,
            reports=self.reports,
            clock=clock,
            on_timer=self._awake.set,
            on_change=self._awake.set,
            on_breach=on_breach,
            before_sync=before_sync,
            sync_inline=self._config.sync_inline,
        )

    # Feeding

    def offer(self, sender: Address, message: Any) -> bool:
        """A message for the machine. False: the inbox is full, the message was not taken."""
        if self._executor.stopping is not None or len(self._inbox) >= self._config.inbox_max:
            self.reports.count("driver.refused")
            return False
        self._inbox.append((sender, message))
        self._awake.set()
        if not self._congested and len(self._inbox) * 2 > self._config.inbox_max:
            self._set_congested(True)
        return True

    async def put(self, sender: Address, message: Any) -> None:
        """A message for the machine; waits while the inbox is full."""
        while self._executor.stopping is None and len(self._inbox) >= self._config.inbox_max:
            self._space.clear()
            await self._space.wait()
        self.offer(sender, message)

    def stop(self, why: str) -> None:
        """End in order: what the machine has asked for so far is carried out, nothing more is handled."""
        self._executor.take([Stop(why)])
        self._awake.set()

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
        executor = self._executor
        try:
            executor.take(executor.call(self.machine.start, self._clock()))
            while not executor.over:
                self._awake.clear()
                if self._handle_some():
                    await asyncio.sleep(0)
                else:
                    await self._awake.wait()
            if executor.error is not None:
                raise executor.error
            return executor.stopping or breach("a driver ends with a Stop")
        finally:
            await executor.close()
            self._inbox.clear()
            self._space.set()

    def _handle_some(self) -> bool:
        """The timers that are due by now, then messages, up to a turn's worth. False: there was nothing to handle, or
        no room. A timer that is set again comes in a later turn: a machine that takes longer for it than it waits
        between two would never hear a message."""
        executor = self._executor
        handled, turn_us = 0, self._clock()
        while handled < TURN_INPUTS_MAX and executor.stopping is None and len(executor) <= self._config.effects_max:
            now = self._clock()
            if handled and now - turn_us > TURN_US_MAX:
                break
            name = executor.due(turn_us)
            if name is not None:
                executor.take(executor.call(self.machine.timer, name, now))
            elif self._inbox:
                self._handle(*self._inbox.popleft(), now)
            else:
                break
            handled += 1
        self.reports.count("driver.handled", handled)
        self._space.set()
        if self._congested and len(self._inbox) * 8 <= self._config.inbox_max:
            self._set_congested(False)
        return handled > 0

    def _handle(self, sender: Address, message: Any, now: int) -> None:
        try:
            effects = self._executor.call(self.machine.handle, sender, message, now)
        except PeerError as error:  # A bad peer costs its link, never the process.
            self.reports.note("peer.protocol_error", f"{sender}: {error}")
            if self.on_fault is not None:
                self.on_fault(sender, error)
        else:
            self._executor.take(effects)
