"""A node of the virtual world: a machine, its clock, its disk, its connections, and what waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from unerring.model import Address, Effect, Effects, Entropy, Machine, Persist, Send, invariant
from unerring.simulation.disk import Disk, DiskSpec
from unerring.simulation.network import Link

Factory = Callable[[Mapping[str, bytes], Entropy, int], Machine]
"""Builds a node's machine from the records on its disk, its randomness and its monotonic clock, at every start."""

OnDeliver = Callable[[Any], None]
"""The application above a machine: called with what it delivers, inside the step that delivers it."""

PPM: Final = 1_000_000


class State(IntEnum):
    """Zero is the state in which a node takes inputs; the loop tests just that."""

    UP = 0
    PAUSED = 1  # as by SIGSTOP: time passes, inputs queue
    STALLED = 2  # too much waits for the disk: inputs queue
    STOPPING = 3  # the machine returned Stop, which waits for the disk
    DOWN = 4  # crashed, or never started
    FAILED = 5  # stopped because its disk failed
    STOPPED = 6  # the machine returned Stop; only the scenario starts it again


class Timer:
    """One named timer. Set again to a later time it stays where it is in the queue, and moves on when it comes up."""

    __slots__ = ("due_us", "name", "queued_us")

    def __init__(self, name: str, due_us: int, queued_us: int) -> None:
        self.name = name
        self.due_us: int | None = due_us
        """On the node's own clock; None once cancelled."""
        self.queued_us = queued_us
        """When the world looks at it."""


class Node:
    """Slots, and methods for what happens seldom; the world's loop reads and writes the slots itself."""

    __slots__ = (
        "_clock_base_us",
        "before_sync",
        "behind_next_sync",
        "deliveries",
        "drift_ppm",
        "entropy",
        "factory",
        "handle",
        "inbox",
        "incarnation",
        "links",
        "machine",
        "name",
        "next_batch",
        "offset_us",
        "on_deliver",
        "paused_from",
        "state",
        "storage",
        "subscribers",
        "sync_returned",
        "syncing",
        "telling",
        "timer",
        "timers",
        "watches",
    )

    def __init__(self, name: Address, factory: Factory, disk: DiskSpec, on_deliver: OnDeliver | None) -> None:
        self.name = name
        self.factory = factory
        self.on_deliver = on_deliver
        self.storage = Disk(disk)
        self.state = State.DOWN
        self.incarnation = 0
        self.offset_us = 0
        self.drift_ppm = 0
        self._clock_base_us = 0
        self.links: dict[Address, Link] = {}
        self.subscribers: list[Link] = []
        self.timers: dict[str, Timer] = {}
        self.inbox: deque[tuple[Link | None, Any]] = deque()
        """Inputs that came while it could not take them: (link, message), or (None, timer)."""
        self.syncing = False
        self.sync_returned = False
        """It did while the node was paused."""
        self.before_sync: list[Effect] = []
        """Effects that wait for the sync under way."""
        self.next_batch: list[Persist] = []
        """Records that the next sync will cover, as one group commit."""
        self.behind_next_sync: list[Effect] = []
        self.deliveries: deque[Any] = deque()
        """Delivered in this step, the application not yet told."""
        self.telling = False
        self.paused_from = State.UP
        self.machine: Machine | None = None
        self.watches: list[tuple[str, Callable[[], object]]] = []
        """Kinds of messages, and what to call when this node next gets or sends one."""

    def now_us(self, world_us: int) -> int:
        """The node's monotonic clock."""
        drifted = (world_us - self._clock_base_us) * self.drift_ppm // PPM if self.drift_ppm else 0
        return world_us + self.offset_us + drifted

    def world_us(self, own_us: int, world_now_us: int) -> int:
        """When the node's clock will show `own_us`, if nothing changes its pace."""
        left = own_us - self.now_us(world_now_us)
        if left <= 0:
            return world_now_us
        if self.drift_ppm:
            left = -(-left * PPM // (PPM + self.drift_ppm))
        return world_now_us + left

    def set_clock(self, world_us: int, ahead_us: int = 0, drift_ppm: int = 0) -> None:
        """Jump ahead by `ahead_us` and go on at another pace. A monotonic clock never goes back."""
        invariant(ahead_us >= 0 and drift_ppm > -PPM, "a monotonic clock goes ahead")
        self.offset_us = self.now_us(world_us) + ahead_us - world_us
        self._clock_base_us = world_us
        self.drift_ppm = drift_ppm

    def build(self, world_us: int, entropy: Entropy, offset_us: int) -> Effects:
        """Start or start again, from the records on disk, on a clock that began anew."""
        self.offset_us = offset_us
        self.drift_ppm = 0
        self.incarnation += 1
        self.entropy = entropy
        now = self.now_us(world_us)
        machine = self.factory(self.storage.load(), entropy, now)
        self.machine = machine
        self.handle = machine.handle
        self.timer = machine.timer
        self.state = State.UP
        effects = machine.start(now)
        if self.watches:
            self._wrap(machine)
            self._look_at(effects)
        return effects

    def watch(self, kind: str, call: Callable[[], object]) -> None:
        """Once, when this node gets or sends a message of a kind; a restart does not end the wait."""
        self.watches.append((kind, call))
        if self.machine is not None:
            self._wrap(self.machine)

    def _wrap(self, machine: Machine) -> None:
        def handle(sender: Address, message: Any, now: int) -> Effects:
            self._notice(type(message).__name__)
            return self._look_at(machine.handle(sender, message, now))

        self.handle = handle
        self.timer = lambda name, now: self._look_at(machine.timer(name, now))

    def _look_at(self, effects: Effects) -> Effects:
        for effect in effects if self.watches else ():
            if isinstance(effect, Send):
                self._notice(type(effect.message).__name__)
        return effects

    def _notice(self, kind: str) -> None:
        for watch in [watch for watch in self.watches if watch[0] == kind]:
            self.watches.remove(watch)
            watch[1]()

    def wipe(self) -> None:
        """Forget everything that is only in memory."""
        self.timers = {}
        self.inbox.clear()
        self.deliveries.clear()
        self.syncing = self.sync_returned = False
        self.before_sync = []
        self.next_batch = []
        self.behind_next_sync = []
        self.machine = None
