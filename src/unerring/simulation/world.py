"""The virtual world: real machines on one virtual clock, network and disk. A run is its seed.

One queue of plain tuples `(at_us, order, kind, subject, object)` drives everything; `order` makes them unequal, so
that nothing behind it is ever compared. All times without a node's name on them are the world's own.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

from unerring.audit import Violation
from unerring.model import (
    Address,
    Broadcast,
    CancelTimer,
    ConfigError,
    Deliver,
    Effect,
    Effects,
    InvariantBreach,
    PeerError,
    Persist,
    Report,
    Send,
    SetTimer,
    Stop,
    invariant,
)
from unerring.simulation.disk import DiskSpec
from unerring.simulation.network import FATES_BITS, LOST, RESET, Link, LinkSpec
from unerring.simulation.node import Factory, Node, OnDeliver, State, Timer

MESSAGE: Final = 0
TIMER: Final = 1
SYNC: Final = 2
CALL: Final = 3


Cut = tuple[frozenset[Address], bool]
"""One side of a partition, and whether only what leaves it is cut."""


class Happened(msgspec.Struct, frozen=True, gc=False):
    """One line of a run's history. The world writes deliver, start, crash, stop and fail; a scenario what it likes."""

    at_us: int
    node: Address
    what: str
    value: Any = None


class Bounds(msgspec.Struct, frozen=True):
    """What may pile up, and how long a run may get."""

    inbox_max: int = 10_000
    """Inputs of a paused or stalled node; at the bound datagrams are lost and connections reset."""
    waiting_max: int = 10_000
    """Effects that wait for a node's disk; at the bound the node takes no inputs until the sync returns."""
    held_max: int = 10_000
    """Messages at the cut of a reliable link; at the bound the connection is reset."""
    steps_max: int = 20_000_000
    """A run that takes more is ended as a violation: nothing comes to rest."""


class World:
    """Nodes, links and a clock. A scenario builds it; `run_until` runs it."""

    def __init__(
        self,
        seed: int,
        link: LinkSpec | None = None,
        disk: DiskSpec | None = None,
        bounds: Bounds | None = None,
        trace: Callable[[str], object] | None = None,
    ) -> None:
        self.seed = seed
        self.now_us = 0
        self.bounds = bounds or Bounds()
        self.draw = Random(f"workload {seed}")
        """The scenario's own randomness: workload and choices."""
        self.chance = Random(f"world {seed}")
        """The randomness of network, disks and clocks."""
        self.nodes: dict[Address, Node] = {}
        self.history: list[Happened] = []
        self.reports: dict[str, int] = {}
        self.reached: dict[str, int] = {}
        self.broken: list[Violation] = []
        """Machines that raised, or a run without end; the run is over then."""
        self.messages = 0
        self.steps = 0
        self.lost = 0
        self.trace = trace
        self.faults_on = True
        self.cuts: list[Cut] = []
        """Partitions in force."""
        self.gone: list[Address] = []
        """Crashed for good."""
        self._link = link or LinkSpec()
        self._specs: dict[tuple[Address, Address], LinkSpec] = {}
        self._disk = disk or DiskSpec()
        self._queue: list[tuple[int, int, int, Any, Any]] = []
        self._order = count().__next__
        self._bits = self.chance.getrandbits
        self._acting: Node | None = None

    # ---- building ----------------------------------------------------------------------------------------------

    def add(
        self,
        name: Address,
        factory: Factory,
        on_deliver: OnDeliver | None = None,
        disk: DiskSpec | None = None,
        start_us: int | None = 0,
    ) -> None:
        """A node, started at `start_us` (None: only by `start`). Its name is its address."""
        if name in self.nodes:
            raise ConfigError(f"the world has a node {name!r} already; give every node its own name")
        self.nodes[name] = Node(name, factory, disk or self._disk, on_deliver)
        if start_us is not None:
            self.at(start_us, lambda: self.start(name))

    def link(self, one: Address, other: Address, spec: LinkSpec) -> None:
        """How direct messages between two nodes travel, both ways; before the first is sent."""
        self._specs[one, other] = self._specs[other, one] = spec

    def subscribe(self, consumer: Address, producer: Address, spec: LinkSpec | None = None) -> None:
        """From now on the consumer gets the producer's broadcasts, on a link of its own."""
        link = self._open(producer, self._node(consumer), spec or self._link, pushed=True)
        self._node(producer).subscribers.append(link)

    def unsubscribe(self, consumer: Address, producer: Address) -> None:
        node = self._node(producer)
        node.subscribers = [link for link in node.subscribers if link.target.name != consumer]

    # ---- the workload ------------------------------------------------------------------------------------------

    def at(self, at_us: int, call: Callable[[], object]) -> None:
        """Call the scenario back at a time."""
        heappush(self._queue, (max(at_us, self.now_us), self._order(), CALL, call, None))

    def every(self, period_us: int, call: Callable[[], object], until_us: int, from_us: int = 0) -> None:
        """Call the scenario back again and again."""
        invariant(period_us > 0, "a period is longer than nothing")

        def again() -> None:
            call()
            if self.now_us + period_us <= until_us:
                self.at(self.now_us + period_us, again)

        self.at(from_us, again)

    def machine(self, name: Address) -> Any:
        """The machine of a node that runs now, or None: it is down, paused or stopped, and so is its application."""
        node = self._node(name)
        return None if node.state else node.machine

    def node_now_us(self, name: Address) -> int:
        """What the node's monotonic clock shows."""
        return self._node(name).now_us(self.now_us)

    def carry_out(self, name: Address, effects: Effects) -> None:
        """Carry out what a machine's own method (publish, submit, ...) answered to the scenario."""
        node = self._node(name)
        invariant(node.state == State.UP, "only a machine that runs has effects")
        if self.trace is not None:
            self._say(name, "acts", effects)
        self._carry_out(node, effects)

    def call(self, name: Address, method: str, *arguments: Any) -> bool:
        """`machine.method(*arguments, now)`, whose effects are carried out; False if the node does not run now."""
        machine = self.machine(name)
        if machine is None:
            return False
        acting, self._acting = self._acting, self.nodes[name]
        self.carry_out(name, getattr(machine, method)(*arguments, self.node_now_us(name)))
        self._acting = acting
        return True

    def record(self, node: Address, what: str, value: Any = None) -> None:
        """A line of history for the checkers."""
        self.history.append(Happened(self.now_us, node, what, value))
        if self.trace is not None:
            self._say(node, what, value)

    def sometimes(self, what: str) -> None:
        """A rare state was reached; a sweep counts them and says which never were."""
        self.reached[what] = self.reached.get(what, 0) + 1

    # ---- running -----------------------------------------------------------------------------------------------

    def run_until(self, until_us: int) -> None:
        """Run all steps up to a time. Stops at once, with `broken`, when a machine raises."""
        while not self.broken:
            try:
                self._run(until_us)
            except PeerError as error:
                # A machine refuses what a peer sent: the driver counts it and goes on, as it would for bytes.
                invariant(self._acting is not None, f"only machines refuse messages: {error}")
                self._count("refused", 1)
            except (Exception, InvariantBreach) as error:
                if self._acting is None:
                    raise
                self._break(f"the machine of {self._acting.name} raised {type(error).__name__}", error)
            else:
                self.now_us = max(self.now_us, until_us)
                return

    def _run(self, until_us: int) -> None:
        queue, pop = self._queue, heappop
        steps, messages, steps_max = self.steps, self.messages, self.bounds.steps_max
        trace, carry_out = self.trace, self._carry_out
        try:
            while queue and queue[0][0] <= until_us:
                at_us, _, kind, subject, thing = pop(queue)
                self.now_us = at_us
                steps += 1
                if kind == MESSAGE:
                    node = subject.target
                    if subject.blocked or node.state:
                        self._not_now(subject, node, thing)
                        continue
                    messages += 1
                    self._acting = node
                    if trace is not None:
                        self._say(node.name, f"from {subject.sender}", thing)
                    now = node.now_us(at_us) if node.drift_ppm else at_us + node.offset_us
                    effects = node.handle(subject.sender, thing, now)
                    if effects:
                        carry_out(node, effects)
                elif kind == TIMER:
                    self._acting = subject
                    self._timer_is_up(subject, thing)
                elif kind == SYNC:
                    self._acting = subject
                    if thing != subject.incarnation or not subject.syncing:
                        continue
                    if subject.state == State.PAUSED:
                        subject.sync_returned = True
                    else:
                        self._synced(subject)
                else:
                    self._acting = None
                    subject()
                if steps >= steps_max:
                    self._break("the run does not end", f"{steps} steps by {at_us} us, more than the bound")
                    return
        finally:
            self.steps, self.messages = steps, messages

    def _carry_out(self, node: Node, effects: Sequence[Effect]) -> None:
        """In order; what follows a Persist waits for its sync."""
        if node.syncing:
            self._wait_for_sync(node, effects)
            return
        delivered: list[Any] | None = None
        for index, effect in enumerate(effects):
            kind = type(effect)
            if kind is Send:
                link = node.links.get(effect.to) or self._connect(node, effect.to)  # type: ignore[union-attr]
                if link is not None:
                    self._transmit(link, effect.message)  # type: ignore[union-attr]
            elif kind is Broadcast:
                for link in node.subscribers:
                    self._transmit(link, effect.message)  # type: ignore[union-attr]
            elif kind is Deliver:
                what = effect.what  # type: ignore[union-attr]
                self.history.append(Happened(self.now_us, node.name, "deliver", what))
                if node.on_deliver is not None:
                    delivered = delivered or []
                    delivered.append(what)
            elif kind is SetTimer:
                self._set_timer(node, effect)  # type: ignore[arg-type]
            elif kind is Persist:
                self._sync(node, [effect])  # type: ignore[list-item]
                self._wait_for_sync(node, effects[index + 1 :])
                break
            elif kind is Stop:
                self._stop(node, effect)  # type: ignore[arg-type]
                break
            else:
                self._aside(node, effect)
        if delivered:
            # After the loop: what the application does in answer comes after the effects it was told by.
            self._tell_application(node, delivered)

    def _transmit(self, link: Link, message: Any) -> None:
        fate = link.fates[self._bits(FATES_BITS)]
        at_us = self.now_us + fate
        if link.datagram:
            if fate < 0:
                self._odd_fate(link, message, fate)
                return
        elif at_us > link.last_at_us:
            link.last_at_us = at_us
        else:
            at_us = link.last_at_us
        heappush(self._queue, (at_us, self._order(), MESSAGE, link, message))

    def _odd_fate(self, link: Link, message: Any, fate: int) -> None:
        if fate == LOST:
            self.lost += 1
            return
        first_us = LOST - 1 - fate
        second_us = first_us + self.chance.randrange(1 + link.spec.delay_us + 2 * link.spec.spread_us)
        heappush(self._queue, (self.now_us + first_us, self._order(), MESSAGE, link, message))
        heappush(self._queue, (self.now_us + second_us, self._order(), MESSAGE, link, message))

    def _connect(self, node: Node, to: Address) -> Link | None:
        target = self.nodes.get(to)
        if target is None:
            self._count("nobody there", 1)
            return None
        link = self._open(node.name, target, self._specs.get((node.name, to), self._link), pushed=False)
        node.links[to] = link
        return link

    def _open(self, sender: Address, target: Node, spec: LinkSpec, pushed: bool) -> Link:
        link = Link(sender, target, spec if self.faults_on else spec.calm(), pushed)
        link.blocked = sum(self.is_cut(cut, sender, target.name) for cut in self.cuts)
        return link

    def is_cut(self, cut: Cut, sender: Address, target: Address) -> bool:
        """Whether a partition lets nothing through from one node to another."""
        side, one_way = cut
        return (sender in side and target not in side) or (not one_way and target in side and sender not in side)

    def _not_now(self, link: Link, node: Node, message: Any) -> None:
        """A message arrives at a cut, or at a node that takes no inputs."""
        if link.blocked >= RESET or node.state >= State.STOPPING:
            self.lost += 1
        elif link.blocked:
            if link.datagram:
                self.lost += 1
            elif len(link.held) < self.bounds.held_max:
                link.held.append(message)
            else:
                self.reset(link)
        elif len(node.inbox) < self.bounds.inbox_max:
            node.inbox.append((link, message))
        elif link.datagram:
            self.lost += 1
        else:
            self.reset(link)

    # ---- timers ------------------------------------------------------------------------------------------------

    def _set_timer(self, node: Node, effect: SetTimer) -> None:
        due_us = effect.at_us
        if node.drift_ppm:
            queued_us = node.world_us(due_us, self.now_us)
        else:
            queued_us = max(due_us - node.offset_us, self.now_us)
        timer = node.timers.get(effect.name)
        if timer is not None and timer.queued_us <= queued_us:
            timer.due_us = due_us
            return
        timer = node.timers[effect.name] = Timer(effect.name, due_us, queued_us)
        heappush(self._queue, (queued_us, self._order(), TIMER, node, timer))

    def _timer_is_up(self, node: Node, timer: Timer) -> None:
        if node.timers.get(timer.name) is not timer:
            return
        if timer.due_us is None:
            del node.timers[timer.name]
            return
        now = node.now_us(self.now_us)
        if timer.due_us > now:
            timer.queued_us = node.world_us(timer.due_us, self.now_us)
            heappush(self._queue, (timer.queued_us, self._order(), TIMER, node, timer))
        elif node.state:
            if node.state <= State.STALLED:
                node.inbox.append((None, timer))
        else:
            del node.timers[timer.name]
            if self.trace is not None:
                self._say(node.name, "timer", timer.name)
            self._carry_out(node, node.timer(timer.name, now))

    def requeue_timers(self, node: Node) -> None:
        """Its clock changed: look at every timer again when that clock says so."""
        for name, timer in list(node.timers.items()):
            if timer.due_us is not None:
                del node.timers[name]
                self._set_timer(node, SetTimer(name, timer.due_us))

    # ---- disk --------------------------------------------------------------------------------------------------

    def _sync(self, node: Node, batch: list[Persist]) -> None:
        node.syncing = True
        node.storage.batch = batch
        at_us = self.now_us + node.storage.sync_us(self.chance)
        heappush(self._queue, (at_us, self._order(), SYNC, node, node.incarnation))

    def _wait_for_sync(self, node: Node, effects: Sequence[Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is SetTimer:
                self._set_timer(node, effect)  # type: ignore[arg-type]
            elif kind is Persist:
                node.next_batch.append(effect)  # type: ignore[arg-type]
            elif kind is CancelTimer or kind is Report:
                self._aside(node, effect)
            else:
                (node.behind_next_sync if node.next_batch else node.before_sync).append(effect)
                if kind is Stop:
                    node.state = State.STOPPING
                    return
        waiting = len(node.before_sync) + len(node.behind_next_sync) + len(node.next_batch)
        if waiting > self.bounds.waiting_max and node.state == State.UP:
            node.state = State.STALLED

    def _synced(self, node: Node) -> None:
        why = node.storage.synced()
        if why:
            self._down(node, State.FAILED, "fail", why)
            return
        released, node.before_sync = node.before_sync, node.behind_next_sync
        batch, node.next_batch, node.behind_next_sync = node.next_batch, [], []
        node.syncing = False
        # Nothing in `released` persists, so it goes out now, before the next group commit begins.
        self._carry_out(node, released)
        if batch and node.machine is not None:
            if node.syncing:  # The application, told by what was released, persisted at once.
                node.next_batch[:0] = batch
            else:
                self._sync(node, batch)
        if node.state == State.STALLED:
            node.state = State.UP
            self.drain(node)

    # ---- nodes -------------------------------------------------------------------------------------------------

    def start(self, name: Address) -> None:
        """Start a node that does not run, from what its disk holds, on a clock that began anew."""
        node = self._node(name)
        if node.state < State.DOWN:
            return
        self.record(name, "start", node.incarnation + 1)
        acting, self._acting = self._acting, node
        entropy = Random(f"{name} {node.incarnation} {self.seed}")
        self._carry_out(node, node.build(self.now_us, entropy, self.chance.randrange(3_600_000_000)))
        self._acting = acting

    def crash(self, name: Address) -> None:
        """The node loses its memory, its connections, and what its disk had not synced."""
        node = self._node(name)
        if node.state < State.DOWN:
            node.storage.crash(self.chance)
            self._down(node, State.DOWN, "crash", None)

    def pause(self, name: Address) -> bool:
        """The node's process takes no steps until `resume`; False if it runs none."""
        node = self._node(name)
        if node.state > State.STALLED or node.state == State.PAUSED:
            return False
        self.record(name, "pause")
        node.paused_from, node.state = node.state, State.PAUSED
        return True

    def resume(self, name: Address) -> None:
        """It goes on, with everything that queued meanwhile."""
        node = self._node(name)
        if node.state != State.PAUSED:
            return
        self.record(name, "resume")
        node.state = node.paused_from
        self._acting = node
        if node.sync_returned:
            node.sync_returned = False
            self._synced(node)
        self.drain(node)
        self._acting = None

    def _stop(self, node: Node, effect: Stop) -> None:
        self._down(node, State.STOPPED, "stop", effect.why)

    def _down(self, node: Node, state: State, what: str, value: Any) -> None:
        if state != State.DOWN:
            node.storage.crash(self.chance)
        node.wipe()
        node.state = state
        self.record(node.name, what, value)
        for other in self.nodes.values():
            for link in [*other.links.values(), *other.subscribers]:
                # What it had handed to the network may still arrive; what was on the way to it cannot.
                if not link.datagram and (link.target is node or (other is node and self._bits(1))):
                    self.reset(link)

    def reset(self, link: Link) -> None:
        """The connection breaks: what was in flight is lost, what is sent from now on takes a new one."""
        if link.blocked >= RESET:
            return
        node = self.nodes[link.sender]
        fresh = self._open(link.sender, link.target, link.spec, link.pushed)
        fresh.fates = link.fates
        self.lost += len(link.held)
        link.held = []
        link.blocked = RESET
        if link.pushed:
            node.subscribers = [fresh if old is link else old for old in node.subscribers]
        else:
            node.links[link.target.name] = fresh

    def current(self, link: Link) -> Link:
        """The connection that stands now where this one stood."""
        node = self.nodes[link.sender]
        if not link.pushed:
            return node.links[link.target.name]
        return next((other for other in node.subscribers if other.target is link.target), link)

    def release(self, link: Link) -> None:
        """What was held at a cut goes on at once, so that nothing sent later overtakes it."""
        held, link.held = link.held, []
        for message in held:
            self._arrive(link, message)
        self._acting = None

    def _arrive(self, link: Link, message: Any) -> None:
        node = link.target
        if link.blocked or node.state:
            self._not_now(link, node, message)
            return
        self.messages += 1
        self._acting = node
        if self.trace is not None:
            self._say(node.name, f"from {link.sender}", message)
        self._carry_out(node, node.handle(link.sender, message, node.now_us(self.now_us)))

    def drain(self, node: Node) -> None:
        """Give a node that runs again the inputs that queued meanwhile, in order."""
        inbox = node.inbox
        while inbox and node.state == State.UP:
            link, thing = inbox.popleft()
            self._acting = node
            if link is None:
                self._timer_is_up(node, thing)
            else:
                self._arrive(link, thing)

    # ---- seldom ------------------------------------------------------------------------------------------------

    def _aside(self, node: Node, effect: Effect) -> None:
        if isinstance(effect, Report):
            self._count(effect.what, effect.count)
        elif isinstance(effect, CancelTimer):
            timer = node.timers.get(effect.name)
            if timer is not None:
                timer.due_us = None
        else:
            invariant(False, f"{node.name} answered {effect!r}, which is no effect")

    def _tell_application(self, node: Node, delivered: list[Any]) -> None:
        invariant(node.on_deliver is not None, "somebody listens")
        for what in delivered:
            if node.on_deliver is not None and node.machine is not None:
                node.on_deliver(what)

    def _count(self, what: str, number: int) -> None:
        self.reports[what] = self.reports.get(what, 0) + number

    def _break(self, promise: str, error: BaseException | str) -> None:
        if isinstance(error, BaseException):
            where = traceback.extract_tb(error.__traceback__)[-1]
            witness: tuple[str, ...] = (
                f"at {self.now_us} us: {error}",
                f"in {where.name}, {where.filename}:{where.lineno}",
            )
        else:
            witness = (error,)
        self.broken.append(Violation(promise, witness))

    def _say(self, node: Address, what: str, value: Any) -> None:
        if self.trace is not None:
            self.trace(f"{self.now_us:>12} {node:<12} {what} {value!r}")

    def _node(self, name: Address) -> Node:
        try:
            return self.nodes[name]
        except KeyError:
            known = ", ".join(self.nodes) or "none"
            raise ConfigError(f"the world has no node {name!r}; it has {known}") from None
