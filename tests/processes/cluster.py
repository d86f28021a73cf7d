"""Real process nodes and real services as operating-system processes, to be killed, stopped and cut off.

`python -m tests.processes.cluster node NAME FOLDER PORTS...` and `... service FOLDER PORT` are what the tests start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from tests.correlation.network import Network
from tests.faults import Faults
from tests.ports import free_ports
from unerring.audit import Acted, Did, Model, Violation, check_agreement, check_one_copy
from unerring.model import NetworkError
from unerring.processes.build import Process
from unerring.processes.config import ProcessesConfig
from unerring.processes.graph import Retry, Service as Declared
from unerring.processes.grouping import Grouping
from unerring.processes.messages import State
from unerring.processes.replica import Ended, Replica
from unerring.runtime.certificates import make_certificates
from unerring.runtime.links import LinksConfig
from unerring.runtime.process_node import RunningNode
from unerring.runtime.services import HttpService, IdempotencyFilter, Interaction, SqliteStore
from unerring.runtime.timers import monotonic_us

PATIENT = Retry(attempt_us=400_000, attempts_max=6, backoff_us=20_000, backoff_max_us=200_000, occurrences_max=1)
GROUPING = Grouping(failover_us=500_000, view_change_us=200_000)
CONFIG = ProcessesConfig(
    tick_us=10_000, heartbeat_us=25_000, suspect_us=150_000, backoff_us=100_000, sweep_patience_us=1_500_000
)


class Parts(msgspec.Struct):
    order: int = 0
    price: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    left: int = 0


def parts_process() -> Process:
    """A read, writes in sequence and side by side, a choice, and one write that cannot be undone."""
    process = Process("parts", state=Parts, services=(Declared("shop"),))
    write: dict[str, Any] = {"service": "shop", "operation": "write", "write": True, "retry": PATIENT}

    @process.action(service="shop", operation="read", writes="price", time=1_000, retry=PATIENT)
    async def look_up(order: int) -> int: ...

    @process.action(writes="a", time=120_000, **write)
    async def first(price: int) -> int: ...

    @process.action(writes="b", time=120_000, **write)
    async def left_hand(a: int) -> int: ...

    @process.action(writes="c", time=120_000, **write)
    async def right_hand(price: int) -> int: ...

    @process.action(writes="d", time=120_000, **write)
    async def extra(c: int) -> int: ...

    @process.action(writes="left", compensable=False, time=10_000, **write)
    async def truck(a: int, b: int) -> int: ...

    @process.condition
    def odd(price: int) -> bool:
        return price % 2 == 1

    return process.flow(
        look_up, first, process.both([left_hand], [right_hand]), process.xor(odd, {True: [extra], False: []}), truck
    )


# ---- the service -----------------------------------------------------------------------------------------------------


class Shop:
    """Does what it is asked and writes down what it really did, in the transaction of the filter."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        interaction: Interaction | None = scope.get("unerring")
        body = (await receive())["body"]
        value = int.from_bytes(os.urandom(2), "big")
        if interaction is not None and not scope["path"].endswith("/read"):
            what = "undo" if scope["method"] == "DELETE" else "do"
            original = (interaction.original or body).decode()
            interaction.connection.execute(
                "INSERT INTO journal (what, iid, grp, basis, request, reply) VALUES (?, ?, ?, ?, ?, ?)",
                (what, interaction.iid, interaction.group, json.dumps(interaction.basis), original, value),
            )
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % value})


def serve(folder: str, host: str, port: int) -> None:
    store = SqliteStore(Path(folder) / "shop.db")
    store.connection.execute(
        "CREATE TABLE IF NOT EXISTS journal (n INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT, iid TEXT, grp INTEGER, "
        "basis TEXT, request TEXT, reply INTEGER)"
    )
    uvicorn.run(IdempotencyFilter(Shop(), store), host=host, port=port, log_level="error")


def journal(folder: Path) -> list[Did]:
    """What the service really did, in order."""
    connection = sqlite3.connect(folder / "shop.db")
    rows = connection.execute("SELECT what, iid, grp, basis, request, reply FROM journal ORDER BY n").fetchall()
    connection.close()
    lines = []
    for what, iid, group, basis, request, reply in rows:
        view = int(iid.partition("@")[2] or -1)
        lines.append(
            Did(what, iid, iid.split("/")[1], group, view, tuple(json.loads(basis)), json.loads(request), reply)
        )
    return lines


# ---- a node ----------------------------------------------------------------------------------------------------------


async def run_node(name: str, folder: str, addresses: dict[str, str], tls: str) -> None:
    """`addresses` has the nodes and the service called shop."""
    shop = addresses.pop("shop")
    peers = {peer: address for peer, address in addresses.items() if peer != name}
    links = LinksConfig(frame_bytes_max=8 << 20, tls=tls) if tls else None
    ends = Path(folder) / f"{name}.ends"

    class Noted(RunningNode):
        def _on_deliver(self, what: Any) -> None:
            if isinstance(what, Ended):
                with ends.open("ab") as file:
                    file.write(msgspec.json.encode(what.state) + b"\n")
            super()._on_deliver(what)

    node = Noted(
        name,
        [parts_process()],
        Path(folder) / f"{name}.db",
        {"shop": HttpService(f"http://{shop}", timeout_s=0.4)},
        peers=peers,
        listen_on=addresses[name],
        links_config=links,
        config=CONFIG,
        grouping=GROUPING,
    )
    await node.open()
    wanted = Path(folder) / f"{name}.wanted"
    seen = 0
    while True:  # the test speaks to the node through a file: it survives every kill
        lines = wanted.read_text().splitlines() if wanted.exists() else []
        for line in lines[seen:]:
            instance, order = line.split()
            try:
                await node.start("parts", instance, order=int(order))
            except NetworkError:  # the node stopped meanwhile: its end says why
                await node.driver.wait(asyncio.Event())
                raise
        seen = len(lines)
        waiting = [line.split()[0] for line in lines if line.split()[0] not in node.node.finished]
        _write(Path(folder) / f"{name}.absent", node.node.rejoin.why_absent)
        _write(Path(folder) / f"{name}.left", f"{len(lines)} {len(waiting)}")
        roles = {instance: _told(replica) for instance, replica in node.node.instances.items()}
        _write(Path(folder) / f"{name}.roles", json.dumps(roles))
        if node.driver._driving is not None and node.driver._driving.done():
            node.driver._driving.result()
            return
        await asyncio.sleep(0.02)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, for those who read meanwhile."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def _told(replica: Replica) -> dict[str, Any]:
    """What a test needs to see when an instance does not come to its end."""
    told = {key: value for key, value in replica.query().items() if key not in ("variables", "history")}
    return {
        **told,
        "others_clean": {name: list(seen) for name, seen in replica.recovery._clean.items()},
        "swept": replica.recovery._swept,
        "accepted": replica.acceptor.rank,
        "decided": [replica.decided[0], replica.decided[1].group] if replica.decided else None,
        "leading": replica.leading,
        "logs": [
            f"{log.view}/{log.group}{' abandoned' if log.abandoned else ''}" for log in replica.logs.kept.values()
        ],
        "undoing": [undo.asked.iid for undo in replica.recovery.undos.values() if undo.asked],
        "votes": list(replica.election.votes) if replica.election.votes is not None else None,
        "elections": replica.watch.elections,
        "not_led_ms": (monotonic_us() - replica.watch.led_us) // 1000,
        "patience_ms": replica.watch._patience_us // 1000,
    }


# ---- the test's side -------------------------------------------------------------------------------------------------


def pass_time(seconds: float) -> None:
    """A fault lasts a while; a condition is looked at now and then."""
    threading.Event().wait(seconds)


class Cluster:
    """Nodes and one service. `start`, `kill`, `pause` and `cut` are what a test does to them. With a network each has a
    host of its own and nodes speak mutual TLS; without, all are on loopback."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        network: Network | None = None,
        struck: Counter[str] | None = None,
        faulty: Path | None = None,
    ) -> None:
        """`struck`: counts how often each kind of fault struck. `faulty`: the library that is preloaded, so that the
        clocks and disks of `faults` can be made wrong."""
        self.folder = folder
        self.network = network
        self.names = [f"n{number}" for number in range(nodes)]
        hosts = network.addresses if network else dict.fromkeys([*self.names, "shop"], "127.0.0.1")
        ports = free_ports(nodes + 1)
        self.addresses = {n: f"{hosts[n]}:{port}" for n, port in zip([*self.names, "shop"], ports, strict=True)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.wanted: list[str] = []
        self.started_ns: dict[str, int] = {}
        self.struck = Counter() if struck is None else struck
        self.faults: dict[str, Faults] = {}
        for name, database in [(name, name) for name in self.names] + [("service", "shop")]:
            if faulty is not None:
                self.faults[name] = Faults(
                    faulty, folder / f"{name}.faults", folder / f"{database}.db", struck=self.struck
                )

    @property
    def failures(self) -> int:
        return self.struck.total()

    def __enter__(self) -> Cluster:
        if self.network is not None:
            make_certificates(self.folder / "ca", [])
            for name in self.names:
                host = self.network.addresses[name]
                make_certificates(self.folder / "tls" / name, [name, host], ca=self.folder / "ca", roles=["node"])
        for name in ("service", *self.names):
            self.start(name)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            inside = self.network.inside("shop" if name == "service" else name) if self.network else []
            command = [*inside, sys.executable, "-m", "tests.processes.cluster", *arguments]
            environment = {**os.environ, **self.faults[name].environment} if name in self.faults else None
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def awake(self, name: str) -> bool:
        """Whether a node has spoken since it was started: killing one that is still starting tests nothing."""
        try:
            return (self.folder / f"{name}.left").stat().st_mtime_ns > self.started_ns[name]
        except OSError:
            return False

    def wait_awake(self, names: list[str], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not all(self.awake(name) for name in names):
            assert time.monotonic() < end, f"{[name for name in names if not self.awake(name)]} did not start"
            pass_time(0.05)

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.describe()
            pass_time(0.05)

    def wait_whole(self, names: list[str], seconds: float) -> None:
        """Until they are awake and take part."""
        self.wait_awake(names, seconds)
        end = time.monotonic() + seconds
        while absent := [why for name in names if (why := (self.folder / f"{name}.absent").read_text())]:
            assert time.monotonic() < end, absent
            pass_time(0.05)

    def lose_disk(self, name: str) -> None:
        """Of a node that was killed: nothing of its database is left."""
        for path in self.folder.glob(f"{name}.db*"):
            path.unlink()

    def start(self, name: str) -> None:
        self.started_ns[name] = time.time_ns()
        if name == "service":
            self._run("service", "service", str(self.folder), *self.addresses["shop"].split(":"))
        else:
            tls = str(self.folder / "tls" / name) if self.network else ""
            self._run(name, "node", name, str(self.folder), json.dumps(self.addresses), tls)

    def kill(self, name: str) -> None:
        """As by kill -9; it comes back by `start`."""
        self.struck["kill -9"] += 1
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def wait_ended(self, name: str, seconds: float) -> str:
        """Until a node has stopped by itself: the last line that it said. It comes back by `start`."""
        assert self.running[name].wait(seconds) == 1
        del self.running[name]
        return (self.folder / f"{name}.log").read_text().splitlines()[-1]

    def pause(self, name: str, stopped: bool) -> None:
        """As by SIGSTOP and SIGCONT."""
        self.struck["SIGSTOP"] += int(stopped)
        self.running[name].send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)

    def cut(self, name: str, off_from: list[str], both: bool) -> None:
        """Partition by nftables: what these send to `name` is dropped; both: nor does it reach them."""
        assert self.network is not None, "cuts need hosts of their own"
        self.struck["partition" if both else "partition, one way"] += 1
        for other in off_from:
            self.network.cut(name, other, both)

    def want(self, instance: str, order: int) -> None:
        """Start an instance at every node: the id makes it one."""
        self.wanted.append(instance)
        for name in self.names:
            with (self.folder / f"{name}.wanted").open("a") as file:
                file.write(f"{instance} {order}\n")

    def master(self) -> str | None:
        """A node that executes something now."""
        for name in self.names:
            try:
                roles = json.loads((self.folder / f"{name}.roles").read_text())
            except (OSError, ValueError):
                continue
            if name in self.running and any(told["role"] in ("master", "planner") for told in roles.values()):
                return name
        return None

    def open(self) -> int:
        """Instances that some node has not settled, as far as the nodes say."""
        left = [0]
        for name in self.names:
            try:
                known, waiting = (self.folder / f"{name}.left").read_text().split()
            except (OSError, ValueError):
                known, waiting = "0", "0"
            left.append(len(self.wanted) - int(known) + int(waiting))
        return max(left)

    def settled(self) -> bool:
        for name in self.names:
            try:
                known, left = (self.folder / f"{name}.left").read_text().split()
            except (OSError, ValueError):
                return False
            if int(left) or int(known) < len(self.wanted):
                return False
        return True

    def wait_settled(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.settled():
            assert time.monotonic() < end, f"not settled: {self.describe()}"
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} ended: {(self.folder / f'{name}.log').read_text()[-2000:]}"
            pass_time(0.05)

    def describe(self) -> str:
        """For each instance that is not settled everywhere, what each node knows of it and last reported."""
        lines = []
        for name in self.names:
            lines.append(f"{name}:")
            roles = json.loads((self.folder / f"{name}.roles").read_text())
            lines += [f"  {instance}: {told}" for instance, told in list(roles.items())[:8]]
            lines.append(f"  {len(roles)} in all")
            lines += [f"  {line}" for line in (self.folder / f"{name}.log").read_text().splitlines()[-15:]]
        return "\n".join(lines)

    def check(self) -> list[Violation]:
        """One-copy consistency of every instance, from what the nodes decided and what the service really did."""
        process = parts_process()
        lines = journal(self.folder)
        found: list[Violation] = []
        ends: dict[str, dict[str, State]] = {}
        for name in self.names:
            path = self.folder / f"{name}.ends"
            for line in path.read_bytes().splitlines() if path.exists() else []:
                state = msgspec.json.decode(line, type=State)
                ends.setdefault(state.instance, {})[name] = state
        for instance in self.wanted:
            states = ends[instance]
            found += check_agreement(instance, {name: state.views for name, state in states.items()})
            state = next(iter(states.values()))
            # On a machine that is busy enough, a service may be too slow for all patience: then everything is undone.
            assert state.status in ("completed", "failed"), (instance, state.status, state.reason)
            acted = [Acted(t.vertex, t.iid, t.request, t.reply, t.write) for t in state.taken]
            order = state.variables["order"]
            model = Model(
                process.graph.vertices,
                process.graph.edges,
                process.initial({"order": order}),
                process.choose,
                process.fit,
            )
            mine = [line for line in lines if line.iid.startswith(f"{instance}/")]
            found += check_one_copy(instance, model, state.status, acted, mine)
        return found


def main() -> None:
    role, *rest = sys.argv[1:]
    if role == "service":
        serve(rest[0], rest[1], int(rest[2]))
    else:
        asyncio.run(run_node(rest[0], rest[1], json.loads(rest[2]), rest[3]))


if __name__ == "__main__":
    main()
