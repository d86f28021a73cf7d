"""Process machines with one rule removed each. The scenario must catch every one of them, or it proves nothing."""

from __future__ import annotations

import msgspec

from unerring.model import Address, Effects, Persist
from unerring.processes.build import Process
from unerring.processes.execution import Execution
from unerring.processes.graph import Kind, Vertex
from unerring.processes.grouping import Group, group_at
from unerring.processes.messages import (
    AGAIN,
    Answer,
    BackupLog,
    GroupLog,
    Post,
    Replicate,
    Reply,
    Request,
    RequestView,
    State,
    Status,
    Vote,
)
from unerring.processes.out import Out
from unerring.processes.replica import Replica
from unerring.processes.steering import promised
from unerring.processes.undo import Undo, UndoStep, steps_of_taken
from unerring.simulation.process_parts import SimService


class AnswersBeforeDisk(Out):
    """Sends first and persists afterwards."""

    def take(self) -> Effects:
        effects = super().take()
        return sorted(effects, key=lambda effect: isinstance(effect, Persist))


class VotesTwice(Replica):
    """Gives its vote to every candidate of a view."""

    def on_request_view(self, sender: Address, message: RequestView, now: int) -> None:
        if message.view == self.view:
            self.voted_for = sender
            self.step_down()
        super().on_request_view(sender, message, now)


class ComparesByExecutingView(Replica):
    """Takes the state that was executed in the highest view."""

    def vote_rank(self, vote: Vote) -> tuple[int, int]:
        return (vote.state.executed_in, vote.state.group) if vote.state else (-1, -1)


class ContinuesBeforeMajority(Replica):
    """Takes its own acceptance for a decision."""

    def replicate(self, state: State, now: int) -> None:
        majority, self.majority = self.majority, 1
        super().replicate(state, now)
        self.majority = majority


class OffersAbandoned(Replica):
    """Undoes its group as soon as it hears of a higher view, and still offers the group's state in votes."""

    def _promise(self, view: int, voted_for: str) -> None:
        super()._promise(view, voted_for)
        for key, log in list(self.logs.items()):
            if key not in self.undos and log.view < view and self.accepted is not None:
                known, self.decided = self.decided, (view, self.accepted.state)
                self._abandon(key, self.accepted.state, 0)
                self.decided = known


class CompensatesInOrder(Replica):
    """Undoes what was done first, first."""

    def own_steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return list(reversed(super().own_steps(process, log)))


class CompensatesOnAccept(Replica):
    """Believes a state decided when it accepts it."""

    def on_replicate(self, sender: Address, message: Replicate, now: int) -> None:
        super().on_replicate(sender, message, now)
        if self.accepted is not None and self.rank == (message.view, message.state.group):
            self.learn(message.view, self.accepted.state, now)


class _FreshIids(Execution):
    def tick(self, now: int) -> list[Request]:
        again = []
        for request in super().tick(now):
            attempt = self.open.pop(request.iid)
            attempt.request = msgspec.structs.replace(request, iid=request.iid.replace("/0", f"/0{attempt.count}"))
            self.open[attempt.request.iid] = attempt
            again.append(attempt.request)
        return again


class FreshIidOnRetry(Replica):
    """Repeats a request under another IID."""

    executes = _FreshIids


class WritesActively(Replica):
    """Trusts a learned cost of zero: a write becomes active."""

    def group_at(self, process: Process, state: State, ready: tuple[str, ...]) -> Group:
        return group_at(process.graph, state.cut, ready, state.announced, self.shared.grouping, _costs_nothing)


def _costs_nothing(vertex: Vertex) -> bool:
    return vertex.cost == 0 and not vertex.waits and not vertex.final


class NamesTwoMasters(Replica):
    """Names another master and goes on itself."""

    def _hand_over(self, master: Address, state: State, now: int) -> None:
        super()._hand_over(master, state, now)
        process = self.process_of(state)
        if process is not None:
            waits = self._ended_waits(process, state, now)
            self._begin(process, state, self.group_at(process, state, tuple(waits)), waits, now)


class UsesAGivenSlot(Replica):
    """After a restart it does itself what it had named another for."""

    def named(self, group: int) -> Address:
        named = super().named(group)
        return named if named == self.me else ""


class CountsWhatIsNotOnDisk(Replica):
    """Takes a state for decided with its own acceptance, which its disk still writes."""

    def _ack_own(self, state: State) -> None:
        self.acks[self.me] = None


class GoesBackBeforeAChild(Replica):
    """Tries again, and so undoes, what a child that cannot be undone may have done already."""

    def steered(self, process: Process, state: State, now: int) -> bool:
        wish = next(self.mailbox.all_of((AGAIN,), state.consumed), None)
        if wish is None or not promised(process.graph, state):
            return super().steered(process, state, now)
        consumed = (*state.consumed, wish.id)
        self.propose(
            msgspec.structs.replace(state, status=Status.UNDOING, rewind=state.group, held="", consumed=consumed), now
        )
        return True


class _TakesFailureForRefusal(Execution):
    def reply(self, reply: Reply, now: int) -> list[Request]:
        if reply.answer == Answer.UNKNOWN:
            reply = msgspec.structs.replace(reply, answer=Answer.REFUSED)
        return super().reply(reply, now)


class CountsUnrecordedRefusals(Replica):
    """Takes a failure that the service did not record for a refusal."""

    executes = _TakesFailureForRefusal


class _TrustsEveryRefusal(Execution):
    def reply(self, reply: Reply, now: int) -> list[Request]:
        return super().reply(msgspec.structs.replace(reply, recorded=True), now)


class CountsDoubtfulRefusals(Replica):
    """Takes a refusal that was not recorded for one of all attempts, though an earlier one had no answer."""

    executes = _TrustsEveryRefusal


class _TakesTimeoutForRefusal(Execution):
    def tick(self, now: int) -> list[Request]:
        for attempt in list(self.open.values()):
            if now >= attempt.due_us and not attempt.vertex.final:
                return self.reply(Reply(self.input.instance, attempt.request.iid, "do", Answer.REFUSED), now)
        return super().tick(now)


class TimeoutIsRefusal(Replica):
    """Takes silence for a no."""

    executes = _TakesTimeoutForRefusal


class ReadsAgain(Replica):
    """Keeps only the replies of writes: a restarted master reads anew and goes on with another state."""

    def _keep_log(self, execution: Execution) -> None:
        super()._keep_log(execution)
        key = (execution.log().view, execution.group)
        writes = [o for o in execution.outcomes if execution.graph.by_name[o.vertex].write]
        self.keep(f"group/{key[0]}/{key[1]}", msgspec.structs.replace(self.logs[key], outcomes=tuple(writes)))


class TwoStarters(Replica):
    """Plans in view 0, whoever was asked to start."""

    def propose_start(self, state: State, first: bool, now: int) -> None:
        super().propose_start(state, True, now)


class CancelsBesideGroup(Replica):
    """Grants a wish to cancel while a group is being executed."""

    def on_post(self, sender: Address, message: Post, now: int) -> None:
        super().on_post(sender, message, now)
        execution = self.execution
        if execution is not None and not execution.input.announced and message.mail.channel == "!cancel":
            self.execution = None
            self._drop_log((self.view, execution.group)) if (self.view, execution.group) in self.logs else None
            state = msgspec.structs.replace(execution.input, status=Status.UNDOING, reason="cancelled")
            self.propose(state, now)


class CancelsAnnounced(Replica):
    """Grants a wish to cancel between the announcement of a non-compensable action and the action."""

    def on_post(self, sender: Address, message: Post, now: int) -> None:
        super().on_post(sender, message, now)
        execution = self.execution
        if execution is not None and execution.input.announced and message.mail.channel == "!cancel":
            self.execution = None
            state = msgspec.structs.replace(execution.input, announced="", status=Status.UNDOING, reason="cancelled")
            self.propose(state, now)


class KeepsMailToItself(Replica):
    """Does not hand stored messages of partners on, in votes, of itself or when asked."""

    def _vote(self) -> Vote:
        return msgspec.structs.replace(super()._vote(), mail=())

    def on_ask_mail(self, sender: Address, message: object) -> None:
        pass

    def offer_mail(self, now: int) -> None:
        pass


class _IidsWithView(Execution):
    def _iid(self, vertex: Vertex, occurrence: int) -> str:
        return super()._iid(vertex, occurrence) + ("" if not vertex.final else f"@{self.view}")


class FinalIidsWithView(Replica):
    """Gives a non-compensable action another IID in each view."""

    executes = _IidsWithView


class AdoptsAnyBackup(Replica):
    """Takes its backup execution whatever state it started from."""

    def same_input(self, log: BackupLog, state: State) -> bool:
        return len(log.basis) == state.group


class UndoesAtOnce(Replica):
    """Undoes a process without waiting for what others did outside its lineage."""

    def may_undo(self, now: int) -> bool:
        return True


class MakesASentStateAnew(Replica):
    """Resumes after a restart although the next state may have been sent before it was on disk."""

    @property
    def may_show(self) -> bool:
        if self.accepted is not None:
            self.accepted = msgspec.structs.replace(self.accepted, ahead=False)
        return super().may_show


class ForgetsUnknown(Replica):
    """Does not undo what it got no answer for."""

    def own_steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return [step for step in super().own_steps(process, log) if not step.unknown]


class NeverCompensates(Replica):
    """Forgets executions outside the lineage."""

    def own_steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return []


class NoFilter(SimService):
    """A service that has the effect again for every repetition."""

    def _record(self, iid: str, reply: Reply) -> None:
        if reply.answer != Answer.DONE:
            super()._record(iid, reply)


class NoTombstone(SimService):
    """A service that neither remembers a cancelled IID that it has not seen, nor fences lower views."""

    def _record(self, iid: str, reply: Reply) -> None:
        if iid not in self.replies and (reply.answer == Answer.FENCED or iid.endswith("~")):
            return
        super()._record(iid, reply)

    def _raise_fence(self, request: Request) -> None:
        pass


class ForgetsChildren(Replica):
    """Undoes its own writes only."""

    def _undo(self, process: Process, state: State, now: int) -> None:
        if self.undo is None and self.may_undo(now):
            steps = steps_of_taken(process.graph, state, self.shared.bounds.children_max)
            own = [step for step in steps if process.graph.by_name[step.vertex].kind is not Kind.CHILD]
            self.undo = Undo(process.graph, own, self.view, self.shared.config)
        self._undo_on(now)
