"""What a run of the factory has delivered and done so far, read from its folder while it runs."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import struct
import threading
from pathlib import Path
from typing import Any

import msgspec

from unerring.app.application import App
from unerring.app.place import Place, Where, place_of
from unerring.log import Chain, join
from unerring.model import TIME_MAX, TIME_MIN, Event, NetworkError, ProcessError, UnerringError
from unerring.runtime import unix_sockets


def runs_in(data: str, folder: Path) -> tuple[Place, Place]:
    """The places of the demo's two runs: in a store or a folder, with their files of this host in the demo's folder."""
    live, spark = (place_of(join(data, name), folder / name) for name in ("live", "spark"))
    return live, spark


class RunFolder:
    """One run's folder. Asked from several threads: one counts while another waits, and a chain is for one only."""

    def __init__(self, where: Where) -> None:
        self.place = place_of(where)
        self.counts: dict[str, int] = {}
        """Situations by stream, as of the last `look`."""
        self._seen: dict[str, int] = {}
        self._chains: dict[str, Chain] = {}
        self._reading = threading.Lock()

    def look(self, streams: list[str]) -> None:
        """Count what was sealed since the last look."""
        with self._reading:
            for stream in streams:
                chain = self._chain(stream)
                if chain is None:
                    continue
                through_us = chain.refresh()
                added = chain.count(self._seen.get(stream, chain.base.from_us), through_us)
                self.counts[stream] = self.counts.get(stream, 0) + added
                self._seen[stream] = through_us

    def through(self, stream: str) -> int:
        """Up to which time the stream is delivered."""
        with self._reading:
            chain = self._chain(stream)
            return TIME_MIN if chain is None else chain.refresh()

    def delivered(self, stream: str) -> list[Event]:
        """All its situations, in order."""
        from unerring.log import events_of

        with self._reading:
            chain = self._chain(stream)
            if chain is None:
                return []
            return list(events_of(chain.read(chain.base.from_us, chain.refresh()), chain.schema))

    def replicas(self) -> list[dict[str, Any]]:
        """The status of the live replicas; empty before they write one."""
        from unerring.runtime import processes

        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError, UnerringError):
            return processes(self.place.live)
        return []

    def master(self) -> int:
        """The operating-system process of a node that is the master of an open instance just now; 0: none."""
        from unerring.runtime import Command, ask_node, node_sockets

        for path in node_sockets(self.place.processes):
            with contextlib.suppress(NetworkError, ProcessError):
                if any(instance.get("role") == "master" for instance in ask_node(path, Command("list"), within_s=5.0)):
                    return _listener(path)
        return 0

    def node(self) -> int:
        """The operating-system process of the first process node."""
        from unerring.runtime import node_sockets

        return _listener(node_sockets(self.place.processes)[0])

    def instances(self) -> dict[str, bool]:
        """Process instances that some node knows, and whether they have ended."""
        from unerring.runtime import Command, ask_node, node_sockets

        ended: dict[str, bool] = {}
        for path in node_sockets(self.place.processes):
            with contextlib.suppress(NetworkError, ProcessError):
                for outline in ask_node(path, Command("list"), within_s=5.0):
                    ended[outline["instance"]] = ended.get(outline["instance"], False) or "ended_us" in outline
        return ended

    def wanted(self, app: App) -> dict[str, str]:
        """The instances that its situations ask for, and their processes."""
        return {
            reaction.instance(situation): reaction.process
            for reaction in app.reactions
            for situation in self.delivered(reaction.situation)
        }

    def _chain(self, stream: str) -> Chain | None:
        if stream not in self._chains:
            log = self.place.log
            if log.declaration(stream) is None:
                return None
            self._chains[stream] = log.chain(stream)
        return self._chains[stream]

    def complete(self, streams: list[str]) -> bool:
        return all(self.through(stream) >= TIME_MAX for stream in streams)


def _listener(path: Path) -> int:
    """Which process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as asked, unix_sockets.short(path) as name:
        asked.connect(name)
        pid: int = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[
            0
        ]
        return pid


def effects_in(folder: Path) -> dict[str, int]:
    """What the services did and did not undo, by operation."""
    effects: dict[str, int] = {}
    for file in sorted(folder.glob("*.sqlite")):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection,
        ):
            counted = "SELECT operation, count(*) FROM effects WHERE undone = 0 GROUP BY operation"
            effects.update(connection.execute(counted).fetchall())
    return effects
