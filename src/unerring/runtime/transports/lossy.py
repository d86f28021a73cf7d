"""Loss, duplication, reordering and delay injected over any transport. The same seed and frames give the same mischief.

Which frames are lost, repeated or held back depends on the seed and the count of frames alone; only the length of a
delay is told by the clock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from unerring.model import MILLISECOND_US, Address, Inlet, Outlet, ProcessConfig, Receive, check

Pass = Callable[[bytes], None]


class Faults(ProcessConfig, frozen=True):
    """Rates are per frame, each drawn on its own."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    reorder_frames_max: int = 8
    """A frame is held back until at most this many later ones have passed it (or the longest delay is over)."""
    delay: float = 0.0
    delay_us_max: int = 20 * MILLISECOND_US

    def __post_init__(self) -> None:
        for rate in ("loss", "duplication", "reordering", "delay"):
            check(self, rate, 0.0, 1.0)
        check(self, "reorder_frames_max", 1, 10_000)
        check(self, "delay_us_max", 0, 3_600_000 * MILLISECOND_US)


class _Held:
    """A frame that later ones overtake."""

    def __init__(self, release: Callable[[], None], frames_left: int) -> None:
        self.release = release
        self.frames_left = frames_left
        self.timer: asyncio.TimerHandle | None = None


class _Mischief:
    """One direction of one end."""

    def __init__(self, faults: Faults, seed: str) -> None:
        self.faults = faults
        self.cut = False
        self.lost = 0
        self._random = random.Random(seed)
        self._held: list[_Held] = []
        self._timers: dict[asyncio.TimerHandle, None] = {}

    def meddle(self, data: bytes, forward: Pass) -> None:
        faults = self.faults
        draws = [self._random.random() for _ in range(4)]  # always four, so that a rate changes no other decision
        extent = self._random.random()
        if self.cut or draws[0] < faults.loss:
            self.lost += 1
        else:
            self._pass_on(data, forward, draws, extent)
            if draws[1] < faults.duplication:
                self._pass_on(data, forward, draws[:2] + [1.0, 1.0], extent)
        self._let_overtake()

    def _pass_on(self, data: bytes, forward: Pass, draws: list[float], extent: float) -> None:
        faults = self.faults
        if draws[2] < faults.reordering:
            self._hold(lambda: forward(data), 1 + int(extent * faults.reorder_frames_max))
        elif draws[3] < faults.delay:
            self._later(extent * faults.delay_us_max / 1e6, lambda: forward(data))
        else:
            forward(data)

    def _hold(self, release: Callable[[], None], frames: int) -> None:
        held = _Held(release, frames + 1)  # its own passing counts as one
        held.timer = self._later(self.faults.delay_us_max / 1e6, lambda: self._release(held))
        self._held.append(held)

    def _let_overtake(self) -> None:
        for held in self._held:
            held.frames_left -= 1
        for held in [held for held in self._held if held.frames_left <= 0]:
            self._release(held)

    def _release(self, held: _Held) -> None:
        if held in self._held:
            self._held.remove(held)
            if held.timer is not None:
                held.timer.cancel()
                self._timers.pop(held.timer, None)
            held.release()

    def _later(self, delay_s: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        def act() -> None:
            self._timers.pop(timer, None)
            action()

        timer = asyncio.get_running_loop().call_later(delay_s, act)
        self._timers[timer] = None
        return timer

    def stop(self) -> None:
        """Lose what is still held or delayed, as a network that goes away does."""
        for timer in self._timers:
            timer.cancel()
        self.lost += len(self._timers)
        self._timers.clear()
        self._held.clear()


class LossyOutlet:
    """An `Outlet` whose pushes, direct frames and requests suffer. A push suffers for all subscribers alike."""

    def __init__(self, outlet: Outlet, faults: Faults, seed: int) -> None:
        self.outlet = outlet
        self._outward = _Mischief(faults, f"{seed} outward")
        self._inward = _Mischief(faults, f"{seed} inward")

    @property
    def direct(self) -> Address:
        return self.outlet.direct

    @property
    def push_bytes_max(self) -> int:
        return getattr(self.outlet, "push_bytes_max", 1 << 30)

    @property
    def lost(self) -> int:
        return self._outward.lost + self._inward.lost

    def cut(self, cut: bool) -> None:
        """While cut, nothing passes in either direction."""
        self._outward.cut = self._inward.cut = cut

    async def open(self, receive: Receive) -> None:
        await self.outlet.open(lambda sender, data: self._inward.meddle(data, lambda passed: receive(sender, passed)))

    def push(self, data: bytes) -> None:
        self._outward.meddle(data, self.outlet.push)

    def send(self, to: Address, data: bytes) -> None:
        self._outward.meddle(data, lambda passed: self.outlet.send(to, passed))

    async def ready(self) -> None:
        await self.outlet.ready()

    async def close(self) -> None:
        self._outward.stop()
        self._inward.stop()
        await self.outlet.close()


class LossyInlet:
    """An `Inlet` with faults of its own: other consumers of the same service are not touched by them."""

    def __init__(self, inlet: Inlet, faults: Faults, seed: int) -> None:
        self.inlet = inlet
        self._outward = _Mischief(faults, f"{seed} outward")
        self._inward = _Mischief(faults, f"{seed} inward")

    @property
    def lost(self) -> int:
        return self._outward.lost + self._inward.lost

    def cut(self, cut: bool) -> None:
        """While cut, nothing passes in either direction."""
        self._outward.cut = self._inward.cut = cut

    async def open(self, receive: Receive) -> None:
        await self.inlet.open(lambda sender, data: self._inward.meddle(data, lambda passed: receive(sender, passed)))

    def send(self, to: Address, data: bytes) -> None:
        self._outward.meddle(data, lambda passed: self.inlet.send(to, passed))

    def pause_reading(self) -> None:
        self.inlet.pause_reading()

    def resume_reading(self) -> None:
        self.inlet.resume_reading()

    async def close(self) -> None:
        self._outward.stop()
        self._inward.stop()
        await self.inlet.close()
