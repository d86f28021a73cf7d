"""Changes of a process's way at a decided state: a command of an operator, its deadline, a group given up."""

from __future__ import annotations

import msgspec

from unerring.model import ProcessError
from unerring.processes.acceptor import Acceptor
from unerring.processes.build import Process
from unerring.processes.commands import carried_out, overdue, promised
from unerring.processes.context import Context
from unerring.processes.election import Election
from unerring.processes.graph import Graph
from unerring.processes.inbox import Inbox
from unerring.processes.messages import CANCEL, COMMANDS, MOVE, Mail, State
from unerring.processes.recovery import Recovery
from unerring.processes.waits import late_block


class Steering:
    """Asked by the planner before it goes on with the process itself."""

    __slots__ = ("_acceptor", "_context", "_election", "_inbox", "_recovery")

    def __init__(
        self, context: Context, acceptor: Acceptor, election: Election, inbox: Inbox, recovery: Recovery
    ) -> None:
        self._context = context
        self._acceptor = acceptor
        self._election = election
        self._inbox = inbox
        self._recovery = recovery

    def next_state(self, process: Process, state: State, now: int) -> State | None:
        """The state that comes next; None: what the process itself says."""
        context, wall_us = self._context, self._context.wall_us(now)
        commands = self._inbox.mailbox.all_of(COMMANDS, state.consumed)
        command = next((one for one in commands if not self._must_wait(one, process.graph, state)), None)
        if command is not None:
            after = state
            try:
                versions = context.shared.processes.get
                after = carried_out(command, process, state, versions, self._acceptor.view, wall_us)
            except ProcessError as error:
                context.report("command_refused", str(error))
            return msgspec.structs.replace(after, consumed=(*state.consumed, command.id))
        late = overdue(process, state, wall_us)
        if late is not None and not promised(process.graph, state):
            return late
        block = late_block(process.graph, state, wall_us)
        if block is not None and not promised(process.graph, state):
            context.report("late", f"a block is undone after group {block.rewind}")
            return block
        return self._given_up(process, state)

    def _must_wait(self, command: Mail, graph: Graph, state: State) -> bool:
        if command.channel == CANCEL:
            return bool(promised(graph, state))
        return command.channel == MOVE and not self._all_undone()

    def _all_undone(self) -> bool:
        """No replica has anything left to undo that only the old version knows."""
        view = self._acceptor.view
        return view == 0 or (self._recovery.is_clean() and self._recovery.all_clean(view))

    @property
    def moving(self) -> bool:
        """Whether somebody asked that the instance is moved to another version."""
        decided, mailbox = self._acceptor.decided, self._inbox.mailbox
        return bool(mailbox.mail) and any(mailbox.all_of((MOVE,), decided[1].consumed if decided else ()))

    def _given_up(self, process: Process, state: State) -> State | None:
        group, count, why = self._election.aborts
        if not process.graph.holds or state.held or group != state.group + 1:
            return None
        if count < self._context.config.abort_views_max:
            return None
        self._context.report("held", why)
        return msgspec.structs.replace(state, held=why or "it could not go on")
