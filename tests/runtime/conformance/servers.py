"""Real servers, each started privately: its own port on loopback, its own folder, and stopped again.

A `Broker` can be stopped, killed and started again on the same port, so that tests see what a restart does.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port

START_WITHIN_S = 600.0
LOOK_AGAIN_S = 0.02


@dataclass
class Broker:
    """One server program at one port; `command` makes its command line."""

    program: Path
    folder: Path
    command: Callable[[Broker], list[str]]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                self.command(self), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder
            )
        deadline = time.monotonic() + START_WITHIN_S
        while not self.answers():
            assert self.process.poll() is None, f"{self.program} ended: {(self.folder / 'output.txt').read_text()}"
            assert time.monotonic() < deadline, f"{self.program} does not listen on port {self.port}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LOOK_AGAIN_S)

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """As an operator would: asked to end."""
        if self.process is not None:
            self.process.terminate()
            self._ended()

    def kill(self) -> None:
        """kill -9"""
        if self.process is not None:
            self.process.kill()
            self._ended()

    def _ended(self) -> None:
        assert self.process is not None
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def nats(broker: Broker) -> list[str]:
    return [str(broker.program), "-a", "127.0.0.1", "-p", str(broker.port)]


def redis(broker: Broker) -> list[str]:
    options = {"port": broker.port, "bind": "127.0.0.1", "dir": broker.folder, "save": "", "appendonly": "no"}
    return [str(broker.program), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]


def mosquitto(broker: Broker) -> list[str]:
    settings = broker.folder / "mosquitto.conf"
    settings.write_text(f"listener {broker.port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    return [str(broker.program), "-c", str(settings)]


def omnievents(broker: Broker) -> list[str]:
    folder = str(broker.folder)
    return [str(broker.program), "-f", "-p", str(broker.port), "-l", folder, "-t", f"{folder}/trace.txt"]


PROGRAMS = {
    "nats": ("nats-server", nats),
    "redis": ("redis-server", redis),
    "mqtt": ("mosquitto", mosquitto),
    "corba": ("omniEvents", omnievents),
    "corba-pull": ("omniEvents", omnievents),
}
"""scheme: the program that speaks it, and how it is started"""


@contextlib.contextmanager
def running(scheme: str, program: Path, folder: Path) -> Iterator[Broker]:
    """A server for one scheme, until the block ends."""
    broker = Broker(program, folder, PROGRAMS[scheme][1])
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
