"""One replica by itself: the test speaks for the others, and reads what it is told and what goes to disk."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from unerring.model import Effects, Persist, Report, Send
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.context import replica_set
from unerring.processes.graph import Cut
from unerring.processes.grouping import Grouping
from unerring.processes.messages import Start, State, Step
from unerring.processes.node import ProcessNode
from unerring.processes.replica import Replica

INSTANCE = "i"


class Alone:
    """The second replica of an instance, `others` in the order of its set."""

    def __init__(
        self, process: Process, f: int = 1, place: int = 1, config: ProcessesConfig | None = None, **bounds: int
    ) -> None:
        self.names = tuple(f"n{number}" for number in range(2 * f + 1))
        members = replica_set(INSTANCE, self.names, f)
        self.me = members[place]
        self.others = [name for name in members if name != self.me]
        self.process = process
        self.config = config or ProcessesConfig()
        self.bounds = ClusterBounds(f=f, **bounds)
        self.now = 1_000_000
        self.disk: dict[str, bytes] = {}
        self.node: ProcessNode
        self.reports: list[str] = []
        self.restart()

    def restart(self) -> list[tuple[str, Any]]:
        """Crash, and come back with what is on disk."""
        disk = dict(self.disk)
        processes = {self.process.name: self.process}
        self.node = ProcessNode(
            self.me, self.names, processes, disk, Random(1), self.now, self.bounds, self.config, Grouping()
        )
        return self._carry(self.node.start(self.now))

    @property
    def replica(self) -> Replica:
        return self.node.instances[INSTANCE]

    def state(self, group: int = 0, view: int = 0, cut: Cut | None = None, **fields: Any) -> State:
        """A state of the instance, of which every group was executed in `view`."""
        graph = self.process.graph
        lineage = tuple(Step(view, graph.start if cut is None else cut, "n0", 1) for _ in range(group))
        variables = self.process.initial({})
        state = State(
            INSTANCE, graph.name, graph.version, group, lineage, lineage[-1].cut if group else graph.start, variables
        )
        return msgspec.structs.replace(state, **fields)

    def hear(self, sender: str, message: Any) -> list[tuple[str, Any]]:
        """What it answers, and to whom."""
        return self._carry(self.node.handle(sender, message, self.now))

    def begin(self, **given: Any) -> list[tuple[str, Any]]:
        """Its application starts the instance here."""
        return self._carry(self.node.begin(Start(INSTANCE, self.process.name, given), self.now))

    def tick(self, after_us: int) -> list[tuple[str, Any]]:
        self.now += after_us
        return self._carry(self.node.timer("tick", self.now))

    def do(self, what: str, *arguments: Any) -> list[tuple[str, Any]]:
        """A step of one of its parts, as `election.ask_again`."""
        part, _, method = what.partition(".")
        getattr(getattr(self.replica, part), method)(*arguments)
        return self._carry(self.node.out.take())

    def record(self, key: str, form: Any) -> Any:
        """What is on disk; None: nothing."""
        data = self.disk.get(f"{INSTANCE}|{key}")
        return None if data is None else msgspec.msgpack.decode(data, type=form)

    def _carry(self, effects: Effects) -> list[tuple[str, Any]]:
        sent = []
        for effect in effects:
            if isinstance(effect, Persist):
                self.disk.update(effect.puts)
                for key in effect.deletes:
                    self.disk.pop(key, None)
            elif isinstance(effect, Send):
                sent.append((effect.to, effect.message))
            elif isinstance(effect, Report):
                self.reports.append(effect.what.removeprefix("process."))
        return sent
