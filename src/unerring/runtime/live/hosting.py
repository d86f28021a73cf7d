"""One correlation machine as a process: its driver, its links to everybody it may speak with, its status on disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from unerring.correlation import MEMBERSHIP, OPERATOR, ReadRecord, Rearrange, codec, is_keeper, node_of
from unerring.log import disk_syncs, private_folder, write_private
from unerring.model import (
    Address,
    Connected,
    Disconnected,
    InvariantBreach,
    Machine,
    PeerError,
    Report,
    Right,
    StableStorage,
    Stop,
    UnerringError,
    WorldError,
    protect_json,
)
from unerring.runtime import timeline
from unerring.runtime.greeting import Identity
from unerring.runtime.links import Links, LinksConfig
from unerring.runtime.live.cluster import FILE, Cluster, read
from unerring.runtime.logs import own_log
from unerring.runtime.loop import Driver
from unerring.runtime.os_processes import dotted
from unerring.runtime.reports import Reports
from unerring.runtime.starts import start_us

MESSAGE_BYTES_MAX = 8 << 20
STATUS_S = 0.25
SENTENCES_MAX = 100
PEERS_MIN = 256


class Host:
    """Runs one machine under its name until it stops."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        machine: Machine,
        storage: StableStorage | None = None,
        deliver: Callable[[Any], Awaitable[None] | None] | None = None,
        hear: Callable[[str], None] = lambda host: None,
    ) -> None:
        """`hear` is told the host that each message comes from."""
        self.cluster = cluster
        self._hear = hear
        self.name = name
        self.keeper = cluster.keeper(cluster.hosts.get(name, ""))
        self._names = {dotted(other): other for other in cluster.addresses}
        identity = Identity(dotted(name), time.time_ns() // 1_000, cluster.identity)
        config = LinksConfig(
            frame_bytes_max=MESSAGE_BYTES_MAX * 2,
            outbox_bytes_max=MESSAGE_BYTES_MAX * 8,
            peers_max=max(PEERS_MIN, 2 * len(cluster.addresses)),
            redial_max_us=500_000,
            tls=cluster.certificates(name),
            policy=cluster.policy,
            secret=cluster.secret,
        )
        self._ahead_us_max = config.incarnation_ahead_us_max
        self.also: Callable[[], dict[str, Any]] = dict
        """Further fields of the status, besides the machine's."""
        self._refusals: dict[str, None] = {}
        self._failure: BaseException | None = None
        self.links = Links(identity, codec(MESSAGE_BYTES_MAX), config, Reports(self._say), self._right_of)
        self._joined: set[str] = set()
        self._seen = 0
        """Which version of the cluster file was read last."""
        self._folder: Path | None = None
        """The live engine's folder, where the timeline is written."""
        self.driver = Driver(
            machine,
            self,
            storage=storage,
            deliver=deliver,
            reports=Reports(self._happens),
            on_congestion=self.links.hold,
            on_fault=self._blame,
        )

    async def run(self, status: Path | None = None, beside: Callable[[], Awaitable[None]] | None = None) -> Stop:
        """Listen, join everybody, drive the machine. `beside` runs as long as it does; what it fails of is raised."""
        if status is not None:
            self._folder = folder = status.parent.parent
            began_us = start_us(folder, dotted(self.name), self._ahead_us_max)
            self.links.identity = msgspec.structs.replace(self.links.identity, incarnation=began_us)
        await self.links.open(self.cluster.addresses[self.name])
        self.links.attach("", self._receive)
        self._join_all()
        tasks: list[asyncio.Future[None]] = []
        if status is not None:
            tasks.append(asyncio.ensure_future(self._tell(status)))
        if beside is not None:
            tasks.append(asyncio.ensure_future(beside()))
            tasks[-1].add_done_callback(self._beside_ended)
        try:
            stopped = await self.driver.run()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.links.close()
        if self._failure is not None:
            raise self._failure
        return stopped

    def _join_all(self) -> None:
        for name in self.cluster.peers(self.name):
            if name not in self._joined:
                self._joined.add(name)
                self.links.join(dotted(name), self.cluster.addresses[name], self._dials(name))

    def _rearrange(self, folder: Path) -> None:
        """Nodes that came or went with an upgrade: the machine hears of them, and of newcomers their addresses."""
        try:
            seen = (folder / FILE).stat().st_mtime_ns
        except FileNotFoundError:
            return
        if seen == self._seen:
            return
        cluster = read(folder)
        known = is_keeper(self.name) or any(node.name == node_of(self.name) for node in cluster.topology.nodes)
        if cluster.identity != self.cluster.identity or not known:
            return
        if cluster.topology != self.cluster.topology:
            if not self.driver.offer(OPERATOR, Rearrange(cluster.topology)):
                return
            self.cluster = cluster
            self._names |= {dotted(other): other for other in cluster.addresses}
            self._join_all()
        self._seen = seen

    def _dials(self, peer: str) -> bool | None:
        """Spare places, which replicas may take later, are not dialled by those who are there: a newcomer dials."""
        spares = [name not in self.cluster.founding and not is_keeper(name) for name in (self.name, peer)]
        return None if spares[0] == spares[1] else spares[0]

    def _beside_ended(self, task: asyncio.Future[None]) -> None:
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            if not isinstance(failure, UnerringError | InvariantBreach):
                failure = WorldError(f"{self.name}: {type(failure).__name__}: {failure}")
            self._failure = failure
            self.driver.stop(str(failure))

    # The machines' names have a '/', which links keep for machines of one node; and there is one keeper for each host,
    # of which a machine knows its own by the one name.

    def _right_of(self, node: str) -> tuple[str, ...] | None:
        """Nobody else is greeted: "store" and "operator", say, are names by which a machine knows its own driver. A
        certificate is a process's, or that of the host it belongs on."""
        name = self._names.get(node)
        if name is None:
            return None
        right = Right.MEMBERSHIP if is_keeper(name) else Right.REPLICA
        host = self.cluster.hosts.get(name, "")
        return (right, node, f"{host}/{node}") if host else (right, node)

    def send(self, to: Address, message: Any) -> None:
        if to != MEMBERSHIP:
            self.links.send(dotted(to), message)
            return
        # Every keeper is to know who is still there; the rest is between a process and its own.
        for keeper in self.cluster.keepers if isinstance(message, ReadRecord) else (self.keeper,):
            self.links.send(dotted(keeper), message)

    def broadcast(self, message: Any) -> None:
        for name in self.cluster.names:
            self.send(name, message)

    def _receive(self, sender: Address, message: Any) -> bool:
        name = self._names[sender]  # nobody else was greeted
        self._hear(self.cluster.hosts.get(name, ""))
        if name == self.keeper:
            name = MEMBERSHIP
        if isinstance(message, Connected):
            message = Connected(name, message.incarnation)
        elif isinstance(message, Disconnected):
            message = Disconnected(name, message.why)
        return self.driver.offer(name, message)

    def _blame(self, name: Address, error: PeerError) -> None:
        self.links.blame(dotted(self.keeper if name == MEMBERSHIP else name), error)

    def _say(self, report: Report) -> None:
        """Into the process's log: why somebody may not speak with us, or we with them; each sentence once."""
        refusal = report.what == "links.refused" and "without a greeting" not in report.detail
        refusal = refusal or (report.what == "links.unreachable" and "refused: " in report.detail)
        if refusal and report.detail not in self._refusals and len(self._refusals) < SENTENCES_MAX:
            self._refusals[report.detail] = None
            own_log.say(f"{self.name}: {report.detail}")

    def _happens(self, report: Report) -> None:
        word = timeline.REPORTED.get(report.what)
        if word is not None and self._folder is not None:
            timeline.note(self._folder, self.name, word, report.detail)
            own_log.say(f"{self.name}: {word}: {report.detail}")

    async def _tell(self, path: Path) -> None:
        """Write what `unerring status` shows, a few times a second."""
        while True:
            self._rearrange(path.parent.parent)
            fields = {**describe(self.driver.machine), **self.also()}
            counts = {**self.driver.reports.counts, **self.links.reports.counts}
            fields["disk"] = msgspec.to_builtins(disk_syncs.look())
            fields["reports"] = {what: counts[what] for what in sorted(counts) if not what.startswith("driver.")}
            note(path, self.name, fields)
            await asyncio.sleep(STATUS_S)


def note(path: Path, name: str, fields: dict[str, Any]) -> None:
    """Write a process's status for `unerring status`; errors are ignored, since others will notice the disk."""
    scratch = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        private_folder(path.parent)
        write_private(scratch, protect_json({"name": name, "pid": os.getpid(), "at": time.time(), **fields}))
        os.replace(scratch, path)


def describe(machine: Any) -> dict[str, Any]:
    """The status of a machine: its phase and lead, positions and queues."""
    fields: dict[str, Any] = {"kind": type(machine).__name__}
    if hasattr(machine, "phase"):
        fields["phase"] = machine.phase.name
        fields["incarnation"] = machine.incarnation
        fields["leads"] = machine.election.leading
        fields["elections"] = machine.election.elections
        fields["latency_us"] = machine.intake.latency_us
        fields["through"] = machine.merge.through
    if hasattr(machine, "intake"):
        fields["inputs"] = {
            stream: {"events": i.count, "watermark": i.watermark, "waiting": i.count - machine.intake.consumed[stream]}
            for stream, i in machine.intake.streams.items()
        }
        joined = {s: i for s, i in getattr(machine, "streams", {}).items() if s not in fields["inputs"]}
        for stream, i in joined.items():  # what comes in parts, as far as it is put together
            for part in [name for name in fields["inputs"] if name.startswith(f"{stream}#")]:
                fields["inputs"][part]["part"] = True
            fields["inputs"][stream] = {"events": i.count, "watermark": i.watermark, "waiting": 0}
    if hasattr(machine, "outgoing"):
        fields["outputs"] = {
            stream: {"events": q.count, "queued": len(q), "watermark": q.watermark}
            for stream, q in machine.outgoing.queues.items()
        }
        for stream in fields["outputs"]:
            if stream not in machine.outgoing.own:  # cut out of another one
                fields["outputs"][stream]["part"] = True
        fields["transmissions"] = machine.outgoing.transmissions
    if hasattr(machine, "rounds"):
        fields["record"] = msgspec.to_builtins(machine.record)
    return fields
