"""Process nodes behind links that delay, beside the simulator: do its figures say what real nodes do?

Each node is a process in a network namespace of its own, and so are the service and the proxy that every link passes.
The proxy holds bytes back as long as the simulated link of the same two nodes would. The same process of the paper's
evaluation then runs in the simulator, on links that are the same and on a disk that is as quick as this one is.

`delays.py ROLE JSON` is how the bench starts its node, service and proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from unerring.evaluation import (
    MASTER_DOWN_US,
    NETWORKS,
    Execution,
    Network,
    ProcessRun,
    Timing,
    grouping_of,
    random_actions,
    sequence,
)
from unerring.model import SECOND_US, CallerError, Persist
from unerring.processes import ClusterBounds, Ended, ProcessNode, replica_set
from unerring.runtime import MACHINE, HttpService, LinksConfig, RunningNode, SqliteStorage, make_certificates
from unerring.simulation import FATES_BITS, DiskSpec, LinkSpec, fates

SEED = 360_000_000
INSTANCE = "i"
RULES = {"EC2": "ours", "PlanetLab": "paper"}
"""Our time-outs are made for one data centre; see docs/evaluation.md."""
CLOSE = 0.15
"""How far a real figure may be from the simulated one to be called the same."""


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    if os.geteuid() or shutil.which("ip") is None:
        raise CallerError(
            "this makes network namespaces: run it as root, with Debian's iproute2 and nftables installed"
        )
    degrees, actions, masters = ((3,), 5, 1) if quick else ((3, 5, 7, 9), 40, 3)
    disk = _disk()
    for place, rules in RULES.items():
        near = msgspec.structs.replace(NETWORKS[place], disk=disk, state_us=0)
        for degree in degrees:
            for fail in (masters,) if quick else (0, masters):
                point = ProcessRun(degree, "passive", 0, place, actions, fail, rules=rules, uplink_us=0)
                yield from _pair(point, near)


def _disk() -> DiskSpec:
    """How long our storage takes for a small commit here, now."""
    took_us = []
    with tempfile.TemporaryDirectory() as folder:
        storage = SqliteStorage(Path(folder) / "disk.db")
        for number in range(200):
            began = time.perf_counter_ns()
            storage.write([Persist((("state", bytes(300) + number.to_bytes(4, "big")),))])
            took_us.append((time.perf_counter_ns() - began) // 1000)
        storage.close()
    least = sorted(took_us)[len(took_us) // 20]
    return DiskSpec(sync_us=least, spread_us=2 * max(0, round(statistics.median(took_us)) - least))


def _pair(point: ProcessRun, near: Network) -> Iterator[dict[str, Any]]:
    """One execution in the simulator and one on real nodes, figure by figure."""
    simulated = Execution(point, SEED, near)
    simulated.play()
    if wrong := simulated.verdict():
        raise AssertionError("; ".join(wrong[:3]))
    foretold = simulated.row()
    with tempfile.TemporaryDirectory() as folder, _hosts(point.degree) as joined:
        measured = _Real(point, near, Path(folder), joined).play()
    name = f"{point.network}.degree{point.degree}.masters{point.masters}"
    for what in ("execution_percent", "view_change_ms" if point.masters else "replication_ms"):
        real, said = measured[what], foretold[what]
        yield _figure(f"{name}.{what}.real", real)
        yield _figure(f"{name}.{what}.simulated", said)
        ratio = _figure(f"{name}.{what}.ratio", real / said)
        yield ratio | {"goal": f"{1 - CLOSE:g} to {1 + CLOSE:g}", "met": abs(real / said - 1) <= CLOSE}


def _figure(name: str, value: float) -> dict[str, Any]:
    unit = "ratio" if name.endswith("ratio") else "ms" if "_ms" in name else "%"
    return {"bench": "delays", "figure": name, "value": value, "unit": unit, "goal": None, "met": None}


def _hosts(degree: int) -> Any:
    from tests.correlation.network import network

    nft = Path(shutil.which("nft") or "/usr/sbin/nft")
    return network(Path(shutil.which("ip") or ""), nft, "undelay", [*_names(degree), "bank", "proxy"])


def _names(degree: int) -> list[str]:
    return [f"node{number}" for number in range(degree)]


# ---- the bench's side ------------------------------------------------------------------------------------------------


class _Real:
    """Nodes, a proxy and a service; whoever executes is killed at the moments at which the simulator does it."""

    def __init__(self, point: ProcessRun, near: Network, folder: Path, joined: Any) -> None:
        self.point, self.near, self.folder, self.joined = point, near, folder, joined
        self.names = _names(point.degree)
        self.times_us = {one.name: one.time_us for one in random_actions(SEED, point.actions, point.mean_ms)}
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.ends: list[dict[str, Any]] = []

    def play(self) -> dict[str, float]:
        with contextlib.ExitStack() as stack:
            stack.callback(self._end)
            self._begin()
            first = replica_set(INSTANCE, self._machines(), self.point.degree // 2)[0]
            began_ns = self._ask(first.split("/")[0], {"start": INSTANCE})["ns"]
            for number in range(self.point.masters):
                self._until(self._moment(number))
                self._fail_master()
            while not all(self._ask(name, {"timing": True})["ended_ns"] for name in self.names):
                time.sleep(0.1)
            self.ends += [self._ask(name, {"timing": True}) for name in self.names]
        ended_ns = min(end["ended_ns"] for end in self.ends if end["ended_ns"])
        return {
            "execution_percent": (ended_ns - began_ns) / 10 / sum(self.times_us.values()),
            "replication_ms": self._median("replications_us"),
            "view_change_ms": self._median("view_changes_us"),
        }

    def _median(self, what: str) -> float:
        values = sorted(us for end in self.ends for us in end[what])
        return values[len(values) // 2] / 1000 if values else float("nan")

    def _begin(self) -> None:
        at = self.joined.addresses
        bank = f"http://{at['bank']}:9000"
        self._start("bank", {"folder": str(self.folder), "host": at["bank"], "times_us": self.times_us})
        ways = []
        ports = {}
        for (one, other), link in self._links().items():
            spec = msgspec.to_builtins(link)
            for dials, dialled in ((one, other), (other, one)):
                ports[dials, dialled] = 10_000 + len(ways)
                ways.append({"port": ports[dials, dialled], "to": at[dialled], "spec": spec})
        self._start("proxy", {"host": at["proxy"], "ways": ways})
        make_certificates(self.folder / "ca", [])
        for name in self.names:
            known = [name, at[name], at["proxy"]]
            make_certificates(self.folder / name, known, ca=self.folder / "ca", roles=["node"])
        self.settings = {
            name: {
                "name": name,
                "folder": str(self.folder),
                "host": at[name],
                "peers": {other: f"{at['proxy']}:{ports[name, other]}" for other in self.names if other != name},
                "bank": bank,
                "point": msgspec.to_builtins(self.point),
            }
            for name in self.names
        }
        for name in self.names:
            self._start(name, self.settings[name])
        while any(self._ask(name, {"linked": True})["linked"] < self.point.degree - 1 for name in self.names):
            time.sleep(0.01)

    def _links(self) -> dict[tuple[str, str], LinkSpec]:
        """Those that the simulator draws. Which replica comes first follows from the names, and real ones have longer
        names, so that each link goes to the two replicas of the same places in that order."""
        draw = Random(f"network {SEED}")
        f = self.point.degree // 2
        foretold = replica_set(INSTANCE, tuple(self.names), f)
        real = [one.split("/")[0] for one in replica_set(INSTANCE, self._machines(), f)]
        of = dict(zip(foretold, real, strict=True))
        return {(of[one], of[other]): self.near.link(draw) for one, other in combinations(self.names, 2)}

    def _machines(self) -> tuple[str, ...]:
        return tuple(f"{name}/{MACHINE}" for name in self.names)

    def _start(self, name: str, settings: dict[str, Any]) -> None:
        role = name if name in ("bank", "proxy") else "node"
        command = [*self.joined.inside(name), sys.executable, __file__, role, json.dumps(settings)]
        self.running[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._hear(name)

    def _moment(self, number: int) -> str:
        """The action during which the simulator fails the master for this time."""
        left_us = (2 * number + 1) / (2 * self.point.masters) * sum(self.times_us.values())
        for action, time_us in self.times_us.items():
            if left_us < time_us:
                return action
            left_us -= time_us
        return action

    def _until(self, action: str) -> None:
        """The service has begun it."""
        begun = self.folder / "begun"
        while not (begun.exists() and action in begun.read_text().split()):
            time.sleep(0.002)

    def _fail_master(self) -> None:
        name = self._leader()
        self.ends.append(self._ask(name, {"timing": True}))
        self.running[name].kill()
        self.running.pop(name).wait()
        time.sleep(MASTER_DOWN_US / SECOND_US)
        self._start(name, self.settings[name])

    def _leader(self) -> str:
        while True:
            for name in self.names:
                if self._ask(name, {"leads": INSTANCE})["leads"]:
                    return name
            time.sleep(0.002)

    def _tell(self, name: str, command: dict[str, Any]) -> None:
        stdin = self.running[name].stdin
        if stdin is not None:
            stdin.write(json.dumps(command) + "\n")
            stdin.flush()

    def _hear(self, name: str) -> dict[str, Any]:
        stdout = self.running[name].stdout
        line = stdout.readline() if stdout is not None else ""
        if not line:
            raise AssertionError(f"{name} ended with {self.running[name].wait()}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def _ask(self, name: str, command: dict[str, Any]) -> dict[str, Any]:
        self._tell(name, command)
        return self._hear(name)

    def _end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


# ---- a node ----------------------------------------------------------------------------------------------------------


async def _node(settings: dict[str, Any]) -> None:
    """Speaks with the bench in lines of JSON."""
    point = msgspec.convert(settings["point"], ProcessRun)
    actions = random_actions(SEED, point.actions, point.mean_ms)
    timing = Timing()
    ProcessNode.replica_part = timing.replica()
    folder, name = Path(settings["folder"]), settings["name"]
    ended_ns: list[int] = []

    class Noting(RunningNode):
        def _on_deliver(self, what: Any) -> None:
            if isinstance(what, Ended):
                ended_ns.append(time.monotonic_ns())
            super()._on_deliver(what)

    node = Noting(
        name,
        [sequence(actions)],
        folder / f"{name}.db",
        {"bank": HttpService(settings["bank"], timeout_s=60.0)},
        peers=settings["peers"],
        listen_on=f"{settings['host']}:9000",
        bounds=ClusterBounds(f=point.degree // 2, state_bytes_max=8 << 20),
        config=NETWORKS[point.network].fixed if point.rules == "paper" else None,
        grouping=grouping_of(point, actions),
        links_config=LinksConfig(tls=str(folder / name), frame_bytes_max=18 << 20),
    )
    await node.open()
    _say({})
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        if "start" in command:
            _say({"ns": time.monotonic_ns()})
            await node.start("p", command["start"])
        elif "linked" in command:
            links = node.driver.links
            _say({"linked": sum(one == "connected" for one in links.status().values()) if links else 0})
        elif "leads" in command:
            replica = node.node.instances.get(command["leads"])
            _say({"leads": replica is not None and replica.leading})
        elif "timing" in command:
            times = {"replications_us": timing.replications_us, "view_changes_us": timing.view_changes_us}
            _say({**times, "ended_ns": ended_ns[0] if ended_ns else 0})


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# ---- the service -----------------------------------------------------------------------------------------------------


def _bank(settings: dict[str, Any]) -> None:
    """Each action takes the time it was drawn with."""
    import uvicorn

    from unerring import IdempotencyFilter, SqliteStore

    folder, times_us = Path(settings["folder"]), settings["times_us"]
    begun = (folder / "begun").open("a", buffering=1)

    async def act(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "DELETE":
            action = scope["unerring"].iid.split("/")[1].partition("'")[0]
            begun.write(f"{action}\n")
            await asyncio.sleep(times_us[action] / SECOND_US)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})

    async def serve() -> None:
        app: Any = IdempotencyFilter(act, SqliteStore(str(folder / "bank.db")))
        config = uvicorn.Config(app, host=settings["host"], port=9000, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        _say({})
        await serving

    asyncio.run(serve())


# ---- the proxy -------------------------------------------------------------------------------------------------------


class _Way:
    """One direction of a link: what arrives goes on after a delay, in order."""

    def __init__(self, spec: LinkSpec, draw: Random) -> None:
        self._fates = fates(spec)
        self._draw = draw
        self._waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sending = asyncio.create_task(self._send(writer))
        last_s = 0.0
        try:
            while chunk := await reader.read(1 << 16):
                delay_s = self._fates[self._draw.getrandbits(FATES_BITS)] / SECOND_US
                last_s = max(last_s, time.monotonic() + delay_s)
                await self._waiting.put((last_s, chunk))
        except OSError:
            pass
        finally:
            sending.cancel()
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                at_s, chunk = await self._waiting.get()
                if (left_s := at_s - time.monotonic()) > 0:
                    await asyncio.sleep(left_s)
                writer.write(chunk)
                await writer.drain()


async def _proxy(settings: dict[str, Any]) -> None:
    draw = Random(f"proxy {SEED}")

    def forward(way: dict[str, Any]) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        spec = msgspec.convert(way["spec"], LinkSpec)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                away, back = await asyncio.open_connection(way["to"], 9000)
            except OSError:
                writer.close()
                return
            await asyncio.gather(_Way(spec, draw).carry(reader, back), _Way(spec, draw).carry(away, writer))

        return accept

    for way in settings["ways"]:
        await asyncio.start_server(forward(way), settings["host"], way["port"])
    _say({})
    await asyncio.Event().wait()


def _precise() -> asyncio.AbstractEventLoop:
    """epoll waits whole milliseconds; select waits as long as it is told."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


if __name__ == "__main__":
    role, given = sys.argv[1], json.loads(sys.argv[2])
    if role == "bank":
        _bank(given)
    else:
        with asyncio.Runner(loop_factory=_precise if role == "proxy" else None) as runner:
            runner.run(_proxy(given) if role == "proxy" else _node(given))
