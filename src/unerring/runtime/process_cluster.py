"""2f+1 process nodes as operating-system processes of one machine, or spread over several; one that dies is started
again.

Nodes outlive a supervisor that was killed. The next one ends them before it starts its own: their disks hold all that
they know, and what runs is then what lies on the disk now, with the addresses that were given now.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import IO, Any, Final

import msgspec

from unerring.log import open_private, private_folder, write_private
from unerring.model import ANY_RUN, Actor, CallerError, ConfigError, ProcessConfig, check, protect_json, verified_json
from unerring.processes import ProcessesConfig
from unerring.runtime.certificates import CA_KEY, has_ca, make_certificates
from unerring.runtime.live.placement import free_addresses
from unerring.runtime.os_processes import Process, end_all, marked
from unerring.runtime.restarts import RestartsConfig
from unerring.runtime.supervisor import Supervisor, renewing

LOOK_S: Final = 0.2
END_S: Final = 10.0
"""Patience with a node of an earlier supervisor that was asked to end."""
LOCK: Final = "supervisor.lock"
SECRET: Final = "secret"
"""The file with the secret that the nodes of this run prove to know to each other."""
NODE_MARK: Final = "UNERRING_NODE_IN"
"""The environment variable of every node with its folder and its name."""
PLACES: Final = "nodes.json"
LOOPBACK: Final = "127.0.0.1"
NODE_PORT: Final = 7300
"""The first port of nodes on hosts of a list."""


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder's record of its nodes: what they run, and where they listen, so that a restarted node is found where
    it was."""

    processes: list[str]
    ports: dict[str, int]


def addresses_in(folder: Path) -> list[str]:
    """The processes that ran in this folder, as module:attribute; none: no nodes ran there."""
    path = folder / PLACES
    return verified_json(path.read_bytes(), Places, str(path)).processes if path.exists() else []


class ClusterShape(ProcessConfig, frozen=True):
    """How many nodes, and how patient their supervisor is with one that keeps dying."""

    f: int = 1
    tls: str = ""
    """A folder made by `unerring certs`: mutual TLS between the nodes, with certificates of its CA."""
    tls_hours: int | None = None
    """How long the nodes' certificates are valid; they are renewed while the run lasts. None: a year."""
    run: str = ANY_RUN
    """The run that the nodes' certificates are for."""
    policy: str = ""
    """The file with the rights of those who show a certificate; empty: the defaults."""
    hosts: tuple[tuple[str, str], ...] = ()
    """The hosts that the nodes are spread over, with their addresses; none: all are on this machine."""
    here: str = ""
    large: str = ""
    """The store of large values, where the nodes have no folder in common."""
    naming: str = "self"
    """Who is named master of the next group: a way of `ProcessesConfig.naming`, or module:function."""
    finished_max: int = ProcessesConfig().finished_max
    """Ended instances that each node keeps."""
    restarts: RestartsConfig = RestartsConfig(pause_s_min=0.2, pause_s_max=10.0, well_s=50.0)

    def __post_init__(self) -> None:
        check(self, "f", 0, 16)
        ProcessesConfig(naming="self" if ":" in self.naming else self.naming, finished_max=self.finished_max)


class NodeCluster:
    """Starts, watches and stops them."""

    def __init__(
        self,
        processes: Sequence[str],
        data: Path,
        shape: ClusterShape,
        services: Mapping[str, str],
        say: Callable[[str], Any],
        costs: Path | None = None,
        older_costs: Sequence[Path] = (),
        failovers_us: tuple[int, Sequence[int]] = (0, ()),
    ) -> None:
        self.names = [f"n{number}" for number in range(2 * shape.f + 1)]
        self.placed = placed_nodes(shape.f, [host for host, _ in shape.hosts])
        self.own = [name for name in self.names if not self.placed or self.placed[name] == shape.here]
        """Those of this host."""
        self._processes = list(processes)
        self._data = data
        self._shape = shape
        self._services = dict(services)
        self._say = say
        self._costs = costs
        """Learned costs that new instances are grouped by."""
        self._older_costs = list(older_costs)
        """The costs that open instances may have been started with."""
        self._failovers_us = failovers_us
        """The failover threshold of new instances (0: as each process says), and those of open ones."""
        self._supervisor: Supervisor | None = None
        self._lock: IO[bytes] | None = None
        self._addresses: dict[str, str] = {}

    def start(self) -> None:
        """Make ready what `watch` runs."""
        private_folder(self._data)
        self._take_over()
        ports = self._places()
        known = dict(self._shape.hosts)
        hosts = {name: known[self.placed[name]] if self.placed else LOOPBACK for name in self.names}
        self._addresses = {name: f"{hosts[name]}:{port}" for name, port in ports.items()}
        for name in self.own if self._shape.tls else ():
            self._certify(name, hosts[name])

    def _certify(self, name: str, host: str) -> None:
        """A node's certificate is made here where the CA's key is, and brought here otherwise."""
        folder, shape = self._certificates(name), self._shape
        if folder.exists():
            return
        if not has_ca(shape.tls):
            raise ConfigError(
                f"{folder} is not there, and {shape.tls} has no {CA_KEY} to make it: where that key is, say "
                f"'unerring certs {name} --ca CA --role node --name {name} --host {host}', and bring the folder here"
            )
        ca = Path(shape.tls)
        make_certificates(folder, [name, host], ca=ca, roles=[Actor.NODE], run=shape.run, hours=shape.tls_hours)

    def _certificates(self, name: str) -> Path:
        return (self._data / "tls" if has_ca(self._shape.tls) else Path(self._shape.tls)) / name

    def _take_over(self) -> None:
        """Be the only supervisor of the folder, and end the nodes of one that was killed."""
        self._lock = open_private(self._data / LOCK, "ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise CallerError(
                f"another run is at work in {self._data}; stop it first, or choose another --data"
            ) from None
        left = marked(f"{NODE_MARK}={self._data.resolve()} ")
        if left:
            self._say(f"ending the process nodes that a killed run left behind: {len(left)}")
            end_all(left, END_S)

    def _places(self) -> dict[str, int]:
        path = self._data / PLACES
        if path.exists():
            ports = verified_json(path.read_bytes(), Places, str(path)).ports
            if list(ports) != self.names:
                raise ConfigError(
                    f"{self._data} was run with {len(ports)} nodes, now it would be {len(self.names)}; use the same f, "
                    "or another folder"
                )
            return ports
        if self.placed:  # the same on every host
            ports = {name: NODE_PORT + number for number, name in enumerate(self.names)}
        else:
            ports = {name: int(address.rpartition(":")[2]) for name, address in free_addresses(self.names).items()}
        write_private(path, protect_json(Places(self._processes, ports)))
        return ports

    def command(self, name: str) -> list[str]:
        command = [sys.executable, "-m", "unerring", "node", *self._processes, "--name", name]
        if len(self.names) > 1:
            command += ["--listen", self._addresses[name]]
        for peer, address in self._addresses.items():
            if peer != name:
                command += ["--peer", f"{peer}={address}"]
        if self._shape.large:
            command += ["--large", self._shape.large]
        for service, url in self._services.items():
            command += ["--service", f"{service}={url}"]
        command += ["--naming", self._shape.naming, "--finished-max", str(self._shape.finished_max)]
        if self._shape.tls:
            command += ["--tls", str(self._certificates(name))]
        if self._shape.policy:
            command += ["--policy", self._shape.policy]
        if len(self.names) > 1 and not self._shape.tls:
            command += ["--secret-file", str(self._data / SECRET)]
        for path in self._older_costs:
            command += ["--also-costs", str(path)]
        if self._costs is not None:
            command += ["--costs", str(self._costs)]
        newest_us, older_us = self._failovers_us
        for time_us in older_us:
            command += ["--also-failover", f"{time_us}us"]
        if newest_us:
            command += ["--failover", f"{newest_us}us"]
        return [*command, "--data", str(self._data)]

    def watch(self, stopping: Event) -> None:
        """Run the nodes until `stopping` is set. Afterwards none of them works in the folder."""
        asyncio.run(self._supervise(stopping))

    async def _supervise(self, stopping: Event) -> None:
        supervisor = Supervisor(
            self._data,
            self.command,
            self._stuck,
            self._say,
            self._shape.restarts,
            environment=lambda name: {NODE_MARK: f"{self._data.resolve()} {name}"},
            log_of=log_of,
        )
        self._supervisor = supervisor
        for name in self.own:
            supervisor.begin(name)
        tls = str(self._data / "tls") if self._shape.tls else ""
        renews = asyncio.create_task(renewing(tls, self._shape.tls, self._say))
        try:
            while not stopping.is_set() and not supervisor.stopping.is_set():
                await asyncio.sleep(LOOK_S)
        finally:
            renews.cancel()
            await asyncio.gather(renews, return_exceptions=True)
            await supervisor.end_all()
        supervisor.check()

    @property
    def running(self) -> dict[str, Process]:
        """The nodes' processes, by name."""
        return {} if self._supervisor is None else self._supervisor.processes

    def _stuck(self, name: str) -> list[str]:
        """The nodes that keep ending, if they are f+1 or more: then there is no majority."""
        used_up = [name for name in self.names if self._supervisor is not None and self._supervisor.used_up(name)]
        return used_up if len(used_up) > self._shape.f else []

    def stop(self) -> None:
        """Let the next supervisor in."""
        if self._lock is not None:
            self._lock.close()


def placed_nodes(f: int, hosts: Sequence[str]) -> dict[str, str]:
    """The host of each node: as many different ones as there are. None: there is no list."""
    return {f"n{number}": hosts[number % len(hosts)] for number in range(2 * f + 1)} if hosts else {}


def log_of(folder: Path, name: str) -> Path:
    """The log file of a node."""
    return folder / f"{name}.log"
