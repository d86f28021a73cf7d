"""Where the processes of a run on several hosts go: planned, shown, and agreed upon before anything is started.

On a store the first host that comes writes the plan down, and all others go by it: what a plan goes by, such as the
load that the log shows, may look different a minute later. In a folder every host makes it from the same options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.address import find
from unerring.app.place import Place
from unerring.app.upgraded import TREE
from unerring.correlation import Role, Topology
from unerring.model import SECOND_US, CallerError, ConfigError, protect_json, to_duration_us, verified_json
from unerring.runtime import Facts, Strategy, balanced, place

if TYPE_CHECKING:
    from unerring.log import Chain

PLACEMENT: Final = "placement"
"""On the run's store: the plan of each query tree."""
LOOKED_AT: Final = 8
"""Segments of a stream by which its rate is estimated."""


class PlacementOptions(msgspec.Struct, frozen=True):
    """What a plan goes by, as it is given on the command line; the same on every host."""

    capacities: dict[str, str] = {}
    latencies: dict[str, str] = {}
    loads: dict[str, str] = {}
    strategy: str = ""

    def facts(self, topology: Topology, log_loads: Mapping[str, float]) -> Facts:
        """What is said counts more than what the log shows."""
        said = {node: _number("--load", node, text) for node, text in self.loads.items()}
        known = {node.name: log_loads[node.name] for node in topology.nodes if node.name in log_loads}
        return Facts(
            {**known, **said},
            {host: _number("--capacity", host, text) for host, text in self.capacities.items()},
            {_two(pair): to_duration_us(text) for pair, text in self.latencies.items()},
        )

    def strategy_used(self) -> Strategy:
        if not self.strategy:
            return balanced
        found = find(self.strategy)
        if not callable(found):
            raise CallerError(f"--placement {self.strategy} is no function; it takes a topology, hosts and facts")
        strategy: Strategy = found
        return strategy


class Planned(msgspec.Struct, frozen=True):
    """What hosts of a run have agreed on."""

    hosts: dict[str, str]
    placed: dict[str, str]
    options: PlacementOptions = PlacementOptions()
    """What it goes by, also for nodes that come while the run goes on. Earlier releases did not keep it."""


def written_plan(run: Place, topology: Topology) -> Planned | None:
    """The plan that a run on a store has begun with."""
    name = _name(topology)
    known = None if run.is_folder else run.store.read(name)
    return None if known is None else verified_json(known, Planned, run.store.locate(name))


def plan_of(run: Place) -> Planned | None:
    """The same, where only the store says which topology that is."""
    tree = run.store.read(TREE)
    fingerprint = None if tree is None else verified_json(tree, str, run.store.locate(TREE))
    name = f"{PLACEMENT}/{fingerprint}.json"
    known = run.store.read(name)
    return None if known is None else verified_json(known, Planned, run.store.locate(name))


def agreed(run: Place, topology: Topology, hosts: Mapping[str, str], options: PlacementOptions) -> dict[str, str]:
    """The host of every process. On a store it is written down, once."""
    planned = written_plan(run, topology)
    if planned is None:
        loads = {} if run.is_folder else loads_of(topology, run)
        placed = place(topology, list(hosts), options.facts(topology, loads), options.strategy_used())
        planned = Planned(dict(hosts), placed, options)
        if not run.is_folder:
            run.store.create(_name(topology), protect_json(planned))
            planned = written_plan(run, topology) or planned  # perhaps another host's
    if planned.hosts != dict(hosts):
        listed = " ".join(f"--host {host}={address}" for host, address in planned.hosts.items())
        raise ConfigError(
            f"{run} belongs to a run on other hosts; give the same list, in the same order ({listed}). A host that is "
            "replaced keeps its name and address"
        )
    return planned.placed


def placed_in_flight(
    run: Place, topology: Topology, hosts: Sequence[str], say: Callable[[str], Any] = lambda _: None
) -> dict[str, str]:
    """The host of every process, by what the run's plan goes by, where nodes come while it goes on. A node that takes
    over from another has that one's load. A strategy that fails does not hold the others up."""
    planned = plan_of(run)
    options = PlacementOptions() if planned is None else planned.options
    among = list(hosts) if planned is None else list(planned.hosts)
    said = {node.name: options.loads.get(node.part or node.name, "") for node in topology.nodes}
    options = msgspec.structs.replace(options, loads={node: load for node, load in said.items() if load})
    facts = options.facts(topology, loads_of(topology, run))
    try:
        return place(topology, among, facts, options.strategy_used())
    except Exception as error:  # a user's function may raise anything
        if not options.strategy:
            raise
        say(f"--placement {options.strategy} cannot place the nodes that come, so they are placed by load: {error!r}")
        return place(topology, among, facts)


def _name(topology: Topology) -> str:
    return f"{PLACEMENT}/{topology.fingerprint()}.json"


def loads_of(topology: Topology, run: Place) -> dict[str, float]:
    """By node, the events that it takes in a second, as far as the log shows the rates of its streams."""
    log = run.log
    rates: dict[str, float] = {}
    for schema in topology.streams:
        if log.declaration(schema.name) is not None:
            rate = _rate(log.chain(schema.name))
            if rate is not None:
                rates[schema.name] = rate
    rates |= {part.name: rates[part.stream] / part.of for part in topology.parts if part.stream in rates}
    taken = {
        node.name: topology.made(node.name) if node.role is Role.SOURCE else node.inputs for node in topology.nodes
    }
    return {
        node: sum(rates[stream] for stream in streams)
        for node, streams in taken.items()
        if streams and all(stream in rates for stream in streams)
    }


def _rate(chain: Chain) -> float | None:
    """Events of a stream in a second of its own time, by its last segments."""
    through_us = chain.refresh()
    spans = chain.spans(chain.base.from_us, through_us)[-LOOKED_AT:]
    times = [] if not spans else chain.read(spans[0].from_us, spans[-1].through_us, None, []).column("time").to_pylist()
    return len(times) * SECOND_US / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else None


def _number(option: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CallerError(f"{option} {name}={text}: {text!r} is not a number") from None


def _two(pair: str) -> tuple[str, str]:
    one, colon, other = pair.partition(":")
    if not colon:
        raise CallerError(f"--latency {pair}=…: name two hosts, as in a:b=2ms")
    return one, other
