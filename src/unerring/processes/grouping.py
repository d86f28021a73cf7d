"""Which actions are executed between two state replications, and whether actively or passively.

The paper's two rules: an actively replicated group has no compensation cost; a passively replicated one is re-executed
within the failover threshold, t_v + Σ t(v) ≤ t_f, where concurrent branches count by the longest way through them.
Beyond the paper: a write is never active, whatever its learned cost; a non-compensable action is alone, across branches
too; a group contains no wait.

The group that starts at a cut is a function of the cut alone (and of which waits have ended), so that survivors know
what a dead master may have executed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Final

import msgspec

from unerring.model import ClusterConfig, check
from unerring.processes.graph import Cut, Graph, Kind, Vertex
from unerring.processes.partition import ends_in, may_be_active

ENDING: Final = (Kind.AGAIN, Kind.WITHIN)
"""Control vertices that end a group: the state after them is decided before anything follows."""


class Grouping(ClusterConfig, frozen=True):
    """The failover threshold t_f and the time of a view change t_v. Equal on all replicas of a process."""

    failover_us: int = 2_000_000
    view_change_us: int = 500_000
    each_alone: bool = False
    """Every action a group of its own: the paper's plain passive replication."""
    ends: tuple[str, ...] = ()
    """Actions after which a group ends although the threshold allows more: a designer's choice, or `partition`'s."""

    def __post_init__(self) -> None:
        check(self, "failover_us", 0, 86_400_000_000)
        check(self, "view_change_us", 0, 86_400_000_000)


class Group(msgspec.Struct, frozen=True):
    """The actions executed from one decided state to the next."""

    vertices: tuple[str, ...]
    """All vertices that may be executed, with every branch of an XOR; in topological order."""
    active: tuple[str, ...] = ()
    """The part that every replica executes: the master's execution counts, the others are backups."""
    announce: str = ""
    """A non-compensable action that this group announces."""
    time_us: int = 0
    """The longest way through the part that a new master has to execute again."""

    @property
    def empty(self) -> bool:
        return not self.vertices and not self.announce


def grouping_of(graph: Graph, grouping: Grouping) -> Grouping:
    """What counts for a process: its own threshold, with the best groups for it, or that of the nodes; and the time of
    a view change that was measured, or that of the nodes."""
    if graph.view_change_us:
        grouping = msgspec.structs.replace(grouping, view_change_us=graph.view_change_us)
    if not graph.failover_us:
        return grouping
    own = msgspec.structs.replace(grouping, failover_us=graph.failover_us)
    return msgspec.structs.replace(own, ends=(*grouping.ends, *ends_in(graph, own)))


def group_at(
    graph: Graph,
    cut: Cut,
    ready: tuple[str, ...],
    announced: str,
    grouping: Grouping,
    active_if: Callable[[Vertex], bool] = may_be_active,
) -> Group:
    """The group that starts at this cut. `ready` are the waits that have ended; empty: nothing can go on but waits."""
    if announced:
        return Group((announced,), time_us=graph.by_name[announced].time_us)
    grouping = grouping_of(graph, grouping)
    active = _walk(graph, cut, (), active_if, None)
    acting = [name for name in active if graph.by_name[name].acts]
    if acting and not all(graph.by_name[name].deterministic for name in acting) and not grouping.each_alone:
        # What a non-deterministic backup read counts only once it is replicated, so the group ends here.
        return Group(active, active, time_us=0)
    budget_us = grouping.failover_us - grouping.view_change_us
    if grouping.each_alone:
        return _alone(graph, _walk(graph, cut, ready, lambda vertex: not vertex.final, 0), cut)
    whole = _walk(graph, cut, ready, lambda vertex: not vertex.final, budget_us, free=active, ends=grouping.ends)
    if any(graph.by_name[name].acts for name in whole) or _ends(graph, whole, cut):
        active = tuple(name for name in active if name in whole) if acting else ()
        return Group(whole, active, time_us=_longest(graph, whole, active))
    return _final(graph, whole, cut)


def possible_at(graph: Graph, cut: Cut, grouping: Grouping) -> tuple[str, ...]:
    """Everything that some group starting at this cut may execute, whichever waits had ended."""
    waits = [vertex.name for vertex in graph.enabled(_through(graph, cut)) if vertex.waits]
    if len(waits) > 4:  # more subsets than it is worth; then all that can be reached before the next wait
        return _walk(graph, cut, tuple(waits), lambda vertex: not vertex.final, None, alone=False)
    possible: dict[str, None] = {}
    for count in range(len(waits) + 1):
        for ready in combinations(waits, count):
            group = group_at(graph, cut, ready, "", grouping)
            possible.update(dict.fromkeys(group.vertices))
    return tuple(sorted(possible, key=graph.rank.__getitem__))


def _through(graph: Graph, cut: Cut) -> Cut:
    """The cut after joins and AND-splits that can fire by themselves: it shows the waits behind them."""
    moved = True
    while moved:
        moved = False
        for vertex in graph.enabled(cut):
            if not vertex.acts and vertex.kind not in (Kind.XOR_SPLIT, *ENDING):
                cut, moved = graph.fire(cut, vertex), True
                break
    return cut


def _walk(
    graph: Graph,
    cut: Cut,
    ready: tuple[str, ...],
    may: Callable[[Vertex], bool],
    budget_us: int | None,
    free: tuple[str, ...] = (),
    ends: tuple[str, ...] = (),
    alone: bool = True,
) -> tuple[str, ...]:
    """Vertices reachable from the cut through allowed ones only, while the longest way stays within the budget.

    An action over the budget is still taken when nothing costly precedes it in the walk: a group has at least one.
    `alone` False: those that are to be a group of their own are taken with the others.
    """
    finish: dict[int, int] = dict.fromkeys(cut, 0)
    taken: list[str] = []
    fits: dict[str, bool] = {}
    """Atomic blocks: taken whole, or not at all."""
    for name in graph.order:
        vertex = graph.by_name[name]
        came = [finish[number] for number in graph.incoming[name] if number in finish]
        needed = len(graph.incoming[name]) if vertex.kind is Kind.AND_JOIN else 1
        if len(came) < needed:
            continue
        begin = max(came)
        if vertex.acts:
            if vertex.waits and name not in ready:
                continue
            if not vertex.waits and not may(vertex):
                continue
            if alone and vertex.alone and any(graph.by_name[other].acts for other in taken):
                continue
            if alone and any(graph.by_name[other].alone for other in taken):
                continue
        end = begin + (0 if name in free or vertex.waits or not vertex.acts else vertex.time_us)
        if budget_us is not None and begin > 0 and name not in free:
            if vertex.atomic:
                whole_us = begin + graph.atomic_us[vertex.atomic]
                if not fits.setdefault(vertex.atomic, whole_us <= max(budget_us, 0)):
                    continue
            elif end > max(budget_us, 0):
                continue
        fits.setdefault(vertex.atomic, True)
        taken.append(name)
        if (
            (name in ends and not graph.goes_on_atomically(vertex))
            or (vertex.waits and vertex.final)
            or vertex.kind in ENDING
        ):
            continue  # a child that stays, a round of a loop, and a block's beginning are decided before what follows
        for number in graph.outgoing[name]:
            finish[number] = end
    return tuple(taken)


def _alone(graph: Graph, reachable: tuple[str, ...], cut: Cut) -> Group:
    """The first action that can be reached, with the control vertices on the way to it and behind it."""
    reached = dict.fromkeys(cut)
    chosen = ""
    taken = []
    for name in reachable:
        vertex = graph.by_name[name]
        came = [number for number in graph.incoming[name] if number in reached]
        if len(came) < (len(graph.incoming[name]) if vertex.kind is Kind.AND_JOIN else 1):
            continue
        if vertex.acts:
            # XOR branches exclude each other: one action of each may stand for "the first".
            together = bool(chosen) and vertex.atomic and graph.by_name[chosen].atomic == vertex.atomic
            if chosen and not together and not _excluded(graph, chosen, name):
                continue
            chosen = chosen or name
        taken.append(name)
        if vertex.kind not in ENDING:
            reached.update(dict.fromkeys(graph.outgoing[name]))
    if chosen or _ends(graph, tuple(taken), cut):
        return Group(tuple(taken), time_us=_longest(graph, tuple(taken), ()))
    return _final(graph, tuple(taken), cut)


def _excluded(graph: Graph, one: str, other: str) -> bool:
    from unerring.processes.checks import concurrent

    apart = one not in graph.before[other] and other not in graph.before[one]
    return apart and not concurrent(graph, one, other)


def _ends(graph: Graph, taken: tuple[str, ...], cut: Cut) -> bool:
    """Whether these vertices may lead to the end."""
    last = graph.edges[graph.incoming[""][0]].source
    return last in taken or (not last and bool(cut))


def _final(graph: Graph, control: tuple[str, ...], cut: Cut) -> Group:
    """Only control vertices, waits and non-compensable actions are left. Control vertices go first: they may reveal
    more. Then one non-compensable action is announced."""
    for vertex in graph.enabled(cut):
        if vertex.final and not vertex.waits:
            return Group((), announce=vertex.name)
    if control:
        return Group(control)
    return Group(())


def time_of(graph: Graph, group: Group) -> int:
    """How long its master takes: the longest way through all of it."""
    return _longest(graph, group.vertices, ())


def _longest(graph: Graph, taken: tuple[str, ...], free: tuple[str, ...]) -> int:
    finish: dict[str, int] = {}
    for name in taken:
        sources = [graph.edges[number].source for number in graph.incoming[name]]
        vertex = graph.by_name[name]
        own = vertex.time_us if vertex.acts and not vertex.waits and name not in free else 0
        finish[name] = own + max([finish.get(source, 0) for source in sources], default=0)
    return max(finish.values(), default=0)
