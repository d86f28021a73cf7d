"""Bounds and pauses of process nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from unerring.model import MILLISECOND_US, SECOND_US, ClusterConfig, ConfigError, ProcessConfig, check

NAMINGS: Final = ("self", "rotate", "nearest", "idle")
_PACE: Final = (("tick_us", 25, 5), ("heartbeat_us", 50, 10), ("suspect_us", 300, 60), ("backoff_us", 200, 40))
"""Thousandths of a failover bound, and at least so many milliseconds."""
Choice = Callable[[str, tuple[str, ...], Mapping[str, int]], str]
"""A choice of one's own of the next master: from the process, the actions of the group, and the nodes that may execute
it with the number of instances that each leads, the planner's own first. One of those nodes."""


class ProcessesConfig(ProcessConfig, frozen=True):
    """The bounds and settings of one process node."""

    tick_us: int = 20 * MILLISECOND_US
    heartbeat_us: int = 50 * MILLISECOND_US
    suspect_us: int = 200 * MILLISECOND_US
    """t_h: a master that was not heard for so long is suspected."""
    suspect_us_max: int = 10 * SECOND_US
    """While heartbeats come late, twice the longest pause between them counts instead, up to this."""
    backoff_us: int = 150 * MILLISECOND_US
    """t_b: at most so much longer, by chance, so that suspicions do not collide."""
    candidacies_max: int = 32
    """Views asked for at once. When a node with many instances dies, the others must not drown in elections."""
    ticks_max: int = 500
    """Instances whose time-outs are looked at in one tick; more wait for the next one."""
    transfers_max: int = 64
    """States on their way to or from a node because of its restart. More wait for their turn, so that a node that comes
    back with many instances takes neither its own nor the others' time."""
    transfer_us: int = 2 * SECOND_US
    """One that takes longer is taken for lost."""
    starts_max: int = 64
    """Starts of this node's application that are under way at once; more wait for their turn, and a burst does not keep
    the nodes from what they have begun."""
    resend_us: int = 60 * MILLISECOND_US
    resend_us_max: int = SECOND_US
    """The pause between repetitions of a state that nobody acknowledges doubles up to this: who is slow gets less."""
    sweep_patience_us: int = 2 * SECOND_US
    """How long survivors wait for a master to undo its own work before they cancel it where they can."""
    abort_views_max: int = 3
    """After this many view changes for aborted executions of one group, the process fails."""
    undo_attempt_us: int = 2 * SECOND_US
    undo_attempts_max: int = 8
    """A compensation that failed so often is shown as stuck, and tried again at the slowest pace for ever."""
    undo_pause_us_max: int = 10 * SECOND_US
    mail_pause_us_max: int = 5 * SECOND_US
    """The longest pause between offers of a message that is stored here to a leader that has not consumed it."""
    mail_ask_us_max: int = 60 * SECOND_US
    """The longest pause between a waiting planner's questions for messages that others stored, and could not offer."""
    tend_us: int = 500 * MILLISECOND_US
    """How often a planner asks for the children that it waits for."""
    catch_up_max: int = 1_000
    """Missed due times of a schedule that are made up for; older ones are reported and left out."""
    leads_max: int = 100
    """Instances that a heartbeat names in turns, and as many of which there is news. With more, a round of heartbeats
    names each once."""
    instances_max: int = 200_000
    """Open instances; with so many, this node begins no more, but for children of those that are open. It still takes
    part in what the other nodes have begun, so that together they may have that many times more."""
    finished_max: int = 100_000
    """Outcomes kept for idempotent starts; the oldest go first."""
    naming: str | Choice = "self"
    """Who is named master of the next group: "self" keeps the planner, "rotate" goes round the replicas, "nearest" is
    the one for which the next service answered soonest in this instance, "idle" the one that leads the fewest; or a
    function that chooses. Any replica may execute any group, so the choice decides who works, and nothing else."""

    @classmethod
    def within(cls, failover_us: int) -> ProcessesConfig:
        """For a failover bound: heartbeats and patience of which the longest silence of a lost master takes half. They
        are never longer than usual, nor so short that a live node would be suspected for its own turns."""
        usual = cls()
        times_us = {
            name: min(getattr(usual, name), max(failover_us * thousandths // 1_000, least_ms * MILLISECOND_US))
            for name, thousandths, least_ms in _PACE
        }
        return cls(**times_us)

    def __post_init__(self) -> None:
        check(self, "tick_us", 100, SECOND_US)
        check(self, "heartbeat_us", self.tick_us, 60 * SECOND_US)
        check(self, "suspect_us", 2 * self.heartbeat_us, 600 * SECOND_US)
        check(self, "suspect_us_max", 0, 600 * SECOND_US)
        check(self, "starts_max", 1, 100_000)
        check(self, "abort_views_max", 1, 1_000)
        check(self, "leads_max", 1, 100_000)
        check(self, "candidacies_max", 1, 100_000)
        check(self, "ticks_max", 1, 100_000)
        check(self, "transfers_max", 1, 100_000)
        check(self, "transfer_us", self.tick_us, 600 * SECOND_US)
        check(self, "resend_us_max", self.resend_us, 600 * SECOND_US)
        check(self, "instances_max", 1, 100_000_000)
        check(self, "finished_max", 1, 100_000_000)
        if not callable(self.naming) and self.naming not in NAMINGS:
            known = ", ".join(map(repr, NAMINGS))
            raise ConfigError(f"ProcessesConfig.naming is {self.naming!r}; it must be one of {known}, or a function")


class ClusterBounds(ClusterConfig, frozen=True):
    """Bounds that must be equal on all nodes, because they decide what is refused."""

    f: int = 1
    state_bytes_max: int = 1 << 20
    mail_max: int = 1_000
    """Partner messages stored for one instance and not yet consumed; more are not acknowledged until there is room, nor
    if together they take more than `state_bytes_max`. One that the instance waits for now always finds room."""

    children_max: int = 500
    """Children over one list; more let the process fail."""
    history_groups: int = 256
    """The groups of a process in a loop whose history is kept as it is; those before them are kept compressed."""
    published_max: int = 10_000
    """Messages published with a key that a node keeps; more are not acknowledged until there is room."""
    published_keep_us: int = 3_600 * SECOND_US
    """How long they wait for an instance."""

    def __post_init__(self) -> None:
        check(self, "f", 0, 16)
        check(self, "children_max", 1, 10_000)
        check(self, "state_bytes_max", 1_000, 64 << 20)
        check(self, "mail_max", 1, 1_000_000)
        check(self, "history_groups", 2, 1_000_000)
