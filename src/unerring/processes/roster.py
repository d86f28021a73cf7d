"""The instances of a node: those that are open, and what is kept of those that are settled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from unerring.model import ProtocolError
from unerring.processes.context import Shared
from unerring.processes.finished import Finished
from unerring.processes.large import Forgotten, Kept
from unerring.processes.messages import Outline
from unerring.processes.replica import Replica, outline_of

OUTLINE: Final = "outline"
HISTORY: Final = "history"
"""The keys of a settled instance's outcome, and of its last state: that is on disk for those who ask, not in memory."""


class Roster:
    """`replica` is what makes one of an instance."""

    def __init__(self, shared: Shared, replica: type[Replica]) -> None:
        self._shared = shared
        self._replica_part = replica
        self.open: dict[str, Replica] = {}
        self.finished = Finished(
            dict.fromkeys(name for process in shared.processes.values() for name in process.attributes),
            shared.replicas_of,
        )
        self._set_aside: dict[str, None] = {}
        """Instances whose records hold what nobody can have meant: this node is silent about them, as if it were down,
        and the others go on."""

    def load(self, records: Mapping[str, Mapping[str, bytes]], outlines: dict[str, bytes], now: int) -> None:
        """Load all instances from their records, after a restart."""
        self.finished.load(outlines)
        for instance, kept in records.items():
            if instance not in self.finished and kept.keys() - {HISTORY}:
                try:
                    self.open[instance] = self._replica_part(
                        self._shared, instance, self._shared.members_of(instance), kept, now
                    )
                except ProtocolError as error:
                    self._set_aside[instance] = None
                    self._shared.out.report("set_aside", str(error))

    def create(self, instance: str, now: int) -> Replica | None:
        """What others have begun always finds room: if each node chose by itself what it takes, all could be full of
        instances that lack a replica elsewhere. None: this node has no part in it."""
        members = self._shared.members_of(instance)
        if self._shared.me not in members or instance in self._set_aside:
            return None
        self.open[instance] = self._replica_part(self._shared, instance, members, {}, now)
        return self.open[instance]

    def begin(self, instance: str, now: int) -> Replica | None:
        """What nobody has begun, as far as is known here. None: there is no room for it now, or no part in it."""
        if len(self.open) < self._shared.config.instances_max:
            return self.create(instance, now)
        if self._shared.me in self._shared.members_of(instance):
            self._shared.out.report("instances_full", f"{instance} is not taken: there are {len(self.open)} instances")
        return None

    def settle(self, replica: Replica) -> bool:
        """Nothing is left to undo anywhere: keep the outcome, forget the rest. Not if this node knows of no end."""
        acceptor, out = replica.acceptor, self._shared.out
        if not replica.final and acceptor.accepted is not None and acceptor.accepted.state.final:
            # It was decided and this node had said that it is clean; only the memory of that is gone, and since then an
            # older decided state may have come.
            acceptor.learn(acceptor.accepted.view, acceptor.accepted.state, 0)
        if replica.decided is None or not replica.final or not replica.recovery.is_clean():
            return False
        state = replica.decided[1]
        del self.open[replica.instance]
        replica.forget()
        self.add_finished(replica.instance, outline_of(state))
        out.keep(f"{replica.instance}|{HISTORY}", state)
        out.deliver(Kept(replica.instance))
        return True

    def remember_end(self, instance: str, outline: Outline) -> None:
        """Another node told the outcome. What was to be undone here stays to be undone."""
        if instance in self.open or instance in self.finished:
            return
        self.add_finished(instance, outline)
        self._shared.out.deliver(Kept(instance))

    def add_finished(self, instance: str, outline: Outline) -> None:
        """Keep an outcome, and forget the oldest above the bound."""
        out = self._shared.out
        self.finished.add(instance, outline)
        out.keep(f"{instance}|{OUTLINE}", outline)
        while len(self.finished) > self._shared.config.finished_max:
            oldest = self.finished.remove_oldest()
            out.forget(f"{oldest}|{OUTLINE}")
            out.forget(f"{oldest}|{HISTORY}")
            out.deliver(Forgotten(oldest))
