"""The folder of a run that is much larger than this machine: a hundred nodes, ten thousand instances, and a writer that
seals a thousand situations a second. Nothing of it runs; everything in it is what a run writes."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from unerring.correlation import NodeSpec, Role, Topology
from unerring.log import Chain, EventLog, with_origin
from unerring.log.tables import table_of
from unerring.model import Event, Persist, Stamp, StreamSchema, schema_of, stream
from unerring.processes.messages import State, Step, Taken
from unerring.processes.roster import HISTORY
from unerring.runtime.live import Cluster
from unerring.runtime.live.hosting import describe, note
from unerring.runtime.os_processes import dotted
from unerring.runtime.storage import SqliteStorage

SOURCES, RULES = 40, 60


@stream(key="machine")
class Busy:
    machine: str
    parts: int


def _schema(name: str) -> StreamSchema:
    return msgspec.structs.replace(schema_of(Busy), name=name)


def topology(count: int = SOURCES, above: int = RULES) -> Topology:
    """`count` sources, a rule on each, and rules on two rules each until there are so many as `above`."""
    sources = [NodeSpec(f"source_S{n}", Role.SOURCE, outputs=(f"S{n}",)) for n in range(count)]
    rules = []
    for n in range(above):
        below = (f"S{n}",) if n < count else (f"R{2 * (n - count)}", f"R{2 * (n - count) + 1}")
        rules.append(NodeSpec(f"R{n}", Role.CORRELATION, below, (f"R{n}",), 1))
    streams = tuple(_schema(name) for name in [*(f"S{n}" for n in range(count)), *(f"R{n}" for n in range(above))])
    return Topology((*sources, *rules), streams)


def many_nodes(data: Path, sources: int = SOURCES, rules: int = RULES) -> list[str]:
    """The live engine's part of the folder: every process has just said something."""
    made = topology(sources, rules)
    names = [name for node in made.nodes for name in node.replicas]
    Cluster(app="nobody:knows", topology=made, addresses=dict.fromkeys(names, "127.0.0.1:1")).write(data / "live")
    for number, name in enumerate(names):
        told = {"phase": "MEMBER", "leads": name.endswith("/0"), "incarnation": 1, "elections": 1, **describe(object())}
        told["outputs"] = {name.partition("/")[0]: {"events": number, "queued": number % 7, "watermark": 1}}
        note(data / "live" / "status" / f"{dotted(name)}.json", name, told)
    return names


def many_instances(data: Path, count: int) -> None:
    """A node's database with instances that have ended."""
    now = time.time_ns() // 1000
    storage = SqliteStorage(data / "processes" / "n0.db")
    puts = []
    for number in range(count):
        name = f"order-{number:05d}"
        lineage = (Step(0, (1,), "n0/processes", now + number),)
        taken = (Taken("reserve", f"{name}/reserve/0@0", {}, "done", True, 1, 0, False, 1500),)
        status = "failed" if number % 1000 == 7 else "completed"
        state = State(name, "order", "v1", 1, lineage, (), {"item": number}, taken, status=status, reason="")
        puts.append((f"{name}|{HISTORY}", msgspec.msgpack.encode(state)))
    storage.write([Persist(tuple(puts))])
    storage.close()


class Writer:
    """Seals situations of one rule, as many as asked for."""

    def __init__(self, data: Path, name: str, keys: int = 50) -> None:
        self._keys = keys
        self.chain: Chain = EventLog(data / "log").create(_schema(name), 1)
        self._time_us = max(self.chain.through_us, 1_000_000)
        self.count = 0

    def seal(self, count: int) -> None:
        events = []
        for _ in range(count):
            self._time_us += 1
            self.count += 1
            payload = {"machine": f"m{self.count % self._keys}", "parts": self.count}
            events.append(Event(self.chain.name, Stamp(self._time_us, 0), (payload["machine"],), payload))
        table = with_origin(table_of(events, self.chain.schema), self.chain.schema)
        self.chain.seal(self._time_us, table, rule="v1")
