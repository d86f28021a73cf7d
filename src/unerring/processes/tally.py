"""How many instances a node has of which process and status. Each is counted when it changes: to go through a hundred
thousand whenever somebody looks would take a node more time than they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from unerring.processes.finished import Finished
from unerring.processes.messages import State, Status

if TYPE_CHECKING:
    from unerring.processes.replica import Replica


class Standing(NamedTuple):
    """What an open instance counts as."""

    process: str
    status: str
    waits: tuple[str, ...] = ()
    """Services that this node asks again, as its leader, because they have not answered."""
    stuck: bool = False
    """Whether this node, as its leader, has something that does not undo."""


def status_of(state: State | None) -> str:
    """The status of an instance as people are shown it."""
    if state is None:
        return "starting"
    return "held" if state.held and state.status == Status.RUNNING else state.status


def standing_of(replica: Replica) -> Standing:
    state = replica.known
    process = "" if state is None else state.process
    if not replica.busy:
        return Standing(process, status_of(state))
    return Standing(process, status_of(state), tuple(replica.unanswered()), bool(replica.stuck()))


class Tally:
    """`replicas_of` names the replicas of an instance: several nodes count the same one, and whoever adds up the counts
    of all takes those of one node for each set of replicas."""

    def __init__(self, replicas_of: Callable[[str], str]) -> None:
        self._replicas_of = replicas_of
        self.open: dict[str, Standing] = {}
        self._counts: dict[tuple[str, Standing], int] = {}
        self._same: dict[Standing, Standing] = {}

    def note(self, replica: Replica) -> None:
        """After each step of an open instance."""
        new, old = standing_of(replica), self.open.get(replica.instance)
        if new != old:
            self.drop(replica.instance)
            new = self._same.setdefault(new, new)
            self.open[replica.instance] = new
            key = (self._replicas_of(replica.instance), new)
            self._counts[key] = self._counts.get(key, 0) + 1

    def drop(self, instance: str) -> None:
        """It is open no longer."""
        old = self.open.pop(instance, None)
        if old is not None:
            key = (self._replicas_of(instance), old)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]

    def rows(self, finished: Finished) -> list[dict[str, Any]]:
        """The counts, of those that have ended too."""
        rows = [
            {"replicas": replicas, "ended": False, "count": count, **standing._asdict()}
            for (replicas, standing), count in self._counts.items()
        ]
        for (replicas, process, status), count in finished.counts.items():
            ended = {"replicas": replicas, "ended": True, "count": count, "process": process, "status": status}
            rows.append(ended | {"waits": (), "stuck": False})
        return rows
