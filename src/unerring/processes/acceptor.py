"""The acceptor: what this replica promised, accepted and knows to be decided. It makes decisions stay.

A view is a promise to accept nothing of a lower one. A state is decided once a majority has accepted it in one view.
"""

from __future__ import annotations

from collections.abc import Mapping

from unerring.model import Address, ProtocolError, invariant
from unerring.processes.context import Context, Roles, read
from unerring.processes.history import Pages, ends_with, joined
from unerring.processes.messages import (
    VIEW_MAX,
    Accepted,
    Ack,
    Decided,
    Fetch,
    Lead,
    Promise,
    Reject,
    Replicate,
    State,
)
from unerring.processes.plausible import VIEW_STEP_MAX
from unerring.processes.watch import Watch


class Acceptor:
    """Promise and accepted state are on disk before anybody hears of them; what is decided is learned again."""

    __slots__ = ("_context", "_roles", "_watch", "accepted", "decided", "pages", "proposal", "view", "voted_for")

    def __init__(self, context: Context, watch: Watch, roles: Roles, records: Mapping[str, bytes]) -> None:
        self._context = context
        self._watch = watch
        self._roles = roles
        self.pages = Pages(records)
        accepted: Accepted | None = read(records, "accepted", Accepted)
        self.accepted = self.pages.whole(accepted) if accepted else None
        self.proposal: State | None = read(records, "proposal", State)
        """The first state, as somebody wanted it. Only an earlier release kept it: whoever wants it asks again until it
        is decided."""
        self.view, self.voted_for = self._promised(records)
        self.decided: tuple[int, State] | None = None
        """The furthest state known to be decided, and the view it was decided in."""

    def _promised(self, records: Mapping[str, bytes]) -> tuple[int, str]:
        """The view promised, and to whom. An earlier release believed any view, and could not leave the highest again:
        then a view above all that were won in truth takes its place, so that no promise is broken."""
        instance = self._context.instance
        accepted_in = self.accepted.view if self.accepted is not None else 0
        if accepted_in > VIEW_MAX:
            raise ProtocolError(
                f"{instance}: accepted in view {accepted_in}, which no election came to; this node leaves the "
                "instance to the others. Start the node with a new disk to take part in it again"
            )
        promise: Promise = read(records, "promise", Promise) or Promise(0, "")
        if promise.view <= VIEW_MAX:
            return promise.view, promise.voted_for
        promise = Promise(accepted_in + VIEW_STEP_MAX, "")
        self._context.report("promise_repaired", f"a view that no election came to is now {promise.view}")
        self._context.keep("promise", promise)
        return promise.view, promise.voted_for

    @property
    def rank(self) -> tuple[int, int]:
        """How far the accepted state is: votes are compared by this."""
        return (self.accepted.view, self.accepted.state.group) if self.accepted else (-1, -1)

    @property
    def decided_rank(self) -> tuple[int, int]:
        return (self.decided[0], self.decided[1].group) if self.decided else (-1, -1)

    # ---- promising and accepting -------------------------------------------------------------------------------

    def promise(self, view: int, voted_for: str) -> None:
        invariant(view > self.view, "a promise only rises")
        self.view, self.voted_for = view, voted_for
        self._context.keep("promise", Promise(view, voted_for))
        self._watch.follow("")
        self._roles.step_down()

    def raise_view(self, view: int) -> None:
        if view > self.view:
            self.promise(view, "")

    def accept(self, view: int, state: State, own: bool, ahead: bool = False) -> None:
        self.accepted = Accepted(view, state, own, ahead)
        record, pages = self.pages.split(self.accepted)
        self._context.keep("accepted", record)
        for key, page in pages.items():
            if page is None:
                self._context.forget(key)
            else:
                self._context.keep(key, page)

    def on_replicate(self, sender: Address, message: Replicate, now: int) -> None:
        """Accept what is not of a lower view, on disk before the ACK (Fig. 5, II)."""
        context = self._context
        if message.view < self.view:
            context.out.send(sender, Reject(context.instance, self.view))
            return
        self.raise_view(message.view)
        self._watch.led(now, sender)
        state, known = message.state, self.accepted
        if (message.view, state.group) > self.rank:
            if message.base >= 0:
                if known is None or self.rank != (message.view, message.base):
                    return  # something was lost on the way; the whole state will come
                state = joined(known.state, state)
            self._roles.give_way()
            self.accept(message.view, state, own=False)
            if known is not None and known.view == message.view:
                self.learn(known.view, known.state, now)  # in a view nobody goes on before that is decided
            self._roles.on_accepted(now)
        elif (message.view, state.group) == self.rank and known is not None:
            same = known.state == state if message.base < 0 else ends_with(known.state, state)
            if not same:
                raise ProtocolError(f"{context.instance}: another state of view {message.view} and group {state.group}")
        context.out.send(sender, Ack(context.instance, message.view, state.group, context.known()))

    # ---- learning ----------------------------------------------------------------------------------------------

    def on_lead(self, sender: Address, lead: Lead, now: int) -> None:
        """A heartbeat of the instance's leader: it says what is decided."""
        context = self._context
        if lead.view < self.view:
            context.out.send(sender, Reject(context.instance, self.view))
            return
        self._watch.led(now, sender)
        if lead.group < 0:
            return
        accepted = self.accepted
        if accepted is not None and accepted.view == lead.view and accepted.state.group <= lead.group:
            self.learn(lead.view, accepted.state, now)
        if self.decided_rank < (lead.view, lead.group):
            context.shared.transfers.want(context.instance, sender)

    def fetch(self, of: Address) -> None:
        self._context.out.send(of, Fetch(self._context.instance, *self.decided_rank))

    def on_fetch(self, sender: Address, message: Fetch, now: int) -> None:
        if self.decided is not None and (message.view, message.group) < self.decided_rank:
            self._context.out.send(sender, Decided(*self.decided))

    def on_decided(self, sender: Address, message: Decided, now: int) -> None:
        self._context.shared.transfers.landed(self._context.instance)
        self.learn(message.view, message.state, now)

    def learn(self, view: int, state: State, now: int) -> None:
        """A state decided in `view`. Accepting it is always safe: a majority has accepted it or what follows it."""
        if self.decided is not None and (view, state.group) <= self.decided_rank:
            return
        self.raise_view(view)
        self.decided = (view, state)
        if (view, state.group) > self.rank:
            self._roles.give_way()
            self.accept(view, state, own=False)
        self._roles.on_learned(now)
