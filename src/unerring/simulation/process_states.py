"""What the replicas of a process node are doing, in words: the states in which faults are counted and sought. And the
messages at which they are aimed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType
from typing import Final

from unerring.processes import Replica
from unerring.simulation.pairs import ANY

CANDIDATE: Final = "a candidate waits for votes"
MASTER: Final = "a master executes a group"
REPLICATING: Final = "a master waits for its state to be decided"
NAMING: Final = "a planner names the next master"
BACKUP: Final = "a follower executes ahead"
COMPENSATING: Final = "a replica compensates"
SWEEPING: Final = "a survivor cancels for another"
PROCESS_STATES: Final = MappingProxyType(
    dict.fromkeys((CANDIDATE, MASTER, REPLICATING, NAMING, BACKUP, COMPENSATING, SWEEPING), ANY)
)
MOMENTS: Final = (
    *("Start", "Replicate", "Ack", "Name", "Named", "RequestView", "Vote", "Reject", "Request", "Reply", "Fetch"),
    *("Decided", "Clean", "Settled", "Post", "Stored", "MailBag", "AskMail"),
    *("Name", "Request", "Replicate"),
)
"""Messages at which faults are aimed: all of the protocol but heartbeats, which come all the time. Twice: those that
begin something elsewhere."""


def process_states(replicas: Iterable[Replica]) -> Collection[str]:
    """Of all instances of a node."""
    states: dict[str, None] = {}
    for replica in replicas:
        for state, holds in (
            (CANDIDATE, replica.election.votes is not None),
            (MASTER, replica.master.execution is not None),
            (REPLICATING, replica.leading and not replica.planner.planning and replica.master.execution is None),
            (NAMING, replica.planner.handing is not None),
            (BACKUP, replica.backups.execution is not None),
            (COMPENSATING, bool(replica.recovery.undos)),
            (SWEEPING, replica.recovery.sweep is not None),
        ):
            if holds:
                states[state] = None
    return states
