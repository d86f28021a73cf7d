"""2f+1 process nodes as operating-system processes of one machine; one that dies is started again.

Nodes outlive a supervisor that was killed. The next one ends them before it starts its own: their disks hold all that
they know, and what runs is then what lies on the disk now, with the addresses that were given now.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import IO, Any, Final

import msgspec

from unerring.model import CallerError, ConfigError, DiskError, ProcessConfig, check, protect_json, verified_json
from unerring.runtime import happenings
from unerring.runtime.certificates import make_certificates
from unerring.runtime.happenings import What
from unerring.runtime.live.processes import end_all, how_it_ended, marked, write_number
from unerring.runtime.restarts import GivenUp, Restarts, RestartsConfig, last_words

LOOK_S: Final = 0.2
END_S: Final = 10.0
"""Patience with a node that was asked to end."""
LOCK: Final = "supervisor.lock"
MARK: Final = "UNERRING_NODE_IN"
"""In the environment of every node: the folder that it works in, and its name."""
PLACES: Final = "nodes.json"


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder remembers of its nodes: what they run, and where they listen, so that one that comes back is found
    where it was."""

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
    restarts: RestartsConfig = RestartsConfig(pause_s_min=0.2, pause_s_max=10.0, well_s=50.0)

    def __post_init__(self) -> None:
        check(self, "f", 0, 16)


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
    ) -> None:
        self.names = [f"n{number}" for number in range(2 * shape.f + 1)]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._processes = list(processes)
        self._data = data
        self._shape = shape
        self._services = dict(services)
        self._say = say
        self._costs = costs
        """Learned costs that new instances are grouped by."""
        self._older_costs = list(older_costs)
        """Those that open instances may have been started with."""
        self._tries = {name: Restarts(shape.restarts) for name in self.names}
        self._began_s: dict[str, float] = {}
        self._due_s: dict[str, float] = {}
        self._ended: dict[str, int] = {}
        self._lock: IO[bytes] | None = None
        self._ports: dict[str, int] = {}

    def start(self) -> None:
        self._data.mkdir(parents=True, exist_ok=True)
        self._take_over()
        self._ports = self._places()
        for name in self.names if self._shape.tls else ():
            if not (self._data / "tls" / name).exists():
                make_certificates(self._data / "tls" / name, [name, "127.0.0.1"], ca=Path(self._shape.tls))
        for name in self.names:
            self._start(name)

    def _take_over(self) -> None:
        """Be the only supervisor of the folder, and end the nodes of one that was killed."""
        self._lock = (self._data / LOCK).open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise CallerError(
                f"another run is at work in {self._data}; stop it first, or choose another --data"
            ) from None
        left = marked(f"{MARK}={self._data.resolve()} ")
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
        ports = dict(zip(self.names, _free_ports(len(self.names)), strict=True))
        path.write_bytes(protect_json(Places(self._processes, ports)))
        return ports

    def command(self, name: str) -> list[str]:
        command = [sys.executable, "-m", "unerring", "node", *self._processes, "--name", name]
        if len(self.names) > 1:
            command += ["--listen", f"127.0.0.1:{self._ports[name]}"]
        for peer, port in self._ports.items():
            if peer != name:
                command += ["--peer", f"{peer}=127.0.0.1:{port}"]
        for service, url in self._services.items():
            command += ["--service", f"{service}={url}"]
        if self._shape.tls:
            command += ["--tls", str(self._data / "tls" / name)]
        for path in self._older_costs:
            command += ["--also-costs", str(path)]
        if self._costs is not None:
            command += ["--costs", str(self._costs)]
        return [*command, "--data", str(self._data)]

    def _start(self, name: str) -> None:
        with (self._data / f"{name}.log").open("ab") as log:
            environment = {**os.environ, MARK: f"{self._data.resolve()} {name}"}
            started = subprocess.Popen(self.command(name), stdout=log, stderr=log, env=environment)
        self.running[name] = started
        self._began_s[name] = time.monotonic()
        (self._data / "pids").mkdir(exist_ok=True)
        write_number(self._data / "pids" / name, started.pid)
        happenings.note(self._data, name, What.STARTED, f"as process {started.pid}")

    def watch(self, stopping: Event) -> None:
        """Until `stopping` is set."""
        while not stopping.wait(LOOK_S):
            try:
                self.look(time.monotonic())
            except OSError as error:
                raise DiskError(f"{self._data} cannot be written ({error}); free space there") from None

    def look(self, now_s: float) -> None:
        """Start again whoever died, after a pause that doubles while it keeps dying at once."""
        for name, process in list(self.running.items()):
            if process.poll() is None:
                continue
            self._due_s[name] = now_s + self._tries[name].failed(now_s - self._began_s[name])
            del self.running[name]
            said = f"process {process.pid} {how_it_ended(process.returncode)}"
            happenings.note(self._data, name, What.DIED, said)
            self._ended[name] = process.returncode
        for name in self.names:
            if name not in self.running and now_s >= self._due_s.get(name, 0.0):
                if name in self._ended:  # Not before: with Ctrl-C all end at once, and nothing is started again.
                    code = self._ended.pop(name)
                    self._say(f"{name} ended with code {code}; it is started again. See {name}.log")
                self._start(name)
        hopeless = [name for name in self.names if self._tries[name].used_up]
        if len(hopeless) > self._shape.f:
            log = self._data / f"{hopeless[-1]}.log"
            raise GivenUp(f"{' and '.join(hopeless)} keep ending: {last_words(log)} (see {log})")

    def stop(self, within_s: float = END_S) -> None:
        """Ask all to end, then make them. Afterwards no node works in the folder."""
        for process in self.running.values():
            process.terminate()
        end_s = time.monotonic() + within_s
        for process in self.running.values():
            try:
                process.wait(max(0.1, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for name in self.running:
            happenings.note(self._data, name, What.ENDED, "with the run")
        if self._lock is not None:
            self._lock.close()


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
