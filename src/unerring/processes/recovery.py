"""What a decided state says about executions outside its lineage.

An execution (g, v) is excluded once a decided state, in a view above v, has another view at g or does not have g yet:
no later lineage can contain it. In each older view at most one group is: the first whose lineage entry is above it,
else the next one, because every earlier group of that view had been decided before its successor began.
"""

from __future__ import annotations

from unerring.processes.graph import Cut, Graph
from unerring.processes.grouping import Grouping, possible_at
from unerring.processes.messages import State, Status, iid_of
from unerring.processes.undo import UndoStep


def kept(group: int, view: int, state: State) -> bool:
    """Whether the execution is in the lineage."""
    return group <= len(state.lineage) and state.lineage[group - 1].view == view


def excluded(group: int, view: int, decided_in: int, state: State) -> bool:
    """Whether no lineage will ever contain it. `state` was decided in view `decided_in`."""
    return view < decided_in and not kept(group, view, state)


def first_above(state: State, view: int) -> int:
    """The only group that an older view may have executed outside the lineage."""
    for number, step in enumerate(state.lineage, 1):
        if step.view > view:
            return number
    return len(state.lineage) + 1


def cut_before(graph: Graph, state: State, group: int) -> Cut:
    return graph.start if group == 1 else state.lineage[group - 2].cut


def sweep(graph: Graph, grouping: Grouping, state: State, decided_in: int) -> tuple[list[UndoStep], list[str]]:
    """What survivors cancel for masters that do not return, and the actions that keep them from it: those of services
    that cannot cancel. Later groups first, each in reverse order."""
    steps: list[UndoStep] = []
    blocked: list[str] = []
    for view in range(decided_in - 1, state.swept - 1, -1):
        group = first_above(state, view)
        if group == len(state.lineage) + 1 and (state.status != Status.RUNNING or state.announced):
            continue  # what follows is an undo or an announced action: both repeat the same interactions
        for name in reversed(possible_at(graph, cut_before(graph, state, group), grouping)):
            vertex = graph.by_name[name]
            if not vertex.write or vertex.final:
                continue
            if not graph.service_by_name[vertex.service].cancels:
                blocked.append(name)
                continue
            basis = state.basis[: group - 1]
            for occurrence in reversed(range((state.again + 1) * vertex.retry.occurrences_max)):
                iid = iid_of(state.instance, name, occurrence, view)
                steps.append(UndoStep(state.instance, name, iid, None, None, group, basis, True))
    return steps, blocked
