"""The instances of a node for people: fields by which they are found, and rows. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from unerring.processes.build import Process
from unerring.processes.finished import Equal
from unerring.processes.messages import FINAL, Outline
from unerring.processes.replica import Replica
from unerring.processes.roster import Roster
from unerring.processes.tally import Tally, status_of

Field = Callable[[str], Any]
"""The value of a field of one instance; None if it has none."""
_OUTLINED: Final = ("process", "version", "status", "reason", "parent", "ended_us")
_SHOWN: Final = (
    *("instance", "process", "version", "status", "reason", "role", "view", "group", "stuck"),
    *("waits", "waits_for", "parent", "unanswered"),
)


class Listing:
    """Of open instances a field is read where it lies: the whole row of each would be most of a search's time."""

    def __init__(self, processes: Mapping[str, Process], roster: Roster, tally: Tally) -> None:
        self._processes = processes
        self._roster = roster
        self._tally = tally

    @property
    def attributes(self) -> tuple[str, ...]:
        """All variables by which some process lists its instances."""
        return tuple(dict.fromkeys(name for process in self._processes.values() for name in process.attributes))

    def fields(self, equal: Sequence[Equal] = ()) -> Iterator[tuple[str, Field]]:
        """Instances one after the other, those first that go on, each with what tells its fields. At least all that
        have the values `equal`."""
        for instance in chain(self.going_on(equal), self.over(equal)):
            field = self.field(instance)
            if field is not None:
                yield instance, field

    def going_on(self, equal: Sequence[Equal] = ()) -> list[str]:
        """Instances that have not come to an end, among which are all that have these values."""
        return [instance for instance in self._open(equal) if not self._has_ended(instance)]

    def over(self, equal: Sequence[Equal] = ()) -> list[str]:
        """The same of those that have, in about the order of their ends."""
        return [*self._roster.finished.having(equal), *filter(self._has_ended, self._open(equal))]

    def _has_ended(self, instance: str) -> bool:
        standing = self._tally.open.get(instance)
        return standing is not None and standing.status in FINAL

    def _open(self, equal: Sequence[Equal]) -> list[str]:
        wanted = dict(equal)
        if "instance" in wanted:
            return [wanted["instance"]] if wanted["instance"] in self._roster.open else []
        named = [(name, wanted[name]) for name in ("process", "status") if name in wanted]
        if not named:
            return list(self._roster.open)
        counted = self._tally.open.items()
        return [one for one, standing in counted if all(getattr(standing, name) == value for name, value in named)]

    def field(self, instance: str) -> Field | None:
        """None: this node knows no such instance any more."""
        replica = self._roster.open.get(instance)
        if replica is not None:
            return partial(_of_open, replica)
        done = self._roster.finished.get(instance)
        return None if done is None else partial(_of_ended, instance, done)

    def row(self, instance: str) -> dict[str, Any] | None:
        replica = self._roster.open.get(instance)
        if replica is not None:
            known = replica.query()
            return {name: known[name] for name in _SHOWN} | self.attributes_of(known)
        done = self._roster.finished.get(instance)
        if done is None:
            return None
        row: dict[str, Any] = {"instance": instance, "process": done.process, "version": done.version}
        row |= {"status": done.status, "reason": done.reason, "ended_us": done.ended_us, "parent": done.parent}
        return row | self.attributes_of(row | {"variables": done.variables})

    def attributes_of(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The declared attributes of an instance with their values, if its process has any."""
        process = self._processes.get(f"{known['process']}@{known['version']}")
        names = process.attributes if process is not None else ()
        return {"attributes": {name: known["variables"].get(name) for name in names}} if names else {}


def _of_ended(instance: str, done: Outline, name: str) -> Any:
    if name == "instance":
        return instance
    return getattr(done, name) if name in _OUTLINED else done.variables.get(name)


def _of_open(replica: Replica, name: str) -> Any:
    state = replica.known
    match name:
        case "instance":
            return replica.instance
        case "status":
            return status_of(state)
        case "view":
            return replica.acceptor.view
        case "role":
            return replica.role
        case "group":
            return state.group if state else -1
        case "process" | "version" | "parent":
            return getattr(state, name) if state else ""
        case "reason":
            return (state.reason or state.held) if state else ""
        case _:
            return state.variables.get(name) if state else None
