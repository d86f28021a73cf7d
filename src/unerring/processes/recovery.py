"""Recovery: executions outside the decided lineage are undone, by those who made them or by survivors.

An execution (g, v) is excluded once a decided state, in a view above v, has another view at g or does not have g yet:
no later lineage can contain it. In each older view at most one group is: the first whose lineage entry is above it,
else the next one, because every earlier group of that view had been decided before its successor began.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Final

import msgspec

from unerring.model import Address
from unerring.processes.acceptor import Acceptor
from unerring.processes.build import Process
from unerring.processes.context import Context
from unerring.processes.graph import Cut, Graph, Rounds, Vertex
from unerring.processes.grouping import Grouping, possible_at
from unerring.processes.logs import Logs
from unerring.processes.master import Master
from unerring.processes.messages import Clean, GroupLog, Reply, State, Status, iid_of
from unerring.processes.packing import basis_of, first_of, unpacked
from unerring.processes.undo import Undo, UndoStep, steps_of_log

UNDOES_TOLD_MAX: Final = 10
SWEPT_MAX: Final = 100_000
"""Interactions that survivors cancel for masters that do not return. Above, these masters have to do it themselves: no
run comes to so many views or repetitions, but a message may say so."""
"""How many undone interactions of an abandoned group are reported by name."""


def kept(group: int, view: int, state: State) -> bool:
    """Whether the execution is in the lineage."""
    return group <= state.group and state.views[group - 1] == view


def excluded(group: int, view: int, decided_in: int, state: State) -> bool:
    """Whether no lineage will ever contain it. `state` was decided in view `decided_in`."""
    return view < decided_in and not kept(group, view, state)


def place_before(graph: Graph, state: State, group: int) -> tuple[Cut, Rounds]:
    """Where a group of the lineage, or the next one, began: the cut, and the rounds of loops."""
    if group == 1:
        return graph.start, {}
    before = state if group - 2 >= state.unpacked_from else unpacked(state)
    step = before.lineage[group - 2 - before.unpacked_from]
    return step.cut, step.rounds


def sweep(graph: Graph, grouping: Grouping, state: State, decided_in: int) -> tuple[list[UndoStep], list[str]]:
    """What survivors cancel for masters that do not return, and the actions that keep them from it: those of services
    that cannot cancel, or that may have been tried too often. Later groups first, each in reverse order."""
    steps: list[UndoStep] = []
    writes: dict[int, list[Vertex]] = {}
    rounds: dict[int, Rounds] = {}
    highest = list(accumulate(state.views, max))
    basis = basis_of(state)
    for view in range(decided_in - 1, state.swept - 1, -1):
        # The first group whose view is above: the only one that an older view may have executed outside the lineage.
        group = bisect_right(highest, view) + 1
        if group == state.group + 1 and (state.status != Status.RUNNING or state.announced):
            continue  # what follows is an undo or an announced action: both repeat the same interactions
        if group not in writes:
            cut, rounds[group] = place_before(graph, state, group)
            names = reversed(possible_at(graph, cut, grouping))
            vertices = [graph.by_name[name] for name in names]
            writes[group] = [vertex for vertex in vertices if vertex.write and not vertex.final]
            blocked = [v.name for v in writes[group] if not graph.service_by_name[v.service].cancels]
            if blocked:
                return [], blocked
        for vertex in writes[group]:
            occurrences = (state.again + 1) * vertex.retry.occurrences_max
            if len(steps) + occurrences > SWEPT_MAX:
                return [], [vertex.name]
            for occurrence in reversed(range(occurrences)):
                iid = iid_of(state.instance, graph.in_round(vertex.name, rounds[group]), occurrence, view)
                of = (state.instance, vertex.name, iid, None, None, group, first_of(basis, group - 1))
                steps.append(UndoStep(*of, True))
    return steps, []


class Recovery:
    """Own executions that are being undone, what survivors cancel for others, and who is clean."""

    __slots__ = (
        "_acceptor",
        "_clean",
        "_context",
        "_logs",
        "_looked_us",
        "_master",
        "_reported_us",
        "_swept",
        "sweep",
        "undos",
    )

    def __init__(self, context: Context, acceptor: Acceptor, logs: Logs, master: Master) -> None:
        self._context = context
        self._acceptor = acceptor
        self._logs = logs
        self._master = master
        self.undos: dict[tuple[int, int], Undo] = {}
        """Own executions that are being undone, by view and group."""
        self.sweep: Undo | None = None
        """As planner: what is cancelled for masters that do not return."""
        self._swept = 0
        self._clean: dict[Address, tuple[int, int]] = {}
        """The view and group up to which each of the others has announced that it is clean."""
        self._looked_us = 0
        """When it last looked what survivors have to cancel."""
        self._reported_us = 0
        """When it was last reported what the undoing of the process waits for."""

    # ---- own executions ----------------------------------------------------------------------------------------

    def settle(self, now: int) -> None:
        """Keep what the decided lineage has, undo what it excludes; `abandoned` is on disk before the first undo."""
        if self._acceptor.decided is None:
            return
        view, state = self._acceptor.decided
        for key, log in list(self._logs.kept.items()):
            if key in self.undos:
                continue
            if kept(log.group, log.view, state):
                self._logs.drop(*key)
            elif excluded(log.group, log.view, view, state):
                self.abandon(log, view, state, now)

    def abandon(self, log: GroupLog, decided_in: int, state: State, now: int) -> None:
        """Undo one of them, because of this decided state."""
        process = self._context.process_of(state)
        if process is None:
            return
        self._master.abandon(log.view)
        steps = self.steps(process, log)
        if not steps:
            self._logs.drop(log.view, log.group)
            return
        if not log.abandoned:
            self._logs.keep(msgspec.structs.replace(log, abandoned=True))
        undoes = ", ".join(step.iid for step in steps[:UNDOES_TOLD_MAX])
        self._context.report("compensating", f"group {log.group} of view {log.view}: {undoes}")
        self.undos[log.view, log.group] = Undo(process.graph, steps, decided_in, self._context.config)
        self._compensate((log.view, log.group), now)

    def steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return steps_of_log(process.graph, self._context.instance, log)

    def tick(self, now: int) -> None:
        for key in list(self.undos):
            self._compensate(key, now)

    def next_us(self, idle_until_us: int) -> int:
        """When a compensation of an own execution has to be asked for again."""
        return min((undo.next_us for undo in self.undos.values()), default=idle_until_us)

    def sweep_us(self, since_us: int, idle_until_us: int) -> int:
        """As planner of a state decided at `since_us`: when to look again after what is outside the lineage."""
        if self._acceptor.decided is None or self.outside_undone():
            return idle_until_us
        if self.sweep is not None and self.sweep.view == self._acceptor.decided[0]:
            return min(self.sweep.next_us, idle_until_us)
        patience_us = since_us + self._context.config.sweep_patience_us
        # Afterwards it is blocked: only the others can say that they are clean.
        return min(patience_us, idle_until_us) if patience_us > self._looked_us else idle_until_us

    def on_reply(self, reply: Reply, now: int) -> None:
        for key, undo in list(self.undos.items()):
            if undo.reply(reply, now):
                self._note_undone(key, undo)
            self._compensate(key, now)

    def _note_undone(self, key: tuple[int, int], undo: Undo) -> None:
        """Progress of compensations is kept, so that they resume where they stood."""
        log = self._logs.kept[key]
        log = msgspec.structs.replace(log, undone=(*log.undone, undo.done[-1]))
        if undo.finished:
            self._logs.kept[key] = log
        else:
            self._logs.keep(log)

    def _compensate(self, key: tuple[int, int], now: int) -> None:
        undo = self.undos[key]
        request = undo.tick(now)
        if request is not None:
            self._context.out.send(f"service:{request.service}", request)
            if undo.stuck:
                self._context.report("undo_stuck", f"{request.service} does not undo {request.iid}")
        if undo.finished:
            del self.undos[key]
            self._logs.drop(*key)

    # ---- clean -------------------------------------------------------------------------------------------------

    def is_clean(self) -> bool:
        """Nothing of an older view is left to undo here."""
        if self._acceptor.decided is None:
            return False
        view, state = self._acceptor.decided
        return not any(log.view < view and not kept(log.group, log.view, state) for log in self._logs.kept.values())

    def on_clean(self, sender: Address, message: Clean, now: int) -> None:
        self._clean[sender] = max((message.view, message.group), self._clean.get(sender, (-1, -1)))

    def all_clean(self, view: int, group: int = -1) -> bool:
        return all(self._clean.get(member, (-1, -1)) >= (view, group) for member in self._context.others)

    def wants_clean(self) -> bool:
        """As planner: whether the others are asked if they are clean."""
        if self._acceptor.decided is None:
            return False
        view, state = self._acceptor.decided
        return state.final or (view > max(self._swept, state.swept) and not self.all_clean(view))

    def outside_undone(self) -> bool:
        """Whether every execution outside the lineage is known to be undone."""
        if self._acceptor.decided is None or not self.is_clean():
            return False
        view, state = self._acceptor.decided
        return self.all_clean(view) or max(self._swept, state.swept) >= view

    def may_undo(self, now: int) -> bool:
        """Whether the process itself may be undone; if not, a report now and then says what that waits for."""
        if self.outside_undone():
            return True
        if now - self._reported_us > self._context.config.sweep_patience_us:
            self._reported_us = now
            decided = self._acceptor.decided
            others = self._context.others if decided else ()
            missing = ", ".join(m for m in others if decided and self._clean.get(m, (-1, -1))[0] < decided[0])
            self._context.report("undo_waits", f"waits until {missing or 'this replica'} has undone its part")
        return False

    # ---- survivors ---------------------------------------------------------------------------------------------

    def sweep_on(self, since_us: int, now: int) -> None:
        """As planner of a state decided at `since_us`: cancel for masters that do not return, where services can."""
        if self._acceptor.decided is None or self.outside_undone():
            return
        view, state = self._acceptor.decided
        context = self._context
        self._looked_us = now
        if now - since_us < context.config.sweep_patience_us:
            return
        if self.sweep is None or self.sweep.view != view:
            process = context.process_of(state)
            if process is None:
                return
            steps, blocked = sweep(process.graph, context.shared.grouping, state, view)
            if blocked:
                return
            self.sweep = Undo(process.graph, steps, view, context.config)
        request = self.sweep.tick(now)
        if request is not None:
            context.out.send(f"service:{request.service}", request)
        if self.sweep.finished:
            self._swept = view
            self.sweep = None
