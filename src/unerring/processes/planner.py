"""The planner: what comes next after a decided state, and who does it.

A planner names the master of the next group, once for each (view, group): the slot is on disk before anybody else hears
of it. What the planner decides by itself (an announcement, a cancellation) takes the same slot.
"""

from __future__ import annotations

import msgspec

from unerring.model import Address, ProtocolError
from unerring.processes.acceptor import Acceptor
from unerring.processes.build import Process
from unerring.processes.context import Context
from unerring.processes.execution import first_occurrence
from unerring.processes.graph import Graph, Kind, Vertex
from unerring.processes.grouping import Group
from unerring.processes.inbox import Inbox
from unerring.processes.master import Master
from unerring.processes.messages import Mail, Name, Named, Reply, State, Status
from unerring.processes.naming import Slot, chosen, idlest, nearest
from unerring.processes.parent import Parent
from unerring.processes.recovery import Recovery
from unerring.processes.replication import Replication
from unerring.processes.steering import Steering
from unerring.processes.undoing import Undoing
from unerring.processes.waits import due_us, lost_child
from unerring.processes.watch import Watch

Waits = dict[str, Mail | None]
"""Waits that have ended, by vertex, with the message that ended them."""


class Planner:
    """Planning: this replica leads, and nothing is under way."""

    def __init__(
        self,
        context: Context,
        acceptor: Acceptor,
        watch: Watch,
        replication: Replication,
        slot: Slot,
        inbox: Inbox,
        parent: Parent,
        master: Master,
        recovery: Recovery,
        steering: Steering,
        undoing: Undoing,
    ) -> None:
        self._context = context
        self._acceptor = acceptor
        self._watch = watch
        self._replication = replication
        self._slot = slot
        self._inbox = inbox
        self._parent = parent
        self._master = master
        self._recovery = recovery
        self._steering = steering
        self._undoing = undoing
        self.planning = False
        """Planner of a decided state, waiting for something that lets the process go on."""
        self.lacking = ""
        """Why this node cannot lead the instance; empty: it can."""
        self.handing: tuple[Address, State] | None = None
        """A naming of another master that has not shown yet that it leads."""
        self._renames_us = 0
        self._passed_over: Address = ""
        """The replica that was named last and did not show that it leads, until it answers a naming."""
        self._decided_us = 0

    @property
    def leading(self) -> bool:
        """Whether this replica leads the instance, as planner or master."""
        return (
            self._replication.state is not None
            or self.planning
            or self._master.execution is not None
            or self._undoing.undo is not None
        )

    def step_down(self) -> None:
        self._context.shared.led.pop(self._context.instance, None)
        self._passed_over = self.handing[0] if self.handing is not None else self._passed_over
        self.planning, self.handing = False, None
        self._replication.stop()
        self._master.stop()
        self._undoing.stop()

    def lacks(self, state: State) -> bool:
        """Whether this node cannot go on because it has no such version. It does not lead then: another may have it."""
        context = self._context
        if state.final or context.process_of(state) is not None:
            self.lacking = ""
            return False
        if not self.lacking:
            self.lacking = (
                f"version {state.version} of process {state.process} is not deployed on {context.me}; deploy it again, "
                "or deploy both versions and move the instance"
            )
            context.out.report("unknown_version", f"{context.instance} waits: {self.lacking}")
        return True

    # ---- planning ----------------------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        """Plan what comes after the decided state."""
        self.planning, self._decided_us = True, now
        self._context.shared.led[self._context.instance] = None
        self.plan(now)

    def tick(self, now: int) -> None:
        if self.planning:
            self._recovery.sweep_on(self._decided_us, now)
            self.plan(now)
        self._propose(self._undoing.go_on(now), now)

    def plan(self, now: int) -> None:
        """Plan what comes next after the decided state."""
        if not self.planning or self._acceptor.decided is None:
            return
        state = self._acceptor.decided[1]
        process = self._context.process_of(state)
        if state.final:
            return
        if process is None or self.lacks(state):
            self.step_down()
            return
        if state.status == Status.UNDOING:
            self._propose(self._undoing.begin(process, state, now), now)
            return
        if self._master.has_begun(state.group + 1):  # the slot is in use: it goes on or is given up
            self._execute(process, state, Group(()), {}, now)
            return
        named = self._slot.named(state.group + 1)
        if named and named != self._context.me:  # before a restart: what comes next is that master's, commands too
            self._hand_over(named, state, now)
            return
        if not state.announced and self._propose(self._steering.next_state(process, state, now), now):
            return
        if state.held and not state.announced:
            self._inbox.ask(now)
            return
        self._go_on(process, state, now)

    def _go_on(self, process: Process, state: State, now: int) -> None:
        """Go on with the process itself: execute what can be executed now, announce what has to be, or wait."""
        self._parent.tend(process.graph, state, now)
        waits = self._ended_waits(process, state, now)
        if self._propose(lost_child(process.graph, state, waits), now):
            return
        group = self._context.group_at(process, state, tuple(waits))
        if group.empty:
            self._inbox.ask(now)
            return
        if group.announce:
            occurrence = first_occurrence(state, process.graph.by_name[group.announce])
            self._propose(msgspec.structs.replace(state, announced=group.announce, occurrence=occurrence), now)
            return
        master = self._context.me
        if not self._slot.taken(state.group + 1):
            master = self._choose_master(process, state, group, now)
            self._slot.take(state.group + 1, master)
        if master == self._context.me:
            self._execute(process, state, group, waits, now)
        else:
            self._hand_over(master, state, now)

    def _propose(self, state: State | None, now: int) -> bool:
        """A state made by the planner itself (an announcement, a cancellation): it takes the naming slot."""
        if state is None:
            return False
        self._slot.use(state.group + 1)
        self.planning = False
        self._undoing.stop()
        self._replication.replicate_next(state, now)
        return True

    def _execute(self, process: Process, state: State, group: Group, waits: Waits, now: int) -> None:
        self.planning = False
        self._master.begin(process, state, group, waits, now)

    def on_reply(self, reply: Reply, now: int) -> None:
        self._propose(self._undoing.on_reply(reply, now), now)
        if self._recovery.sweep is not None and self.planning:
            self._recovery.sweep.reply(reply, now)
            self._recovery.sweep_on(self._decided_us, now)

    # ---- waits -------------------------------------------------------------------------------------------------

    def _ended_waits(self, process: Process, state: State, now: int) -> Waits:
        """Waits at this cut that have ended: a message is there, or the time has come. One of a race: a message counts
        before a time."""
        ended: Waits = {}
        used: list[str] = []
        lost: dict[str, None] = {}
        graph = process.graph
        self._inbox.take_published(process, state)
        for vertex in sorted(graph.enabled(state.cut), key=lambda vertex: vertex.kind is Kind.SLEEP):
            mail: Mail | None = None
            if vertex.name in lost:
                continue
            if vertex.kind is Kind.RECEIVE:
                mail = self._inbox.mail_for(vertex, state, used)
            elif vertex.kind is Kind.CHILD:
                mail = self._parent.ended(graph, vertex, state)
            if mail is not None or (vertex.kind is Kind.SLEEP and now >= self._sleeps_until_us(graph, vertex, state)):
                ended[vertex.name] = mail
                used += [mail.id] if mail is not None else []
                lost |= dict.fromkeys(rival.name for rival, _ in graph.ways(vertex))
        return ended

    def _sleeps_until_us(self, graph: Graph, vertex: Vertex, state: State) -> int:
        """On this node's clock. A sleep began before this planner had the state: whatever the clock of the node showed
        that began it, a whole sleep from then on is enough."""
        ends_us = due_us(graph, vertex, state) - self._context.shared.wall_offset_us
        return ends_us if vertex.reads else min(ends_us, self._decided_us + vertex.time_us)

    def next_us(self, idle_until_us: int) -> int:
        """When this planner has to look again if nothing comes; 0: at every tick."""
        decided = self._acceptor.decided
        if decided is None:
            return 0
        state = decided[1]
        idle_until_us = self._recovery.sweep_us(self._decided_us, idle_until_us)
        if self._undoing.undo is not None:
            idle_until_us = min(self._undoing.undo.next_us, idle_until_us)
        if state.final or state.status == Status.UNDOING:
            return idle_until_us
        process = self._context.process_of(state)
        times_us: list[int] = []
        if process is not None and not state.held:
            sleeps = [vertex for vertex in process.graph.enabled(state.cut) if vertex.kind is Kind.SLEEP]
            times_us = [self._sleeps_until_us(process.graph, vertex, state) for vertex in sleeps]
        times_us += [due - self._context.shared.wall_offset_us for _, due in state.blocks.values()]
        times_us += [state.deadline_us - self._context.shared.wall_offset_us] if state.deadline_us else []
        return min(*times_us, self._inbox.ask_us, *self._parent.due_us, idle_until_us)

    # ---- naming ------------------------------------------------------------------------------------------------

    def _choose_master(self, process: Process, state: State, group: Group, now: int) -> Address:
        context, how = self._context, self._context.config.naming
        if how == "self" or not context.others:
            return context.me
        at = context.members.index(context.me)
        others = [*context.members[at + 1 :], *context.members[:at]]
        heard = [m for m in others if m != self._passed_over and not context.shared.hearing.silent(m, now)]
        if callable(how):
            return chosen(how, context, process.name, group, (context.me, *heard))
        if how == "nearest":
            return nearest(process.graph, state, group, (context.me, *heard))
        if how == "idle":
            return idlest(context.shared, (context.me, *heard))
        return heard[0] if heard else context.me

    def _hand_over(self, master: Address, state: State, now: int) -> None:
        self.planning = False
        self._context.shared.led.pop(self._context.instance, None)
        self.handing = (master, state)
        self._watch.led(now)
        self._send_name(now)

    def _send_name(self, now: int) -> None:
        if self.handing is not None:
            master, state = self.handing
            self._renames_us = now + self._context.config.resend_us
            self._context.out.send(master, Name(self._acceptor.view, state, master))

    @property
    def renames_us(self) -> int:
        """When the master has to be named again."""
        return max(self._renames_us, self._watch.led_us + self._context.config.heartbeat_us + 1)

    def name_again(self, now: int) -> None:
        """Name the master again, as long as it does not show that it leads."""
        if now >= self._renames_us and now - self._watch.led_us > self._context.config.heartbeat_us:
            self._send_name(now)

    def on_name(self, sender: Address, message: Name, now: int) -> None:
        """Named master by the planner of that view; the state is decided (Fig. 5, III)."""
        acceptor, group = self._acceptor, message.state.group
        if message.master != self._context.me:
            raise ProtocolError(
                f"{message.master} was named master of {self._context.instance}, not {self._context.me}"
            )
        if message.view < acceptor.view:
            return
        acceptor.raise_view(message.view)
        if not self.leading and acceptor.rank <= (message.view, group):
            self._take_up(sender, message, now)
        if self.leading or acceptor.rank > (message.view, group):
            self._context.out.send(sender, Named(self._context.instance, message.view, group + 1))

    def _take_up(self, sender: Address, message: Name, now: int) -> None:
        context, state = self._context, message.state
        self._acceptor.learn(message.view, state, now)
        if context.process_of(state) is None:  # without an answer, the planner will go on without this replica
            context.report("unknown_version", f"no {state.process}@{state.version}")
            return
        # The naming is the slot: this replica may now use it itself, for a group or for a cancellation.
        if not self._slot.give(state.group + 1):
            return
        self._watch.led(now)
        context.report("named", f"{sender} named {context.me}")
        self.begin(now)

    def on_named(self, sender: Address, message: Named, now: int) -> None:
        """The replica that this planner named leads now."""
        self._passed_over = ""
        self._watch.led(now, sender)
