"""The naming slot: who executes the next group. There is one for each view and group; a cancellation takes it too. And
whom a planner names: a choice that is its own, since any replica may execute any group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unerring.model import Address, invariant
from unerring.processes.acceptor import Acceptor
from unerring.processes.config import Choice
from unerring.processes.context import Context, Shared, read
from unerring.processes.graph import Graph
from unerring.processes.grouping import Group as GroupPlan
from unerring.processes.messages import GROUP_MAX, Naming, State


def nearest(graph: Graph, state: State, group: GroupPlan, members: Sequence[Address]) -> Address:
    """The replica for which the group's service answered soonest so far in this instance; one that was not tried yet
    comes first, so that it is known."""
    services = [graph.by_name[name].service for name in group.vertices if graph.by_name[name].acts]
    times_us: dict[Address, list[int]] = {}
    for action in state.taken:
        at = action.group - 1 - state.unpacked_from
        if action.took_us and at >= 0 and graph.by_name[action.vertex].service in services:
            times_us.setdefault(state.lineage[at].master, []).append(action.took_us)
    return min(members, key=lambda member: sum(times_us.get(member, [0])) / len(times_us.get(member, [0])))


def led_by(shared: Shared, members: Sequence[Address]) -> dict[Address, int]:
    """How many instances each leads, as far as is known here."""
    return {one: len(shared.led if one == shared.me else shared.followed.get(one, ())) for one in members}


def idlest(shared: Shared, members: Sequence[Address]) -> Address:
    """The replica that leads the fewest instances."""
    led = led_by(shared, members)
    return min(members, key=lambda member: led[member])


def chosen(choice: Choice, context: Context, process: str, group: GroupPlan, members: Sequence[Address]) -> Address:
    """The replica that a function names. If it fails, or names none of them, the planner keeps the group."""
    led = {one.partition("/")[0]: count for one, count in led_by(context.shared, members).items()}
    try:
        name = choice(process, tuple(group.vertices), led)
    except Exception as error:  # a user's function: an instance must not stand still for it
        context.report("naming_failed", f"the choice of the next master raises {type(error).__name__}: {error}")
        return context.me
    for member in members:
        if member.partition("/")[0] == name:
            return member
    context.report("naming_failed", f"the choice of the next master is {name!r}; it must be one of {', '.join(led)}")
    return context.me


class Slot:
    """On disk before another replica hears of it. A slot that this replica uses itself is closed on disk by what it
    writes there: the log before the first write's request, or the state."""

    __slots__ = ("_acceptor", "_context", "_naming")

    def __init__(self, context: Context, acceptor: Acceptor, records: Mapping[str, bytes]) -> None:
        self._context = context
        self._acceptor = acceptor
        self._naming: Naming | None = read(records, "naming", Naming)

    def taken(self, group: int) -> bool:
        naming = self._naming
        return naming is not None and (naming.view, naming.group) >= (self._acceptor.view, group)

    def named(self, group: int) -> Address:
        """The replica that may use it; empty: none was named yet."""
        return self._naming.master if self._naming is not None and self.taken(group) else ""

    def take(self, group: int, master: Address) -> None:
        invariant(not self.taken(group), "one naming for each view and group")
        self._naming = Naming(self._acceptor.view, group, master)
        if master != self._context.me:
            self._context.keep("naming", self._naming)

    def close(self, view: int) -> None:
        """Up to this view it may have been taken, by whatever this replica forgot: it is nobody's."""
        self._naming = Naming(view, GROUP_MAX, "")
        self._context.keep("naming", self._naming)

    def use(self, group: int) -> None:
        """Take the naming for what this replica does itself."""
        if not self.taken(group):
            self.take(group, self._context.me)

    def give(self, group: int) -> bool:
        """Another one named this replica: whether the slot is its own now."""
        slot = Naming(self._acceptor.view, group, self._context.me)
        if self.taken(group) and self._naming != slot:
            return False
        self._naming = slot
        return True
