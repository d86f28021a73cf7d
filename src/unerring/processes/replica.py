"""One instance on one node: its parts, which message goes to which, and time.

| part | its state |
|---|---|
| acceptor | what was promised, accepted, and is known to be decided |
| watch | who leads, and since when it has been silent |
| inbox | messages of partners and commands of operators that no decided state has consumed |
| election | as candidate: votes |
| replication | as leader: the state that is being replicated, and who acknowledged it |
| slot | who was named master of the next group |
| planner | as leader: whether it plans, and whom it named |
| master | as leader: the execution of a group |
| undoing | as leader: the process's compensations |
| parent | as leader: children that were asked for |
| logs, recovery | own executions that are not settled; those that are being undone; who is clean |
| backups | as follower: what was executed ahead |

Acceptor and replication decide; through `Roles` they tell the others what they have to act on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any
from weakref import proxy

import msgspec

from unerring.model import Address
from unerring.processes.acceptor import Acceptor
from unerring.processes.backups import Backups
from unerring.processes.context import Context, Roles, Shared
from unerring.processes.election import Election
from unerring.processes.execution import Execution
from unerring.processes.inbox import Inbox
from unerring.processes.logs import Logs
from unerring.processes.master import Master
from unerring.processes.messages import (
    CHILD,
    Ack,
    AskMail,
    Clean,
    Decided,
    Fetch,
    Lead,
    MailBag,
    Memory,
    Name,
    Named,
    Outline,
    Post,
    Reject,
    Replicate,
    Reply,
    RequestView,
    State,
    Vote,
)
from unerring.processes.naming import Slot
from unerring.processes.parent import Parent
from unerring.processes.planner import Planner
from unerring.processes.recovery import Recovery
from unerring.processes.replication import Replication
from unerring.processes.steering import Steering
from unerring.processes.tally import status_of
from unerring.processes.undo import Undo
from unerring.processes.undoing import Undoing
from unerring.processes.waits import waits_for
from unerring.processes.watch import Watch


class Ended(msgspec.Struct, frozen=True):
    """For the application: an instance reached its end."""

    instance: str
    state: State


class Replica:
    """One instance on one of its 2f+1 nodes."""

    context_part: type[Context] = Context
    watch_part: type[Watch] = Watch
    acceptor_part: type[Acceptor] = Acceptor
    inbox_part: type[Inbox] = Inbox
    replication_part: type[Replication] = Replication
    election_part: type[Election] = Election
    slot_part: type[Slot] = Slot
    execution_part: type[Execution] = Execution
    backups_part: type[Backups] = Backups
    master_part: type[Master] = Master
    recovery_part: type[Recovery] = Recovery
    steering_part: type[Steering] = Steering
    undoing_part: type[Undoing] = Undoing
    planner_part: type[Planner] = Planner

    def __init__(
        self, shared: Shared, instance: str, members: tuple[Address, ...], records: Mapping[str, bytes], now: int
    ) -> None:
        self.instance = instance
        self.context = context = self.context_part(shared, instance, members)
        self.others = context.others
        self.watch = watch = self.watch_part(context, now)
        roles: Roles = proxy(self)
        """Weak: so a settled instance is in no circle, and leaves memory at once (runtime/collecting.py)."""
        self.acceptor = acceptor = self.acceptor_part(context, watch, roles, records)
        self.inbox = inbox = self.inbox_part(context, acceptor, watch, records)
        self.logs = logs = Logs(context, records)
        self.replication = replication = self.replication_part(context, acceptor, watch, logs, roles)
        self.election = election = self.election_part(context, acceptor, watch, inbox, replication, records)
        self.slot = slot = self.slot_part(context, acceptor, records)
        self.backups = backups = self.backups_part(context, acceptor, self.execution_part, records)
        self.master = master = self.master_part(
            context, acceptor, replication, election, logs, slot, backups, self.execution_part
        )
        self.recovery = recovery = self.recovery_part(context, acceptor, logs, master, records)
        self.parent = parent = Parent(context, acceptor, inbox)
        self.steering = steering = self.steering_part(context, acceptor, election, inbox, recovery)
        self.undoing = undoing = self.undoing_part(context, acceptor, parent, recovery)
        self.planner = self.planner_part(
            context,
            acceptor,
            watch,
            replication,
            slot,
            inbox,
            parent,
            master,
            recovery,
            steering,
            undoing,
        )
        self.end_reported = False
        self.end_told = False
        self.parent_notified = False

    @property
    def decided(self) -> tuple[int, State] | None:
        """The furthest state known to be decided, and the view it was decided in."""
        return self.acceptor.decided

    @property
    def final(self) -> bool:
        return self.decided is not None and self.decided[1].final

    @property
    def leading(self) -> bool:
        return self.planner.leading

    # ---- what the parts that decide tell the others ------------------------------------------------------------

    def step_down(self) -> None:
        """A higher view exists: neither candidate, planner nor master any more."""
        self.election.votes = None
        self.planner.step_down()

    def give_way(self) -> None:
        """A state of somebody else is further: step down, if there is something to step down from."""
        if self.leading or self.election.votes is not None:
            self.step_down()

    def on_accepted(self, now: int) -> None:
        """A state of somebody else was accepted: a backup may work ahead on it."""
        self.planner.handing = None
        self.backups.begin(now)

    def on_learned(self, now: int) -> None:
        """A further state is decided: keep or undo own executions, and tell the application of an end."""
        if self.decided is None:
            return
        state = self.decided[1]
        self.inbox.drop(state, self.decided[0])
        self.recovery.settle(now)
        if state.final and not self.end_reported:
            self.end_reported = True
            self.context.out.deliver(Ended(self.instance, state))

    def on_majority(self, now: int) -> None:
        """The replicated state has a majority: planner of what comes next."""
        took_us = self.watch.won(now)
        if took_us is not None:
            self.context.shared.view_changes.note(self.context.wall_us(now), took_us)
        self.on_learned(now)
        self.inbox.ask_soon()
        self.planner.begin(now)

    # ---- a node that lost its disk -----------------------------------------------------------------------------

    def memory(self) -> Memory:
        """What this replica tells one that lost its disk."""
        view, state = (-1, None) if (known := self.acceptor.accepted) is None else (known.view, known.state)
        return Memory(self.instance, self.acceptor.view, view, state, self.inbox.mailbox.mail)

    def remember(self, memory: Memory) -> None:
        """What enough others told. In the highest view that they know of it follows and acknowledges, no more: whatever
        else it may have promised or done up to that view is taken for promised and done. If there is something on its
        disk, of an earlier time, it does not go on in that view either."""
        acceptor = self.acceptor
        fresh = acceptor.accepted is None and not self.logs.kept
        acceptor.raise_view(memory.view)
        forgotten = acceptor.view
        if memory.state is not None and (memory.accepted_in, memory.state.group) > acceptor.rank:
            acceptor.accept(memory.accepted_in, memory.state, own=False)
        for mail in memory.mail:
            self.inbox.store(mail)
        self.slot.close(forgotten)
        self.recovery.lose(forgotten)
        if not fresh:
            acceptor.raise_view(forgotten + 1)

    # ---- life --------------------------------------------------------------------------------------------------

    @property
    def may_show(self) -> bool:
        """After a restart: whoever made the accepted state, or was executing on it, goes on if the view still stands.
        Not if the state after it may have been sent: then a new view must decide."""
        accepted, view = self.acceptor.accepted, self.acceptor.view
        if accepted is None or accepted.view != view or self.decided is not None:
            return False
        log = self.logs.kept.get((view, accepted.state.group + 1))
        return (accepted.own and not accepted.ahead) or (log is not None and not log.abandoned)

    def start(self, now: int) -> None:
        """Replicating the state once more shows whether the view still stands."""
        if self.may_show and not self.leading and self.acceptor.accepted is not None:
            self.replication.replicate(self.acceptor.accepted.state, now)

    def propose_start(self, state: State, first: bool, now: int) -> None:
        """Somebody wants this instance. The first replica plans in view 0; any other must win a view."""
        acceptor, context = self.acceptor, self.context
        if acceptor.accepted is not None or acceptor.proposal is not None:
            return
        acceptor.proposal = state
        if first and context.shared.incarnations.lives.reborn:
            # In view 0 this node may have begun it before, with another state: it has to win a view like anybody else.
            self.election.ask_view(now, "its disk was empty")
        elif first and acceptor.view == 0 and acceptor.voted_for == "":
            if not self.master.begin_first(state, now):
                self.replication.replicate(state, now)
        elif acceptor.view == 0 and context.members[0] != context.me:
            self.watch.led(now, context.members[0])

    def handle(self, sender: Address, message: Any, now: int) -> None:
        on = _ON.get(type(message))
        if on is not None:
            on(self)(sender, message, now)

    def on_post(self, sender: Address, message: Post, now: int) -> None:
        if self.inbox.post(sender, message, now):
            self.planner.plan(now)

    def on_mail_bag(self, sender: Address, message: MailBag, now: int) -> None:
        for mail in message.mail:
            self.inbox.store(mail)
        self.planner.plan(now)

    def on_reply(self, sender: Address, reply: Reply, now: int) -> None:
        """To whatever asked."""
        if not self.master.on_reply(reply, now):
            self.backups.on_reply(reply, now)
        self.planner.on_reply(reply, now)
        self.recovery.on_reply(reply, now)

    def tick(self, now: int, may_ask: bool = True) -> None:
        """Time has passed: repeat, suspect, go on. `may_ask`: this node may start another candidacy now."""
        self.replication.tick(now)
        self.master.tick(now)
        self.backups.tick(now)
        self.planner.tick(now)
        self.recovery.tick(now)
        self.planner.name_again(now)
        if not self.leading:
            self.inbox.offer(now)
        if may_ask and self.suspects(now):
            self.election.ask_again(now)

    def suspects(self, now: int) -> bool:
        """Whether nobody leads this instance, as far as can be known here, and this replica could."""
        state = self.acceptor.accepted.state if self.acceptor.accepted is not None else None
        if self.leading or now < self.watch.led_until_us(state is not None):
            return False
        if state is None:
            return self.acceptor.proposal is not None or self.election.votes is not None
        return not self.planner.lacks(state)

    def next_us(self, now: int) -> int:
        """When a tick is needed again if nothing comes. Most of many open instances wait, and cost nothing by it."""
        if self.master.is_first:
            return now
        looked_us = now + self.context.shared.idle_us
        idle_until_us = min(
            self.replication.next_us(looked_us),
            self.recovery.next_us(looked_us),
            *(work.next_us(looked_us) for work in (self.master.execution, self.backups.execution) if work),
        )
        if self.planner.handing is not None:
            idle_until_us = min(idle_until_us, self.planner.renames_us)
        if self.planner.planning and self.decided is not None:
            return self.planner.next_us(idle_until_us)
        if self.leading:
            return idle_until_us
        if self.election.votes is not None:
            return min(idle_until_us, self.watch.led_until_us(self.acceptor.accepted is not None))
        # Whoever suspects and may not ask now waits; the node picks those whose leader fell silent by itself.
        config, leader = self.context.config, self.watch.leader
        until_us = self.watch.named_until_us(self.acceptor.accepted is not None)
        if until_us <= now:
            until_us = now + (config.suspect_us if leader else config.heartbeat_us)
        offer_us = self.inbox.offer_us if self.inbox.mailbox.mail and leader else idle_until_us
        return min(until_us, offer_us, idle_until_us)

    @property
    def asleep_until_us(self) -> int:
        """A follower with nothing under way has nothing to do until its leader ought to have named it; 0: others."""
        busy = self.leading or self.master.execution or self.backups.execution or self.recovery.undos
        expects = self.planner.handing or self.inbox.mailbox.mail
        if busy or expects or self.election.votes is not None or not self.watch.leader:
            return 0
        return self.watch.named_until_us(self.acceptor.accepted is not None)

    def lead(self) -> Lead | None:
        """The entry of the instance in this node's heartbeats, if it leads it."""
        if not self.leading:
            return None
        view, known = self.acceptor.view, self.decided
        group = known[1].group if known is not None and known[0] == view else -1
        ask_clean = known is not None and (
            self.steering.moving or (self.planner.planning and self.recovery.wants_clean())
        )
        return Lead(self.instance, view, group, ask_clean=ask_clean)

    def clean(self) -> Clean | None:
        """The answer to a leader that asks, once it is true."""
        if self.decided is None or not self.recovery.is_clean():
            return None
        rank, recovery = self.acceptor.decided_rank, self.recovery
        known = recovery.settled_for(self.context.me, recovery.lost, rank[0])
        return Clean(self.instance, *rank, lost=-1 if known else recovery.lost)

    def may_settle(self) -> bool:
        """As planner: whether the end is decided, and nobody has anything left to undo."""
        if self.decided is None or not self.final or not self.planner.planning:
            return False
        return self.recovery.is_clean() and self.recovery.all_clean(*self.acceptor.decided_rank)

    def forget(self) -> None:
        """It is settled: nothing of it stays on disk."""
        self.context.shared.led.pop(self.instance, None)
        self.watch.follow("")
        names = ("promise", "accepted", "naming", "aborts", "proposal", "backup", "lost")
        for key in (*names, *self.acceptor.pages.keys, *self.inbox.keys, *self.logs.keys):
            self.context.forget(key)

    # ---- for people --------------------------------------------------------------------------------------------

    def _undos(self) -> list[Undo]:
        undos = (self.undoing.undo, self.recovery.sweep, *self.recovery.undos.values())
        return [undo for undo in undos if undo is not None]

    def retry(self, now: int) -> None:
        """Somebody fixed a service: ask at once for what is being undone."""
        for undo in self._undos():
            undo.hurry()
        self.tick(now, may_ask=False)

    def unanswered(self) -> list[str]:
        """Services that were asked again because they had not answered, or were not there."""
        asks = list(self.master.execution.open.values()) if self.master.execution is not None else []
        names = [attempt.request.service for attempt in asks if attempt.count > 1]
        names += [undo.asked.service for undo in self._undos() if undo.asked is not None and undo.attempts > 1]
        return sorted(dict.fromkeys(name for name in names if name != CHILD))

    @property
    def known(self) -> State | None:
        """The furthest state that people are shown: the decided one, or what may come to be decided."""
        if self.decided is not None:
            return self.decided[1]
        return None if self.acceptor.accepted is None else self.acceptor.accepted.state

    @property
    def busy(self) -> bool:
        """Whether it leads, and asks services for something: only then can one of them be silent, or refuse to undo."""
        return self.leading and (self.master.execution is not None or bool(self._undos()))

    def stuck(self) -> list[str]:
        """What does not undo, by the ids of its interactions."""
        return [undo.asked.iid for undo in self._undos() if undo.stuck and undo.asked is not None]

    @property
    def role(self) -> str:
        if self.master.execution is not None:
            return "master"
        return "candidate" if self.election.votes is not None else "planner" if self.leading else "follower"

    def _waits_for(self, state: State | None) -> list[dict[str, object]]:
        process = self.context.process_of(state) if state is not None else None
        return [] if process is None or state is None else waits_for(process.graph, state)

    def query(self) -> dict[str, Any]:
        """This replica's knowledge of the instance."""
        execution, state = self.master.execution, self.known
        return {
            "instance": self.instance,
            "process": state.process if state else "",
            "version": state.version if state else "",
            "view": self.acceptor.view,
            "role": self.role,
            "group": state.group if state else -1,
            "status": status_of(state),
            "reason": (state.reason or state.held) if state else "",
            "waits": self.planner.lacking or self.recovery.waits,
            "waits_for": self._waits_for(state),
            "parent": state.parent if state else "",
            "variables": dict(state.variables) if state else {},
            "history": [taken.vertex for taken in state.taken] if state else [],
            "asks": [
                f"{iid}: asked {attempt.count} times; {attempt.why}"
                for iid, attempt in (execution.open.items() if execution is not None else ())
            ],
            "unanswered": self.unanswered(),
            "compensating": [f"group {group} of view {view}" for view, group in self.recovery.undos],
            "stuck": self.stuck(),
            "clean": self.recovery.is_clean(),
        }


_On = Callable[[Address, Any, int], None]

_ON: dict[type, Callable[[Replica], _On]] = {
    Replicate: lambda replica: replica.acceptor.on_replicate,
    Decided: lambda replica: replica.acceptor.on_decided,
    Fetch: lambda replica: replica.acceptor.on_fetch,
    Ack: lambda replica: replica.replication.on_ack,
    RequestView: lambda replica: replica.election.on_request_view,
    Vote: lambda replica: replica.election.on_vote,
    Reject: lambda replica: replica.election.on_reject,
    Name: lambda replica: replica.planner.on_name,
    Named: lambda replica: replica.planner.on_named,
    Clean: lambda replica: replica.recovery.on_clean,
    Post: lambda replica: replica.on_post,
    MailBag: lambda replica: replica.on_mail_bag,
    AskMail: lambda replica: replica.inbox.on_ask_mail,
    Reply: lambda replica: replica.on_reply,
}


def outline_of(state: State) -> Outline:
    ended_us = state.lineage[-1].at_us if state.lineage else 0
    given = digest_of(state.process, state.given)
    outcome = (state.process, state.status, state.reason, state.variables, given, state.version, ended_us)
    return Outline(*outcome, state.parent, state.returns)


def digest_of(process: str, given: Mapping[str, Any]) -> str:
    """Two starts with one id are the same start if this is the same."""
    text = msgspec.json.encode((process, given), order="sorted")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
