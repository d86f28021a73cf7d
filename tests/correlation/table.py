"""A table on which machines are played by hand: messages wait until the test lets them through.

Deterministic and without faults of its own: what is lost, late or cut off is what the test says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from unerring.correlation import (
    Application,
    CorrelationConfig,
    Engine,
    Membership,
    NodeSpec,
    Replica,
    Role,
    Source,
    Topology,
)
from unerring.correlation.application import committed
from unerring.correlation.messages import MEMBERSHIP
from unerring.model import Column, ColumnType, Deliver, Effects, Event, Persist, Send, SetTimer, Stamp, StreamSchema
from unerring.simulation.mixing import Mixing


def schema(name: str) -> StreamSchema:
    return StreamSchema(name, (Column("v", ColumnType.INT),))


def line(levels: int = 1, f: int = 1) -> Topology:
    """source a -> N1 -> N2 -> ... -> app, every node with f."""
    streams = ["a"] + [f"s{number}" for number in range(1, levels + 1)]
    nodes = [NodeSpec("src", Role.SOURCE, outputs=("a",))]
    nodes += [
        NodeSpec(f"N{number}", Role.CORRELATION, (streams[number - 1],), (streams[number],), f)
        for number in range(1, levels + 1)
    ]
    nodes.append(NodeSpec("app", Role.APPLICATION, (streams[-1],)))
    return Topology(tuple(nodes), tuple(schema(name) for name in streams))


class Table:
    def __init__(
        self,
        topology: Topology,
        config: CorrelationConfig | None = None,
        durable: bool = False,
        engine: Callable[[Sequence[str]], Engine] = Mixing,
    ) -> None:
        """`engine` makes a node's engine, for the streams that it makes."""
        self.topology = topology
        self.engine = engine
        self.config = config or CorrelationConfig()
        self.durable = durable
        self.now = 1_000_000
        self.machines: dict[str, Any] = {}
        self.disks: dict[str, dict[str, bytes]] = {}
        self.delivered: dict[str, list[Any]] = {}
        self.timers: dict[tuple[str, str], int] = {}
        self.waiting: list[tuple[str, str, Any]] = []
        self.cuts: set[tuple[str, str]] = set()
        self.starts = 0
        self.start(MEMBERSHIP)
        for node in topology.nodes:
            for name in node.replicas:
                self.start(name)

    # Who is there

    def start(self, name: str) -> Any:
        self.starts += 1
        entropy = Random(f"{name} {self.starts}")
        disk = self.disks.setdefault(name, {})
        self.delivered.setdefault(name, [])
        role = None if name == MEMBERSHIP else self.topology.node(name.partition("/")[0]).role
        if name == MEMBERSHIP:
            machine: Any = Membership(disk, self.topology, self.config, entropy)
        elif role is Role.SOURCE:
            machine = Source(disk, name, self.topology, self.config)
        elif role is Role.APPLICATION:
            machine = Application(disk, name, self.topology, self.config)
        else:
            outputs = self.topology.node(name.partition("/")[0]).outputs
            records = disk if self.durable else None
            machine = Replica(name, self.topology, self.config, lambda: self.engine(outputs), entropy, records)
        self.machines[name] = machine
        self.perform(name, machine.start(self.now))
        return machine

    def crash(self, *names: str) -> None:
        for name in names:
            del self.machines[name]
            self.waiting = [entry for entry in self.waiting if name not in entry[:2]]
            self.timers = {key: at for key, at in self.timers.items() if key[0] != name}

    def cut(self, one: str, other: str, both: bool = True) -> None:
        self.cuts.add((one, other))
        if both:
            self.cuts.add((other, one))

    def heal(self) -> None:
        self.cuts.clear()

    # What happens

    def perform(self, name: str, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if (name, effect.to) not in self.cuts:
                    self.waiting.append((name, effect.to, effect.message))
            elif isinstance(effect, Persist):
                self.disks[name].update(effect.puts)
                for key in effect.deletes:
                    self.disks[name].pop(key, None)
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.name] = effect.at_us
            elif isinstance(effect, Deliver):
                self.delivered[name].append(effect.what)

    def call(self, name: str, method: str, *arguments: Any) -> None:
        self.perform(name, getattr(self.machines[name], method)(*arguments, self.now))

    def pass_on(self, wanted: Callable[[str, str, Any], bool] = lambda *_: True) -> int:
        """Let the messages that wait now through, those wanted; in order."""
        taken = [entry for entry in self.waiting if wanted(*entry)]
        self.waiting = [entry for entry in self.waiting if not wanted(*entry)]
        for sender, to, message in taken:
            if to in self.machines and (sender, to) not in self.cuts:
                self.perform(to, self.machines[to].handle(sender, message, self.now))
        return len(taken)

    def drop(self, wanted: Callable[[str, str, Any], bool]) -> int:
        before = len(self.waiting)
        self.waiting = [entry for entry in self.waiting if not wanted(*entry)]
        return before - len(self.waiting)

    def run(self, for_us: int, step_us: int = 5_000) -> None:
        """Let time pass: timers come, messages arrive at once."""
        end = self.now + for_us
        while self.now < end:
            self.now += step_us
            due = sorted((at, key) for key, at in self.timers.items() if at <= self.now)
            for _, key in due:
                del self.timers[key]
                if key[0] in self.machines:
                    self.perform(key[0], self.machines[key[0]].timer(key[1], self.now))
            for _ in range(200):
                if not self.pass_on():
                    break

    def run_until(self, condition: Callable[[], bool], within_us: int = 20_000_000) -> None:
        end = self.now + within_us
        while not condition():
            assert self.now < end, "it did not happen: " + repr(condition)
            self.run(20_000)

    # What is looked at

    def publish(self, *times: int, stream: str = "a", source: str = "src/0", end: bool = False) -> None:
        for time in times:
            self.call(source, "publish", [Event(stream, Stamp(time), (), {"v": time})])
        if end:
            self.call(source, "end", stream)

    def record(self) -> Any:
        return self.machines[MEMBERSHIP].record

    def caught_up(self, *names: str) -> bool:
        return all(
            name in self.machines and self.record().caught_up(name, self.machines[name].incarnation) for name in names
        )

    def situations(self, stream: str) -> list[Event]:
        return committed(self.disks["app/0"], stream)


def perfect(topology: Topology, events: Iterable[Event]) -> dict[str, list[Event]]:
    from unerring.simulation.query_tree import reference

    return reference(topology, {"a": list(events)})
