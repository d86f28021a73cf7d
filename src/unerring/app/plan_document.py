"""A plan of a run on several hosts as a document: nodes, hosts, what is done by turn, and what to think about."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.app.application import App
from unerring.app.live_cluster import topology_of
from unerring.app.place import Place
from unerring.app.planning import PlacementOptions, agreed, loads_of, written_plan
from unerring.runtime import place, placed_nodes


class PlannedNode(msgspec.Struct, frozen=True):
    node: str
    role: str
    f: int
    load: float
    """Events that a replica takes in a second; 1 where nothing is known of any."""
    replicas: list[str]
    """Their hosts."""
    spares: list[str]
    """Where a replica goes in place of one that is lost, if that host has none of the node."""


class PlannedHost(msgspec.Struct, frozen=True):
    host: str
    processes: int
    load: float
    turns: list[str]
    """What it does for all, as long as it is there."""


class PlanDocument(msgspec.Struct, frozen=True):
    app: str
    f: int
    begun: bool
    """Whether a run on the store has begun with this plan."""
    hosts: list[PlannedHost]
    nodes: list[PlannedNode]
    notes: list[str]


def plan_of(app: App, f: int, run: Place, hosts: Mapping[str, str], options: PlacementOptions) -> PlanDocument:
    """The plan of a live run: that of one which has begun on a store, or the one it would make."""
    everywhere, names = not run.is_folder, list(hosts)
    topology = topology_of(app, f, everywhere=everywhere)
    facts = options.facts(topology, loads_of(topology, run) if everywhere else {})
    begun = written_plan(run, topology) is not None
    if begun:
        placed = agreed(run, topology, hosts, options)
    else:
        placed = place(topology, names, facts, options.strategy_used())
    nodes = []
    for node in topology.nodes:
        spares = [host for name, host in placed.items() if name.rpartition("/")[0] == node.name][node.f + 1 :]
        replicas = [placed[name] for name in node.replicas]
        nodes.append(PlannedNode(node.name, str(node.role), node.f, facts.load(node.name), replicas, spares))
    for name, host in placed_nodes(f, names if everywhere else names[:1]).items() if app.processes else ():
        nodes.append(PlannedNode(name, "process node", 0, 0.0, [host], []))
    turns = _turns(app, f, names, everywhere)
    planned = []
    for host in names:
        own = [node for node in nodes if host in node.replicas]
        by_turn = [what for what, who in turns.items() if host in who]
        planned.append(PlannedHost(host, len(own), sum(node.load for node in own), by_turn))
    return PlanDocument(app.name, f, begun, planned, nodes, _notes(app, names, everywhere, f))


def _turns(app: App, f: int, hosts: list[str], everywhere: bool) -> dict[str, list[str]]:
    """Who does what for all, if all hosts are there."""
    turns = {
        "feeds": hosts[: f + 1 if everywhere else 1] if app.channels else [],
        "reactions": hosts[:1] if app.processes else [],
        "sinks": hosts[:1] if app.sinks else [],
        "upkeep": hosts[:1],
    }
    return {what: who for what, who in turns.items() if who}


def _notes(app: App, hosts: list[str], everywhere: bool, f: int) -> list[str]:
    notes = []
    if not everywhere:
        notes.append(
            f"the log is in a folder of host {hosts[0]}: what reads and writes it is there, and everything waits while "
            "that host is away; with --data s3://… any host may be lost"
        )
    if len(hosts) < f + 2:
        notes.append(
            f"with {len(hosts)} hosts a replica that is lost for good has no other place; name {f + 2} or more hosts"
        )
    if app.processes and everywhere and len(hosts) < 2 * f + 1:
        notes.append(
            f"{2 * f + 1} process nodes share {len(hosts)} hosts, so that one host may take more than {f} of them with "
            f"it; name {2 * f + 1} hosts"
        )
    return notes
