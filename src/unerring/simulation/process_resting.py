"""How long processes may take to come to rest once the faults are over, by what was drawn for the run.

Two bounds, as for correlation (`resting`):

| bound | what it is made of |
|---|---|
| `silence_us`, without any step | all that nodes, services and the workload wait for, one after the other |
| `rest_us`, altogether | as long for every generation, and all that is left, one after the other |

Chance has its part: services do not answer or fail to undo as often as their temper says, and candidates collide. What
depends on it is waited for as long as it takes in all but the rarest cases (`RARE`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cached_property
from math import prod
from typing import Final

from unerring.model import SECOND_US, Address
from unerring.processes import (
    ASK_US,
    FORWARD_US,
    LOCAL,
    ROUND_SPARE,
    START_US,
    Kind,
    Limits,
    Process,
    ProcessesConfig,
    ProcessNode,
    Replica,
    State,
    Vertex,
)
from unerring.simulation.disk import DiskSpec
from unerring.simulation.network import FATES, LinkSpec, fates
from unerring.simulation.process_architect import ITEMS
from unerring.simulation.process_parts import LATER, LOST_ON_THE_WAY, OFFER_US, Temper
from unerring.simulation.world import World

RARE: Final = 1e-6
"""The chance of something worse than what is waited for."""
AGAIN_US: Final = SECOND_US
"""How often an operator lets what is held in the calm try again."""
ELECTIONS_MAX: Final = 32
COLLIDE_SHIFT_MAX: Final = 6
"""How often the pause of candidates doubles (`Watch`)."""
SLOWEST: Final = 2
"""Of several replicas the slower one counts; its messages take so many times longer than those of one."""
CHILD_ACTIONS: Final = 2
"""The most actions of what undoes a child (`Architect.small`)."""
GENERATIONS: Final = 3
"""A process, its children, and what undoes them."""
MOST: Final = 0.9
"""A chance that adds up to more is counted as this."""
NO_LIMITS: Final = Limits()
_ATTEMPT: Final = re.compile(r"~\d+")
"""The number of a process that undoes a child: one that does not complete is tried again, as another instance."""


def times(chance: float) -> int:
    """How often what fails with this chance has to be tried until it rarely fails each time."""
    tries, left = 1, (chance := min(chance, MOST))
    while left > RARE:
        tries, left = tries + 1, left * chance
    return tries


class Steps:
    """The steps forward of a run, each counted when it is made for the first time.

    | step | of |
    |---|---|
    | a place of the graph is known to be decided | a node and an instance |
    | an action of the group at a place has an answer | an instance, whichever view executes it |
    | an interaction is undone or cancelled | a node, and of the views that were there before the calm |
    | an instance is clean, or settled | a node |
    | a node takes part | a node |

    A place is where the marks are, in which rounds, and what the instance is about to do: not the number of its group,
    its view or its occurrence. So views that change for ever, groups that an operator lets try the same again for ever,
    and processes that undo a child and fail for ever are no steps, and neither are requests that are repeated.

    Not told apart: the children that each retry by an operator starts anew have other names each time, and look like
    work. `rest_us` ends that.
    """

    def __init__(self) -> None:
        self._made: set[object] = set()
        self._views: dict[str, int] | None = None
        """The highest view of each instance when the calm began."""

    def count(self, world: World, names: Iterable[Address]) -> int:
        nodes = {name: machine for name in names if isinstance(machine := world.machine(name), ProcessNode)}
        if self._views is None:
            self._views = {}
            for node in nodes.values():
                for instance, replica in node.instances.items():
                    self._views[instance] = max(self._views.get(instance, 0), replica.acceptor.view)
        for name, node in nodes.items():
            if node.shared.incarnations.present:
                self._made.add(name)
            self._made.update((name, _ATTEMPT.sub("~", instance)) for instance in node.finished)
            for instance, replica in node.instances.items():
                self._note(name, _ATTEMPT.sub("~", instance), replica)
        return len(self._made)

    def _note(self, node: Address, instance: str, replica: Replica) -> None:
        if replica.decided is None:
            return
        state = replica.decided[1]
        self._made.add((node, instance, _place(state)))
        if replica.recovery.is_clean():
            self._made.add((node, instance, "clean"))
        execution = replica.master.execution
        for outcome in execution.outcomes if execution is not None else ():
            self._made.add((instance, _place(state), outcome.vertex))
        if replica.undoing.undo is not None:
            self._made.update((node, iid) for iid in replica.undoing.undo.done)
        outside = [*replica.recovery.undos.values(), *([replica.recovery.sweep] if replica.recovery.sweep else [])]
        views = self._views or {}
        for undo in outside:
            self._made.update((node, iid) for iid in undo.done if _view_of(iid) <= views.get(replica.instance, 0))


def _place(state: State) -> object:
    rounds = tuple(sorted(state.rounds.items()))
    return state.cut, rounds, state.status, state.announced, bool(state.held), bool(state.rewound)


def _view_of(iid: str) -> int:
    view = iid.rpartition("@")[2].lstrip("b")
    return int(view) if view.isdecimal() else 0


class Waits:
    """What one thing waits for another in a run in which nothing fails any more, each by its own pauses."""

    def __init__(
        self,
        config: ProcessesConfig,
        processes: Collection[Process],
        temper: Temper,
        disk: DiskSpec,
        replicas: int,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.config = config
        self._temper = temper
        self._limits = limits
        self._replicas = replicas
        self._processes = processes
        self._vertices = [vertex for process in processes for vertex in process.graph.vertices]
        there_us = SLOWEST * sum(fates(LinkSpec())) // FATES
        self.turn_us = there_us + disk.sync_us + disk.spread_us + config.tick_us
        """A message to somebody who keeps it, and acts with its next tick."""

    @property
    def silence_us(self) -> int:
        """All of it, one after the other, but what depends on how many instances are open."""
        return (
            self.leader_us
            + self.rejoin_us
            + self.request_us
            + self.undo_us
            + self.mail_us
            + self.child_us
            + self.held_us
            + self.time_us
            + self.end_us
        )

    # ---- nodes -------------------------------------------------------------------------------------------------

    @property
    def leader_us(self) -> int:
        """A leader is gone, and another takes its place. It is missed after the longest pause that was heard of it; a
        first replica gets longer for a start."""
        return max(self.config.suspect_us, self.config.suspect_us_max) + START_US + self.elections_us

    def round_us(self, led: int) -> int:
        """Not before a round of its heartbeats, which name so many instances."""
        return round((-(-led // self.config.leads_max) + 1) * self.config.heartbeat_us * ROUND_SPARE)

    def once_more_us(self, open_instances: int) -> int:
        """Links have long tails: a leader that lives is suspected now and then. Then a group is undone, and executed
        again from its beginning; at services with limits in the turns that all open instances take."""
        lengths = [sum(v.service != LOCAL for v in process.graph.vertices) for process in self._processes]
        sharing = max(1, open_instances) if self._turn_at_service_us else 1
        return round(max(lengths, default=0) * sharing * (self.pace_us + self.undo_pace_us))

    @property
    def elections_us(self) -> int:
        """Candidates collide if they ask within the time that it takes to win, and each time wait for twice as long, by
        chance, before they ask again."""
        c, left, waited_us = self.config, 1.0, 0
        win_us = 2 * self.turn_us  # votes, and a state of the new view
        for elections in range(ELECTIONS_MAX):
            if left <= RARE:
                break
            backoff_us = c.backoff_us << min(elections, COLLIDE_SHIFT_MAX)
            waited_us += c.suspect_us + backoff_us
            left *= min(1.0, (self._replicas - 1) * win_us / backoff_us)
        return waited_us

    @property
    def rejoin_us(self) -> int:
        """A node with an empty disk asks twice for what the others know, and fetches a state of which one was lost."""
        return 2 * ASK_US + self.config.transfer_us

    @property
    def end_us(self) -> int:
        """All are asked if they are clean, and a state that nobody acknowledged is sent again."""
        return 2 * self.config.heartbeat_us + self.config.resend_us_max

    # ---- services ----------------------------------------------------------------------------------------------

    @property
    def request_us(self) -> int:
        """An action has an answer, or is given up for good, in as many attempts as chance needs."""
        return times(self.unanswered) * self._attempt_us + self._work_us

    @property
    def undo_us(self) -> int:
        """An interaction is undone, at pauses that double."""
        return sum(self._undo_pauses_us) + self._work_us

    @property
    def held_us(self) -> int:
        """What an operator lets try again is held again, as often as its services want it."""
        if not any(process.graph.holds for process in self._processes):
            return 0
        return times(self.refused(self._vertices)) * round(AGAIN_US + self.pace_us)

    @property
    def child_us(self) -> int:
        """A start is handed on to who begins it, and its parent asks for its end. What undoes a child is begun again,
        until it does not fail."""
        children = [child for process in self._processes for child in process.children.values()]
        if not children:
            return 0
        fails = 1 - (1 - self.refused(vertex for child in children for vertex in child.graph.vertices)) ** CHILD_ACTIONS
        once_us = FORWARD_US + self.config.tend_us + round(CHILD_ACTIONS * self.pace_us)
        return (1 + times(fails)) * once_us

    @property
    def unanswered(self) -> float:
        """The chance that an attempt brings in its time nothing that can be used."""
        t = self._temper
        return 1 - (1 - t.silent) * (1 - t.late) * (1 - t.muddled) * (1 - t.garbage)

    def refused(self, vertices: Iterable[Vertex]) -> float:
        """The chance that an action is given up: refused for good, or in each of its occurrences, or never answered. In
        that case another view tries it again, but not what cannot be undone."""
        t, views = self._temper, self.config.abort_views_max
        chances = [0.0]
        for vertex in vertices:
            if vertex.service != LOCAL:
                once = t.garbage + t.refuses**vertex.retry.occurrences_max
                again = once + self.unanswered**vertex.retry.attempts_max
                chances.append(t.refuses_for_good + (once if vertex.final else min(1.0, again) ** views))
        return min(MOST, max(chances))

    @property
    def _work_us(self) -> int:
        return self._temper.work_us_max * (LATER if self._temper.late else 1)

    @property
    def _turn_at_service_us(self) -> int:
        """A service with limits has room again, and is not left alone after failures any more."""
        limits = self._limits
        rates = [rate for rate in (limits.per_second, limits.key_per_second) if rate is not None]
        rate_us = max((SECOND_US // rate for rate in rates), default=0)
        return rate_us + (round(limits.failures_pause_s * SECOND_US) if limits.failures_max is not None else 0)

    @property
    def _attempt_us(self) -> int:
        retries = [vertex.retry for vertex in self._vertices if vertex.service != LOCAL]
        longest_us = max((retry.attempt_us + retry.backoff_max_us for retry in retries), default=0)
        return longest_us + self._turn_at_service_us

    @property
    def _fails_to_undo(self) -> float:
        t = self._temper
        return 1 - (1 - t.silent) * (1 - t.late) * (1 - t.muddled) * (1 - t.undo_fails)

    @cached_property
    def _undo_pauses_us(self) -> list[int]:
        c, turn_us = self.config, self._turn_at_service_us
        tries = times(self._fails_to_undo)
        return [min(c.undo_attempt_us << min(tried, 20), c.undo_pause_us_max) + turn_us for tried in range(tries)]

    # ---- the workload ------------------------------------------------------------------------------------------

    @property
    def mail_us(self) -> int:
        """A message reaches f+1 replicas; who stores it offers it to the leader at its longest pause."""
        c = self.config
        if not any(vertex.kind in (Kind.RECEIVE, Kind.CHILD) for vertex in self._vertices):
            return 0
        published_us = c.resend_us_max if any(vertex.key for vertex in self._vertices) else 0
        return times(LOST_ON_THE_WAY) * OFFER_US + c.mail_pause_us_max + published_us

    @property
    def time_us(self) -> int:
        """The longest sleep."""
        return max((vertex.time_us for vertex in self._vertices if vertex.kind is Kind.SLEEP), default=0)

    # ---- the pace ----------------------------------------------------------------------------------------------

    @cached_property
    def pace_us(self) -> float:
        """What an action takes on the average that others wait for: its naming, its requests, its state."""
        missed = min(MOST, self.unanswered)
        return 4 * self.turn_us + self._mean_us + missed / (1 - missed) * self._attempt_us

    @cached_property
    def undo_pace_us(self) -> float:
        """What it takes on the average to undo an interaction."""
        chance = self._fails_to_undo
        waited_us = sum(chance ** (tried + 1) * pause_us for tried, pause_us in enumerate(self._undo_pauses_us))
        return self.turn_us + self._mean_us + waited_us

    @property
    def _mean_us(self) -> float:
        """Of a request in its turn."""
        t = self._temper
        return self._turn_at_service_us + t.work_us_max * (1 + t.late * (LATER - 1)) / 2


class ProcessResting:
    """The bounds of one run."""

    def __init__(
        self, waits: Waits, names: Collection[Address], processes: Collection[Process], waits_us: int = 0
    ) -> None:
        """`names`: of the nodes. `waits_us`: how long what the scenario plays itself may take."""
        self._waits = waits
        self._silence_us = waits.silence_us + waits_us
        self._names = names
        self._processes = {f"{process.name}@{process.graph.version}": process for process in processes}
        self._generations = GENERATIONS if any(process.children for process in processes) else 1
        self._most = max(map(work, processes), default=0)
        self._ended: Collection[str] | None = None
        """Instances that were at their end when it was first asked."""
        self._cancelled_us = 0.0
        self._steps = Steps()

    def progress(self, world: World) -> int:
        return self._steps.count(world, self._names)

    def silence_us(self, world: World) -> int:
        led = max((len(node.instances) for node in self._nodes(world)), default=0)
        return self._silence_us + self._waits.round_us(led) + self._waits.once_more_us(led)

    def rest_us(self, world: World, instances: Collection[str]) -> int:
        """Everything that was not at its end when it was first asked, and whatever came since, is done and undone; all
        that survivors may have to cancel is cancelled by each node. What finds no room comes again after a while."""
        nodes = self._nodes(world)
        if self._ended is None:
            self._ended = {name for name in instances if nodes and all(name in node.finished for node in nodes)}
            cancels = sum(self._cancels(replica) for node in nodes for replica in node.instances.values())
            self._cancelled_us = cancels * self._waits.undo_pace_us
        ended = self._ended
        left = sum(name not in ended for name in instances)
        waits = self._waits
        queued = max(0, left - waits.config.instances_max)
        room_us = queued * (FORWARD_US + waits.end_us)
        work_us = SLOWEST * left * self._most * (waits.pace_us + waits.undo_pace_us)
        return self._generations * self.silence_us(world) + round(room_us + work_us + self._cancelled_us)

    def _nodes(self, world: World) -> list[ProcessNode]:
        return [machine for name in self._names if isinstance(machine := world.machine(name), ProcessNode)]

    def _cancels(self, replica: Replica) -> int:
        """The most that a node may have to cancel for masters of older views that do not return."""
        state = replica.decided[1] if replica.decided is not None else None
        process = self._processes.get(f"{state.process}@{state.version}") if state is not None else None
        if state is None or process is None:
            return 0
        writes = [vertex for vertex in process.graph.vertices if vertex.write and not vertex.final]
        occurrences = sum(vertex.retry.occurrences_max for vertex in writes) * (state.again + 1)
        return (replica.acceptor.view - state.swept) * occurrences


def work(process: Process) -> int:
    """The actions of a process, each in all of its rounds, and those of its children and of what undoes them."""
    graph = process.graph
    children = sum(work(child) for child in process.children.values())
    actions = 0
    for vertex in graph.vertices:
        rounds = prod(graph.by_name[loop].at_most for loop in graph.around[vertex.name])
        begins = children * (len(ITEMS) if vertex.over else 1) if vertex.kind is Kind.CHILD else 0
        actions += rounds * (1 + begins)
    return actions
