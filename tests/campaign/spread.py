"""Three hosts that share nothing but an S3 server on a fourth; a producer and a service are on a fifth, outside."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import psutil

from tests.correlation.network import PREFIX
from tests.hosts import GIVEN, Host, Hosts, hidden_folders, hosts
from tests.releases import last_release
from tests.s3 import S3Server
from unerring.model import TIME_MIN, Actor, LogError, verified_json
from unerring.runtime import node_statuses
from unerring.runtime.certificates import make_certificates
from unerring.runtime.secret import shared_secret

ROOT = Path(__file__).parents[2]
APP = "tests.campaign.plant.spread_app:app"
WATCHED = "tests.campaign.plant.spread_app:watched"
STORE = "s3://unerring/spread"
PATIENCE_S = 600.0
PER_S = 50
"""Events in a second."""
SCRATCH = Path("srv/scratch")
STATUS = SCRATCH / "live/status"
THIS = "src"
"""The folder with this release; hosts may have an older one in another. Each host has one process node, for f = 1."""
RECEIVED_LOOK_S = 0.05
FRESH_S = 5.0
"""What a process node told longer ago may be of the one before."""


class Spread:
    """The run, and what is around it."""

    def __init__(self, running: Hosts, store: S3Server, folder: Path, given: Path) -> None:
        self.hosts = running
        self.folder = folder
        self.given = given
        outside = running["out"].address
        self.environment = {
            **store.environment(),
            "AWS_ALLOW_HTTP": "true",  # between the hosts of this machine
            "PYTHONPATH": f"{GIVEN / 'src'}:{GIVEN}",
            "SPREAD_CHANNEL": f"tcp://{outside}:7000?tls={GIVEN / 'reader'}",
            "SPREAD_NOTES": f"http://{outside}:7001",
            "UNERRING_SECRET": str(GIVEN / "secret"),  # the service asks for it, and the nodes have it
        }
        self.options = ["--f", "1", "--tls", str(GIVEN / "ca"), "--evict-after", "10s"]
        self.options += [f"--host={name}={running[name].address}" for name in "abc"]
        self._world: subprocess.Popen[str] | None = None
        self._runs: dict[str, subprocess.Popen[bytes]] = {}
        self._sources: dict[str, str] = {}
        self.pause = threading.Event()

    def run(self, host: str, *options: str, source: str = THIS) -> None:
        """Start the run of a host, with the release that is in that folder of what it was given."""
        command = [sys.executable, "-m", "unerring", "run", APP, "--engine", "live", *self.options, "--here", host]
        command += ["--data", STORE, "--scratch", "/srv/scratch", *options]
        environment = {**self.environment, "PYTHONPATH": f"{GIVEN / source}:{GIVEN}"}
        self._sources[host] = source
        self._runs[host] = self.hosts[host].start(self.folder / f"{host}.log", *command, **environment)

    def take_down(self, host: str) -> None:
        """End the run of a host in order; the host stays, with its disk."""
        run = self._runs.pop(host)
        [inside] = psutil.Process(run.pid).children()
        inside.send_signal(signal.SIGINT)
        run.wait(PATIENCE_S)

    def replace(self, host: str) -> None:
        """Another machine of that name and address, with nothing on it."""
        self.hosts[host] = Host(self.hosts.network, host, self.given, hidden_folders())
        self.run(host)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        out = self.hosts["out"]
        command = [sys.executable, "-m", "tests.campaign.plant.spread_world", STORE, out.address]
        with (
            (self.folder / "out.log").open("ab") as log,
            subprocess.Popen(
                out.command(*command, **self.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as self._world,
        ):
            yield
            assert self._world.stdin is not None
            self._world.stdin.close()

    def ask(self, *command: Any) -> Any:
        assert self._world is not None
        assert self._world.stdin is not None
        assert self._world.stdout is not None
        self._world.stdin.write(json.dumps(command) + "\n")
        self._world.stdin.flush()
        return json.loads(self._world.stdout.readline())

    def whole(self, before: dict[str, list[Any]]) -> bool:
        """Whether every node has two replicas that are caught up, none of them one of `before`."""
        members = self.ask("members")
        counted: dict[str, int] = {}
        for name, (incarnation, standing) in members.items():
            old = name in before and before[name][0] == incarnation
            counted.setdefault(name.partition("/")[0], 0)
            counted[name.partition("/")[0]] += standing == "caught_up" and not old
        return bool(counted) and all(count >= 2 for count in counted.values())

    def nodes(self) -> dict[str, str]:
        """The process nodes that run on some host, and why each takes no part; empty: it does."""
        running = {name: host.root / SCRATCH for name, host in self.hosts.items() if name in self._runs}
        return {f"{name} on {host}": why for host, root in running.items() for name, why in absent_in(root).items()}

    def until_whole(self, before: dict[str, list[Any]]) -> None:
        """Also of what process nodes promised: no further host may be lost before those of the last one know it. An
        older release does not tell whether its nodes take part."""
        until_s = time.monotonic() + PATIENCE_S
        tell = sum(self._sources[host] == THIS for host in self._runs)
        while not self.whole(before) or sorted(self.nodes().values()) != [""] * tell:
            assert time.monotonic() < until_s, (self.ask("members"), self.nodes())
            self.pause.wait(0.5)

    def on(self, host: str) -> dict[str, list[Any]]:
        """The members that are on a host."""
        status = self.hosts[host].run("ls", "/srv/scratch/live/pids").stdout.split()
        return {name: member for name, member in self.ask("members").items() if name.replace("/", ".") in status}

    def received(self) -> Received:
        """Watches what application replicas have of the situations."""
        return Received(lambda: [host.root / STATUS for host in list(self.hosts.values())], "heat")

    def audit(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "unerring", "audit", STORE, "--app", WATCHED, "--scratch", "/srv/audit"]
        return self.hosts["out"].run(*command, **self.environment)


@contextlib.contextmanager
def spread_hosts(tmp_path: Path, server: Any, older: bool = False) -> Iterator[Spread]:
    """Three hosts and what is around them; `older`: with the last release beside this one."""
    given = tmp_path / "given"
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", given / "src", ignore=unneeded)
    shutil.copytree(Path(__file__).parent / "plant", given / "tests" / "campaign" / "plant", ignore=unneeded)
    if older:
        last_release(given / "older")
    make_certificates(given / "ca", [])
    shared_secret(given / "secret")
    given_to = dict.fromkeys((*"abc", "out"), given)
    names = ["reader", f"{PREFIX}.{len(given_to)}"]
    make_certificates(given / "reader", names, ca=given / "ca", roles=[Actor.PRODUCER, Actor.CONSUMER])
    with hosts(server("ip"), server("nft"), "unspread", given_to, ("s3",)) as running:
        address = running.network.addresses["s3"]
        store = S3Server.start(tmp_path, host=address, inside=running.network.inside("s3"))
        try:
            yield Spread(running, store, tmp_path, given)
        finally:
            store.end()


def absent_in(scratch: Path) -> dict[str, str]:
    """Why each process node of a host takes no part, as its status says; empty: it takes part."""
    with contextlib.suppress(OSError):  # the host is lost, or is coming
        told = node_statuses(scratch / "processes")
        return {node.name: node.absent if time.time() - node.at < FRESH_S else "it tells nothing" for node in told}
    return {}


def longest(moved: list[list[float]], after_s: float, until_s: float) -> float:
    """The longest pause between two moves of a stream in some time."""
    times = [at_s for at_s, _ in moved if after_s - 2 <= at_s <= until_s]
    return max((later - one for one, later in pairwise(times)), default=until_s - after_s)


def lags(taken: list[list[float]], made: list[list[float]], after_s: float, until_s: float) -> list[float]:
    """How long after its events were in the log a situation was made: sealed, or received by an application replica."""
    found = []
    for at_s, through_us in taken:
        if after_s <= at_s <= until_s:
            reached = [made_s for made_s, made_us in made if made_us >= through_us]
            if reached:
                found.append(max(0.0, reached[0] - at_s))
    return found


class Received:
    """When an application replica was seen to have a stream up to where, whether or not that was sealed: by the status
    that each of them writes, four times a second."""

    def __init__(self, folders: Callable[[], list[Path]], stream: str) -> None:
        """`folders`: where the processes of each host write theirs."""
        self.moved: list[list[float]] = []
        self._folders = folders
        self._stream = stream
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ending.wait(RECEIVED_LOOK_S):
            self.look()

    def look(self) -> None:
        through_us = max(map(self._through_us, self._folders()), default=TIME_MIN)
        if through_us > (self.moved[-1][1] if self.moved else TIME_MIN):
            self.moved.append([time.monotonic(), through_us])

    def _through_us(self, folder: Path) -> int:
        reached = TIME_MIN
        with contextlib.suppress(OSError, LogError):  # a host that is lost, or is coming
            for path in folder.glob("situations.*.json"):
                told = verified_json(path.read_bytes(), dict[str, Any], path.name)
                reached = max(reached, told.get("inputs", {}).get(self._stream, {}).get("watermark", TIME_MIN))
        return reached
