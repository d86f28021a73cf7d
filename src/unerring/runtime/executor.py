"""Carries out a machine's effects: one executor under every driver.

Effects are carried out in order. What waits for nothing is carried out in the caller's turn. An effect behind a Persist
waits until that record is synced, one behind a delivery until the application has returned from it; meanwhile the
driver may go on feeding the machine, and all records asked for by then make the next group commit. Timers and reports
touch nothing outside the machine, so they take effect at once: a machine never sees a timer that it has replaced.

The simulator follows the same order (its `engine`), so that what it finds is true here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NoReturn, Protocol, TypeVarTuple

from unerring.model import (
    Address,
    Broadcast,
    CancelTimer,
    Deliver,
    DiskError,
    Effect,
    Effects,
    InvariantBreach,
    Persist,
    Report,
    Send,
    SetTimer,
    StableStorage,
    Stop,
    breach,
)
from unerring.runtime.halt import halt
from unerring.runtime.reports import Reports
from unerring.runtime.timers import Timers, monotonic_us

Ts = TypeVarTuple("Ts")
_OUTWARDS: Final = frozenset((Send, Broadcast, Deliver))
"""Most effects: what leaves the machine, and waits for nothing."""


class Carrier(Protocol):
    """How a machine's messages leave: links between nodes, or an event service. Neither waits; both may lose."""

    def send(self, to: Address, message: Any) -> None: ...

    def broadcast(self, message: Any) -> None: ...


class Executor:
    """Carries out the effects of one machine until it stops, or until the disk or the application fails.

    `deliver` is the application: it may be a coroutine function.
    `on_timer` is called when a timer may have come: take it with `due`, and call `arm` when none is left.
    `on_change` is called when effects that waited were carried out, and at the end.
    `before_sync` is called before a sync on the event loop's own thread (`sync_inline`), which holds the loop up.
    """

    def __init__(
        self,
        carrier: Carrier,
        *,
        storage: StableStorage | None = None,
        deliver: Callable[[Any], Awaitable[None] | None] | None = None,
        reports: Reports | None = None,
        clock: Callable[[], int] = monotonic_us,
        on_timer: Callable[[], None] = lambda: None,
        on_change: Callable[[], None] = lambda: None,
        on_breach: Callable[[InvariantBreach], None] = halt,
        before_sync: Callable[[], None] | None = None,
        sync_inline: bool = False,
    ) -> None:
        self.reports = reports or Reports()
        self.stopping: Stop | None = None
        """The Stop that was taken: nothing comes after it."""
        self.over = False
        """Whether the Stop was carried out, or something failed."""
        self.error: BaseException | None = None
        """The error of the disk or of the application, if one failed."""
        self._carrier = carrier
        self._storage = storage
        self._deliver = deliver
        self._clock = clock
        self._on_timer = on_timer
        self._on_change = on_change
        self._on_breach = on_breach
        self._before_sync = before_sync
        self._sync_inline = sync_inline
        self._effects: deque[Effect] = deque()
        self._unsynced: list[Persist] = []
        """The Persists in `_effects` that no commit has covered yet."""
        self._synced = 0
        """How many Persists at the front of `_effects` a commit has covered."""
        self._busy = False
        """Somebody carries out what is in `_effects`: this turn, or `_waiting`. Nobody: it is empty."""
        self._waiting: asyncio.Task[None] | None = None
        self._disk: ThreadPoolExecutor | None = None
        self._timers = Timers()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us = 0
        self._held = False

    def __len__(self) -> int:
        """Effects that wait."""
        return len(self._effects)

    def call(self, step: Callable[[*Ts], Effects], *args: *Ts) -> Effects:
        """Let the machine take one step. A broken invariant ends the process."""
        try:
            return step(*args)
        except InvariantBreach as error:
            self.break_off(error)

    def break_off(self, error: InvariantBreach) -> NoReturn:
        """What `call` does when a step breaks an invariant, for those who call the machine themselves."""
        self._on_breach(error)
        raise error

    def take(self, effects: Effects) -> None:
        """Carry these out after all that were taken before. Raises what fails in this turn."""
        if not effects:
            return  # most acceptances ask for nothing
        for effect in effects:
            if self.stopping is not None:
                break  # nothing comes after a Stop
            if type(effect) in _OUTWARDS:
                self._effects.append(effect)
            elif type(effect) is SetTimer:
                self._timers.set(effect.name, effect.at_us)
                self.arm()
            elif type(effect) is CancelTimer:
                self._timers.cancel(effect.name)
            elif type(effect) is Report:
                self.reports.take(effect)
            else:
                self._effects.append(effect)
                if type(effect) is Persist:
                    self._unsynced.append(effect)
                elif type(effect) is Stop:
                    self.stopping = effect
        if self._busy or not self._effects:
            return
        self._busy = True
        try:
            waits = self._carry_out()
        except BaseException as error:
            self._busy = False
            self._end(error)
            raise
        if waits is None:
            self._busy = False
        else:
            self._waiting = asyncio.create_task(self._wait(waits))

    @property
    def idle(self) -> bool:
        """Whether everything taken so far is carried out, and more may come."""
        return self._waiting is None and self.stopping is None

    async def settled(self) -> None:
        """Wait until everything taken so far is carried out. Raises what failed."""
        while self._waiting is not None:
            await asyncio.shield(self._waiting)
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        """Carry out nothing more."""
        self._end(None)
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)
        if self._disk is not None:
            self._disk.shutdown(wait=False)

    # Carrying out

    async def _wait(self, waits: Awaitable[None] | None) -> None:
        try:
            while waits is not None:
                await waits
                waits = self._carry_out()
                self._on_change()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end(error)
        finally:
            self._busy = False
            self._waiting = None

    def _carry_out(self) -> Awaitable[None] | None:
        """Carry out all effects that wait for nothing; return what the rest waits for."""
        while self._effects:
            effect = self._effects.popleft()
            if type(effect) is Send:
                self._carrier.send(effect.to, effect.message)
            elif type(effect) is Broadcast:
                self._carrier.broadcast(effect.message)
            elif type(effect) is Persist:
                if self._synced == 0:
                    return self._sync()
                self._synced -= 1
            elif type(effect) is Deliver:
                answer = None if self._deliver is None else self._deliver(effect.what)
                if answer is not None and inspect.isawaitable(answer):
                    return answer
            elif type(effect) is Stop:
                self._end(None)
            else:
                breach(f"{effect!r} is no effect")
        return None

    async def _sync(self) -> None:
        """Bring the Persist just taken from the queue to the disk, together with all that are queued by now."""
        storage = self._storage or breach("a machine that persists has a storage")
        batch, self._unsynced = self._unsynced, []
        try:
            if self._sync_inline:
                if self._before_sync is not None:
                    self._before_sync()
                storage.write(batch)
            else:
                self._disk = self._disk or ThreadPoolExecutor(1, thread_name_prefix="unerring-disk")
                await asyncio.get_running_loop().run_in_executor(self._disk, storage.write, batch)
        except DiskError as error:
            self.stopping = Stop("the disk failed", error)
            self.reports.note("driver.disk_failed", str(error))
            raise
        self._synced = len(batch) - 1
        self.reports.count("driver.commits")
        self.reports.count("driver.persisted", len(batch))

    def _end(self, error: BaseException | None) -> None:
        """Nothing that follows a failure may be seen by anyone: it rests on a record that may not be there."""
        if self.over:
            return
        self.over = True
        self.error = error
        self.stopping = self.stopping or Stop("it failed" if error else "it was closed")
        self._effects.clear()
        self._timers.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if isinstance(error, InvariantBreach):
            self._on_breach(error)
        self._on_change()

    # Timers

    def due(self, now_us: int) -> str | None:
        """Take the next timer that has come. None: there is none, and `on_timer` will tell of the next one."""
        name = None if self._held else self._timers.due(now_us)
        if name is None:
            self.arm()
        return name

    def hold_timers(self, held: bool) -> None:
        """While held, no timer comes; those that were due come afterwards."""
        self._held = held
        self.arm()

    def arm(self) -> None:
        """Make sure that `on_timer` is called when the next timer comes."""
        at_us = None if self._held else self._timers.next_us()
        if at_us is None:
            return
        if self._alarm is not None:
            if self._alarm_us <= at_us:
                return  # whoever is called too early arms it again
            self._alarm.cancel()
        self._alarm_us = at_us
        left_s = max(0, at_us - self._clock()) / 1e6
        self._alarm = asyncio.get_running_loop().call_later(left_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._on_timer()
