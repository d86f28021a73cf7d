"""Starts: the first state of an instance, once for each id, whoever asks; handed on to the replica that begins."""

from __future__ import annotations

from collections import deque

import msgspec

from unerring.model import MILLISECOND_US, Address, CallerError, Effects, ProcessError, invariant
from unerring.processes.children import end_of
from unerring.processes.errands import Errands, end_of_state, replica_set
from unerring.processes.execution import UNKEPT
from unerring.processes.graph import BAD_IN_NAMES, Kind
from unerring.processes.messages import Outline, Start, Started, State, Status
from unerring.processes.replica import Replica, digest_of
from unerring.processes.replica_steers import sleep_until
from unerring.processes.steering import CANCELLED

FORWARD_US = 500 * MILLISECOND_US
"""How often a start that is not yet decided is handed on again."""


ID_MAX = 500
"""Characters of an id that somebody chose: ids travel in headers of requests, whose length has bounds."""


def check_id(start: Start) -> None:
    """An id that somebody chose; those of children are made by their parents."""
    id = start.instance if not start.parent else start.instance.removeprefix(start.parent)
    bad = "/|@" if start.parent else BAD_IN_NAMES
    if not id or not id.isprintable() or any(c in id for c in bad):
        said = "leave out '/', '|', '@', '~', '+', '!', \"'\" and what cannot be printed"
        raise ProcessError(f"{start.instance!r} is no instance id; {said}")
    _check_length(id, "an instance id")


def check_message_id(id: str) -> None:
    """The id that a partner gave to a message: it is part of a key on disk."""
    if not id.isprintable() or "|" in id:
        raise ProcessError(f"{id!r} is no id for a message; leave out '|' and what cannot be printed")
    _check_length(id, "the id of a message")


def _check_length(id: str, what: str) -> None:
    if len(id) > ID_MAX:
        raise ProcessError(f"{id[:40]!r}… has {len(id)} characters; {what} may have {ID_MAX}")


class Starts(Errands):
    """Part of the machine of a process node."""

    finished: dict[str, Outline]

    def _begin_errands(self) -> None:
        super()._begin_errands()
        self.starters: dict[str, list[tuple[Address, Start]]] = {}
        """Who waits for a start that is not yet decided."""
        self._forwarded_us: dict[str, int] = {}
        """When each of them was last handed on."""
        self._begun: dict[str, None] = {}
        """Starts of this node's application that are under way, and those that wait for their turn."""
        self._waiting: deque[Start] = deque()

    def _create(self, instance: str, now: int) -> Replica | None:
        """node.py has it."""

    def initial(self, start: Start, now: int) -> State:
        """The first state of an instance. Raises ProcessError when the process is unknown or the input does not fit."""
        process = self.processes.get(start.process)
        if process is None:
            known = ", ".join(self.processes) or "none"
            raise ProcessError(f"there is no process {start.process!r} on this node; it has {known}")
        check_id(start)
        graph = process.graph
        wall_us = now + self.shared.wall_offset_us
        variables = process.initial(start.given)
        try:
            size, most = len(msgspec.msgpack.encode(start.given)), self.bounds.state_bytes_max
        except UNKEPT as error:
            raise ProcessError(f"{start.instance} is given a value that cannot be kept: {error}") from None
        if size > most // 2:
            raise ProcessError(
                f"{start.instance} is given {size} bytes; the whole state may take {most}. Store them elsewhere, and "
                "give the process their address"
            )
        sleeps = [v for v in graph.enabled(graph.start) if v.kind is Kind.SLEEP]
        return State(
            start.instance,
            graph.name,
            graph.version,
            0,
            (),
            graph.start,
            variables,
            due={v.name: sleep_until(v, variables, wall_us) for v in sleeps},
            given=start.given,
            status=Status.UNDOING if start.stillborn else Status.RUNNING,
            reason=CANCELLED if start.stillborn else "",
            parent=start.parent,
            returns=start.returns,
            deadline_us=wall_us + graph.deadline_us if graph.deadline_us else 0,
        )

    def _on_start(self, sender: Address, message: Start, now: int) -> None:
        outline = self.finished.get(message.instance)
        if outline is not None:
            self._tell_started(sender, message.instance, outline.given, message)
            if message.parent:
                done = (outline.status, outline.reason, outline.variables, outline.returns)
                self._tell_end(sender, message.parent, end_of(message.instance, *done), now)
            return
        replica = self.instances.get(message.instance)
        if replica is not None and replica.decided is not None:
            self._tell_started(sender, message.instance, given_to(replica), message)
            if message.parent and replica.decided[1].final:
                self._tell_end(sender, message.parent, end_of_state(replica.decided[1]), now)
            return
        if message.instance not in self.starters and len(self.starters) >= self.config.instances_max:
            self.out.report("starts_full", f"{message.instance} is not taken: {len(self.starters)} starts wait")
            return
        members = replica_set(message.instance, self.nodes, self.bounds.f)
        waiting = self.starters.setdefault(message.instance, [])
        if sender not in [client for client, _ in waiting]:
            waiting.append((sender, message))
        if self.me not in members:
            self._forward(message.instance, now)
            return
        try:
            state = self.initial(message, now)
        except CallerError as error:
            del self.starters[message.instance]
            self.out.report("start_refused", str(error))
            if message.parent and message.process in self.processes:
                refused = end_of(message.instance, Status.FAILED, str(error), {}, "")
                self._tell_end(sender, message.parent, refused, now)
            return
        replica = replica or self._create(message.instance, now)
        if replica is not None:
            replica.propose_start(state, members[0] == self.me, now)
            self._after(replica)
        self._forward(message.instance, now)

    def _on_started(self, message: Started) -> None:
        """Another node answers for a start that was handed on to it."""
        self.timetable.started(message.instance)
        for client, _ in self.starters.pop(message.instance, ()):
            if client == self.me:
                self.out.deliver(message)
            else:
                self.out.send(client, message)

    def _forward_starts(self, now: int) -> None:
        """Starts that are not yet decided are handed on again, now and then."""
        self._forwarded_us = {id: us for id, us in self._forwarded_us.items() if id in self.starters}
        for instance in list(self.starters):
            if now - self._forwarded_us.get(instance, now - FORWARD_US) >= FORWARD_US:
                self._forward(instance, now)

    def _forward(self, instance: str, now: int) -> None:
        """A start goes on to the first replica, and to all if this node has no part in it."""
        self._forwarded_us[instance] = now
        members = replica_set(instance, self.nodes, self.bounds.f)
        waiting = self.starters.get(instance)
        for member in members[:1] if self.me in members else members:
            if waiting and member not in (self.me, waiting[0][0]):
                self.out.send(member, waiting[0][1])

    def begin(self, start: Start, now: int) -> Effects:
        """A start by the application of this very node; raises ProcessError if it cannot be."""
        self.initial(start, now)
        self._waiting.append(start)
        self._begin_waiting(now)
        self._start_wanted(now)
        return self.out.take()

    def _begin_waiting(self, now: int) -> None:
        """As many as may be under way."""
        if not self._waiting:
            return
        self._begun = {id: None for id in self._begun if id in self.starters}
        while self._waiting and len(self._begun) < self.config.starts_max:
            start = self._waiting.popleft()
            self._begun[start.instance] = None
            self._on_start(self.me, start, now)
            if start.instance not in self.starters:
                self._begun.pop(start.instance, None)

    def _tell_started(self, client: Address, instance: str, given: str, start: Start) -> None:
        started = Started(instance, given == digest_of(start.process, start.given))
        self.timetable.started(instance)
        if client == self.me:
            self.out.deliver(started)
        else:
            self.out.send(client, started)


def given_to(replica: Replica) -> str:
    """A digest of what an instance was started with."""
    invariant(replica.decided is not None, "only what is decided has surely been started")
    return digest_of(replica.decided[1].process, replica.decided[1].given) if replica.decided else ""
