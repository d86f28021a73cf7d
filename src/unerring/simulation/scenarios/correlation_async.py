"""Correlation with an engine on its own time: a node reads the event log and hands over its outputs later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from unerring.correlation import ENGINE, HandOver, NodeSpec, Replica, Role
from unerring.model import MILLISECOND_US, TIME_MIN, Entropy
from unerring.simulation import World, scenario
from unerring.simulation.mixing import Reading
from unerring.simulation.scenarios.correlation import Correlating

HAND_OVER_US: Final = 15 * MILLISECOND_US


@scenario("correlation-async")
class Asynchronous(Correlating):
    """Node V's engine reads the event log on its own and hands over outputs when it pleases."""

    whole = ("V",)
    waits_us = 30 * HAND_OVER_US
    """Each time an engine hands over with a chance of a half."""
    kept = False
    """Whether V's replicas keep their state on disk, and its engines a checkpoint."""

    def build(self, world: World) -> None:
        super().build(world)
        world.every(HAND_OVER_US, lambda: self._hand_over(world), self.faults_us + self.calm_us)

    def _add(self, world: World, node: NodeSpec, name: str, start_us: int = 0) -> None:
        if not self.engines:
            self._without_inputs(world)
        if node.name != "V":
            super()._add(world, node, name, start_us)
            return
        self.engines[name] = Reading(self.perfect.inputs("V"), goes_on=self.kept, keyed=bool(self.shards))

        def replica(records: Mapping[str, bytes], entropy: Entropy, now: int) -> Replica:
            kept = records if self.kept else None
            return self.replica(name, self.topology, self.config, None, entropy, kept)

        world.add(
            name,
            replica,
            on_deliver=lambda what: self.engines[name].begin(what) if isinstance(what, HandOver) else None,
            start_us=start_us,
        )

    engines: dict[str, Reading]

    def __init__(self) -> None:
        self.engines = {}

    def _without_inputs(self, world: World) -> None:
        """V takes no streams: its inputs are what the log holds."""
        self.engines[""] = Reading(())
        nodes = [msgspec.structs.replace(node, inputs=()) if node.name == "V" else node for node in self.topology.nodes]
        log = NodeSpec("log", Role.APPLICATION, ("b", "c"))
        self.topology = msgspec.structs.replace(self.topology, nodes=(*nodes, log))
        self.through = dict.fromkeys(log.inputs, TIME_MIN)
        super()._add(world, log, "log/0")

    def _hand_over(self, world: World) -> None:
        log = world.nodes["log/0"]
        if log.machine is not None and not log.syncing:
            machine: Any = log.machine
            for stream, incoming in machine.intake.streams.items():
                self.through[stream] = max(self.through[stream], incoming.watermark)
        records = log.storage.load()
        for name, engine in self.engines.items():
            if name and engine.begun and world.machine(name) is not None and self.failures.random() < 0.5:
                produced = engine.read(records, self.through)
                if produced is not None:
                    world.call(name, "handle", ENGINE, produced)


@scenario("correlation-standby")
class Standby(Asynchronous):
    """V's replicas are drivers of Spark: their incarnation and engine are on disk, and all may be down at once."""

    kept = True
    must_reach = ("all drivers down at once", "an evicted replica joined again", "a gap was seen")

    def _fail(self, world: World) -> None:
        super()._fail(world)
        drivers = self._replicas(world, "V")
        if self.failures.random() < 0.1:
            for name in drivers:
                if world.nodes[name].machine is not None:
                    self._crash(world, name)
        if all(world.nodes[name].machine is None for name in drivers):
            world.sometimes("all drivers down at once")
