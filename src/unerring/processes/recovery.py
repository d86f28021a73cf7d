"""Recovery: executions outside the decided lineage are undone, by those who made them or by survivors.

An execution (g, v) is excluded once a decided state, in a view above v, has another view at g or does not have g yet:
no later lineage can contain it. In each older view at most one group is: the first whose lineage entry is above it,
else the next one, because every earlier group of that view had been decided before its successor began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import msgspec

from unerring.model import Address
from unerring.processes.acceptor import Acceptor
from unerring.processes.build import Process
from unerring.processes.context import Context, read
from unerring.processes.graph import Cut, Graph, Rounds
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
    highest = list(accumulate(state.views, max))
    basis = basis_of(state)
    view = decided_in - 1
    while view >= state.swept:
        # The first group whose view is above: the only one that an older view may have executed outside the lineage.
        group = bisect_right(highest, view) + 1
        lowest = max(state.swept, highest[group - 2] if group > 1 else 0)
        # What follows an undo or an announced action repeats the same interactions.
        repeats = group == state.group + 1 and (state.status != Status.RUNNING or state.announced)
        if not repeats:
            cut, rounds = place_before(graph, state, group)
            vertices = [graph.by_name[name] for name in reversed(possible_at(graph, cut, grouping))]
            writes = [vertex for vertex in vertices if vertex.write and not vertex.final]
            blocked = [v.name for v in writes if not graph.service_by_name[v.service].cancels]
            if blocked:
                return [], blocked
            # Views without a write are passed over at once, however many somebody says that there were.
            for older in range(view, lowest - 1, -1) if writes else ():
                for vertex in writes:
                    occurrences = (state.again + 1) * vertex.retry.occurrences_max
                    if len(steps) + occurrences > SWEPT_MAX:
                        return [], [vertex.name]
                    for occurrence in reversed(range(occurrences)):
                        iid = iid_of(state.instance, graph.in_round(vertex.name, rounds), occurrence, older)
                        of = (state.instance, vertex.name, iid, None, None, group, first_of(basis, group - 1))
                        steps.append(UndoStep(*of, True))
        view = lowest - 1
    return steps, []


class Recovery:
    """Own executions that are being undone, what survivors cancel for others, and who is clean.

    A replica that lost its disk has nothing to undo and cannot know what it should have undone: it says up to which
    view that is so, and counts as clean once survivors have cancelled what may have been done until then.
    """

    __slots__ = (
        "_acceptor",
        "_blocked",
        "_cancelled",
        "_clean",
        "_context",
        "_half_clean",
        "_logs",
        "_looked_us",
        "_master",
        "_reported_us",
        "_sweeps_to",
        "_swept",
        "lost",
        "sweep",
        "undos",
    )

    def __init__(
        self, context: Context, acceptor: Acceptor, logs: Logs, master: Master, records: Mapping[str, bytes]
    ) -> None:
        self._context = context
        self._acceptor = acceptor
        self._logs = logs
        self._master = master
        self.undos: dict[tuple[int, int], Undo] = {}
        """Own executions that are being undone, by view and group."""
        self.sweep: Undo | None = None
        """As planner: what is cancelled for masters that do not return."""
        self._sweeps_to = 0
        """It is cancelled for all views below this one."""
        self._cancelled: dict[str, None] = {}
        """What earlier ones, which did not come to their end, have cancelled of it."""
        self._swept = 0
        self._clean: dict[Address, tuple[int, int]] = {}
        """The view and group up to which each of the others has announced that it is clean."""
        self._half_clean: dict[Address, tuple[tuple[int, int], int]] = {}
        """The same of those that lost their disk, and up to which view they do not know what they did."""
        self.lost = -1 if (lost := read(records, "lost", int)) is None else lost
        """Up to which view this replica does not know what it did; −1: it knows all."""
        self._blocked: list[str] = []
        """The actions that keep survivors from cancelling."""
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
        forgot = self._forgot(self._acceptor.decided[0])
        patience_us = since_us + (0 if forgot else self._context.config.sweep_patience_us)
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

    def lose(self, view: int) -> None:
        """What this replica did up to this view went with its disk."""
        self.lost = view
        self._context.keep("lost", view)

    def on_clean(self, sender: Address, message: Clean, now: int) -> None:
        rank = (message.view, message.group)
        if message.lost < 0:
            self._clean[sender] = max(rank, self._clean.get(sender, (-1, -1)))
        elif sender not in self._half_clean or rank >= self._half_clean[sender][0]:
            self._half_clean[sender] = (rank, message.lost)

    def all_clean(self, view: int, group: int = -1) -> bool:
        return self.settled_for(self._context.me, self.lost, view) and not self._unclean(view, group)

    def _unclean(self, view: int, group: int = -1) -> list[Address]:
        """The others that have not said that they are clean, or have forgotten what nobody has undone for them yet."""
        return [member for member in self._context.others if not self._is_clean(member, view, group)]

    def _is_clean(self, member: Address, view: int, group: int) -> bool:
        said = self._clean.get(member, (-1, -1))
        if said >= (view, group) or self._context.shared.incarnations.gone(member):
            return True
        rank, lost = self._half_clean.get(member, ((-1, -1), -1))
        # What it said before it lost its disk was true then, and stays so for that view.
        return rank >= (view, group) and (said[0] >= view or self.settled_for(member, lost, view))

    def settled_for(self, member: Address, lost: int, view: int) -> bool:
        """Whether nothing is left of what a replica did up to view `lost` outside the lineage, and forgot: survivors
        have cancelled it, or an operator has said that it counts as settled. What it did in the view that the instance
        is still in lies in the lineage: in one view nobody else takes up what it was named for."""
        return self.swept >= min(view, lost + 1) or self._context.shared.incarnations.forgiven(member)

    @property
    def swept(self) -> int:
        """Executions of lower views outside the lineage are undone, as far as is known here."""
        return max(self._swept, self._acceptor.decided[1].swept) if self._acceptor.decided is not None else 0

    def _forgot(self, view: int) -> dict[Address, int]:
        """The replicas that forgot what they did, as long as nobody has undone it for them, and up to which view."""
        said = {member for member, (clean_in, _) in self._clean.items() if clean_in >= view}
        lost = {self._context.me: self.lost}
        lost |= {member: lost for member, (_, lost) in self._half_clean.items() if member not in said}
        return {member: of for member, of in lost.items() if not self.settled_for(member, of, view)}

    @property
    def waits(self) -> str:
        """For people: what keeps the instance from being undone or settled."""
        decided = self._acceptor.decided
        forgot = self._forgot(decided[0]) if decided is not None and self._blocked else {}
        if not forgot or decided is None:
            return ""
        return (
            f"nobody knows what {', '.join(forgot)} did before losing the disk, and the service of {self._blocked[0]} "
            "cannot cancel; look there, then say `unerring process forget-node`"
        )

    def wants_clean(self) -> bool:
        """As planner: whether the others are asked if they are clean."""
        if self._acceptor.decided is None:
            return False
        view, state = self._acceptor.decided
        return state.final or (view > self.swept and not self.all_clean(view))

    def outside_undone(self) -> bool:
        """Whether every execution outside the lineage is known to be undone."""
        if self._acceptor.decided is None or not self.is_clean():
            return False
        view = self._acceptor.decided[0]
        return self.all_clean(view) or self.swept >= view

    def may_undo(self, now: int) -> bool:
        """Whether the process itself may be undone; if not, a report now and then says what that waits for."""
        if self.outside_undone():
            return True
        if now - self._reported_us > self._context.config.sweep_patience_us:
            self._reported_us = now
            missing = ", ".join(self._unclean(self._acceptor.decided[0])) if self._acceptor.decided else ""
            why = self.waits or f"waits until {missing or 'this replica'} has undone its part"
            self._context.report("undo_waits", why)
        return False

    # ---- survivors ---------------------------------------------------------------------------------------------

    def sweep_on(self, since_us: int, now: int) -> None:
        """As planner of a state decided at `since_us`: cancel for masters that do not return, where services can."""
        if self._acceptor.decided is None or self.outside_undone():
            return
        view, state = self._acceptor.decided
        context = self._context
        self._looked_us = now
        through = view
        if now - since_us < context.config.sweep_patience_us:
            # Whoever forgot what it did will not undo it, and knows up to where; the others may.
            through = min(view, 1 + max(self._forgot(view).values(), default=-1))
            if through <= self.swept:
                return
        if self.sweep is None or self.sweep.view != view or self._sweeps_to != through:
            process = context.process_of(state)
            if process is None:
                return
            steps, self._blocked = sweep(process.graph, context.shared.grouping, state, through)
            if self._blocked:
                return
            # What is cancelled stays so, in whichever view it was asked for.
            self._cancelled |= dict.fromkeys(self.sweep.done if self.sweep is not None else ())
            left = [step for step in steps if step.iid not in self._cancelled]
            self.sweep, self._sweeps_to = Undo(process.graph, left, view, context.config), through
        request = self.sweep.tick(now)
        if request is not None:
            context.out.send(f"service:{request.service}", request)
        if self.sweep.finished:
            self._swept = through
            self.sweep, self._cancelled = None, {}
