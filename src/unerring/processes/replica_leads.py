"""Planner and master: what a replica does in a view that it leads.

A planner names the master of the next group, once for each (view, group): the slot is on disk before anybody else hears
of it, and cancelling takes the same slot. A master executes the group, then replicates its state and is planner again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.model import Address, invariant
from unerring.processes.build import Process
from unerring.processes.execution import Execution, first_occurrence
from unerring.processes.graph import Cut, Kind, Vertex
from unerring.processes.grouping import Group, group_at
from unerring.processes.history import added
from unerring.processes.mailbox import counts
from unerring.processes.messages import (
    Answer,
    AskMail,
    BackupLog,
    GroupLog,
    Intent,
    Mail,
    Name,
    Named,
    Naming,
    Outcome,
    Request,
    State,
    Status,
    Step,
    Taken,
    iid_of,
)
from unerring.processes.replica_steers import Steers, key_of, keyed
from unerring.processes.replica_views import Shared
from unerring.processes.steering import CANCELLED, gone_back, promised
from unerring.processes.undo import Undo, steps_of_taken

_GROUPS_KEPT_MAX = 10_000


class Leads(Steers):
    """Adds the roles of planner and master."""

    executes: type[Execution] = Execution

    def __init__(
        self, shared: Shared, instance: str, members: tuple[Address, ...], records: Mapping[str, bytes], now: int
    ) -> None:
        super().__init__(shared, instance, members, records, now)
        self.logs: dict[tuple[int, int], GroupLog] = {}
        """Own executions by (view, group) that are not yet settled."""
        for key, data in records.items():
            if key.startswith("group/"):
                log = msgspec.msgpack.decode(data, type=GroupLog)
                self.logs[log.view, log.group] = log
        self.backup_log: BackupLog | None = self._read(records, "backup", BackupLog)
        # Memory only.
        self.planning = False
        """Planner of a decided state, waiting for something that lets the process go on."""
        self.execution: Execution | None = None
        self.undo: Undo | None = None
        """Undoing the process."""
        self.handing: tuple[Address, State] | None = None
        """A naming of another master that has not shown yet that it leads."""
        self.passed_over: Address = ""
        """Who was named last and did not show, until it answers a naming."""
        self.backup: Execution | None = None
        self.decided_us = 0
        self.asked_mail_us = 0
        self.mail_asks = 0
        """Since the last decided state: who waits long asks seldom."""
        self.measured: tuple[tuple[int, int], int] = ((-1, -1), 0)
        """The view and group of a state, and how many bytes its history takes."""

    @property
    def leading(self) -> bool:
        return (
            self.replicating is not None or self.planning or self.execution is not None or self.undo is not None
        ) and self.view >= 0

    def logged(self, group: int) -> bool:
        return (self.view, group) in self.logs

    def goes_on(self, state: State) -> bool:
        process = self.process_of(state)
        if process is None or state.status != Status.RUNNING or state.announced or state.held:
            return False
        return bool(self.group_at(process, state, ()).vertices)

    def step_down(self) -> None:
        super().step_down()
        self.passed_over = self.handing[0] if self.handing is not None else self.passed_over
        self.planning, self.execution, self.undo, self.handing = False, None, None, None

    # ---- planner -----------------------------------------------------------------------------------------------

    def on_decided(self, now: int) -> None:
        self.decided_us = now
        self.mail_asks = 0
        self.planning = True
        self.tell_decided()
        self.plan(now)

    def tell_decided(self) -> None:
        """Followers learn from heartbeats what is decided; the end they are told at once."""

    def plan(self, now: int) -> None:
        """What comes next after the decided state."""
        if not self.planning or self.decided is None:
            return
        state = self.decided[1]
        process = self.process_of(state)
        if state.final:
            return
        if process is None or self.lacks(state):
            self.step_down()
            return
        if state.status == Status.UNDOING:
            self._undo(process, state, now)
            return
        if (self.view, state.group + 1) in self.logs:  # the slot is in use: this group goes on or is given up
            self._begin(process, state, Group(()), {}, now)
            return
        named = self.named(state.group + 1)
        if named and named != self.me:  # before a restart: what comes next is that master's, wishes of operators too
            self._hand_over(named, state, now)
            return
        if not state.announced and self.steered(process, state, now):
            return
        if state.held and not state.announced:
            self._ask_mail(now)
            return
        self.tend(process.graph, state, now)
        waits = self._ended_waits(process, state, now)
        group = self.group_at(process, state, tuple(waits))
        if group.empty:
            self._ask_mail(now)
            return
        if group.announce:
            occurrence = first_occurrence(state, process.graph.by_name[group.announce])
            self.propose(msgspec.structs.replace(state, announced=group.announce, occurrence=occurrence), now)
            return
        self._name(process, state, group, waits, now)

    def group_at(self, process: Process, state: State, ready: tuple[str, ...]) -> Group:
        key = (state.version, state.cut, ready, state.announced)
        group: Group | None = self.shared.groups.get(key)
        if group is None:
            if len(self.shared.groups) >= _GROUPS_KEPT_MAX:
                self.shared.groups.clear()
            group = group_at(process.graph, state.cut, ready, state.announced, self.shared.grouping)
            self.shared.groups[key] = group
        return group

    def _ended_waits(self, process: Process, state: State, now: int) -> dict[str, Mail | None]:
        """Waits at this cut that have ended: a message is there, or the time has come."""
        ended: dict[str, Mail | None] = {}
        used: list[str] = []
        self.take_published(process, state)
        for vertex in process.graph.enabled(state.cut):
            if vertex.kind is Kind.SLEEP and now >= self._sleeps_until_us(vertex, state):
                ended[vertex.name] = None
            elif vertex.kind is Kind.RECEIVE:
                mail = self._mail_for(vertex, state, used)
                if mail is not None:
                    ended[vertex.name] = mail
                    used.append(mail.id)
            elif vertex.kind is Kind.CHILD:
                mail = self.children_ended(vertex, state)
                if mail is not None:
                    ended[vertex.name] = mail
        return ended

    def _sleeps_until_us(self, vertex: Vertex, state: State) -> int:
        """On this node's clock. A sleep began before this planner had the state: whatever the clock of the node showed
        that began it, a whole sleep from then on is enough."""
        due_us = state.due.get(vertex.name, 0) - self.shared.wall_offset_us
        return due_us if vertex.reads else min(due_us, self.decided_us + vertex.time_us)

    def sleeps_until_us(self, state: State) -> list[int]:
        """When the sleeps at this cut end."""
        process = self.process_of(state)
        here = process.graph.enabled(state.cut) if process is not None else ()
        return [self._sleeps_until_us(vertex, state) for vertex in here if vertex.kind is Kind.SLEEP]

    def _mail_for(self, vertex: Vertex, state: State, used: list[str]) -> Mail | None:
        for mail in state.returned:  # what it had received before an operator went back
            fresh = mail.id not in state.consumed and mail.id not in used
            if fresh and mail.channel == vertex.channel and counts(mail, state.taken):
                return mail
        found = self.mailbox.waiting(vertex.channel, state, used)
        if found is None and vertex.key:
            found = self.mailbox.waiting(keyed(vertex.channel, key_of(state.variables[vertex.key])), state, used)
        return found

    def _ask_mail(self, now: int) -> None:
        """A partner's message may be stored by others only."""
        if now - self.asked_mail_us >= self.mail_pause_us():
            self.asked_mail_us = now
            self.mail_asks += 1
            for member in self.others:
                self.out.send(member, AskMail(self.instance))

    def mail_pause_us(self) -> int:
        config = self.shared.config
        return min(config.heartbeat_us * 4 << min(self.mail_asks, 16), config.mail_ask_us_max)

    def _slot_taken(self, group: int) -> bool:
        return self.naming is not None and (self.naming.view, self.naming.group) >= (self.view, group)

    def named(self, group: int) -> Address:
        """Who may use the slot; empty: nobody was named yet."""
        return self.naming.master if self.naming is not None and self._slot_taken(group) else ""

    def _take_slot(self, group: int, master: Address) -> None:
        """On disk before another replica hears of it. A slot that this replica uses itself is closed on disk by what it
        writes there: the log before the first write's request, or the state."""
        invariant(not self._slot_taken(group), "one naming for each view and group")
        self.naming = Naming(self.view, group, master)
        if master != self.me:
            self.keep("naming", self.naming)

    def propose(self, state: State, now: int) -> None:
        """A state made by the planner itself (an announcement, a cancellation): it takes the naming slot."""
        group = state.group + 1
        if not self._slot_taken(group):
            self._take_slot(group, self.me)
        self.planning, self.undo = False, None
        step = self._step(state.cut, now)
        self.replicate(msgspec.structs.replace(state, group=group, lineage=(*state.lineage, step)), now)

    def _name(self, process: Process, state: State, group: Group, waits: Mapping[str, Mail | None], now: int) -> None:
        number = state.group + 1
        master = self.me
        if not self._slot_taken(number):
            master = self._choose_master(now)
            self._take_slot(number, master)
        if master == self.me:
            self._begin(process, state, group, waits, now)
        else:
            self._hand_over(master, state, now)

    def _choose_master(self, now: int) -> Address:
        if self.shared.config.naming == "self" or not self.others:
            return self.me
        at = self.members.index(self.me)
        for member in (*self.members[at + 1 :], *self.members[:at]):
            if member != self.passed_over and not self.shared.hearing.silent(member, now):
                return member
        return self.me

    def _hand_over(self, master: Address, state: State, now: int) -> None:
        self.planning = False
        self.handing = (master, state)
        self.led(now)
        self.resend_us = now + self.shared.config.resend_us
        self.out.send(master, Name(self.view, state))

    # ---- master ------------------------------------------------------------------------------------------------

    def on_name(self, sender: Address, message: Name, now: int) -> None:
        """Named master by the planner of that view; the state is decided (Fig. 5, III)."""
        if message.view < self.view:
            return
        self.raise_view(message.view)
        if not self.leading and self.rank <= (message.view, message.state.group):
            self._take_up(sender, message, now)
        if self.leading or self.rank > (message.view, message.state.group):
            self.out.send(sender, Named(self.instance, message.view, message.state.group + 1))

    def _take_up(self, sender: Address, message: Name, now: int) -> None:
        self.learn(message.view, message.state, now)
        process = self.process_of(message.state)
        if process is None:  # without an answer, the planner will go on without this replica
            self.out.report("unknown_version", f"{self.instance}: no {message.state.process}@{message.state.version}")
            return
        # The naming is the slot: this replica may now use it itself, for a group or for a cancellation.
        slot = Naming(message.view, message.state.group + 1, self.me)
        if self._slot_taken(slot.group) and self.naming != slot:
            return
        self.led(now)
        self.naming = slot
        self.out.report("named", f"{self.instance}: {sender} named {self.me}")
        self.planning = True
        self.decided_us = now
        self.plan(now)

    def on_named(self, sender: Address, now: int) -> None:
        """Whom this planner named leads now."""
        self.passed_over = ""
        self.led(now, sender)

    def _begin(self, process: Process, state: State, group: Group, waits: Mapping[str, Mail | None], now: int) -> None:
        key = (self.view, state.group + 1)
        log = self.logs.get(key)
        if log is not None and log.abandoned:
            self.planning = False
            return
        self.planning = False
        room = self.shared.bounds.state_bytes_max
        if log is not None:
            self.execution = self.executes(process, state, self.view, log.vertices, log.mail)
            room -= len(msgspec.msgpack.encode((log.intents, log.outcomes)))
            self.execution.resume(log.intents, log.outcomes)
        else:
            mail = {name: item for name, item in waits.items() if item is not None and name in group.vertices}
            self.execution = self.executes(process, state, self.view, group.vertices, mail)
            self.execution.resume(*self._adopt(state, group))
        self.execution.room = room
        self._go_on(self.execution.advance(now), now)

    def _adopt(self, state: State, group: Group) -> tuple[tuple[Intent, ...], tuple[Outcome, ...]]:
        """This replica's own backup execution counts for the new view, if its input is the decided state."""
        log = self.backup_log
        self.backup = None
        if log is None or not self.same_input(log, state):
            return (), ()
        done = [o for o in log.outcomes if o.answer == Answer.DONE and o.vertex in group.active]
        if done:
            self.out.report("adopted", f"{self.instance}: a backup execution of {len(done)} actions")
        asked = dict.fromkeys(outcome.vertex for outcome in done)
        return tuple(intent for intent in log.intents if intent.vertex in asked), tuple(done)

    def same_input(self, log: BackupLog, state: State) -> bool:
        return log.basis == state.views

    def _go_on(self, requests: list[Request], now: int) -> None:
        """After any progress of the execution: keep what must be kept, send, and see whether it is over."""
        execution = self.execution
        if execution is None:
            return
        if execution.dirty and execution.wrote:
            self._keep_log(execution)
        for request in requests:
            self.out.send(f"service:{request.service}", request)
        if execution.aborted:
            self._abort(execution, now)
        elif execution.fenced:
            self.execution = None
            self.out.report("fenced", f"{self.instance}: a higher view is at work")
        elif execution.finished:
            self._finish(execution, now)

    def _keep_log(self, execution: Execution) -> None:
        log = execution.log()
        execution.dirty = False
        self.logs[log.view, log.group] = log
        self.keep(f"group/{log.view}/{log.group}", log)

    def _finish(self, execution: Execution, now: int) -> None:
        self.execution = None
        state = self._with_due(execution, execution.next_state(self.me, now + self.shared.wall_offset_us), now)
        if self._bytes(state, execution.input) > self.shared.bounds.state_bytes_max:
            most = self.shared.bounds.state_bytes_max
            self._fail(execution, f"its state takes more than {most} bytes; store less in it", now)
            return
        if self.naming is None or (self.naming.view, self.naming.group) < (self.view, state.group):
            self.naming = Naming(self.view, state.group, self.me)
        self.replicate(state, now)

    def _bytes(self, state: State, before: State) -> int:
        """How large a state is. Its history is measured as it grows, not again and again."""
        if self.measured[0] != (self.view, before.group):
            self.measured = ((self.view, before.group), _history_bytes(before))
        history = self.measured[1] + _history_bytes(added(state, before))
        self.measured = ((self.view, state.group), history)
        return history + len(msgspec.msgpack.encode(state.variables))

    def _with_due(self, execution: Execution, state: State, now: int) -> State:
        due = self.due_at(execution.graph, state.cut, state.variables, state.due, now)
        return msgspec.structs.replace(state, due=due) if due != state.due else state

    # ---- when it cannot go on ----------------------------------------------------------------------------------

    def _abort(self, execution: Execution, now: int) -> None:
        """A service refused for good, or did not answer. Another master may have more luck, in a new view; after
        enough of those the process fails."""
        self.execution = None
        self.out.report("aborted", f"{self.instance}: {execution.aborted}")
        vertex = execution.graph.by_name.get(execution.input.announced)
        if vertex is not None and not execution.permanent:
            again = msgspec.structs.replace(execution.input, occurrence=execution.input.occurrence + 1)
            self._keep_log(execution)
            self._promise_again(again, now)
            return
        count = (self.aborts[1] if self.aborts[0] == execution.group else 0) + 1
        if execution.permanent or count >= self.shared.config.abort_views_max:
            if not self._may_hold(execution, vertex is not None):
                self._fail(execution, execution.aborted, now)
                return
            if vertex is not None:
                self._hold(execution, now)
                return
            count = self.shared.config.abort_views_max
        self._count_aborts(execution.group, count, execution.aborted)
        if execution.wrote:
            self._keep_log(execution)
        self.ask_view(now, execution.aborted)

    def _may_hold(self, execution: Execution, announced: bool) -> bool:
        """An operator may have it tried again, unless what cannot be undone was done."""
        if not execution.graph.holds or promised(execution.graph, execution.input):
            return False
        return not (announced and any(action.vertex == execution.input.announced for action in execution.taken))

    def _hold(self, execution: Execution, now: int) -> None:
        """A refusal for good of an announced action: the promise is taken back, and an operator asked."""
        state = execution.input
        self.out.report("held", f"{self.instance}: {execution.aborted}")
        self._keep_log(execution)
        held = msgspec.structs.replace(state, announced="", occurrence=0, held=execution.aborted[:200])
        self._promise_again(held, now)

    def _step(self, cut: Cut, now: int) -> Step:
        return Step(self.view, cut, self.me, now + self.shared.wall_offset_us)

    def _promise_again(self, state: State, now: int) -> None:
        """A recorded refusal of an announced action: the next occurrence is announced as a new state."""
        step = self._step(state.cut, now)
        self.replicate(msgspec.structs.replace(state, group=state.group + 1, lineage=(*state.lineage, step)), now)

    def _fail(self, execution: Execution, why: str, now: int) -> None:
        """The process fails: a state that says so, with what this group did, so that all of it is undone."""
        state = execution.input
        if execution.wrote:
            self._keep_log(execution)
        step = self._step(state.cut, now)
        failed = msgspec.structs.replace(
            state,
            group=execution.group,
            lineage=(*state.lineage, step),
            taken=(*state.taken, *_partly_taken(execution)),
            announced="",
            status=Status.UNDOING,
            reason=why,
        )
        self.out.report("failed", f"{self.instance}: {why}")
        self.replicate(failed, now)

    def _undo(self, process: Process, state: State, now: int) -> None:
        """Undo the process: after everything outside the lineage is undone, in reverse order."""
        if self.undo is None:
            if not self.may_undo(now):
                return
            steps = steps_of_taken(process.graph, state, self.shared.bounds.children_max)
            self.undo = Undo(process.graph, steps, self.view, self.shared.config)
        self._undo_on(now)

    def may_undo(self, now: int) -> bool:
        """Whether every execution outside the lineage is known to be undone."""
        return True

    def _undo_on(self, now: int) -> None:
        if self.undo is None or self.decided is None:
            return
        self.undo_children(self.undo, now)
        if not self.undo.finished:
            request = self.undo.tick(now)
            if request is not None:
                self.ask_undo(request)
                if self.undo.parked:
                    self.out.report("undo_parked", f"{self.instance}: {request.service} does not undo {request.iid}")
            return
        state = self.decided[1]
        undone = (*state.undone, *self.undo.took)
        process = self.process_of(state)
        if state.rewind >= 0 and process is not None:
            graph = process.graph
            after = gone_back(process, state, lambda cut, variables: self.due_at(graph, cut, variables, {}, now))
            self.propose(msgspec.structs.replace(after, undone=undone), now)
            return
        graph = self.undo.graph
        pivot = any(graph.by_name[action.vertex].final for action in state.taken)
        status = Status.PARKED if pivot else Status.CANCELLED if state.reason == CANCELLED else Status.FAILED
        self.propose(msgspec.structs.replace(state, status=status, undone=undone), now)

    # ---- backups -----------------------------------------------------------------------------------------------

    def on_accepted(self, now: int) -> None:
        """Work ahead on the active part of the next group: non-writes, which count only if their input does."""
        self.backup, self.handing = None, None
        if self.accepted is None:
            return
        state = self.accepted.state
        process = self.process_of(state)
        if process is None or state.status != Status.RUNNING or state.announced or state.held:
            return
        group = self.group_at(process, state, ())
        if not group.active:
            return
        self.backup = self.executes(process, state, None, group.active, {}, tag=f"@b{self.members.index(self.me)}")
        self.backup.room = self.shared.bounds.state_bytes_max
        self._backup_on(self.backup.advance(now))

    def _backup_on(self, requests: list[Request]) -> None:
        backup = self.backup
        if backup is None:
            return
        for request in requests:
            self.out.send(f"service:{request.service}", request)
        if backup.outcomes and backup.dirty:
            backup.dirty = False
            asked = tuple(backup.intents.values())
            self.backup_log = BackupLog(backup.input.views, asked, tuple(backup.outcomes))
            if not backup.open:  # kept once it is whole; a part is not worth a sync
                self.keep("backup", self.backup_log)
        if backup.aborted:
            self.backup = None


def _history_bytes(state: State) -> int:
    return len(msgspec.msgpack.encode((state.lineage, state.taken, state.consumed)))


def _partly_taken(execution: Execution) -> list[Taken]:
    """What an unfinished group did, in order; with writes whose fate is unknown. Of children that have ended only those
    that cannot be undone: the others are, as those at the cut."""
    graph = execution.graph
    taken = [a for a in execution.taken if graph.by_name[a.vertex].waits and graph.by_name[a.vertex].final]
    applied = {action.iid: action for action in execution.taken}
    for intent in execution.intents.values():
        vertex = graph.by_name[intent.vertex]
        view = -1 if vertex.final else execution.view
        iid = iid_of(execution.input.instance, vertex.name, intent.occurrence, None if vertex.final else view)
        if iid in applied:
            taken.append(applied[iid])
            continue
        answer = [o for o in execution.outcomes if (o.vertex, o.occurrence) == (intent.vertex, intent.occurrence)]
        if not vertex.write or (answer and answer[0].answer != Answer.DONE):
            continue
        reply = answer[0].value if answer else None
        taken.append(
            Taken(
                vertex.name, iid, intent.request, reply, True, execution.group, -1 if view is None else view, not answer
            )
        )
    return taken
