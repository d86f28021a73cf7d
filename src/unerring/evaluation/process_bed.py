"""Parts of a run of the process paper's evaluation: a random process, a service that takes its time, two networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random
from typing import Any, Final

import msgspec

from unerring.model import MILLISECOND_US, SECOND_US, Effects, Entropy, SetTimer
from unerring.processes import (
    Edge,
    Election,
    Graph,
    Kind,
    Process,
    ProcessesConfig,
    Replica,
    Replicate,
    Replication,
    Retry,
    Service,
    Variable,
    Vertex,
    Vote,
    Watch,
)
from unerring.simulation import DiskSpec, LinkSpec, SimService, Temper

DEVIATION_MS: Final = 500
"""The standard deviation of an action's execution time."""
MEAN_MS: Final = 100
"""The paper names none. Cut off at zero, this gives a mean of 254 ms; 0, 250 and 500 are measured beside it."""
NON_WRITE: Final = 0.25
COST_MAX: Final = 100
VERDICT: Final = "verdict"
"""Active replication: every execution ends by waiting for the word whether it is the one that counts."""

_PATIENT: Final = Retry(attempt_us=60 * SECOND_US, attempts_max=5)
_CALM: Final = Temper(1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def random_actions(seed: int, actions: int, mean_ms: int = MEAN_MS) -> list[Vertex]:
    """The paper's random process: times, classes and costs."""
    draw = Random(f"process {seed}")
    drawn: list[Vertex] = []
    for number in range(actions):
        time_us = max(1, round(draw.gauss(mean_ms, DEVIATION_MS) * MILLISECOND_US))
        write = draw.random() >= NON_WRITE
        cost = draw.randint(0, COST_MAX)
        drawn.append(
            Vertex(
                f"a{number:03}",
                Kind.CALL,
                service="bank",
                operation="write" if write else "read",
                reads=("v",),
                writes=("v",),
                write=write,
                cost=cost if write else 0,
                time_us=time_us,
                retry=_PATIENT,
            )
        )
    return drawn


def sequence(actions: list[Vertex], verdict: bool = False) -> Process:
    """One after the other."""
    vertices = [*actions, Vertex(VERDICT, Kind.RECEIVE, channel=VERDICT)] if verdict else list(actions)
    names = ["", *(vertex.name for vertex in vertices), ""]
    edges = tuple(Edge(one, other) for one, other in pairwise(names))
    graph = Graph("p", tuple(vertices), edges, (Variable("v", "int", 0),), (Service("bank"),))
    return Process.of(graph, {}, {"v": int})


class TimedService(SimService):
    """Each action takes the time it was drawn with; what is asked again is answered at once, and so is an undo."""

    def __init__(
        self,
        times_us: Mapping[str, int],
        begun: Callable[[str], None],
        records: Mapping[str, bytes],
        entropy: Entropy,
        clock: Any,
    ) -> None:
        super().__init__("bank", True, _CALM, records, entropy, clock)
        self.times_us = times_us
        self.begun = begun
        """Told of each action that begins."""

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        effects = super().handle(sender, message, now)
        if message.mode != "do" or message.iid in self.replies:
            return effects
        action = message.iid.split("/")[1].partition("'")[0]
        self.begun(action)
        return [SetTimer(f"work {self._number}", now + self.times_us[action])]


class Network(msgspec.Struct, frozen=True):
    """A place to run: delays between replicas, disks, and how long sending takes."""

    delay_us: tuple[int, int]
    """One way, drawn for each pair of nodes."""
    spread_us: int
    disk: DiskSpec
    state_us: int
    """How long a message with a state keeps its sender's uplink busy."""
    fixed: ProcessesConfig
    """The paper's time-outs, which do not adapt. It names no values; these suspect nobody for nothing there."""
    view_change_us: int
    """t_v of the grouping rule."""

    def link(self, draw: Random) -> LinkSpec:
        return LinkSpec(draw.randint(*self.delay_us), self.spread_us, delay_us_max=10 * self.delay_us[1])

    def occupancy_us(self, message: Any) -> int:
        return self.state_us if isinstance(message, Replicate | Vote) else 0

    def with_uplink(self, state_us: int) -> Network:
        return msgspec.structs.replace(self, state_us=state_us)


NETWORKS: Final[Mapping[str, Network]] = {
    "EC2": Network(
        delay_us=(200, 500),
        spread_us=100,
        disk=DiskSpec(sync_us=2_500, spread_us=2_000),
        state_us=200,
        fixed=ProcessesConfig(
            heartbeat_us=100 * MILLISECOND_US,
            suspect_us=300 * MILLISECOND_US,
            suspect_us_max=0,
            resend_us=500 * MILLISECOND_US,
        ),
        view_change_us=50 * MILLISECOND_US,
    ),
    "PlanetLab": Network(
        delay_us=(15_000, 45_000),
        spread_us=4_000,
        disk=DiskSpec(sync_us=4_000, spread_us=6_000),
        state_us=1_500,
        fixed=ProcessesConfig(
            heartbeat_us=250 * MILLISECOND_US,
            suspect_us=1_200 * MILLISECOND_US,
            suspect_us_max=0,
            resend_us=2 * SECOND_US,
            resend_us_max=2 * SECOND_US,
        ),
        view_change_us=200 * MILLISECOND_US,
    ),
}


class Timing:
    """How long state replications and view changes took, of all replicas of a run."""

    def __init__(self) -> None:
        self.replications_us: list[int] = []
        self.view_changes_us: list[int] = []
        self.turns = 0
        """How often a majority was lost or came back. A view change that waited for one, or for a candidate that failed
        too, says how long failures last, and does not count."""

    def replica(self) -> type[Replica]:
        """The production replica, timed."""
        return type("Timed", (_TimedReplica,), {"timing": self})


class _Times:
    """The times at which one replica asked for a view, and sent a state."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.asked_us: int | None = None
        self.asked_turn = self.asked_times = self.sent_us = 0

    def ask(self, now: int) -> None:
        self.asked_times += 1
        if self.asked_us is None:
            self.asked_us, self.asked_turn, self.asked_times = now, self.timing.turns, 1

    def decide(self, now: int) -> None:
        self.timing.replications_us.append(now - self.sent_us)
        if self.asked_us is not None and self.asked_turn == self.timing.turns and self.asked_times == 1:
            self.timing.view_changes_us.append(now - self.asked_us)
        self.asked_us = None


class _TimedElection(Election):
    times: _Times

    def ask_view(self, now: int, why: str) -> None:
        self.times.ask(now)
        super().ask_view(now, why)


class _TimedReplication(Replication):
    times: _Times

    def replicate(self, state: Any, now: int) -> None:
        self.times.sent_us = now
        super().replicate(state, now)


class _TimedWatch(Watch):
    times: _Times

    def led(self, now: int, by: str = "") -> None:
        self.times.asked_us = None
        super().led(now, by)


class _TimedReplica(Replica):
    timing: Timing
    election_part = _TimedElection
    replication_part = _TimedReplication
    watch_part = _TimedWatch
    election: _TimedElection
    replication: _TimedReplication
    watch: _TimedWatch

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self.times = self.election.times = self.replication.times = self.watch.times = _Times(self.timing)

    def on_majority(self, now: int) -> None:
        self.times.decide(now)
        super().on_majority(now)
