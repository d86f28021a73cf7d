"""The driver of the virtual world: feeds machines, carries out their effects in order, and persists before it sends."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from unerring.audit import Violation
from unerring.model import (
    Broadcast,
    CancelTimer,
    Deliver,
    Effect,
    InvariantBreach,
    Persist,
    Report,
    Send,
    SetTimer,
    Stop,
    invariant,
)
from unerring.simulation.network import Link, LinkSpec
from unerring.simulation.node import Node, State, Timer
from unerring.simulation.transport import MESSAGE, SYNC, TIMER, Bounds, Happened, Transport


class Engine(Transport):
    """Steps, effects, timers and syncs."""

    def __init__(self, seed: int, link: LinkSpec, bounds: Bounds, trace: Callable[[str], object] | None) -> None:
        super().__init__(seed, link, bounds, trace)
        self.steps = 0
        self.broken: list[Violation] = []
        """Machines that raised, or a run without end; the run is over then."""
        self._acting: Node | None = None
        """The node whose machine takes the current step, or took the last one."""

    def run_until(self, until_us: int) -> None:
        """Run all steps up to a time. Stops at once, with `broken`, when a machine raises."""
        if self.broken:
            return
        try:
            self._run(until_us)
        except (Exception, InvariantBreach) as error:
            if self._acting is None:
                raise
            self._break(f"the machine of {self._acting.name} raised {type(error).__name__}", error)
        else:
            self.now_us = max(self.now_us, until_us)

    def _run(self, until_us: int) -> None:
        queue, pop = self._queue, heappop
        steps, messages, steps_max = self.steps, 0, self.bounds.steps_max
        trace, perform = self.trace, self._perform
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
                    if not effects:
                        continue
                    if node.syncing or trace is not None:
                        self._carry_out(node, effects)
                    else:
                        perform(node, effects)
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
            self.steps = steps
            self.messages += messages

    def _carry_out(self, node: Node, effects: Sequence[Effect]) -> None:
        """Carry out effects in order, behind what already waits for the disk."""
        if self.trace is not None and effects:
            self._say(node.name, "  answers", effects)
        if node.syncing:
            self._wait_for_sync(node, effects)
        else:
            self._perform(node, effects)

    def _perform(self, node: Node, effects: Sequence[Effect]) -> None:
        """Now, in order; what follows a Persist waits for its sync."""
        delivered: list[Any] | None = None
        for effect in effects:
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
                    if delivered is None:
                        delivered = [what]
                    else:
                        delivered.append(what)
            elif kind is SetTimer:
                self._set_timer(node, effect)  # type: ignore[arg-type]
            elif kind is Persist:
                self._sync(node, [effect])  # type: ignore[list-item]
                self._wait_for_sync(node, effects[effects.index(effect) + 1 :])  # The first Persist: found at once.
                break
            elif kind is Stop:
                self._stop(node, effect)  # type: ignore[arg-type]
                break
            else:
                self._aside(node, effect)
        if delivered:
            # After the loop: what the application does in answer comes after the effects it was told by.
            self._tell_application(node, delivered)

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

    def release(self, link: Link) -> None:
        """Send on at once what was held at a cut, so that nothing sent later overtakes it."""
        held, link.held = link.held, []
        for message in held:
            self._arrive(link, message)
        self._acting = None

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
        """Begin a sync: one group commit, atomic."""
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
        """The sync returns: what waited for it goes out, what came after it begins the next one."""
        why = node.storage.synced()
        if why:
            self._down(node, State.FAILED, "fail", why)
            return
        released, node.before_sync = node.before_sync, node.behind_next_sync
        batch, node.next_batch, node.behind_next_sync = node.next_batch, [], []
        node.syncing = False
        if batch:
            # Begun before anything is released: what the application persists in answer must come after it.
            self._sync(node, batch)
        stalled = node.state == State.STALLED
        if stalled:
            node.state = State.UP
        self._perform(node, released)
        if stalled:
            self.drain(node)

    # ---- seldom ------------------------------------------------------------------------------------------------

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
                if link.datagram:
                    continue
                if link.target is node or (other is node and state != State.STOPPED and self._bits(1)):
                    self.reset(link)
                elif other is node:
                    self.reconnect(link)  # An orderly stop flushes; after a crash the kernel may.

    def _aside(self, node: Node, effect: Effect) -> None:
        if isinstance(effect, Report):
            self._count(effect.what, effect.count)
        elif isinstance(effect, CancelTimer):
            timer = node.timers.get(effect.name)
            if timer is not None:
                timer.due_us = None
        else:
            invariant(False, f"{node.name} answered {effect!r}, which is not an effect")

    def _tell_application(self, node: Node, delivered: list[Any]) -> None:
        """One after the other in the order of delivery, also when what it does in answer delivers more."""
        deliveries, tell = node.deliveries, node.on_deliver
        if node.telling or tell is None:
            deliveries.extend(delivered)
            return
        node.telling = True
        if len(delivered) == 1 and not deliveries:
            tell(delivered[0])
        else:
            deliveries.extend(delivered)
        while deliveries:
            tell(deliveries.popleft())
        node.telling = False

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
