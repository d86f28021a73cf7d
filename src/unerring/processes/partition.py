"""The best groups of a sequence of actions at a failover threshold, by dynamic programming.

Filling each group up to the threshold gives few state replications, but says nothing about what a failure destroys: a
master that dies at the end of a group leaves all of its writes to be compensated. Of all partitions that the two rules
of grouping allow, this one has the fewest groups and, among those, the least compensation cost to be expected when the
master fails at a moment that nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unerring.model import invariant
from unerring.processes.graph import Graph, Vertex

if TYPE_CHECKING:
    from unerring.processes.grouping import Grouping


def may_be_active(vertex: Vertex) -> bool:
    """Rule 1, and never a write. Local functions and reads without cost; nothing that waits."""
    return not vertex.write and vertex.cost == 0 and not vertex.waits and not vertex.alone and not vertex.atomic


def ends_in(graph: Graph, grouping: Grouping) -> tuple[str, ...]:
    """The best ends of the groups in all sequences of a graph. What follows a sequence may belong to its last group:
    there the threshold alone decides."""
    return tuple(end for actions in graph.sequences for end in best_ends(actions, grouping)[:-1])


def lost(actions: Sequence[Vertex]) -> int:
    """Compensation cost times microseconds: for each action, how long it is done while its group is not."""
    left_us = sum(action.time_us for action in actions)
    total = 0
    for action in actions:
        left_us -= action.time_us
        # An action under way may have had its effect: half of its own time counts.
        total += action.cost * (left_us + action.time_us // 2)
    return total


def best_ends(actions: Sequence[Vertex], grouping: Grouping) -> tuple[str, ...]:
    """For `Grouping.ends`: after which actions of a sequence its groups end."""
    invariant(all(action.acts and not action.waits and not action.final for action in actions), "a plain sequence")
    count = len(actions)
    best: list[tuple[int, int, int]] = [(0, 0, count)] * (count + 1)
    """From each action to the end: groups, expected loss, and where the first group ends."""
    for begin in range(count - 1, -1, -1):
        best[begin] = min(
            (1 + best[end][0], lost(actions[begin:end]) + best[end][1], end)
            for end in _possible(actions, begin, grouping)
        )
    ends: list[str] = []
    at = 0
    while at < count:
        at = best[at][2]
        ends.append(actions[at - 1].name)
    return tuple(ends)


def _possible(actions: Sequence[Vertex], begin: int, grouping: Grouping) -> list[int]:
    """Where a group that begins here may end, as `group_at` has it."""
    end = begin
    while end < len(actions) and may_be_active(actions[end]):
        end += 1
    if end > begin and not all(action.deterministic for action in actions[begin:end]):
        return [end]  # Backups of non-deterministic actions count once they are replicated: the group ends there.
    budget_us = max(grouping.failover_us - grouping.view_change_us, 0)
    time_us = 0
    ends: list[int] = [end] if end == len(actions) else []
    while end < len(actions):
        time_us += actions[end].time_us
        if time_us > budget_us and time_us > actions[end].time_us:
            break
        end += 1
        ends.append(end)
    return ends
