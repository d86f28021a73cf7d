"""What a decided state says about executions outside its lineage.

An execution (g, v) is excluded once a decided state, in a view above v, has another view at g or does not have g yet:
no later lineage can contain it. In each older view at most one group is: the first whose lineage entry is above it,
else the next one, because every earlier group of that view had been decided before its successor began.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from unerring.processes.graph import Cut, Graph, Vertex
from unerring.processes.grouping import Grouping, possible_at
from unerring.processes.messages import State, Status, iid_of
from unerring.processes.undo import UndoStep


def kept(group: int, view: int, state: State) -> bool:
    """Whether the execution is in the lineage."""
    return group <= len(state.lineage) and state.lineage[group - 1].view == view


def excluded(group: int, view: int, decided_in: int, state: State) -> bool:
    """Whether no lineage will ever contain it. `state` was decided in view `decided_in`."""
    return view < decided_in and not kept(group, view, state)


def cut_before(graph: Graph, state: State, group: int) -> Cut:
    return graph.start if group == 1 else state.lineage[group - 2].cut


def sweep(graph: Graph, grouping: Grouping, state: State, decided_in: int) -> tuple[list[UndoStep], list[str]]:
    """What survivors cancel for masters that do not return, and the actions that keep them from it: those of services
    that cannot cancel. Later groups first, each in reverse order."""
    steps: list[UndoStep] = []
    writes: dict[int, list[Vertex]] = {}
    highest = list(accumulate(state.views, max))
    basis = state.basis
    for view in range(decided_in - 1, state.swept - 1, -1):
        # The first group whose view is above: the only one that an older view may have executed outside the lineage.
        group = bisect_right(highest, view) + 1
        if group == len(state.lineage) + 1 and (state.status != Status.RUNNING or state.announced):
            continue  # what follows is an undo or an announced action: both repeat the same interactions
        if group not in writes:
            names = reversed(possible_at(graph, cut_before(graph, state, group), grouping))
            found = [graph.by_name[name] for name in names]
            writes[group] = [vertex for vertex in found if vertex.write and not vertex.final]
            blocked = [v.name for v in writes[group] if not graph.service_by_name[v.service].cancels]
            if blocked:
                return [], blocked
        for vertex in writes[group]:
            for occurrence in reversed(range((state.again + 1) * vertex.retry.occurrences_max)):
                iid = iid_of(state.instance, vertex.name, occurrence, view)
                steps.append(UndoStep(state.instance, vertex.name, iid, None, None, group, basis[: group - 1], True))
    return steps, []
