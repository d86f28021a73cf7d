"""Elections: candidacies and votes (Fig. 6 of the paper).

A new planner takes, of a majority's votes, the state accepted in the highest view (then the highest group), and has it
decided again in its own view before anybody goes on from it or compensates because of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from unerring.model import Address
from unerring.processes.acceptor import Acceptor
from unerring.processes.context import Context, read
from unerring.processes.inbox import Inbox
from unerring.processes.messages import Reject, RequestView, State, Vote
from unerring.processes.replication import Replication
from unerring.processes.watch import Watch


class Election:
    """As a candidate: the votes for this view. As a voter: one vote a view."""

    __slots__ = ("_acceptor", "_context", "_inbox", "_replication", "_split", "_watch", "aborts", "votes")

    def __init__(
        self,
        context: Context,
        acceptor: Acceptor,
        watch: Watch,
        inbox: Inbox,
        replication: Replication,
        records: Mapping[str, bytes],
    ) -> None:
        self._context = context
        self._acceptor = acceptor
        self._watch = watch
        self._inbox = inbox
        self._replication = replication
        self.votes: dict[Address, Vote] | None = None
        """As a candidate: the votes for this view."""
        self._split = False
        """Another candidate of this view was met: it may have no winner."""
        self.aborts: tuple[int, int, str] = read(records, "aborts", tuple[int, int, str]) or (0, 0, "")
        """The group, how many of its executions were aborted, and why the last one: views change for these."""

    def ask_view(self, now: int, why: str) -> None:
        """Become candidate of the next view (I).

        To ask promises nothing, so the others write their promises while this disk writes the own one, which counts
        as a vote behind it. After a crash in between, whatever this replica asks for again it has not made a state in.
        """
        context, view = self._context, self._acceptor.view + 1
        context.report("view_change", f"{context.me} asks for view {view}: {why}")
        self._acceptor.promise(view, context.me)
        self.votes, self._split = {context.me: self.vote()}, False
        self._watch.candidacy(now)
        for member in context.others:
            context.out.send_ahead(member, RequestView(context.instance, view))
        self._count(now)

    def ask_again(self, now: int) -> None:
        """No majority yet. The same view will do, unless another candidate took votes in it: a replica that is cut off
        must not run ahead and disturb the others when it comes back."""
        self._watch.lost()
        if self.votes is None or self._split:
            self.ask_view(now, "nobody leads")
            return
        self._watch.led_us = now
        for member in self._context.others:
            if member not in self.votes:
                self._context.out.send(member, RequestView(self._context.instance, self._acceptor.view))

    def vote(self) -> Vote:
        accepted = self._acceptor.accepted
        view, state = (accepted.view, accepted.state) if accepted else (-1, None)
        counted = state is not None and self.aborts[0] == state.group + 1
        aborts, why = (self.aborts[1], self.aborts[2]) if counted else (0, "")
        mail = self._inbox.mailbox.mail
        known = self._context.known()
        return Vote(self._context.instance, self._acceptor.view, view, state, mail, aborts, why, known)

    def on_request_view(self, sender: Address, message: RequestView, now: int) -> None:
        """Vote once a view, for the first who asks (II)."""
        view = self._acceptor.view
        if message.view > view:
            self._acceptor.promise(message.view, sender)
            self._watch.led_us = now
        elif message.view < view or self._acceptor.voted_for != sender:
            self._context.out.send(sender, Reject(self._context.instance, view))
            return
        self._context.out.send(sender, self.vote())

    def on_reject(self, sender: Address, message: Reject, now: int) -> None:
        if message.view > self._acceptor.view:
            self._acceptor.raise_view(message.view)
            self._watch.led_us = now
        elif message.view == self._acceptor.view:
            self._split = True

    def on_vote(self, sender: Address, message: Vote, now: int) -> None:
        if self.votes is None or message.view != self._acceptor.view:
            return
        if not self._context.counts(sender, message.known):
            return
        self.votes[sender] = message
        self._count(now)

    def _count(self, now: int) -> None:
        """With a majority: choose the furthest accepted state and replicate it in this view (III, IV)."""
        if self.votes is None:
            return
        counts = self._context.shared.incarnations.counts
        self.votes = votes = {member: vote for member, vote in self.votes.items() if counts(member, vote.known)}
        if len(votes) < self._context.majority:
            return
        self.votes = None
        for vote in votes.values():
            for mail in vote.mail:
                self._inbox.store(mail)
        chosen = self._choose(votes)
        if chosen is None:
            return  # nobody in this majority has heard of the instance's start
        same = [(vote.aborts, vote.why) for vote in votes.values() if vote.state and vote.state.group == chosen.group]
        if same and max(same)[0] > 0:
            self.count_aborts(chosen.group + 1, *max(same))
        self._replication.replicate(chosen, now)

    def _choose(self, votes: Mapping[Address, Vote]) -> State | None:
        best: Vote | None = None
        for vote in votes.values():
            if vote.state is not None and (best is None or self.vote_rank(vote) > self.vote_rank(best)):
                best = vote
        return best.state if best is not None else self._acceptor.proposal

    def vote_rank(self, vote: Vote) -> tuple[int, int]:
        """By accepted_in, then group. By the executing view a decided state could be revoked."""
        return vote.accepted_in, vote.state.group if vote.state else -1

    def count_aborts(self, group: int, count: int, why: str) -> None:
        if (group, count) > self.aborts[:2]:
            self.aborts = (group, count, why[:200])
            self._context.keep("aborts", self.aborts)
