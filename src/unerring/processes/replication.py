"""Replication: a leader's state on its way to a majority (Fig. 5 of the paper, I and III)."""

from __future__ import annotations

import msgspec

from unerring.model import Address, invariant
from unerring.processes.acceptor import Acceptor
from unerring.processes.context import Context, Roles
from unerring.processes.history import added, extends
from unerring.processes.logs import Logs
from unerring.processes.messages import Ack, Replicate, State, Step
from unerring.processes.watch import Watch


class Replication:
    """One state at a time; the acknowledgements are counted."""

    __slots__ = (
        "_acceptor",
        "_context",
        "_logs",
        "_reached",
        "_resend_us",
        "_resends",
        "_roles",
        "_watch",
        "acks",
        "state",
    )

    def __init__(self, context: Context, acceptor: Acceptor, watch: Watch, logs: Logs, roles: Roles) -> None:
        self._context = context
        self._acceptor = acceptor
        self._watch = watch
        self._logs = logs
        self._roles = roles
        self.state: State | None = None
        """As planner or master: the state whose acknowledgements are counted."""
        self.acks: dict[Address, dict[Address, int]] = {}
        """With the incarnations that each knew of."""
        self._reached: dict[Address, tuple[int, int]] = {}
        """The view and group up to which others acknowledged states of this replica."""
        self._resend_us = 0
        self._resends = 0

    def stop(self) -> None:
        self.state, self.acks = None, {}

    def replicate(self, state: State, now: int) -> None:
        """Accept a state in this view and ask the others to (I).

        The next state of a master goes out while its own disk still writes it. Its own acceptance counts once it is on
        disk: what is decided here is shown to those who ask, without a wait. Should it crash in between, it does not
        make that state anew in the same view (`ahead`, in the record of the one before). So does the first state of a
        view that was won: the promise is on disk, and after a restart nobody makes a state in a view without one.
        """
        context, view = self._context, self._acceptor.view
        accepted = self._acceptor.accepted
        before = accepted if accepted is not None and accepted.view == view else None
        follows = before is not None and extends(state, before.state)
        logged = (view, state.group) in self._logs.kept  # a restarted master would resume it from there
        won = before is None and self._acceptor.voted_for == context.me
        early = won or (follows and before is not None and before.own and before.ahead and not logged)
        group = context.next_group(state) if context.others else None
        self._acceptor.accept(view, state, own=True, ahead=group is not None and bool(group.vertices))
        self.state, self.acks = state, {} if early else {context.me: context.known()}
        self._watch.follow("")
        self._resends, self._resend_us = 0, now + context.config.resend_us
        send = context.out.send_ahead if early else context.out.send
        whole = Replicate(view, state)
        rest = Replicate(view, added(state, before.state), before.state.group) if follows and before else whole
        for member in context.others:
            send(member, rest if self._reached.get(member, (-1, -1)) >= (view, state.group - 2) else whole)
        self._ack_own(state)
        self._count(now)

    def replicate_next(self, state: State, now: int) -> None:
        """A state that differs from the decided one, though no group was executed, as the one after it."""
        step = Step(self._acceptor.view, state.cut, self._context.me, self._context.wall_us(now), state.rounds)
        after = msgspec.structs.replace(state, group=state.group + 1, lineage=(*state.lineage, step))
        self.replicate(after, now)

    def _ack_own(self, state: State) -> None:
        """To itself, behind its disk."""
        context = self._context
        if context.me not in self.acks:
            context.out.send(context.me, Ack(context.instance, self._acceptor.view, state.group, context.known()))

    def next_us(self, idle_until_us: int) -> int:
        """When the state has to be sent again."""
        return idle_until_us if self.state is None else self._resend_us

    def tick(self, now: int) -> None:
        if self.state is not None and now >= self._resend_us:
            self.resend(tuple(member for member in self._context.others if member not in self.acks), now)

    def resend(self, members: tuple[Address, ...], now: int) -> None:
        invariant(self.state is not None, "there is a state to send")
        config = self._context.config
        self._resends += 1
        self._resend_us = now + min(config.resend_us << min(self._resends, 16), config.resend_us_max)
        if self.state is not None:
            for member in members:
                self._context.out.send(member, Replicate(self._acceptor.view, self.state))
            self._ack_own(self.state)

    def on_ack(self, sender: Address, message: Ack, now: int) -> None:
        if not self._context.counts(sender, message.known):
            return
        self._reached[sender] = (message.view, message.group)
        if self.state is None or message.view != self._acceptor.view or message.group != self.state.group:
            return
        self.acks[sender] = message.known
        self._count(now)

    def _count(self, now: int) -> None:
        counts = self._context.shared.incarnations.counts
        self.acks = {member: known for member, known in self.acks.items() if counts(member, known)}
        if self.state is not None and len(self.acks) >= self._context.majority:
            self._acceptor.decided, self.state = (self._acceptor.view, self.state), None
            self._roles.on_majority(now)
