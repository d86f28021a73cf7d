"""Process machines with one rule removed each. The scenario must catch every one of them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unerring.model import Address, Effects, Persist, ProcessError
from unerring.processes import (
    AGAIN,
    CANCEL,
    REPEAT,
    Acceptor,
    Answer,
    AskMail,
    BackupLog,
    Backups,
    Context,
    Election,
    Execution,
    Graph,
    Group,
    GroupLog,
    Inbox,
    Kind,
    Mail,
    Master,
    Out,
    Planner,
    Post,
    Process,
    Recovery,
    Replica,
    Replicate,
    Replication,
    Reply,
    Request,
    RequestView,
    Slot,
    State,
    Status,
    Steering,
    Undoing,
    UndoStep,
    Vertex,
    Vote,
    group_at,
    promised,
)
from unerring.simulation.process_parts import SimService


class AnswersBeforeDisk(Out):
    """Sends first and persists afterwards."""

    def take(self) -> Effects:
        effects = super().take()
        return sorted(effects, key=lambda effect: isinstance(effect, Persist))


class _VotesTwice(Election):
    def on_request_view(self, sender: Address, message: RequestView, now: int) -> None:
        if message.view == self._acceptor.view:
            self._acceptor.voted_for = sender
            self._acceptor._roles.step_down()
        super().on_request_view(sender, message, now)


class VotesTwice(Replica):
    """Gives its vote to every candidate of a view."""

    election_part = _VotesTwice


class _RanksByExecutingView(Election):
    def vote_rank(self, vote: Vote) -> tuple[int, int]:
        return (vote.state.executed_in, vote.state.group) if vote.state else (-1, -1)


class ComparesByExecutingView(Replica):
    """Takes the state that was executed in the highest view."""

    election_part = _RanksByExecutingView


class _NeedsNoMajority(Replication):
    def replicate(self, state: State, now: int) -> None:
        majority, self._context.majority = self._context.majority, 1
        super().replicate(state, now)
        self._context.majority = majority


class ContinuesBeforeMajority(Replica):
    """Takes its own acceptance for a decision."""

    replication_part = _NeedsNoMajority


class _Abandons(Acceptor):
    def promise(self, view: int, voted_for: str) -> None:
        super().promise(view, voted_for)
        replica = self._roles
        if isinstance(replica, Replica) and self.accepted is not None:
            for key, log in list(replica.logs.kept.items()):
                if key not in replica.recovery.undos and log.view < view:
                    replica.recovery.abandon(log, view, self.accepted.state, 0)


class OffersAbandoned(Replica):
    """Undoes its group as soon as it hears of a higher view, and still offers the group's state in votes."""

    acceptor_part = _Abandons


class _StepsInOrder(Recovery):
    def steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return list(reversed(super().steps(process, log)))


class CompensatesInOrder(Replica):
    """Undoes what was done first, first."""

    recovery_part = _StepsInOrder


class _LearnsOnAccept(Acceptor):
    def on_replicate(self, sender: Address, message: Replicate, now: int) -> None:
        super().on_replicate(sender, message, now)
        if self.accepted is not None and self.rank == (message.view, message.state.group):
            self.learn(message.view, self.accepted.state, now)


class CompensatesOnAccept(Replica):
    """Believes a state decided when it accepts it."""

    acceptor_part = _LearnsOnAccept


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

    execution_part = _FreshIids


class _TrustsCosts(Context):
    def group_at(self, process: Process, state: State, ready: tuple[str, ...] = ()) -> Group:
        return group_at(process.graph, state.cut, ready, state.announced, self.shared.grouping, _costs_nothing)


class WritesActively(Replica):
    """Trusts a learned cost of zero: a write becomes active."""

    context_part = _TrustsCosts


def _costs_nothing(vertex: Vertex) -> bool:
    return vertex.cost == 0 and not vertex.waits and not vertex.final


class _NamesTwo(Planner):
    def _hand_over(self, master: Address, state: State, now: int) -> None:
        super()._hand_over(master, state, now)
        process = self._context.process_of(state)
        if process is not None:
            waits = self._ended_waits(process, state, now)
            self._execute(process, state, self._context.group_at(process, state, tuple(waits)), waits, now)


class NamesTwoMasters(Replica):
    """Names another master and goes on itself."""

    planner_part = _NamesTwo


class _GivenSlot(Slot):
    def named(self, group: int) -> Address:
        named = super().named(group)
        return named if named == self._context.me else ""


class UsesAGivenSlot(Replica):
    """After a restart, the node does itself what it had named another for."""

    slot_part = _GivenSlot


class _CountsItself(Replication):
    def _ack_own(self, state: State) -> None:
        self.acks[self._context.me] = self._context.known()


class CountsWhatIsNotOnDisk(Replica):
    """Takes a state for decided with its own acceptance, which its disk still writes."""

    replication_part = _CountsItself


class _GoesBack(Steering):
    def next_state(self, process: Process, state: State, now: int) -> State | None:
        command = next(self._inbox.mailbox.all_of((AGAIN,), state.consumed), None)
        if command is None or not promised(process.graph, state):
            return super().next_state(process, state, now)
        consumed = (*state.consumed, command.id)
        return msgspec.structs.replace(state, status=Status.UNDOING, rewind=state.group, held="", consumed=consumed)


class GoesBackBeforeAChild(Replica):
    """Tries again, and so undoes, what a child that cannot be undone may have done already."""

    steering_part = _GoesBack


class _TakesFailureForRefusal(Execution):
    def reply(self, reply: Reply, now: int) -> list[Request]:
        if reply.answer == Answer.UNKNOWN:
            reply = msgspec.structs.replace(reply, answer=Answer.REFUSED)
        return super().reply(reply, now)


class CountsUnrecordedRefusals(Replica):
    """Takes a failure that the service did not record for a refusal."""

    execution_part = _TakesFailureForRefusal


class _TrustsEveryRefusal(Execution):
    def reply(self, reply: Reply, now: int) -> list[Request]:
        return super().reply(msgspec.structs.replace(reply, recorded=True), now)


class CountsDoubtfulRefusals(Replica):
    """Takes a refusal that was not recorded for one of all attempts, though an earlier one had no answer."""

    execution_part = _TrustsEveryRefusal


class _TakesTimeoutForRefusal(Execution):
    def tick(self, now: int) -> list[Request]:
        for attempt in list(self.open.values()):
            if now >= attempt.due_us and not attempt.vertex.final:
                return self.reply(Reply(self.input.instance, attempt.request.iid, "do", Answer.REFUSED), now)
        return super().tick(now)


class TimeoutIsRefusal(Replica):
    """Takes silence for a no."""

    execution_part = _TakesTimeoutForRefusal


class _KeepsWritesOnly(Master):
    def _keep_log(self, execution: Execution) -> None:
        super()._keep_log(execution)
        log = execution.log()
        writes = [o for o in execution.outcomes if execution.graph.by_name[o.vertex].write]
        self._context.keep(f"group/{log.view}/{log.group}", msgspec.structs.replace(log, outcomes=tuple(writes)))


class ReadsAgain(Replica):
    """Keeps only the replies of writes: a restarted master reads anew and goes on with another state."""

    master_part = _KeepsWritesOnly


class TwoStarters(Replica):
    """Plans in view 0, whoever was asked to start."""

    def propose_start(self, state: State, first: bool, now: int) -> None:
        super().propose_start(state, True, now)


class CancelsBesideGroup(Replica):
    """Carries out a command to cancel while a group is being executed."""

    def on_post(self, sender: Address, message: Post, now: int) -> None:
        super().on_post(sender, message, now)
        execution = self.master.execution
        if execution is not None and not execution.input.announced and message.mail.channel == CANCEL:
            self.master.stop()
            if (self.acceptor.view, execution.group) in self.logs.kept:
                self.logs.drop(self.acceptor.view, execution.group)
            state = msgspec.structs.replace(execution.input, status=Status.UNDOING, reason="cancelled")
            self.planner._propose(state, now)


class CancelsAnnounced(Replica):
    """Carries out a command to cancel between the announcement of a non-compensable action and the action."""

    def on_post(self, sender: Address, message: Post, now: int) -> None:
        super().on_post(sender, message, now)
        execution = self.master.execution
        if execution is not None and execution.input.announced and message.mail.channel == CANCEL:
            self.master.stop()
            state = msgspec.structs.replace(execution.input, announced="", status=Status.UNDOING, reason="cancelled")
            self.planner._propose(state, now)


class _VotesWithoutMail(Election):
    def vote(self) -> Vote:
        return msgspec.structs.replace(super().vote(), mail=())


class _OffersNothing(Inbox):
    def on_ask_mail(self, sender: Address, message: AskMail, now: int) -> None:
        pass

    def offer(self, now: int) -> None:
        pass


class KeepsMailToItself(Replica):
    """Does not hand stored messages of partners on, in votes, of itself or when asked."""

    election_part = _VotesWithoutMail
    inbox_part = _OffersNothing


class _IidsWithView(Execution):
    def _iid(self, vertex: Vertex, occurrence: int) -> str:
        return super()._iid(vertex, occurrence) + ("" if not vertex.final else f"@{self.view}")


class FinalIidsWithView(Replica):
    """Gives a non-compensable action another IID in each view."""

    execution_part = _IidsWithView


class _AdoptsAny(Backups):
    def same_input(self, log: BackupLog, state: State) -> bool:
        return len(log.basis) == state.group


class AdoptsAnyBackup(Replica):
    """Takes its backup execution whatever state it started from."""

    backups_part = _AdoptsAny


class _WaitsForNobody(Recovery):
    def may_undo(self, now: int) -> bool:
        return True


class UndoesAtOnce(Replica):
    """Undoes a process without waiting for what others did outside its lineage."""

    recovery_part = _WaitsForNobody


class MakesASentStateAnew(Replica):
    """Resumes after a restart although the next state may have been sent before it was on disk."""

    @property
    def may_show(self) -> bool:
        if self.acceptor.accepted is not None:
            self.acceptor.accepted = msgspec.structs.replace(self.acceptor.accepted, ahead=False)
        return super().may_show


class _WritesFirst(Master):
    def may_come_first(self, graph: Graph, group: Group) -> bool:
        return bool(group.vertices)


class WritesBeforeItStarts(Replica):
    """Executes the first group before anybody has heard of the instance, writes too."""

    master_part = _WritesFirst


class _AsksOn(Election):
    def ask_again(self, now: int) -> None:
        if self.votes is None and self._acceptor.voted_for == self._context.me:
            self.votes = {self._context.me: self.vote()}
        super().ask_again(now)


class AsksForItsViewAgain(Replica):
    """Asks for the view again that it had asked for before a restart, although its state may have been sent."""

    election_part = _AsksOn


class _KnownStepsOnly(Recovery):
    def steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return [step for step in super().steps(process, log) if not step.unknown]


class ForgetsUnknown(Replica):
    """Does not undo what it got no answer for."""

    recovery_part = _KnownStepsOnly


class _NoSteps(Recovery):
    def steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return []


class NeverCompensates(Replica):
    """Forgets executions outside the lineage."""

    recovery_part = _NoSteps


class _OwnStepsOnly(Undoing):
    def steps(self, process: Process, state: State) -> list[UndoStep]:
        steps = super().steps(process, state)
        return [step for step in steps if process.graph.by_name[step.vertex].kind is not Kind.CHILD]


class ForgetsChildren(Replica):
    """Undoes its own writes only."""

    undoing_part = _OwnStepsOnly


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


class _LeavesRivals(Execution):
    def _apply(
        self, vertex: Vertex, iid: str, request: object, reply: object, took_us: int = 0, label: str = ""
    ) -> bool:
        before = self.cut
        applied = super()._apply(vertex, iid, request, reply, took_us, label)
        edges = self.graph.edges
        left = [n for n in self.graph.races.get(vertex.name, ()) if n in before and edges[n].target != vertex.name]
        self.cut = tuple(sorted([*self.cut, *left])) if applied else self.cut
        return applied


class _NoRounds(Execution):
    def _iid(self, vertex: Vertex, occurrence: int) -> str:
        iid = super()._iid(vertex, occurrence)
        return iid.replace(self.graph.in_round(vertex.name, self.input.rounds), vertex.name, 1)


class IidsWithoutRounds(Replica):
    """Asks in every round of a loop under the same interaction id."""

    execution_part = _NoRounds


class _GoesRound(Execution):
    def _close(self, names: Iterable[str]) -> None:
        pass


class RoundsWithoutState(Replica):
    """Begins the next round of a loop before the state after the last one is decided."""

    execution_part = _GoesRound


class _Unbounded(Execution):
    def _end_round(self, vertex: Vertex) -> tuple[str, object]:
        try:
            return super()._end_round(vertex)
        except ProcessError:
            return REPEAT, None


class RoundsWithoutBound(Replica):
    """Goes round however often a loop went round already."""

    execution_part = _Unbounded


class _LastRound(Undoing):
    def steps(self, process: Process, state: State) -> list[UndoStep]:
        last: dict[str, str] = {}
        return [step for step in super().steps(process, state) if last.setdefault(step.vertex, step.iid) == step.iid]


class UndoesLastRound(Replica):
    """Undoes each action of a loop once, as if there had been one round."""

    undoing_part = _LastRound


class _LeavesBlocks(Steering):
    def next_state(self, process: Process, state: State, now: int) -> State | None:
        after = super().next_state(process, state, now)
        if after is None or after.turn < 0:
            return after
        edges = process.graph.edges
        inside = process.graph.blocks[edges[after.turn].source]
        cut = tuple(sorted([after.turn, *(number for number in after.cut if number not in inside)]))
        return msgspec.structs.replace(after, status=Status.RUNNING, cut=cut, rewind=-1, turn=-1, blocks={})


class LeavesLateBlocks(Replica):
    """Takes the other branch of a late block, and undoes nothing of it."""

    steering_part = _LeavesBlocks


class _LeavesChildren(Planner):
    def _propose(self, state: State | None, now: int) -> bool:
        lost = state is not None and state.turn >= 0 and state.rewind == state.group and not state.blocks
        return False if lost else super()._propose(state, now)


class LeavesLostChildren(Replica):
    """Goes on with the wait that won, and leaves a child that lost as it is."""

    planner_part = _LeavesChildren


class _Splits(Context):
    def group_at(self, process: Process, state: State, ready: tuple[str, ...] = ()) -> Group:
        graph = process.graph
        plain = tuple(msgspec.structs.replace(vertex, atomic="") for vertex in graph.vertices)
        loose = msgspec.structs.replace(graph, vertices=plain)
        return group_at(loose, state.cut, ready, state.announced, self.shared.grouping)


class SplitsAtomicBlocks(Replica):
    """Groups the actions of an atomic block like any others."""

    context_part = _Splits


class _AnyAnswer(Inbox):
    def mail_for(self, vertex: Vertex, state: State, used: list[str]) -> Mail | None:
        gone = (*state.consumed, *used)
        mail = [item for item in self.mailbox.mail if item.channel == vertex.channel and item.id not in gone]
        return mail[0] if mail else super().mail_for(vertex, state, used)


class TakesAnyAnswer(Replica):
    """Receives the answer to a question that another execution asked."""

    inbox_part = _AnyAnswer


class LeavesRivals(Replica):
    """Goes on waiting for what lost a race."""

    execution_part = _LeavesRivals
