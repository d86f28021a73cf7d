"""Views, votes and acceptance: the part of a replica that makes decisions stay.

A view is a promise to accept nothing of a lower one. A state is decided once a majority has accepted it in one view.
A new planner takes, of a majority's votes, the state accepted in the highest view (then the highest group), and has it
decided again in its own view before anybody goes on from it or compensates because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from unerring.model import SECOND_US, Address, Entropy, ProtocolError, invariant
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.grouping import Grouping
from unerring.processes.history import Pages, added, ends_with, extends, joined
from unerring.processes.mailbox import Mailbox, is_consumed
from unerring.processes.messages import (
    VIEW_MAX,
    Accepted,
    Ack,
    Clean,
    Decided,
    Fetch,
    Lead,
    Mail,
    Naming,
    Promise,
    Published,
    Reject,
    Replicate,
    RequestView,
    Start,
    State,
    Vote,
)
from unerring.processes.out import Out
from unerring.processes.pacing import Hearing, Transfers
from unerring.processes.plausible import VIEW_STEP_MAX

START_US: Final = SECOND_US
"""How much longer the first replica, if it is heard, gets for a start than a leader for its next sign."""


class Shared(msgspec.Struct, frozen=True):
    """What all instances of a node have in common."""

    me: Address
    processes: Mapping[str, Process]
    """By name and version, as `name@version`."""
    grouping: Grouping
    bounds: ClusterBounds
    config: ProcessesConfig
    entropy: Entropy
    out: Out
    hearing: Hearing
    followed: dict[Address, dict[str, None]]
    """The instances that each node leads, as far as is known here."""
    wants: list[tuple[Start, Mail | None]]
    """Children that planners want to start; with a message for them, to all of their replicas."""
    transfers: Transfers
    published: dict[str, Published]
    """By id: what was published with a key, and is kept here until it is too old."""
    wall_offset_us: int = 0
    groups: dict[Any, Any] = {}
    """Groups by version, cut and ended waits: working them out again for every instance would be most of the work."""


class Views:
    """One instance on one replica: what it promised, accepted and knows to be decided."""

    def __init__(
        self, shared: Shared, instance: str, members: tuple[Address, ...], records: Mapping[str, bytes], now: int
    ) -> None:
        self.shared = shared
        self.out = shared.out
        self.me = shared.me
        self.instance = instance
        self.members = members
        self.others = tuple(member for member in members if member != shared.me)
        self.majority = len(members) // 2 + 1
        self.pages = Pages(records)
        accepted: Accepted | None = self._read(records, "accepted", Accepted)
        self.accepted: Accepted | None = self.pages.whole(accepted) if accepted else None
        self.view, self.voted_for = self._promised(records)
        self.naming: Naming | None = self._read(records, "naming", Naming)
        self.aborts: tuple[int, int, str] = self._read(records, "aborts", tuple[int, int, str]) or (0, 0, "")
        """Of which group how many executions were aborted, and why the last."""
        self.proposal: State | None = self._read(records, "proposal", State)
        mail = [msgspec.msgpack.decode(data, type=Mail) for key, data in records.items() if key.startswith("mail/")]
        self.mailbox = Mailbox(mail, shared.bounds.mail_max, shared.bounds.state_bytes_max)
        # Memory only.
        self.decided: tuple[int, State] | None = None
        """The furthest state known to be decided, and the view it was decided in."""
        self.votes: dict[Address, Vote] | None = None
        """As a candidate: the votes for this view."""
        self.split = False
        """Another candidate of this view was met: it may have no winner."""
        self.replicating: State | None = None
        """As planner or master: the state whose acknowledgements are counted."""
        self.acks: dict[Address, None] = {}
        self.reached: dict[Address, tuple[int, int]] = {}
        """The view and group up to which others acknowledged states of this replica."""
        self.resend_us = 0
        self.resends = 0
        self.led_us = now
        """When a leader of the highest view last spoke of the instance."""
        self.leader: Address = ""
        """Who that was."""
        self.elections = 0
        """Candidacies since somebody led."""
        self.patience_us = self._draw_patience()
        self.clean: dict[Address, tuple[int, int]] = {}
        """The view and group up to which others said that they are clean."""

    # ---- disk --------------------------------------------------------------------------------------------------

    def _read(self, records: Mapping[str, bytes], key: str, kind: Any) -> Any:
        return msgspec.msgpack.decode(records[key], type=kind) if key in records else None

    def _promised(self, records: Mapping[str, bytes]) -> tuple[int, str]:
        """The view promised, and to whom. An earlier release believed any view, and could not leave the highest again:
        then a view above all that were won in truth takes its place, so that no promise is broken."""
        accepted_in = self.accepted.view if self.accepted is not None else 0
        if accepted_in > VIEW_MAX:
            raise ProtocolError(
                f"{self.instance}: accepted in view {accepted_in}, which no election came to; this node leaves the "
                "instance to the others. Start the node with a new disk to take part in it again"
            )
        promise: Promise = self._read(records, "promise", Promise) or Promise(0, "")
        if promise.view <= VIEW_MAX:
            return promise.view, promise.voted_for
        promise = Promise(accepted_in + VIEW_STEP_MAX, "")
        self.out.report("promise_repaired", f"{self.instance}: a view that no election came to is now {promise.view}")
        self.keep("promise", promise)
        return promise.view, promise.voted_for

    def keep(self, key: str, record: Any) -> None:
        self.out.keep(f"{self.instance}|{key}", record)

    def forget(self, key: str) -> None:
        self.out.forget(f"{self.instance}|{key}")

    def _promise(self, view: int, voted_for: str) -> None:
        invariant(view > self.view, "a promise only rises")
        self.view, self.voted_for = view, voted_for
        self.keep("promise", Promise(view, voted_for))
        self.follow("")
        self.step_down()

    def _accept(self, view: int, state: State, mine: bool, ahead: bool = False) -> None:
        self.accepted = Accepted(view, state, mine, ahead)
        record, pages = self.pages.split(self.accepted)
        self.keep("accepted", record)
        for key, page in pages.items():
            if page is None:
                self.forget(key)
            else:
                self.keep(key, page)

    @property
    def rank(self) -> tuple[int, int]:
        """How far the accepted state is: votes are compared by this."""
        return (self.accepted.view, self.accepted.state.group) if self.accepted else (-1, -1)

    @property
    def final(self) -> bool:
        return self.decided is not None and self.decided[1].final

    def process_of(self, state: State) -> Process | None:
        return self.shared.processes.get(f"{state.process}@{state.version}")

    # ---- the roles that leads.py adds ---------------------------------------------------------------------------

    def step_down(self) -> None:
        """A higher view exists: neither candidate, planner nor master any more."""
        self.votes = None
        self.replicating = None
        self.acks = {}

    @property
    def leading(self) -> bool:
        return self.replicating is not None

    def on_decided(self, now: int) -> None:
        """The replicated state has a majority: planner of what comes next."""

    def settle(self, now: int) -> None:
        """A decided state was learned: keep or undo own executions."""

    # ---- suspicion ---------------------------------------------------------------------------------------------

    def _draw_patience(self) -> int:
        """t_h and a random t_b, which grows while elections fail: candidates that collide must part."""
        config = self.shared.config
        backoff_us = config.backoff_us << min(self.elections, 6)
        return config.suspect_us + int(self.shared.entropy.random() * backoff_us)

    def led(self, now: int, by: Address = "") -> None:
        self.led_us, self.elections = now, 0
        self.follow(by)

    def follow(self, leader: Address) -> None:
        if leader == self.leader:
            return
        if self.leader:
            self.shared.followed[self.leader].pop(self.instance, None)
        if leader:
            self.shared.followed.setdefault(leader, {})[self.instance] = None
        self.leader = leader

    def led_until_us(self) -> int:
        """Who spoke of the instance is trusted for a round of its heartbeats, and while it is heard at all."""
        named_until_us = self.named_until_us()
        if not self.leader:
            return named_until_us
        hearing = self.shared.hearing
        heard_us = max(self.led_us, hearing.heard_us.get(self.leader, 0))
        return min(heard_us + self.patience_us + hearing.slack_us(self.leader), named_until_us)

    def named_until_us(self) -> int:
        """As long as its leader is heard, or somebody may lead it who has not spoken of it yet."""
        hearing = self.shared.hearing
        round_us = hearing.round_us(self.leader) + (START_US if self.leader and self.accepted is None else 0)
        return self.led_us + round_us + self.patience_us + hearing.slack_us(self.leader)

    def suspects(self, now: int) -> bool:
        return not self.leading and now >= self.led_until_us()

    def ask_view(self, now: int, why: str) -> None:
        """Become candidate of the next view (Fig. 6, I)."""
        self.out.report("view_change", f"{self.instance}: {self.me} asks for view {self.view + 1}: {why}")
        self._promise(self.view + 1, self.me)
        self.votes, self.split = {self.me: self._vote()}, False
        self.elections += 1
        self.led_us, self.patience_us = now, self._draw_patience()
        for member in self.others:
            self.out.send(member, RequestView(self.instance, self.view))
        self._count_votes(now)

    def ask_again(self, now: int) -> None:
        """No majority yet. The same view will do, unless another candidate took votes in it: a replica that is cut off
        must not run ahead and disturb the others when it comes back."""
        if self.votes is None or self.split:
            self.ask_view(now, "nobody leads")
            return
        self.led_us = now
        for member in self.others:
            if member not in self.votes:
                self.out.send(member, RequestView(self.instance, self.view))

    def _vote(self) -> Vote:
        view, state = (self.accepted.view, self.accepted.state) if self.accepted else (-1, None)
        counted = state is not None and self.aborts[0] == state.group + 1
        aborts, why = (self.aborts[1], self.aborts[2]) if counted else (0, "")
        return Vote(self.instance, self.view, view, state, self.mailbox.mail, aborts, why)

    def on_request_view(self, sender: Address, message: RequestView, now: int) -> None:
        """Vote once a view, for the first who asks (II)."""
        if message.view > self.view:
            self._promise(message.view, sender)
            self.led_us = now
        elif message.view < self.view or self.voted_for != sender:
            self.out.send(sender, Reject(self.instance, self.view))
            return
        self.out.send(sender, self._vote())

    def on_vote(self, sender: Address, message: Vote, now: int) -> None:
        if self.votes is None or message.view != self.view:
            return
        self.votes[sender] = message
        self._count_votes(now)

    def _count_votes(self, now: int) -> None:
        """With a majority: choose the furthest accepted state and replicate it in this view (III, IV)."""
        votes = self.votes
        if votes is None or len(votes) < self.majority:
            return
        self.votes = None
        for vote in votes.values():
            for mail in vote.mail:
                self._store(mail)
        chosen = self._choose(votes)
        if chosen is None:
            return  # nobody in this majority has heard of the instance's start
        same = [(vote.aborts, vote.why) for vote in votes.values() if vote.state and vote.state.group == chosen.group]
        if same and max(same)[0] > 0:
            self._count_aborts(chosen.group + 1, *max(same))
        self.replicate(chosen, now)

    def _choose(self, votes: Mapping[Address, Vote]) -> State | None:
        best: Vote | None = None
        for vote in votes.values():
            if vote.state is not None and (best is None or self.vote_rank(vote) > self.vote_rank(best)):
                best = vote
        return best.state if best is not None else self.proposal

    def vote_rank(self, vote: Vote) -> tuple[int, int]:
        """By accepted_in, then group. By the executing view a decided state could be revoked."""
        return vote.accepted_in, vote.state.group if vote.state else -1

    def _count_aborts(self, group: int, count: int, why: str) -> None:
        if (group, count) > self.aborts[:2]:
            self.aborts = (group, count, why[:200])
            self.keep("aborts", self.aborts)

    def _store(self, mail: Mail) -> bool | None:
        if self.accepted is not None and is_consumed(mail, self.accepted.state.consumed):
            return False
        stored = self.mailbox.store(mail)
        if stored:
            self.keep(f"mail/{mail.id}", mail)
        return stored

    # ---- replication -------------------------------------------------------------------------------------------

    def replicate(self, state: State, now: int) -> None:
        """Accept a state in this view and ask the others to (Fig. 5, I).

        The next state of a master goes out while its own disk still writes it. Its own acceptance counts once it is on
        disk: what is decided here is shown to those who ask, without a wait. Should it crash in between, it does not
        make that state anew in the same view (`ahead`, in the record of the one before).
        """
        before = self.accepted if self.accepted is not None and self.accepted.view == self.view else None
        follows = before is not None and extends(state, before.state)
        early = follows and before is not None and before.mine and before.ahead and not self.logged(state.group)
        self._accept(self.view, state, mine=True, ahead=bool(self.others) and self.goes_on(state))
        self.replicating, self.acks = state, {} if early else {self.me: None}
        self.follow("")
        self.resends, self.resend_us = 0, now + self.shared.config.resend_us
        send = self.out.send_ahead if early else self.out.send
        whole = Replicate(self.view, state)
        rest = Replicate(self.view, added(state, before.state), before.state.group) if follows and before else whole
        for member in self.others:
            send(member, rest if self.reached.get(member, (-1, -1)) >= (self.view, state.group - 2) else whole)
        self._ack_own(state)
        self._count_acks(now)

    def _ack_own(self, state: State) -> None:
        """To itself, behind its disk."""
        if self.me not in self.acks:
            self.out.send(self.me, Ack(self.instance, self.view, state.group))

    def logged(self, group: int) -> bool:
        """Whether a restarted master would resume this group of the view from its log."""
        return False

    def goes_on(self, state: State) -> bool:
        """Whether the group after this state can begin at once."""
        return False

    def _send_state(self, members: tuple[Address, ...], now: int) -> None:
        invariant(self.replicating is not None, "there is a state to send")
        config = self.shared.config
        self.resends += 1
        self.resend_us = now + min(config.resend_us << min(self.resends, 16), config.resend_us_max)
        if self.replicating is not None:
            for member in members:
                self.out.send(member, Replicate(self.view, self.replicating))
            self._ack_own(self.replicating)

    def on_replicate(self, sender: Address, message: Replicate, now: int) -> None:
        """Accept what is not of a lower view, on disk before the ACK (II)."""
        if message.view < self.view:
            self.out.send(sender, Reject(self.instance, self.view))
            return
        self.raise_view(message.view)
        self.led(now, sender)
        state, known = message.state, self.accepted
        if (message.view, state.group) > self.rank:
            if message.base >= 0:
                if known is None or self.rank != (message.view, message.base):
                    return  # something was lost on the way; the whole state will come
                state = joined(known.state, state)
            if self.leading or self.votes is not None:
                self.step_down()
            self._accept(message.view, state, mine=False)
            if known is not None and known.view == message.view:
                self.learn(known.view, known.state, now)  # in a view nobody goes on before that is decided
            self.on_accepted(now)
        elif (message.view, state.group) == self.rank and known is not None:
            same = known.state == state if message.base < 0 else ends_with(known.state, state)
            if not same:
                raise ProtocolError(f"{self.instance}: another state of view {message.view} and group {state.group}")
        self.out.send(sender, Ack(self.instance, message.view, state.group))

    def on_accepted(self, now: int) -> None:
        """A state of somebody else was accepted: a backup may work ahead on it."""

    def raise_view(self, view: int) -> None:
        if view > self.view:
            self._promise(view, "")

    def on_ack(self, sender: Address, message: Ack, now: int) -> None:
        self.reached[sender] = (message.view, message.group)
        if self.replicating is None or message.view != self.view or message.group != self.replicating.group:
            return
        self.acks[sender] = None
        self._count_acks(now)

    def _count_acks(self, now: int) -> None:
        if self.replicating is not None and len(self.acks) >= self.majority:
            state, self.replicating = self.replicating, None
            self.decided = (self.view, state)
            self.settle(now)
            self.on_decided(now)

    def on_reject(self, message: Reject, now: int) -> None:
        if message.view > self.view:
            self.raise_view(message.view)
            self.led_us = now
        elif message.view == self.view:
            self.split = True

    # ---- learning ----------------------------------------------------------------------------------------------

    def on_lead(self, sender: Address, lead: Lead, now: int) -> None:
        """A heartbeat of the instance's leader: it says what is decided."""
        if lead.view < self.view:
            self.out.send(sender, Reject(self.instance, self.view))
            return
        self.led(now, sender)
        if lead.group < 0:
            return
        accepted = self.accepted
        if accepted is not None and accepted.view == lead.view and accepted.state.group <= lead.group:
            self.learn(lead.view, accepted.state, now)
        known = (self.decided[0], self.decided[1].group) if self.decided else (-1, -1)
        if known < (lead.view, lead.group):
            self.shared.transfers.want(self.instance, sender)

    def fetch(self, of: Address) -> None:
        known = (self.decided[0], self.decided[1].group) if self.decided else (-1, -1)
        self.out.send(of, Fetch(self.instance, *known))

    def on_fetch(self, sender: Address, message: Fetch) -> None:
        if self.decided is not None and (message.view, message.group) < (self.decided[0], self.decided[1].group):
            self.out.send(sender, Decided(*self.decided))

    def learn(self, view: int, state: State, now: int) -> None:
        """A state decided in `view`. Accepting it is always safe: a majority has accepted it or what follows it."""
        if self.decided is not None and (view, state.group) <= (self.decided[0], self.decided[1].group):
            return
        self.raise_view(view)
        self.decided = (view, state)
        if (view, state.group) > self.rank:
            if self.leading or self.votes is not None:
                self.step_down()
            self._accept(view, state, mine=False)
        self.settle(now)

    def on_clean(self, sender: Address, message: Clean) -> None:
        self.clean[sender] = max((message.view, message.group), self.clean.get(sender, (-1, -1)))

    def all_clean(self, view: int, group: int = -1) -> bool:
        return all(self.clean.get(member, (-1, -1)) >= (view, group) for member in self.others)
