"""Backup executions: a follower works ahead on the non-writes of the next group. They count if their input does."""

from __future__ import annotations

from collections.abc import Mapping

from unerring.processes.acceptor import Acceptor
from unerring.processes.context import Context, read
from unerring.processes.execution import Execution
from unerring.processes.grouping import Group
from unerring.processes.messages import Answer, BackupLog, Intent, Outcome, Reply, Request, State


class Backups:
    """One at a time, of the accepted state."""

    __slots__ = ("_acceptor", "_context", "_execution_part", "_log", "execution")

    def __init__(
        self, context: Context, acceptor: Acceptor, execution: type[Execution], records: Mapping[str, bytes]
    ) -> None:
        self._context = context
        self._acceptor = acceptor
        self._execution_part = execution
        self._log: BackupLog | None = read(records, "backup", BackupLog)
        self.execution: Execution | None = None

    def begin(self, now: int) -> None:
        """On the active part of the group after the accepted state."""
        self.execution = None
        state = self._acceptor.accepted.state if self._acceptor.accepted is not None else None
        process = self._context.process_of(state) if state is not None else None
        group = self._context.next_group(state) if state is not None else None
        if state is None or process is None or group is None or not group.active:
            return
        tag = f"@b{self._context.members.index(self._context.me)}"
        self.execution = self._execution_part(process, state, None, group.active, {}, tag=tag)
        self.execution.room = self._context.shared.bounds.state_bytes_max
        self._go_on(self.execution.advance(now))

    def tick(self, now: int) -> None:
        if self.execution is not None:
            self._go_on(self.execution.tick(now))

    def on_reply(self, reply: Reply, now: int) -> None:
        if self.execution is not None and reply.iid in self.execution.open:
            self._go_on(self.execution.reply(reply, now))

    def _go_on(self, requests: list[Request]) -> None:
        execution = self.execution
        if execution is None:
            return
        for request in requests:
            self._context.out.send(f"service:{request.service}", request)
        if execution.outcomes and execution.dirty:
            execution.dirty = False
            asked = tuple(execution.intents.values())
            self._log = BackupLog(execution.input.views, asked, tuple(execution.outcomes))
            if not execution.open:  # kept once it is whole; a part is not worth a sync
                self._context.keep("backup", self._log)
        if execution.aborted:
            self.execution = None

    def adopt(self, state: State, group: Group) -> tuple[tuple[Intent, ...], tuple[Outcome, ...]]:
        """This replica's own backup execution counts for the new view, if its input is the decided state."""
        self.execution = None
        if self._log is None or not self.same_input(self._log, state):
            return (), ()
        done = [o for o in self._log.outcomes if o.answer == Answer.DONE and o.vertex in group.active]
        if done:
            self._context.report("adopted", f"a backup execution of {len(done)} actions")
        asked = dict.fromkeys(outcome.vertex for outcome in done)
        return tuple(intent for intent in self._log.intents if intent.vertex in asked), tuple(done)

    def same_input(self, log: BackupLog, state: State) -> bool:
        return log.basis == state.views
