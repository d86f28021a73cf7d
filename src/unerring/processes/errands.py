"""What a node does beside leading instances: messages of its application on their way, what was published with a key,
starts of children and of schedules."""

from __future__ import annotations

import hashlib
from typing import Any

from unerring.model import Address, Effects, ProcessError
from unerring.processes.build import Process
from unerring.processes.children import end_of
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.messages import Mail, Post, Publish, Published, Start, State, Stored
from unerring.processes.out import Out
from unerring.processes.replica import Replica
from unerring.processes.replica_views import Shared
from unerring.processes.schedules import Timetable

PUBLISHED = "published"
MARK = "mark"
"""The keys of what was published, by its id, and of how far a schedule has come, by its name."""


def replica_set(instance: str, nodes: tuple[Address, ...], f: int) -> tuple[Address, ...]:
    """The 2f+1 replicas of an instance: a function of its id and the configured nodes, so that all starters agree."""
    if len(nodes) < 2 * f + 1:
        raise ProcessError(f"f = {f} needs {2 * f + 1} nodes, but there are {len(nodes)}; add nodes or lower f")

    def weight(node: Address) -> bytes:
        return hashlib.blake2b(f"{instance}\0{node}".encode(), digest_size=8).digest()

    return tuple(sorted(nodes, key=weight)[: 2 * f + 1])


def end_of_state(state: State) -> Mail:
    return end_of(state.instance, state.status, state.reason, state.variables, state.returns)


class Posting:
    """A message on its way to those who must store it."""

    __slots__ = ("due_us", "enough", "members", "message", "stored")

    def __init__(self, message: Post | Publish, members: tuple[Address, ...], enough: int) -> None:
        self.message = message
        self.members = members
        self.enough = enough
        self.stored: dict[Address, None] = {}
        self.due_us = 0


class Errands:
    """Part of the machine of a process node."""

    me: Address
    nodes: tuple[Address, ...]
    peers: tuple[Address, ...]
    processes: dict[str, Process]
    bounds: ClusterBounds
    config: ProcessesConfig
    out: Out
    shared: Shared
    instances: dict[str, Replica]
    starters: dict[str, list[tuple[Address, Start]]]

    def _begin_errands(self) -> None:
        self.posting: dict[str, Posting] = {}
        """Messages of this node's application that are not yet stored often enough."""
        self.timetable = Timetable(self.processes.values(), self.out, self.config)

    def _on_start(self, sender: Address, message: Start, now: int) -> None:
        """node.py has it."""

    def _to_instance(self, sender: Address, message: Any, now: int) -> None:
        """node.py has it."""

    def _after(self, replica: Replica) -> None:
        """node.py has it."""

    # ---- children ----------------------------------------------------------------------------------------------

    def _start_wanted(self, now: int) -> None:
        """What planners of this node want of children, one after the other: a start may make others possible."""
        while self.shared.wants:
            start, mail = self.shared.wants.pop(0)
            for member in replica_set(start.instance, self.nodes, self.bounds.f):
                for message in (start, *([Post(start.instance, mail)] if mail else [])):
                    if member != self.me:
                        self.out.send(member, message)
                    elif isinstance(message, Start):
                        self._on_start(self.me, message, now)
                    else:
                        self._to_instance(self.me, message, now)

    def _tell_end(self, to: Address, parent: str, mail: Mail, now: int) -> None:
        if to == self.me:
            self._to_instance(self.me, Post(parent, mail), now)
        else:
            self.out.send(to, Post(parent, mail))

    def _tell_parent(self, state: State, now: int) -> None:
        """At once, to whoever may lead it; should that be lost, the parent asks again."""
        for member in replica_set(state.parent, self.nodes, self.bounds.f):
            self._tell_end(member, state.parent, end_of_state(state), now)

    # ---- schedules ---------------------------------------------------------------------------------------------

    def _start_what_is_due(self, now: int) -> None:
        for start in self.timetable.due(now + self.shared.wall_offset_us):
            if start.instance not in self.starters:
                self._on_start(self.me, start, now)

    # ---- messages ----------------------------------------------------------------------------------------------

    def post(self, instance: str, mail: Mail, now: int) -> Effects:
        """A message or a wish from this node's application: to all replicas, until f+1 have stored it."""
        self.posting[mail.id] = Posting(
            Post(instance, mail), replica_set(instance, self.nodes, self.bounds.f), self.bounds.f + 1
        )
        self._repeat_posts(now)
        self._start_wanted(now)
        return self.out.take()

    def publish(self, message: Publish, now: int) -> Effects:
        """A message for whoever waits for its key: to all nodes, until all but f have stored it, so that f+1 replicas
        of any instance have."""
        self.posting[message.id] = Posting(message, self.nodes, len(self.nodes) - self.bounds.f)
        self._repeat_posts(now)
        return self.out.take()

    def _repeat_posts(self, now: int) -> None:
        for posting in list(self.posting.values()):
            if now < posting.due_us:
                continue
            posting.due_us = now + self.config.resend_us * 4
            for member in posting.members:
                if member in posting.stored:
                    continue
                if member != self.me:
                    self.out.send(member, posting.message)
                elif isinstance(posting.message, Publish):
                    self._on_publish(self.me, posting.message, now)
                else:
                    self._to_instance(self.me, posting.message, now)

    def _on_stored(self, sender: Address, message: Stored) -> None:
        posting = self.posting.get(message.id)
        if posting is not None:
            posting.stored[sender] = None
            if len(posting.stored) >= posting.enough:
                del self.posting[message.id]
                self.out.deliver(message)

    def _on_publish(self, sender: Address, message: Publish, now: int) -> None:
        """Kept on disk, then acknowledged; without room it comes again."""
        kept = self.shared.published
        wall_us = now + self.shared.wall_offset_us
        for id in [id for id, m in kept.items() if wall_us - m.at_us > self.bounds.published_keep_us]:
            del kept[id]
            self.out.forget(f"{id}|{PUBLISHED}")
        if message.id not in kept:
            if len(kept) >= self.bounds.published_max:
                self.out.report("published_full", f"{len(kept)} published messages wait for an instance")
                return
            kept[message.id] = Published(message.channel, message.key, message.payload, wall_us)
            self.out.keep(f"{message.id}|{PUBLISHED}", kept[message.id])
            for replica in list(self.instances.values()):
                replica.plan(now)
                self._after(replica)
        self._stored(sender, Stored("", message.id))

    def _stored(self, to: Address, stored: Stored) -> None:
        if to == self.me:
            self._on_stored(self.me, stored)
        else:
            self.out.send(to, stored)
