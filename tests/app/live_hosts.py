"""The three-level tree on three hosts, f = 1, whose replicas are killed and stopped and whose hosts are cut off."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.app.live_tree import complete, feed, read_status, readings, violations
from tests.app.tree_app import Reading, app
from tests.correlation.network import Network
from unerring.log import EventLog, LogWriter
from unerring.model import schema_of
from unerring.runtime.certificates import make_certificates
from unerring.runtime.live import cluster as clusters

ADDRESS = "tests.app.tree_app:app"
STREAMS = [schema.name for schema in app.outputs]
PATIENCE_S = 600.0


class LiveHosts:
    """One `unerring run` in each namespace, with mutual TLS; the record in etcd where an address is given."""

    def __init__(self, folder: Path, network: Network, events: int, seed: int, etcd: str = "") -> None:
        self.folder = folder
        self.network = network
        self.etcd = etcd
        self.events = readings(events)
        self.draw = random.Random(seed)
        self.hosts = list(network.addresses)
        self.done: dict[str, int] = {}
        """How often each kind of failure was made."""
        self.killed: set[int] = set()
        self._runs: list[subprocess.Popen[bytes]] = []
        self._pause = threading.Event()

    def data(self, host: str) -> Path:
        return self.folder / host

    def start(self) -> None:
        make_certificates(self.folder / "ca", [])
        options = ["--f", "1"]
        options += [f"--host={host}={address}" for host, address in self.network.addresses.items()]
        options += [f"--etcd={self.etcd}"] if self.etcd else []
        for host in self.hosts:
            command = [*self.network.inside(host), sys.executable, "-m", "unerring", "run", ADDRESS, "--engine", "live"]
            command += [*options, "--here", host, "--data", str(self.data(host)), "--tls", self.certificates(host)]
            with (self.folder / f"{host}.log").open("ab") as log:
                self._runs.append(subprocess.Popen(command, stdout=log, stderr=log))
        self.until(lambda: all((self.data(host) / "live" / clusters.FILE).exists() for host in self.hosts))
        self.cluster = clusters.read(self.data(self.hosts[0]) / "live")
        self.writer = LogWriter(EventLog(self.data(self.hosts[0]) / "log"), schema_of(Reading), None, app.buckets)
        self.until(lambda: all(self.healthy(name) for name in self.replicas))

    def certificates(self, host: str) -> str:
        """The CA's key is on the first host alone; the others have a certificate for the processes placed on them."""
        if host == self.hosts[0]:
            return str(self.folder / "ca")
        folder = self.folder / "tls" / host
        names = [host, self.network.addresses[host]]
        make_certificates(folder, names, ca=self.folder / "ca", roles=["replica"])
        return str(folder)

    def stop(self) -> None:
        for run in self._runs:
            run.send_signal(signal.SIGINT)
        for run in self._runs:
            try:
                run.wait(600)
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()

    @property
    def replicas(self) -> list[str]:
        return [name for name in self.cluster.founding if name.partition("/")[0] in STREAMS]

    def status(self, name: str) -> dict[str, Any]:
        return read_status(self.data(self.cluster.hosts[name]), name)

    def pid(self, name: str) -> int:
        try:
            return int(
                (self.data(self.cluster.hosts[name]) / "live" / "pids" / name.replace("/", ".")).read_text().split()[0]
            )
        except (OSError, ValueError, IndexError):
            return 0

    def healthy(self, name: str) -> bool:
        told = self.status(name)
        fresh = time.time() - told.get("at", 0) < 2
        alive = fresh and told["pid"] == self.pid(name) and told["pid"] not in self.killed
        return alive and told.get("phase") == "MEMBER"

    def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, {n: self.status(n) for n in (*self.replicas, "situations/0")}
            self._pause.wait(0.05)

    def run(self, failures: int) -> None:
        size = -(-len(self.events) // failures)
        for piece in range(failures):
            feed(self.writer, self.events[piece * size : (piece + 1) * size])
            self.fail_one()
        self.network.heal()
        self.writer.end(0)
        self.writer.seal()
        self.until(lambda: complete(self.data(self.hosts[0]), STREAMS), 300)

    def fail_one(self) -> None:
        kind = self.draw.choice(("kill", "kill", "stop", "cut one way", "cut both ways", "host off"))
        self.done[kind] = self.done.get(kind, 0) + 1
        if kind in ("kill", "stop"):
            self._fail_process(kind)
            return
        one, other, third = self.draw.sample(self.hosts, 3)
        self.network.cut(one, other, both=kind != "cut one way")
        if kind == "host off":
            self.network.cut(one, third, both=True)
        self._pause.wait(self.draw.choice((0.1, 0.5, 1.5)))
        self.network.heal()

    def _fail_process(self, kind: str) -> None:
        victim = self.draw.choice(self.replicas)
        peer = f"{victim[:-1]}{1 - int(victim[-1])}"
        self.until(lambda: self.healthy(victim) and self.healthy(peer))
        pid = self.pid(victim)
        if kind == "kill":
            self.killed.add(pid)
            os.kill(pid, signal.SIGKILL)
            return
        os.kill(pid, signal.SIGSTOP)
        self._pause.wait(self.draw.random())
        os.kill(pid, signal.SIGCONT)

    def violations(self) -> list[Any]:
        return violations(self.data(self.hosts[0]), app, self.events)
