"""Starts: the first state of an instance, once for each id, whoever asks; handed on to the replica that begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from unerring.model import MILLISECOND_US, Address, CallerError, ProcessError
from unerring.processes.children import end_of
from unerring.processes.commands import CANCELLED
from unerring.processes.context import Shared
from unerring.processes.execution import UNKEPT
from unerring.processes.families import Families, end_mail
from unerring.processes.graph import BAD_IN_NAMES
from unerring.processes.messages import Start, Started, State, Status
from unerring.processes.replica import Replica, digest_of
from unerring.processes.roster import Roster
from unerring.processes.schedules import Timetable
from unerring.processes.waits import due_at

FORWARD_US: Final = 500 * MILLISECOND_US
"""How often a start that is not yet decided is handed on again."""
ID_MAX: Final = 500
"""Characters of an id that somebody chose: ids travel in headers of requests, whose length has bounds."""


def check_id(start: Start) -> None:
    """An id that somebody chose; those of children are made by their parents."""
    id = start.instance if not start.parent else start.instance.removeprefix(start.parent)
    bad = "/|@" if start.parent else BAD_IN_NAMES
    if not id or not id.isprintable() or any(c in id for c in bad):
        advice = "leave out '/', '|', '@', '~', '+', '!', \"'\" and what cannot be printed"
        raise ProcessError(f"invalid instance id {start.instance!r}: {advice}")
    _check_length(id, "the instance id")


def check_message_id(id: str) -> None:
    """The id that a partner gave to a message: it is part of a key on disk."""
    if not id.isprintable() or "|" in id:
        raise ProcessError(f"invalid message id {id!r}: leave out '|' and what cannot be printed")
    _check_length(id, "the message id")


def _check_length(id: str, what: str) -> None:
    if len(id) > ID_MAX:
        raise ProcessError(f"{what} has {len(id)} characters, which exceeds the limit of {ID_MAX}: {id[:40]!r}…")


def initial_state(shared: Shared, start: Start, now: int) -> State:
    """The first state of an instance. Raises ProcessError when the process is unknown or the input does not fit."""
    process = shared.current.get(start.process)
    if process is None:
        known = ", ".join(shared.current) or "none"
        raise ProcessError(f"there is no process {start.process!r} on this node; it has {known}")
    check_id(start)
    graph = process.graph
    variables = process.initial(start.given)
    try:
        size, most = len(msgspec.msgpack.encode(start.given)), shared.bounds.state_bytes_max
    except UNKEPT as error:
        raise ProcessError(f"the input of {start.instance} has a value that cannot be stored: {error}") from None
    if size > most // 2:
        raise ProcessError(
            f"the input of {start.instance} has {size} bytes, which exceeds the limit of {most // 2} bytes; give the "
            "process a reference instead"
        )
    wall_us = shared.wall_us(now)
    return State(
        start.instance,
        graph.name,
        graph.version,
        0,
        (),
        graph.start,
        variables,
        due=due_at(graph, graph.start, {}, variables, {}, wall_us),
        given=start.given,
        status=Status.UNDOING if start.stillborn else Status.RUNNING,
        reason=CANCELLED if start.stillborn else "",
        parent=start.parent,
        returns=start.returns,
        deadline_us=wall_us + graph.deadline_us if graph.deadline_us else 0,
    )


class Starts:
    """Starts that are not yet decided, and who waits for each."""

    def __init__(
        self,
        shared: Shared,
        roster: Roster,
        families: Families,
        timetable: Timetable,
        after: Callable[[Replica], None],
    ) -> None:
        self._shared = shared
        self._roster = roster
        self._families = families
        self._timetable = timetable
        self._after = after
        """The node's function to call after each step of an instance."""
        self.starters: dict[str, list[tuple[Address, Start]]] = {}
        """The senders that wait for a start that is not yet decided."""
        self._forwarded_us: dict[str, int] = {}
        """When each of them was last handed on."""
        self._begun: dict[str, None] = {}
        """Starts of this node's application that are under way, and those that wait for their turn."""
        self._waiting: deque[Start] = deque()

    def begin(self, start: Start, now: int) -> None:
        """A start by the application of this very node; raises ProcessError if it cannot be."""
        initial_state(self._shared, start, now)
        self._waiting.append(start)
        self.begin_waiting(now)

    def begin_waiting(self, now: int) -> None:
        """Begin as many waiting starts as may be under way; none, as long as this node does not take part."""
        if not self._waiting or not self._shared.incarnations.present:
            return
        self._begun = {id: None for id in self._begun if id in self.starters}
        while self._waiting and len(self._begun) < self._shared.config.starts_max:
            if self._is_full(self._waiting[0]):
                return
            start = self._waiting.popleft()
            self._begun[start.instance] = None
            self.on_start(self._shared.me, start, now)
            if start.instance not in self.starters:
                self._begun.pop(start.instance, None)

    def begin_due(self, now: int) -> None:
        """Instances whose time has come by a schedule."""
        for start in self._timetable.due(self._shared.wall_us(now)):
            if start.instance not in self.starters:
                self.on_start(self._shared.me, start, now)

    def on_start(self, sender: Address, message: Start, now: int) -> None:
        if self._is_known(sender, message, now):
            return
        shared, instance = self._shared, message.instance
        if self._is_full(message):
            shared.out.report("starts_full", f"{instance} is not taken: {len(self.starters)} starts wait")
            return
        waiting = self.starters.setdefault(instance, [])
        if sender not in [client for client, _ in waiting]:
            waiting.append((sender, message))
        if shared.me in shared.members_of(instance):
            try:
                self._propose(message, now)
            except CallerError as error:
                self._refuse(sender, message, str(error), now)
                return
            if instance not in self._roster.open:
                return  # At its time it goes to all: at once, it would go round for ever among nodes that have no room.
        self._forward(instance, now)

    def _is_full(self, start: Start) -> bool:
        """Whether too many starts wait to take another one. Not if this node keeps room for it; and a child is always
        taken, as it always finds room: its parent keeps its own until then, and has a bounded number of them."""
        known = start.instance in self.starters or start.instance in self._roster.open
        return not known and not start.parent and len(self.starters) >= self._shared.config.instances_max

    def _propose(self, start: Start, now: int) -> None:
        """As one of its replicas. Raises CallerError if it cannot be. Without room for it, it is tried again later."""
        state, instance, roster = initial_state(self._shared, start, now), start.instance, self._roster
        replica = roster.open.get(instance) or (roster.create if start.parent else roster.begin)(instance, now)
        if replica is not None:
            replica.propose_start(state, replica.context.members[0] == self._shared.me, now)
            self._after(replica)

    def _is_known(self, sender: Address, message: Start, now: int) -> bool:
        """Whether the instance exists; if so, the sender gets an answer, and a parent the end of its child."""
        instance = message.instance
        outline, replica = self._roster.finished.get(instance), self._roster.open.get(instance)
        state = replica.decided[1] if replica is not None and replica.decided is not None else None
        if outline is not None:
            self._tell_started(sender, outline.given, message)
        elif state is not None:
            self._tell_started(sender, digest_of(state.process, state.given), message)
        end = outline or (state if state is not None and state.final else None)
        if message.parent and end is not None:
            self._families.tell_end(sender, message.parent, end_mail(instance, end), now)
        return outline is not None or state is not None

    def _refuse(self, sender: Address, message: Start, why: str, now: int) -> None:
        del self.starters[message.instance]
        self._shared.out.report("start_refused", why)
        if message.parent and message.process in self._shared.current:
            end = end_of(message.instance, Status.FAILED, why, {}, "")
            self._families.tell_end(sender, message.parent, end, now)

    # ---- handing on --------------------------------------------------------------------------------------------

    def forward_all(self, now: int) -> None:
        """Starts that are not yet decided are handed on again, now and then; and begun, if there was no room before."""
        self._forwarded_us = {id: us for id, us in self._forwarded_us.items() if id in self.starters}
        for instance in list(self.starters):
            if now - self._forwarded_us.get(instance, now - FORWARD_US) >= FORWARD_US:
                self._begin_again(instance, now)
                self._forward(instance, now)

    def _begin_again(self, instance: str, now: int) -> None:
        unknown = instance not in self._roster.open and instance not in self._roster.finished
        if unknown and self._shared.me in self._shared.members_of(instance):
            self._propose(self.starters[instance][0][1], now)

    def _forward(self, instance: str, now: int) -> None:
        """A start goes on to the first replica, and to all if this node has no part in it, or no room. It is what a
        client asked for and promises nothing, so that the replica that begins need not wait for this one's disk."""
        self._forwarded_us[instance] = now
        me, members = self._shared.me, self._shared.members_of(instance)
        waiting = self.starters.get(instance)
        for member in members[:1] if instance in self._roster.open else members:
            if waiting and member not in (me, waiting[0][0]):
                self._shared.out.send_ahead(member, waiting[0][1])

    # ---- answers -----------------------------------------------------------------------------------------------

    def on_started(self, sender: Address, message: Started, now: int) -> None:
        """Another node answers for a start that was handed on to it."""
        self._timetable.started(message.instance)
        for client, _ in self.starters.pop(message.instance, ()):
            self._answer(client, message)

    def decided(self, state: State) -> None:
        """The instance exists on a majority: answer whoever waits for that."""
        for client, start in self.starters.pop(state.instance, ()):
            self._tell_started(client, digest_of(state.process, state.given), start)

    def _tell_started(self, client: Address, given: str, start: Start) -> None:
        self._timetable.started(start.instance)
        self._answer(client, Started(start.instance, given == digest_of(start.process, start.given)))

    def _answer(self, client: Address, started: Started) -> None:
        if client == self._shared.me:
            self._shared.out.deliver(started)
        else:
            self._shared.out.send(client, started)
