"""Processes: what an action costs, embedded and on three replicas, and how long a failover takes.

The floor is one synced SQLite commit for each action, measured in the same run. Nodes are processes of their own on
loopback, each with its own SQLite file; actions are local functions that do nothing.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from unerring.model import CallerError, Persist
from unerring.processes import Grouping, Process, ProcessesConfig, Retry, Service, replica_set
from unerring.runtime import MACHINE, Embedded, HttpService, RunningNode, SqliteStorage, collect_seldom

NODES = ("n0", "n1", "n2")
ALONE = Grouping(each_alone=True)
GROUPED = Grouping(failover_us=2_000_000, view_change_us=400_000)
CONFIG = ProcessesConfig(tick_us=10_000, heartbeat_us=20_000, suspect_us=120_000, backoff_us=80_000)

QUICKEST = ProcessesConfig.within(200_000)
"""For a race: what `--failover 200ms` chooses."""


class Steps(msgspec.Struct):
    n: int = 0


def no_ops(count: int, name: str = "noops", pause_s: float = 0.0, journal: str = "") -> Process:
    """`count` actions in sequence. With a journal, each writes down when it ran."""
    process = Process(name, state=Steps)

    def declare(number: int) -> str:
        @process.action(name=f"a{number}", writes="n", time=1_000, cost=1, retry=Retry(attempt_us=1_000_000))
        async def act(n: int) -> int:
            if journal:
                with Path(journal).open("a") as file:
                    file.write(f"{time.time_ns()}\n")
                await asyncio.sleep(pause_s)
            return n + 1

        return f"a{number}"

    return process.flow(*[declare(number) for number in range(count)])


def run(quick: bool = False, against: str = "", part: str = "") -> Iterator[dict[str, Any]]:
    """`against` names one peer, or several with commas between them: those race in one run. `part`: only these parts,
    with commas between them."""
    with tempfile.TemporaryDirectory() as folder:
        if against:
            yield from _race([peer.strip() for peer in against.split(",")], quick, Path(folder))
            return
        parts = _parts()
        chosen = [name.strip() for name in part.split(",")] if part else list(parts)
        if unknown := [name for name in chosen if name not in parts]:
            raise CallerError(f"benchmark processes has no part {unknown[0]!r}; it has {', '.join(parts)}")
        for name in chosen:
            yield from parts[name](quick, Path(folder), _Trio, _figure)


def _parts() -> dict[str, Callable[..., Iterator[dict[str, Any]]]]:
    """By name, in the order in which they run."""
    many = _beside_this("open_instances.py")
    beside = {"limits": _beside_this("limits.py").figures, "spent": _beside_this("spent.py").figures}
    own = {"actions": _actions, "kills": _kills}
    return {**own, "open": many.opened, "history": many.ended, "burst": many.burst, **beside}


def _beside_this(name: str) -> Any:
    """A module of the folder that this one is in."""
    spec = importlib.util.spec_from_file_location(f"bench_{Path(name).stem}", Path(__file__).parent / name)
    if spec is None or spec.loader is None:
        raise CallerError(f"bench/{name} cannot be loaded; is this a whole clone?")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _kills(quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., Any]) -> Iterator[Any]:
    """The kills of the race, of our side alone."""
    _beside_the_peers()
    from workflow_race import own_kills

    yield from own_kills(quick, folder / "race", trio_of, figure)


def _beside_the_peers() -> None:
    sys.path.insert(0, str(Path(__file__).parent / "peers"))


def _race(peers: list[str], quick: bool, folder: Path) -> Iterator[dict[str, Any]]:
    """Others' engines and ours, on the same work, in one run (bench/peers)."""
    _beside_the_peers()
    from workflow_race import race

    yield from race(peers, quick, folder, _Trio, _figure)
    if "dbos" in peers:
        yield from _beside_dbos(quick)


def _beside_dbos(quick: bool) -> Iterator[dict[str, Any]]:
    """The same work on DBOS, rounds in turns; see bench/peers/engines.py for what each syncs."""
    actions, rounds, many = (10, 1, 16) if quick else (100, 5, 160)
    best: dict[str, float] = {}

    def took(name: str, seconds: float) -> None:
        best[name] = min(best.get(name, seconds), seconds)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            _beside_this("peers/engines.py").both(folder) as peers,
            _Trio(folder / "grouped", "grouped", actions) as trio,
        ):
            for peer in peers.values():
                peer.chain(actions)
            trio.run("noops", "warm")
            for n in range(rounds):
                took("embedded", asyncio.run(_embedded(folder / f"embedded{n}.db", actions)))
                took("replicated3_grouped", trio.run("noops", f"g{n}"))
                for store, peer in peers.items():
                    took(f"dbos_{store}", peer.chain(actions))
            yield _figure("instances_per_s.16", trio.many("two", "m", many, 16)["rate"], "instances/s")
            for store, peer in peers.items():
                rate = float(peer.ask({"many": many, "at_once": 16})["rate"])
                yield _figure(f"dbos_{store}.instances_per_s.16", rate, "instances/s")
    for name, seconds in best.items():
        yield _figure(f"{name}.actions_per_s", actions / seconds, "actions/s")
    quickest_s = min(seconds for name, seconds in best.items() if name.startswith("dbos"))
    for name, goal in (("embedded", 5.0), ("replicated3_grouped", 2.0)):
        ratio = quickest_s / best[name]
        figure = _figure(f"{name}.dbos_ratio", ratio, "ratio")
        yield figure | {"goal": f"≥ {goal:g}", "met": ratio >= goal}


def _actions(quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., Any]) -> Iterator[Any]:
    actions, rounds, kills = (20, 1, 2) if quick else (100, 9, 30)
    yield from _costs(folder, actions, rounds)
    with trio_of(folder / "grouped", "grouped", actions) as trio:
        grouped_s = min(trio.run("noops", f"g{n}") for n in range(rounds))
        yield figure("replicated3_grouped.actions_per_s", actions / grouped_s, "actions/s")
        many = 16 * (2 if quick else 20)
        rate = max(trio.many("two", f"m{n}", many, 16)["rate"] for n in range(rounds))
        yield figure("instances_per_s.16", rate, "instances/s")
        took = [ms for n in range(rounds) for ms in trio.many("two", f"o{n}", many // 8, 1)["ms"]]
        yield figure("one_at_a_time.p50_ms", statistics.median(took), "ms", 20.0)
        yield figure("one_at_a_time.p99_ms", sorted(took)[max(0, -(-len(took) * 99 // 100) - 1)], "ms")
    times = _failovers(folder / "kills", kills)
    yield figure("failover.kills", len(times), "kills")
    yield figure("failover.p50_s", statistics.median(times), "s", 0.5)
    yield figure("failover.p99_s", sorted(times)[max(0, -(-len(times) * 99 // 100) - 1)], "s", 2.0)


def _costs(folder: Path, actions: int, rounds: int) -> Iterator[dict[str, Any]]:
    """The best of some rounds of each, taken in turns: what else the machine does meets all of them alike."""
    floor_s = own_s = embedded_s = alone_s = float("inf")
    with _Trio(folder / "alone", "alone", actions) as trio:
        for n in range(rounds):
            floor_s = min(floor_s, _floor(folder / f"floor{n}.db", actions))
            own_s = min(own_s, _own_floor(folder / f"own{n}.db", actions))
            embedded_s = min(embedded_s, asyncio.run(_embedded(folder / f"embedded{n}.db", actions)))
            alone_s = min(alone_s, trio.run("noops", f"r{n}"))
    yield _figure("floor.commits_per_s", actions / floor_s, "commits/s")
    yield _figure("floor_of_our_storage.commits_per_s", actions / own_s, "commits/s")
    yield _figure("embedded.actions_per_s", actions / embedded_s, "actions/s")
    yield _figure("embedded.floor_ratio", embedded_s / floor_s, "ratio", 1.5)
    yield _figure("replicated3.actions_per_s", actions / alone_s, "actions/s")
    yield _figure("replicated3.floor_ratio", alone_s / floor_s, "ratio", 4.0)


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    shown = None if goal is None else f"≤ {goal:g}"
    return {"bench": "processes", "figure": name, "value": value, "unit": unit, "goal": shown, "met": met}


def _floor(path: Path, count: int) -> float:
    """One synced SQLite commit after the other, as anybody would write it."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE states (key TEXT PRIMARY KEY, value BLOB)")
    record = bytes(300)
    began = time.perf_counter()
    for number in range(count):
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT OR REPLACE INTO states VALUES ('state', ?)", (record + number.to_bytes(4, "big"),))
        database.execute("COMMIT")
    took_s = time.perf_counter() - began
    database.close()
    return took_s


def _own_floor(path: Path, count: int) -> float:
    """The same through our stable storage, which takes room for its log beforehand."""
    storage = SqliteStorage(path)
    record = bytes(300)
    began = time.perf_counter()
    for number in range(count):
        storage.write([Persist((("state", record + number.to_bytes(4, "big")),))])
    took_s = time.perf_counter() - began
    storage.close()
    return took_s


async def _embedded(path: Path, count: int) -> float:
    async with Embedded([no_ops(count)], path, grouping=ALONE) as engine:
        await engine.run("noops", "warm")
        began = time.perf_counter()
        result = await engine.run("noops", "measured")
        took_s = time.perf_counter() - began
        if result["n"] != count:
            raise AssertionError(f"{result['n']} actions instead of {count}")
    return took_s


# ---- three nodes, each a process of its own --------------------------------------------------------------------------


def _processes(count: int, journal: str) -> list[Process]:
    waiting = Process("waiting", state=Steps)
    waiting.flow(waiting.receive("go", writes="n"))
    limited = Process("limited", state=Steps, services=[Service("till")])

    @limited.action(service="till", writes="n", write=True)
    async def sell(n: int) -> int: ...

    limited.flow(sell)
    return [_steps(), no_ops(count), no_ops(2, "two"), no_ops(500, "long", 0.02, journal), waiting, limited]


def _steps(count: int = 60) -> Process:
    """So many writes at the service of a race, one after the other."""
    process = Process(f"steps{count}", state=Steps, services=[Service("steps")])

    def declare(number: int) -> str:
        @process.action(name=f"a{number}", service="steps", operation=f"a{number}", write=True, time=25_000, cost=1)
        async def act() -> None: ...

        return f"a{number}"

    return process.flow(*[declare(number) for number in range(count)])


async def _node(name: str, folder: str, how: str, count: int, ports: dict[str, int]) -> None:
    """Speaks with the parent in lines of JSON: what to do in, what came of it out."""
    peers = {peer: f"127.0.0.1:{ports[peer]}" for peer in NODES if peer != name}
    here = f"127.0.0.1:{ports[name]}"
    journal = str(Path(folder) / "journal")
    grouping = {"alone": ALONE, "steps_tuned": ALONE, "steps_usual": Grouping()}.get(how, GROUPED)
    watch = _beside_this("spent.py").Watch()
    path = Path(folder) / f"{name}.db"
    disk = watch.storage(path) if how == "watched" else path
    usual = ProcessesConfig()
    config = {"usual": usual, "steps_usual": usual, "steps_tuned": QUICKEST}.get(how, CONFIG)
    beside = {service: Path(folder).parent / service for service in ("till", "steps")}
    services = {service: HttpService(at.read_text()) for service, at in beside.items() if at.exists()}
    processes = _processes(count, journal)
    node = RunningNode(name, processes, disk, services, peers=peers, listen_on=here, config=config, grouping=grouping)
    _say({"at": await node.open()})
    if how == "watched":
        watch.look_at(node)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        if "run" in command:
            began = time.perf_counter()
            await node.run(command["process"], command["run"])
            _say({"took_s": time.perf_counter() - began})
        elif "start" in command:
            await node.start(command["process"], command["start"])
        elif "many" in command:
            _say(await _many(node, command))
        elif "burst" in command:
            _say({"took_s": await _burst(node, command)})
        elif "settled" in command:
            _say({"settled": command["settled"] in node.node.finished})
        elif "open" in command:
            _say(_open(node))
        elif "role" in command:
            replica = node.node.instances.get(command["role"])
            _say({"leads": replica is not None and replica.leading, "linked": _linked(node)})
        elif "watched" in command:
            Path(command["watched"]).write_text(json.dumps(watch.told()))
            _say({"watched": command["watched"]})
        elif "linked" in command:
            _say({"linked": _linked(node)})


def _linked(node: RunningNode) -> int:
    return sum(status == "connected" for status in node.driver.links.status().values()) if node.driver.links else 0


async def _many(node: RunningNode, command: dict[str, Any]) -> dict[str, Any]:
    """How many a second, and how long each took."""
    todo = [f"{command['many']}-{number}" for number in range(command["count"])]
    took_ms: list[float] = []
    began = time.perf_counter()

    async def work() -> None:
        while todo:
            started = time.perf_counter()
            await node.run(command["process"], todo.pop())
            took_ms.append((time.perf_counter() - started) * 1000)

    await asyncio.gather(*(work() for _ in range(command["at_once"])))
    return {"rate": command["count"] / (time.perf_counter() - began), "ms": took_ms}


async def _burst(node: RunningNode, command: dict[str, Any]) -> float:
    """So many starts at once; seconds until each is on a majority."""
    began = time.perf_counter()
    ids = [f"{command['burst']}-{number}" for number in range(command["count"])]
    for at in range(0, len(ids), 1_000):
        await asyncio.gather(*(node.start(command.get("process", "waiting"), id) for id in ids[at : at + 1_000]))
    return time.perf_counter() - began


def _open(node: RunningNode) -> dict[str, Any]:
    """What a node knows of its instances, and what that takes."""
    replicas = list(node.node.instances.values())
    return {
        "decided": sum(replica.decided is not None for replica in replicas),
        "led": sum(replica.leading for replica in replicas),
        "rss_kib": _rss_kib(),
        "cpu_s": time.process_time(),
        "view_changes": node.reports["process.view_change"],
    }


def _rss_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class _Trio:
    """Three node processes."""

    def __init__(self, folder: Path, how: str, count: int) -> None:
        self.folder, self.how, self.count = folder, how, count
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.ports = dict(zip(NODES, _free_ports(len(NODES)), strict=True))
        folder.mkdir()

    def __enter__(self) -> _Trio:
        for name in NODES:
            self.start(name)
        self.wait_linked()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def start(self, name: str) -> None:
        """A node. It keeps its address, so that the others find it again."""
        script = [sys.executable, __file__, name, str(self.folder), self.how, str(self.count)]
        command = [*script, json.dumps(self.ports)]
        self.running[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.heard(name)

    def tell(self, name: str, command: dict[str, Any]) -> None:
        stdin = self.running[name].stdin
        if stdin is not None:
            stdin.write(json.dumps(command) + "\n")
            stdin.flush()

    def heard(self, name: str) -> dict[str, Any]:
        stdout = self.running[name].stdout
        answer: dict[str, Any] = json.loads(stdout.readline()) if stdout is not None else {}
        return answer

    def ask(self, name: str, command: dict[str, Any]) -> dict[str, Any]:
        self.tell(name, command)
        return self.heard(name)

    def wait_linked(self) -> None:
        while any(self.ask(name, {"linked": True})["linked"] < len(self.running) - 1 for name in self.running):
            time.sleep(0.01)

    def first(self, instance: str) -> str:
        """The replica that plans in view 0."""
        members = replica_set(instance, tuple(f"{name}/{MACHINE}" for name in NODES), 1)
        return members[0].split("/")[0]

    def run(self, process: str, instance: str) -> float:
        return float(self.ask(self.first(instance), {"run": instance, "process": process})["took_s"])

    def many(self, process: str, prefix: str, count: int, at_once: int) -> dict[str, Any]:
        return self.ask("n0", {"many": prefix, "process": process, "count": count, "at_once": at_once})

    def leader(self, instance: str) -> str:
        """The node that leads it, once one does."""
        while True:
            for name in self.running:
                if self.ask(name, {"role": instance})["leads"]:
                    return name
            time.sleep(0.005)


def _failovers(folder: Path, kills: int) -> list[float]:
    """Kill -9 of whoever leads, until the next action runs somewhere else; then it comes back."""
    times: list[float] = []
    with _Trio(folder, "alone", 2) as trio:
        number = 0
        journal = folder / "journal"
        while len(times) < kills:
            instance = f"k{number}"
            number += 1
            trio.tell(trio.first(instance), {"start": instance, "process": "long"})
            for _ in range(min(5, kills - len(times))):
                leader = trio.leader(instance)
                before_ns = _steady(journal)
                trio.running[leader].kill()
                killed_ns = time.time_ns()
                while (last_ns := _last(journal)) <= max(before_ns, killed_ns):
                    time.sleep(0.002)
                times.append((_first_after(journal, killed_ns) - killed_ns) / 1e9)
                trio.running.pop(leader).wait()
                trio.start(leader)
                trio.wait_linked()
                if last_ns == 0:
                    break
    return times


def _lines(journal: Path) -> list[int]:
    return [int(line) for line in journal.read_text().split()] if journal.exists() else []


def _last(journal: Path) -> int:
    return max(_lines(journal)[-3:], default=0)


def _steady(journal: Path) -> int:
    """Actions are under way: some have run since this was asked."""
    began, count = _last(journal), 0
    while count < 3:
        count = sum(line > began for line in _lines(journal)[-20:])
        time.sleep(0.002)
    return _last(journal)


def _first_after(journal: Path, moment_ns: int) -> int:
    return min(line for line in _lines(journal) if line > moment_ns)


if __name__ == "__main__":
    collect_seldom()
    asyncio.run(_node(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), json.loads(sys.argv[5])))
