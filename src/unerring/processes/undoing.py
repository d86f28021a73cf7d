"""Undoing a process: its decided effects, in reverse order, once everything outside its lineage is undone."""

from __future__ import annotations

import msgspec

from unerring.processes.acceptor import Acceptor
from unerring.processes.build import Process
from unerring.processes.commands import CANCELLED, gone_back
from unerring.processes.context import Context
from unerring.processes.messages import Reply, State, Status
from unerring.processes.packing import packed, unpacked
from unerring.processes.parent import Parent
from unerring.processes.recovery import Recovery
from unerring.processes.undo import Undo, UndoStep, steps_of_taken
from unerring.processes.waits import blocks_at, due_at


class Undoing:
    """Compensations that a planner sends for the whole process."""

    __slots__ = ("_acceptor", "_context", "_parent", "_recovery", "undo")

    def __init__(self, context: Context, acceptor: Acceptor, parent: Parent, recovery: Recovery) -> None:
        self._context = context
        self._acceptor = acceptor
        self._parent = parent
        self._recovery = recovery
        self.undo: Undo | None = None

    def stop(self) -> None:
        self.undo = None

    def begin(self, process: Process, state: State, now: int) -> State | None:
        """Undo what the decided state says, or go on with it; the state after it, when all is undone."""
        if self.undo is None:
            if not self._recovery.may_undo(now):
                return None
            self.undo = Undo(process.graph, self.steps(process, state), self._acceptor.view, self._context.config)
        return self.go_on(now)

    def steps(self, process: Process, state: State) -> list[UndoStep]:
        return steps_of_taken(process.graph, state, self._context.shared.bounds.children_max)

    def on_reply(self, reply: Reply, now: int) -> State | None:
        if self.undo is None:
            return None
        self.undo.reply(reply, now)
        return self.go_on(now)

    def go_on(self, now: int) -> State | None:
        undo, decided = self.undo, self._acceptor.decided
        if undo is None or decided is None:
            return None
        self._parent.answer(undo, now)
        if not undo.finished:
            request = undo.tick(now)
            if request is not None:
                self._parent.ask_undo(request)
                if undo.stuck:
                    self._context.report("undo_stuck", f"{request.service} does not undo {request.iid}")
            return None
        state = decided[1]
        undone = (*state.undone, *undo.took)
        process = self._context.process_of(state)
        if state.rewind >= 0 and process is not None:
            graph, wall_us = process.graph, self._context.wall_us(now)
            before = state.due if state.rewind == state.group else {}  # what was not gone back on goes on
            after = gone_back(
                process, state, lambda cut, rounds, variables: due_at(graph, cut, rounds, variables, before, wall_us)
            )
            # The state that goes on is of the next group: a block that begins there begins after that one.
            kept = {name: block for name, block in state.blocks.items() if block[0] <= state.rewind}
            blocks = blocks_at(graph, after.cut, kept, after.group + 1, wall_us)
            after = msgspec.structs.replace(after, blocks=blocks)
            after = packed(after, self._context.shared.bounds.history_groups)
            return msgspec.structs.replace(after, undone=undone)
        for_good = any(undo.graph.by_name[action.vertex].final for action in unpacked(state).taken)
        status = Status.PARKED if for_good else Status.CANCELLED if state.reason == CANCELLED else Status.FAILED
        return msgspec.structs.replace(state, status=status, undone=undone)
