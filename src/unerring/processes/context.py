"""The context that the parts of a replica share: the node that it is on, and the instance that it is a replica of."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from unerring.model import MILLISECOND_US, SECOND_US, Address, Entropy, ProcessError
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.grouping import Group, Grouping, group_at
from unerring.processes.incarnations import Incarnations
from unerring.processes.messages import Mail, Published, Recalled, Start, State, Status
from unerring.processes.out import Out
from unerring.processes.pacing import Hearing, Transfers
from unerring.processes.view_changes import ViewChanges

_GROUPS_KEPT_MAX: Final = 10_000
IDLE_US: Final = 5 * SECOND_US
IDLE_EACH_US: Final = 2 * MILLISECOND_US


def replica_set(instance: str, nodes: tuple[Address, ...], f: int) -> tuple[Address, ...]:
    """The 2f+1 replicas of an instance: a function of its id and the configured nodes, so that all starters agree."""
    if len(nodes) < 2 * f + 1:
        raise ProcessError(f"f = {f} needs {2 * f + 1} nodes, but there are {len(nodes)}; add nodes or lower f")

    def weight(node: Address) -> bytes:
        return hashlib.blake2b(f"{instance}\0{node}".encode(), digest_size=8).digest()

    return tuple(sorted(nodes, key=weight)[: 2 * f + 1])


class Shared(msgspec.Struct, frozen=True):
    """The context that all parts and all instances of a node share."""

    me: Address
    nodes: tuple[Address, ...]
    current: Mapping[str, Process]
    """By name: the version that new instances get."""
    processes: Mapping[str, Process]
    """By name and version, as `name@version`."""
    grouping: Grouping
    bounds: ClusterBounds
    config: ProcessesConfig
    entropy: Entropy
    out: Out
    hearing: Hearing
    transfers: Transfers
    view_changes: ViewChanges
    incarnations: Incarnations
    wall_offset_us: int = 0
    followed: dict[Address, dict[str, None]] = {}
    """The instances that each node leads, as far as is known here."""
    led: dict[str, None] = {}
    """The instances that this node leads."""
    children: list[tuple[Start, Mail | None]] = []
    """Children that planners want to start; with a message for them, to all of their replicas."""
    published: dict[str, Published] = {}
    """By id: what was published with a key, and is kept here until it is too old."""
    groups: dict[Any, Group] = {}
    """Groups by version, cut and ended waits: working them out again for every instance would be most of the work."""

    @property
    def idle_us(self) -> int:
        """However quiet it is, an instance is looked at so often: the more there are, the more seldom, so that those
        that wait take no more of a node's time."""
        open_here = len(self.led) + sum(map(len, self.followed.values()))
        return max(IDLE_US, open_here * IDLE_EACH_US)

    def members_of(self, instance: str) -> tuple[Address, ...]:
        return replica_set(instance, self.nodes, self.bounds.f)

    def replicas_of(self, instance: str) -> str:
        """The names of its replicas; with no more nodes than those it is every node, of every instance."""
        every = len(self.nodes) == 2 * self.bounds.f + 1
        return ",".join(sorted(self.nodes if every else self.members_of(instance)))

    def wall_us(self, now: int) -> int:
        return now + self.wall_offset_us


class Context:
    """One instance on this node: its id, its replicas, its records on disk."""

    __slots__ = ("config", "instance", "majority", "me", "members", "others", "out", "shared")

    def __init__(self, shared: Shared, instance: str, members: tuple[Address, ...]) -> None:
        self.shared = shared
        self.config = shared.config
        self.out = shared.out
        self.me = shared.me
        self.instance = instance
        self.members = members
        self.others = tuple(member for member in members if member != shared.me)
        self.majority = len(members) // 2 + 1

    def keep(self, key: str, record: Any) -> None:
        self.out.keep(f"{self.instance}|{key}", record)

    def forget(self, key: str) -> None:
        self.out.forget(f"{self.instance}|{key}")

    def report(self, what: str, detail: str) -> None:
        self.out.report(what, f"{self.instance}: {detail}")

    def wall_us(self, now: int) -> int:
        return self.shared.wall_us(now)

    def known(self) -> dict[Address, int]:
        """What a message that somebody counts says of incarnations."""
        return self.shared.incarnations.of(self.members)

    def counts(self, sender: Address, known: Mapping[Address, int]) -> bool:
        """Learn from a message, and whether it counts. If not, its sender is told that it has been replaced."""
        incarnations = self.shared.incarnations
        incarnations.learn(known)
        if incarnations.counts(sender, known):
            return True
        self.out.send(sender, Recalled(0, incarnations.lives.mine, incarnations.present, self.known()))
        return False

    def process_of(self, state: State) -> Process | None:
        return self.shared.processes.get(f"{state.process}@{state.version}")

    def group_at(self, process: Process, state: State, ready: tuple[str, ...] = ()) -> Group:
        """The group that comes next if these waits have ended."""
        key = (state.version, state.cut, ready, state.announced)
        group = self.shared.groups.get(key)
        if group is None:
            if len(self.shared.groups) >= _GROUPS_KEPT_MAX:
                self.shared.groups.clear()
            group = group_at(process.graph, state.cut, ready, state.announced, self.shared.grouping)
            self.shared.groups[key] = group
        return group

    def next_group(self, state: State) -> Group | None:
        """The group that can begin at once after this state; None: there is none, or this node has no such version."""
        process = self.process_of(state)
        if process is None or state.status != Status.RUNNING or state.announced or state.held:
            return None
        return self.group_at(process, state)


class Roles(Protocol):
    """The calls from the parts that decide (acceptor, replication) to the parts that act on decisions."""

    def step_down(self) -> None:
        """A higher view exists: neither candidate, planner nor master any more."""

    def give_way(self) -> None:
        """A state of somebody else is further: step down, if there is something to step down from."""

    def on_accepted(self, now: int) -> None:
        """A state of somebody else was accepted."""

    def on_learned(self, now: int) -> None:
        """A further state is known to be decided."""

    def on_majority(self, now: int) -> None:
        """The state that this replica replicated is decided: it plans what comes next."""


def read(records: Mapping[str, bytes], key: str, kind: Any) -> Any:
    """A record of this instance; None if there is none."""
    return msgspec.msgpack.decode(records[key], type=kind) if key in records else None
