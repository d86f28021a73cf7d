"""The master: it executes a group, has the state after it decided, and says what follows if the group cannot go on."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.processes.acceptor import Acceptor
from unerring.processes.backups import Backups
from unerring.processes.build import Process
from unerring.processes.commands import promised
from unerring.processes.context import Context
from unerring.processes.election import Election
from unerring.processes.execution import Execution
from unerring.processes.graph import Graph
from unerring.processes.grouping import Group, time_of
from unerring.processes.history import added
from unerring.processes.logs import Logs
from unerring.processes.messages import Answer, Mail, Reply, Request, State, Status, Taken, iid_of
from unerring.processes.naming import Slot
from unerring.processes.packing import packed
from unerring.processes.replication import Replication
from unerring.processes.waits import blocks_at, due_at


class Master:
    """At most one execution, of the group after the decided state."""

    __slots__ = (
        "_acceptor",
        "_backups",
        "_context",
        "_election",
        "_execution_part",
        "_first_until_us",
        "_logs",
        "_measured",
        "_replication",
        "_slot",
        "execution",
    )

    def __init__(
        self,
        context: Context,
        acceptor: Acceptor,
        replication: Replication,
        election: Election,
        logs: Logs,
        slot: Slot,
        backups: Backups,
        execution: type[Execution],
    ) -> None:
        self._context = context
        self._acceptor = acceptor
        self._replication = replication
        self._election = election
        self._logs = logs
        self._slot = slot
        self._backups = backups
        self._execution_part = execution
        self.execution: Execution | None = None
        self._first_until_us = 0
        self._measured: tuple[tuple[int, int], int] = ((-1, -1), 0)
        """The view and group of a state, and how many bytes its history takes."""

    def begin(self, process: Process, state: State, group: Group, waits: Mapping[str, Mail | None], now: int) -> None:
        """Execute a group, or go on with it from its log; not if it was given up."""
        view = self._acceptor.view
        log = self._logs.kept.get((view, state.group + 1))
        if log is not None and log.abandoned:
            return
        room = self._context.shared.bounds.state_bytes_max
        if log is not None:
            self.execution = self._execution_part(process, state, view, log.vertices, log.mail)
            room -= len(msgspec.msgpack.encode((log.intents, log.outcomes)))
            self.execution.resume(log.intents, log.outcomes)
        else:
            mail = {name: item for name, item in waits.items() if item is not None and name in group.vertices}
            self.execution = self._execution_part(process, state, view, group.vertices, mail)
            self.execution.resume(*self._backups.adopt(state, group))
        self.execution.room = room
        self._go_on(self.execution.advance(now), now)

    def begin_first(self, state: State, now: int) -> bool:
        """As the first replica: execute the first group before anybody has heard of the instance, so that one state is
        replicated instead of two. Nothing is on disk yet, so the group may not write; after a crash it was never there.
        False: it has to be replicated first."""
        context = self._context
        process, group = context.process_of(state), context.next_group(state)
        if process is None or group is None or not self.may_come_first(process.graph, group):
            return False
        self._first_until_us = now + context.config.tick_us
        self.execution = self._execution_part(process, state, self._acceptor.view, group.vertices, {})
        self.execution.room = context.shared.bounds.state_bytes_max
        self._go_on(self.execution.advance(now), now)
        return True

    def may_come_first(self, graph: Graph, group: Group) -> bool:
        """Not what may take long: whoever starts the instance waits for it."""
        config = self._context.config
        reads = not any(graph.by_name[name].write for name in group.vertices)
        return bool(group.vertices) and reads and config.naming == "self" and time_of(graph, group) <= config.tick_us

    @property
    def is_first(self) -> bool:
        """Whether it executes a group whose input nobody has accepted."""
        return self.execution is not None and self._acceptor.accepted is None

    def has_begun(self, group: int) -> bool:
        """Whether this master has a log of the group in this view, from before a restart too."""
        return (self._acceptor.view, group) in self._logs.kept

    def stop(self) -> None:
        self.execution = None

    def abandon(self, view: int) -> None:
        """Abandon what was executed in this view: it is outside the lineage."""
        if self.execution is not None and self.execution.view == view:
            self.execution = None

    def tick(self, now: int) -> None:
        if self.is_first and now >= self._first_until_us:
            self._replicate_first(now)
        if self.execution is not None:
            self._go_on(self.execution.tick(now), now)

    def on_reply(self, reply: Reply, now: int) -> bool:
        """Whether this master had asked."""
        if self.execution is None or reply.iid not in self.execution.open:
            return False
        self._go_on(self.execution.reply(reply, now), now)
        return True

    def _go_on(self, requests: list[Request], now: int) -> None:
        """After any progress of the execution: keep what must be kept, send, and see whether it is over."""
        execution = self.execution
        if execution is None:
            return
        if execution.dirty and execution.wrote:
            self._keep_log(execution)
        for request in requests:
            self._context.out.send(f"service:{request.service}", request)
        if execution.aborted and self.is_first:
            self._replicate_first(now)
        elif execution.aborted:
            self._abort(execution, now)
        elif execution.fenced:
            self.execution = None
            self._context.report("fenced", "a higher view is at work")
        elif execution.finished:
            self._finish(execution, now)

    def _replicate_first(self, now: int) -> None:
        """What was read ahead of the first state took too long, or did not go well: it is done again behind it."""
        execution, self.execution = self.execution, None
        if execution is not None:
            self._replication.replicate(execution.input, now)

    def _keep_log(self, execution: Execution) -> None:
        execution.dirty = False
        self._logs.keep(execution.log())

    def _finish(self, execution: Execution, now: int) -> None:
        self.execution = None
        context, wall_us = self._context, self._context.wall_us(now)
        state = packed(execution.next_state(context.me, wall_us), context.shared.bounds.history_groups)
        due = due_at(execution.graph, state.cut, state.rounds, state.variables, state.due, wall_us)
        blocks = blocks_at(execution.graph, state.cut, state.blocks, state.group, wall_us)
        if due != state.due or blocks != state.blocks:
            state = msgspec.structs.replace(state, due=due, blocks=blocks)
        most = context.shared.bounds.state_bytes_max
        if self._bytes(state, execution.input) > most:
            self._fail(execution, f"its state takes more than {most} bytes; store less in it", now)
            return
        self._slot.use(state.group)
        self._replication.replicate(state, now)

    def _bytes(self, state: State, before: State) -> int:
        """How large a state is. Its history is measured as it grows, not again and again."""
        view = self._acceptor.view
        if self._measured[0] != (view, before.group):
            self._measured = ((view, before.group), _history_bytes(before))
        same = state.past == before.past
        history = self._measured[1] + _history_bytes(added(state, before)) if same else _history_bytes(state)
        self._measured = ((view, state.group), history)
        return history + len(msgspec.msgpack.encode(state.variables))

    # ---- when it cannot go on ----------------------------------------------------------------------------------

    def _abort(self, execution: Execution, now: int) -> None:
        """A service refused for good, or did not answer. Another master may have more luck, in a new view; after
        enough of those the process fails."""
        self.execution = None
        self._context.report("aborted", execution.aborted)
        announced = execution.graph.by_name.get(execution.input.announced) is not None
        if announced and not execution.permanent:
            self._keep_log(execution)
            again = msgspec.structs.replace(execution.input, occurrence=execution.input.occurrence + 1)
            self._replication.replicate_next(again, now)
            return
        views_max = self._context.config.abort_views_max
        count = (self._election.aborts[1] if self._election.aborts[0] == execution.group else 0) + 1
        if execution.permanent or count >= views_max:
            if not _may_hold(execution, announced):
                self._fail(execution, execution.aborted, now)
                return
            if announced:
                self._hold(execution, now)
                return
            count = views_max
        self._election.count_aborts(execution.group, count, execution.aborted)
        if execution.wrote:
            self._keep_log(execution)
        self._election.ask_view(now, execution.aborted)

    def _hold(self, execution: Execution, now: int) -> None:
        """A refusal for good of an announced action: the promise is taken back, and an operator asked."""
        self._context.report("held", execution.aborted)
        self._keep_log(execution)
        why = execution.aborted[:200]
        self._replication.replicate_next(
            msgspec.structs.replace(execution.input, announced="", occurrence=0, held=why), now
        )

    def _fail(self, execution: Execution, why: str, now: int) -> None:
        """The process fails: a state that says so, with what this group did, so that all of it is undone."""
        if execution.wrote:
            self._keep_log(execution)
        self._context.report("failed", why)
        state = execution.input
        taken = (*state.taken, *_partly_taken(execution))
        self._replication.replicate_next(
            msgspec.structs.replace(state, taken=taken, announced="", status=Status.UNDOING, reason=why), now
        )


def _may_hold(execution: Execution, announced: bool) -> bool:
    """An operator may have it tried again, unless what cannot be undone was done."""
    if not execution.graph.holds or execution.exhausted or promised(execution.graph, execution.input):
        return False
    return not (announced and any(action.vertex == execution.input.announced for action in execution.taken))


def _history_bytes(state: State) -> int:
    packed_bytes = sum(len(chunk.data) for chunk in state.past)
    return packed_bytes + len(msgspec.msgpack.encode((state.lineage, state.taken, state.consumed)))


def _partly_taken(execution: Execution) -> list[Taken]:
    """The actions of an unfinished group, in order, with writes whose fate is unknown. Of ended children only those
    that cannot be undone: the others are, as those at the cut."""
    graph = execution.graph
    taken = [a for a in execution.taken if graph.by_name[a.vertex].waits and graph.by_name[a.vertex].final]
    applied = {action.iid: action for action in execution.taken}
    for intent in execution.intents.values():
        vertex = graph.by_name[intent.vertex]
        view = -1 if vertex.final else execution.view
        name = graph.in_round(vertex.name, execution.input.rounds)
        iid = iid_of(execution.input.instance, name, intent.occurrence, None if vertex.final else view)
        if iid in applied:
            taken.append(applied[iid])
            continue
        answer = [o for o in execution.outcomes if (o.vertex, o.occurrence) == (intent.vertex, intent.occurrence)]
        if not vertex.write or (answer and answer[0].answer != Answer.DONE):
            continue
        reply = answer[0].value if answer else None
        of = (vertex.name, iid, intent.request, reply, True, execution.group, -1 if view is None else view)
        taken.append(Taken(*of, not answer))
    return taken
