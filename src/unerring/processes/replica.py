"""One instance on one node: views (replica_views), leading (replica_leads), and here what holds them together: recovery
of own executions, survivors' cancelling, partners' messages, replies, time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from unerring.model import SECOND_US, Address
from unerring.processes.build import Process
from unerring.processes.messages import (
    CHILD,
    AskMail,
    Clean,
    GroupLog,
    Lead,
    MailBag,
    Name,
    Outline,
    Post,
    Reply,
    State,
    Status,
    Stored,
)
from unerring.processes.recovery import excluded, kept, sweep
from unerring.processes.replica_leads import Leads
from unerring.processes.replica_views import Shared
from unerring.processes.undo import Undo, UndoStep, steps_of_log


class Ended(msgspec.Struct, frozen=True):
    """For the application: an instance reached its end."""

    instance: str
    state: State


IDLE_US_MAX = 5 * SECOND_US
"""However quiet it is, an instance is looked at so often."""
UNDOES_TOLD_MAX = 10
"""Of what an abandoned group is undone, so many interactions are named to people."""


class Replica(Leads):
    """The whole of one instance on one replica."""

    def __init__(
        self, shared: Shared, instance: str, members: tuple[Address, ...], records: Mapping[str, bytes], now: int
    ) -> None:
        super().__init__(shared, instance, members, records, now)
        self.undos: dict[tuple[int, int], Undo] = {}
        """Own executions that are being undone."""
        self.sweep: Undo | None = None
        self.swept = 0
        self.told_end = False
        self.told_parent = False
        self.waiting_since_us = 0
        self.offered_us = 0
        self.offers = 0

    # ---- life --------------------------------------------------------------------------------------------------

    @property
    def may_show(self) -> bool:
        """After a restart: whoever made the accepted state, or was executing on it, goes on if the view still stands.
        Not if the state after it may be out there: then a new view must tell."""
        if self.accepted is None or self.accepted.view != self.view or self.decided is not None:
            return False
        log = self.logs.get((self.view, self.accepted.state.group + 1))
        return (self.accepted.mine and not self.accepted.ahead) or (log is not None and not log.abandoned)

    def start(self, now: int) -> None:
        """Replicating the state once more shows whether the view still stands."""
        if self.accepted is not None and self.may_show and not self.leading:
            self.replicate(self.accepted.state, now)

    def propose_start(self, state: State, first: bool, now: int) -> None:
        """Somebody wants this instance. The first replica plans in view 0; any other must win a view."""
        if self.accepted is not None or self.proposal is not None:
            return
        self.proposal = state
        self.keep("proposal", state)
        if first and self.view == 0 and self.voted_for == "":
            self.replicate(state, now)
        elif self.view == 0 and self.members[0] != self.me:
            self.led(now, self.members[0])

    def tick(self, now: int, may_ask: bool = True) -> None:
        """Time has passed: repeat, suspect, go on. `may_ask`: this node may start another candidacy now."""
        if self.replicating is not None and now >= self.resend_us:
            self._send_state(tuple(m for m in self.others if m not in self.acks), now)
        if self.execution is not None:
            self._go_on(self.execution.tick(now), now)
        if self.backup is not None:
            self._backup_on(self.backup.tick(now))
        if self.planning:
            self._sweep_on(now)
            self.plan(now)
        if self.undo is not None:
            self._undo_on(now)
        for key in list(self.undos):
            self._compensate(key, now)
        if self.handing is not None and now >= self.resend_us and now - self.led_us > self.shared.config.heartbeat_us:
            self.resend_us = now + self.shared.config.resend_us
            self.out.send(self.handing[0], Name(self.view, self.handing[1]))
        self.offer_mail(now)
        if (
            may_ask
            and self.suspects(now)
            and (self.accepted is not None or self.proposal is not None or self.votes is not None)
        ):
            self.ask_again(now)

    def next_us(self, now: int) -> int:
        """When a tick is needed again if nothing comes. Most of many open instances wait, and cost nothing by it."""
        working = (self.replicating, self.execution, self.backup, self.undo, self.sweep, self.handing, self.votes)
        if self.undos or any(work is not None for work in working):
            return 0
        if not self.planning or self.decided is None:
            # Whoever suspects and may not ask now waits; the node picks those whose leader fell silent by itself.
            pause_us = self.shared.config.suspect_us if self.leader else self.shared.config.heartbeat_us
            until_us = self.named_until_us()  # that a leader fell silent is seen to by the node
            offer_us = self._offer_us() if self.mailbox.mail and self.leader else now + IDLE_US_MAX
            return min(until_us if until_us > now else now + pause_us, offer_us, now + IDLE_US_MAX)
        state = self.decided[1]
        if not self._outside_undone():
            return 0
        if state.final:
            return now + IDLE_US_MAX
        ends = self.sleeps_until_us(state)
        ends += [state.deadline_us - self.shared.wall_offset_us] if state.deadline_us else []
        asks = [self.asked_mail_us + self.mail_pause_us()]
        asks += [asked_us + self.shared.config.tend_us for asked_us in self.tended_us.values()]
        return min(*ends, *asks, now + IDLE_US_MAX)

    def lead(self) -> Lead | None:
        """What this node's heartbeats say of the instance, if it leads it."""
        if not self.leading:
            return None
        known = self.decided
        group = known[1].group if known is not None and known[0] == self.view else -1
        return Lead(self.instance, self.view, group, ask_clean=self._wants_clean())

    # ---- own executions ----------------------------------------------------------------------------------------

    def settle(self, now: int) -> None:
        """Keep what the decided lineage has, undo what it excludes; `abandoned` is on disk before the first undo."""
        if self.decided is None:
            return
        view, state = self.decided
        for id in self.mailbox.drop(state.consumed):
            self.forget(f"mail/{id}")
        for key, log in list(self.logs.items()):
            if key in self.undos:
                continue
            if kept(log.group, log.view, state):
                self._drop_log(key)
            elif excluded(log.group, log.view, view, state):
                self._abandon(key, state, now)
        if state.final and not self.told_end:
            self.told_end = True
            self.out.deliver(Ended(self.instance, state))

    def _drop_log(self, key: tuple[int, int]) -> None:
        del self.logs[key]
        self.forget(f"group/{key[0]}/{key[1]}")

    def _abandon(self, key: tuple[int, int], state: State, now: int) -> None:
        log = self.logs[key]
        process = self.process_of(state)
        if process is None or self.decided is None:
            return
        if self.execution is not None and self.execution.view == log.view:
            self.execution = None
        steps = self.own_steps(process, log)
        if not steps:
            self._drop_log(key)
            return
        if not log.abandoned:
            self.logs[key] = log = msgspec.structs.replace(log, abandoned=True)
            self.keep(f"group/{key[0]}/{key[1]}", log)
        undoes = ", ".join(step.iid for step in steps[:UNDOES_TOLD_MAX])
        self.out.report("compensating", f"{self.instance}: group {log.group} of view {log.view}: {undoes}")
        self.undos[key] = Undo(process.graph, steps, self.decided[0], self.shared.config)
        self._compensate(key, now)

    def own_steps(self, process: Process, log: GroupLog) -> list[UndoStep]:
        return steps_of_log(process.graph, self.instance, log)

    def _compensate(self, key: tuple[int, int], now: int) -> None:
        undo = self.undos[key]
        request = undo.tick(now)
        if request is not None:
            self.out.send(f"service:{request.service}", request)
            if undo.parked:
                self.out.report("undo_parked", f"{self.instance}: {request.service} does not undo {request.iid}")
        if undo.finished:
            del self.undos[key]
            self._drop_log(key)

    def is_clean(self) -> bool:
        """Nothing of an older view is left to undo here."""
        if self.decided is None:
            return False
        view, state = self.decided
        return not any(log.view < view and not kept(log.group, log.view, state) for log in self.logs.values())

    # ---- survivors ---------------------------------------------------------------------------------------------

    def _wants_clean(self) -> bool:
        if self.decided is not None and self.moving():
            return True
        if self.decided is None or not self.planning:
            return False
        view, state = self.decided
        return state.final or (view > max(self.swept, state.swept) and not self.all_clean(view))

    def _outside_undone(self) -> bool:
        if self.decided is None or not self.is_clean():
            return False
        view, state = self.decided
        return self.all_clean(view) or max(self.swept, state.swept) >= view

    def may_undo(self, now: int) -> bool:
        if self._outside_undone():
            return True
        if now - self.waiting_since_us > self.shared.config.sweep_patience_us:
            self.waiting_since_us = now
            missing = ", ".join(
                m for m in self.others if self.decided and self.clean.get(m, (-1, -1))[0] < self.decided[0]
            )
            self.out.report(
                "undo_waits", f"{self.instance}: waits until {missing or 'this replica'} has undone its part"
            )
        return False

    def _sweep_on(self, now: int) -> None:
        """Cancel for masters that do not return, where the services can."""
        if self.decided is None or self._outside_undone():
            return
        view, state = self.decided
        if now - self.decided_us < self.shared.config.sweep_patience_us:
            return
        if self.sweep is None or self.sweep.view != view:
            process = self.process_of(state)
            if process is None:
                return
            steps, blocked = sweep(process.graph, self.shared.grouping, state, view)
            if blocked:
                return
            self.sweep = Undo(process.graph, steps, view, self.shared.config)
        request = self.sweep.tick(now)
        if request is not None:
            self.out.send(f"service:{request.service}", request)
        if self.sweep.finished:
            self.swept = view
            self.sweep = None

    # ---- partners ----------------------------------------------------------------------------------------------

    def on_post(self, sender: Address, message: Post, now: int) -> None:
        """Store a partner's message, then acknowledge it; without room it stays unacknowledged and comes again."""
        stored = self._store(message.mail)
        if stored is None:
            self.out.report("mailbox_full", self.instance)
            return
        if stored:
            self.offers, self.offered_us = 0, now
        self.out.send(sender, Stored(self.instance, message.mail.id))
        self.plan(now)

    def offer_mail(self, now: int) -> None:
        """The leader may have missed what is stored here; it has not, if this goes on for long: then it waits for
        something else first."""
        if self.mailbox.mail and self.leader and not self.leading and now >= self._offer_us():
            self.offered_us = now
            self.offers += 1
            self.out.send(self.leader, MailBag(self.instance, self.mailbox.mail))

    def _offer_us(self) -> int:
        config = self.shared.config
        return self.offered_us + min(config.heartbeat_us * 4 << min(self.offers, 16), config.mail_pause_us_max)

    def on_ask_mail(self, sender: Address, message: AskMail) -> None:
        state = self.accepted.state if self.accepted is not None else None
        process = self.process_of(state) if state is not None else None
        if state is not None and process is not None:
            self.take_published(process, state)
        if self.mailbox.mail:
            self.out.send(sender, MailBag(self.instance, self.mailbox.mail))

    def on_mail_bag(self, message: MailBag, now: int) -> None:
        for mail in message.mail:
            self._store(mail)
        self.plan(now)

    # ---- services ----------------------------------------------------------------------------------------------

    def on_reply(self, reply: Reply, now: int) -> None:
        """To whatever asked."""
        if self.execution is not None and reply.iid in self.execution.open:
            self._go_on(self.execution.reply(reply, now), now)
        elif self.backup is not None and reply.iid in self.backup.open:
            self._backup_on(self.backup.reply(reply, now))
        if self.undo is not None:
            self.undo.reply(reply, now)
            self._undo_on(now)
        if self.sweep is not None and self.planning:
            self.sweep.reply(reply, now)
            self._sweep_on(now)
        for key, undo in list(self.undos.items()):
            if undo.reply(reply, now):
                self._note_undone(key, undo)
            self._compensate(key, now)

    def _note_undone(self, key: tuple[int, int], undo: Undo) -> None:
        """Progress of compensations is kept, so that they resume where they stood."""
        log = self.logs[key]
        self.logs[key] = msgspec.structs.replace(log, undone=(*log.undone, undo.done[-1]))
        if not undo.finished:
            self.keep(f"group/{key[0]}/{key[1]}", self.logs[key])

    # ---- for people --------------------------------------------------------------------------------------------

    def _undoing(self) -> list[Undo]:
        return [undo for undo in (self.undo, self.sweep, *self.undos.values()) if undo is not None]

    def retry(self, now: int) -> int:
        """Somebody mended a service: ask at once for what is being undone. How many such requests there are."""
        undoing = self._undoing()
        for undo in undoing:
            undo.hurry()
        self.tick(now, may_ask=False)
        return len(undoing)

    def unanswered(self) -> list[str]:
        """Services that were asked again because they had not answered, or were not there."""
        asks = list(self.execution.open.values()) if self.execution is not None else []
        named = [attempt.request.service for attempt in asks if attempt.count > 1]
        named += [undo.asked.service for undo in self._undoing() if undo.asked is not None and undo.attempts > 1]
        return sorted(dict.fromkeys(name for name in named if name != CHILD))

    def query(self) -> dict[str, Any]:
        """What is known here."""
        state = self.decided[1] if self.decided else self.accepted.state if self.accepted else None
        role = "candidate" if self.votes is not None else "planner" if self.planning else "follower"
        return {
            "instance": self.instance,
            "process": state.process if state else "",
            "version": state.version if state else "",
            "view": self.view,
            "role": "master" if self.execution is not None else role,
            "group": state.group if state else -1,
            "status": ("held" if state.held and state.status == Status.RUNNING else state.status)
            if state
            else "starting",
            "reason": (state.reason or state.held) if state else "",
            "waits": self.lacking,
            "parent": state.parent if state else "",
            "variables": dict(state.variables) if state else {},
            "history": [taken.vertex for taken in state.taken] if state else [],
            "asks": [
                f"{iid}: asked {attempt.count} times; {attempt.why}"
                for iid, attempt in (self.execution.open.items() if self.execution is not None else ())
            ],
            "unanswered": self.unanswered(),
            "compensating": [f"group {group} of view {view}" for view, group in self.undos],
            "parked": [undo.asked.iid for undo in self._undoing() if undo.parked and undo.asked is not None],
            "clean": self.is_clean(),
        }


def outline_of(state: State) -> Outline:
    ended_us = state.lineage[-1].at_us if state.lineage else 0
    given = digest_of(state.process, state.given)
    outcome = (state.process, state.status, state.reason, state.variables, given, state.version, ended_us)
    return Outline(*outcome, state.parent, state.returns)


def digest_of(process: str, given: Mapping[str, Any]) -> str:
    """Two starts with one id are the same start if this is the same."""
    said = msgspec.json.encode((process, given), order="sorted")
    return hashlib.blake2b(said, digest_size=8).hexdigest()


def clean_message(replica: Replica) -> Clean | None:
    """The answer to a leader that asks, once it is true."""
    if replica.decided is None or not replica.is_clean():
        return None
    return Clean(replica.instance, replica.decided[0], replica.decided[1].group)
