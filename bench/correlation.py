"""Correlation in the live engine: what f+1 replicas cost, and how long a failover takes. Processes on loopback.

One W1 node with f = 0, 1 and 2. Throughput and CPU: the log is full from the beginning and the source reads it as fast
as receivers take it; figures are of a run's second half, when all is warm, over all processes. All events travel
as columns then, and `columns.events_per_s` is what the node's one process does in a second of its own CPU. Shards: the
same with f = 0, the keys spread over 1, 2 and 4 processes; their CPU is all that can be told where there are fewer
cores than shards. TLS: f = 1 with certificates and roles, and with the run's secret alone. Latency:
from the moment at which the source is handed an event to the moment at which the application has committed the
situation that it decides. Failover: from kill -9 of the leader to the commit of a situation decided by an event
published after it. Healing: from the moment at which a replica falls silent for good to a new one in its place that has
caught up. Upgrade: how much later a situation comes around the moment at which other rules take over. Bursts: the
stream is quiet for half a second between two; without a failure nothing may be sent twice, neither by real processes
nor in a simulation, where no process waits for a core.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

import live_upgrade
import live_w1
import workloads
from unerring.app import live, live_cluster
from unerring.correlation import CorrelationConfig, Standing
from unerring.evaluation import Factory, FactoryRun, Severed
from unerring.log import EventLog, with_origin
from unerring.matching import Columns, Kernel, Numbers, Texts, code_folder
from unerring.model import TIME_MAX, TIME_MIN, LogError, Persist, WorldError, schema_of, verified_json
from unerring.rules import W1, Typed
from unerring.runtime import LiveSupervisor, RestartsConfig, SqliteStorage, dotted, make_certificates

SEGMENT_EVENTS = 100_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 240.0
KILLED_OFTEN = RestartsConfig(tries_max=1000, pause_s_max=0.05)
"""A supervisor gives up who ends twenty times in a row; here that is our doing."""
KILL_PAUSE_S = 0.3
"""Between a replica's return and the next kill."""


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    events, kills, rounds, seconds = (20_000, 1, 1, 0.5) if quick else (10_000_000, 50, 5, 4.0)
    drawn = workloads.columns().head(events) if not quick else workloads.columns(events)
    expected = _expected(drawn)
    loads: dict[int, Load] = {}
    for f in (0, 1, 2):
        with tempfile.TemporaryDirectory() as folder:
            loads[f] = asyncio.run(_load(Path(folder), f, drawn, expected))
    for f, load in loads.items():
        yield _figure(f"throughput.f{f}", load.events_per_s, "events/s", *((1_000_000, True) if f == 0 else ()))
    yield _figure("columns.events_per_s", 1e6 / loads[0].node_us_per_event, "events/s", 1_000_000, at_least=True)
    for f, load in loads.items():
        yield _figure(f"cpu_per_event.f{f}", load.cpu_us_per_event, "us")
    for f, goal in ((1, 1.5), (2, 3.5)):
        yield _figure(f"cpu_ratio.f{f}", loads[f].cpu_us_per_event / loads[0].cpu_us_per_event, "ratio", goal)
    for f, load in loads.items():
        figure = _figure(f"transmissions_per_event.f{f}", load.transmissions_per_event, "transmissions", f + 1)
        yield {**figure, "met": abs(load.transmissions_per_event - f - 1) < 0.01}
    yield from _shards(drawn, expected)
    yield from with_tls(quick)
    yield _figure("latency.floor_p99_ms", _commits_p99_ms(100 if quick else 1000), "ms")
    passed: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}
    for _ in range(rounds):  # In turns: what else the disk does meanwhile meets all alike.
        for f, found in passed.items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(asyncio.run(_latency(Path(folder), f, 2000, seconds)))
    p99 = {f: statistics.median(worst for _, worst in found) for f, found in passed.items()}
    for f, found in passed.items():
        yield _figure(f"latency.p50_ms.f{f}", statistics.median(half for half, _ in found), "ms")
        yield _figure(f"latency.p99_ms.f{f}", p99[f], "ms")
    yield _figure("latency.p99.f1_over_f0", p99[1] / p99[0], "ratio", 2.0)
    for f in (0, 1, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            twice = asyncio.run(_sent_twice(Path(folder), f, 3 if quick else 20))
        yield _figure(f"bursts.sent_twice.f{f}", twice, "ratio", 0.001)
    for f in (0, 1, 2, 3):
        yield _figure(f"quiet.duplicates.f{f}", _duplicates(f, 3 if quick else 20), "events", 0)
    for notices in (True, False):
        for told in (True, False):
            how = ("told" if told else "asking") + ("" if notices else ".silent")
            silent_us = [Severed(told, seed).without_situations_us(notices) for seed in range(3 if quick else 30)]
            yield _figure(f"dead_link.{how}_ms", statistics.median(silent_us) / 1000, "ms")
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(_failovers(Path(folder), kills))
    yield _figure("failover.kills", len(times), "kills")
    yield _figure("failover.p50_s", statistics.median(times), "s", 0.3)
    yield _figure("failover.p99_s", float(np.percentile(times, 99)), "s", 1.0)
    with tempfile.TemporaryDirectory() as folder:
        config = CorrelationConfig(bound_ahead_us=0, evict_after_us=2_000_000) if quick else None
        healed_s = asyncio.run(_healed(Path(folder), config))
    yield _figure("evict.heal_s", healed_s, "s", 60.0)
    with tempfile.TemporaryDirectory() as folder:
        yield _figure("upgrade.pause_s", asyncio.run(live_upgrade.pause_s(Path(folder), quick)), "s", 0.1)


def _figure(name: str, value: float, unit: str, goal: float | None = None, at_least: bool = False) -> dict[str, Any]:
    met = None if goal is None else (value >= goal if at_least else value <= goal)
    return {"bench": "correlation", "figure": name, "value": round(value, 5), "unit": unit, "goal": goal, "met": met}


def _shards(drawn: workloads.Columns, expected: int) -> Iterator[dict[str, Any]]:
    """In turns, and the calmest of two: what else the machine does meanwhile meets all alike."""
    runs: dict[int, list[Load]] = {1: [], 2: [], 4: []}
    for _ in range(2):
        for shards, found in runs.items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(asyncio.run(_load(Path(folder), 0, drawn, expected, shards)))
    for shards, found in runs.items():
        yield _figure(f"shards.throughput.{shards}", max(load.events_per_s for load in found), "events/s")
    cpu_us = {shards: min(load.cpu_us_per_event for load in found) for shards, found in runs.items()}
    for shards, cost_us in cpu_us.items():
        yield _figure(f"shards.cpu_per_event.{shards}", cost_us, "us")
    yield _figure("shards.cpu_ratio.4", cpu_us[4] / cpu_us[1], "ratio", 1.15)


def with_tls(quick: bool) -> Iterator[dict[str, Any]]:
    """What certificates and roles cost, in turns, and the calmest run of each."""
    drawn = workloads.columns().head(20_000 if quick else 5_000_000)
    expected = _expected(drawn)
    runs: dict[str, list[Load]] = {"plain": [], "tls": []}
    with tempfile.TemporaryDirectory() as ca:
        make_certificates(Path(ca) / "ca", ["bench"])
        for _ in range(1 if quick else 5):
            for kind, loads in runs.items():
                with tempfile.TemporaryDirectory() as folder:
                    tls = f"{ca}/ca" if kind == "tls" else ""
                    loads.append(asyncio.run(_load(Path(folder), 1, drawn, expected, tls=tls)))
    rates = {kind: max(load.events_per_s for load in loads) for kind, loads in runs.items()}
    cpu_us = {kind: min(load.cpu_us_per_event for load in loads) for kind, loads in runs.items()}
    yield _figure("tls.ratio.f1", rates["tls"] / rates["plain"], "ratio", 0.9, at_least=True)
    yield _figure("tls.cpu_ratio.f1", cpu_us["plain"] / cpu_us["tls"], "ratio", 0.9, at_least=True)
    for kind, cost_us in cpu_us.items():
        yield _figure(f"tls.cpu_per_event.f1.{kind}", cost_us, "us")


# ---- a run -----------------------------------------------------------------------------------------------------


class _Run:
    """A supervised run in a folder, and what its processes say of themselves."""

    def __init__(
        self,
        data: Path,
        f: int,
        command: Callable[[str], list[str]],
        config: CorrelationConfig | None = None,
        shards: int = 1,
        tls: str = "",
    ) -> None:
        self.data = data
        self.f = f
        cluster = live_cluster.make_cluster(
            "live_w1:app", f, data, config, tls=tls, shards={"W1": shards} if shards > 1 else None
        )
        self.supervisor = LiveSupervisor(cluster, data / "live", command, config=KILLED_OFTEN)
        self.nodes = [[*node.replicas] for node in cluster.topology.nodes if node.hosts == "W1"]
        self.replicas = tuple(name for replicas in self.nodes for name in replicas)
        self._killed: set[int] = set()

    async def __aenter__(self) -> _Run:
        self._running = asyncio.create_task(self.supervisor.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.supervisor.stop()
        await self._running

    def told(self, name: str) -> dict[str, Any]:
        try:
            told = (self.data / "live" / "status" / f"{dotted(name)}.json").read_bytes()
            return verified_json(told, dict[str, Any], name)
        except (OSError, LogError):
            return {}

    def member(self, name: str) -> bool:
        process = self.supervisor.processes.get(name)
        told = self.told(name)
        if process is None or not process.alive or process.pid in self._killed:
            return False
        return told.get("pid") == process.pid and told["phase"] == "MEMBER"

    def kill(self, name: str) -> None:
        """What it said of itself stands in its file until another process takes its place."""
        pid = self.supervisor.processes[name].pid
        self._killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    def cpu_s(self, node: str = "") -> float:
        """Of all processes together, or of one node's, from their start."""
        total = 0
        for name, process in self.supervisor.processes.items():
            if not name.startswith(node):
                continue
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS_PER_S

    async def until(self, condition: Callable[[], bool], pause_s: float = 0.02) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            if self._running.done():
                self._running.result()  # raises what ended it
                raise WorldError("the run ended by itself")
            if time.monotonic() > deadline_s:
                raise TimeoutError({name: self.told(name) for name in self.supervisor.processes})
            await asyncio.sleep(pause_s)


# ---- throughput, CPU, transmissions ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    events_per_s: float
    cpu_us_per_event: float
    node_us_per_event: float
    """Of the replicas alone."""
    transmissions_per_event: float


async def _load(data: Path, f: int, drawn: workloads.Columns, expected: int, shards: int = 1, tls: str = "") -> Load:
    events = len(drawn.time_us)
    _write_log(data, drawn)
    began_s = time.time()
    async with _Run(data, f, lambda name: live.command(data, name), shards=shards, tls=tls) as run:

        def slowest(replicas: list[str]) -> tuple[float, int]:
            told = [run.told(name) for name in replicas]
            return min((one.get("at", 0.0), _taken(one)) for one in told if _taken(one) == min(map(_taken, told)))

        def taken() -> tuple[float, int]:
            """When, and how many events every replica has had by then; of shards, all together."""
            each = [slowest(replicas) for replicas in run.nodes]
            return sum(at for at, _ in each) / len(each), sum(events for _, events in each)

        await run.until(lambda: taken()[1] >= events // 2)  # Machine code is there by then.

        def spent() -> tuple[float, float]:
            return run.cpu_s(), run.cpu_s("W1")

        first, spent_first = taken(), spent()
        last, spent_last = first, spent_first
        while (now := taken())[1] < events:
            if now[1] > last[1]:
                last, spent_last = now, spent()
            await asyncio.sleep(0.01)
        if last[1] == first[1]:  # Too quick to be seen in between: then the processes' start is in it.
            first, last, spent_first, spent_last = (began_s, 0), now, (0.0, 0.0), spent()
        top = "situations/0"
        await run.until(lambda: run.told(top).get("inputs", {}).get("W1", {}).get("watermark", 0) == TIME_MAX)
        done_s = time.time()
        await run.until(lambda: run.told("source_Typed/0").get("at", 0.0) > done_s)
        sent = run.told("source_Typed/0")["transmissions"]
    found = len(EventLog(data / "log").chain("W1").read(TIME_MIN, TIME_MAX, None, []))
    if found != expected:
        raise RuntimeError(f"f = {f}, {shards} shards: {found} situations, and {expected} are right")
    count = last[1] - first[1]
    all_s, node_s = (end - begin for begin, end in zip(spent_first, spent_last, strict=True))
    return Load(count / (last[0] - first[0]), all_s / count * 1e6, node_s / count * 1e6, sent / events)


def _taken(told: dict[str, Any]) -> int:
    """How many events a replica has had."""
    return sum(stream["events"] for stream in told.get("inputs", {}).values())


def _write_log(data: Path, drawn: workloads.Columns) -> None:
    """The whole stream, ended."""
    chain = EventLog(data / "log").create(schema_of(Typed), live_w1.app.buckets)
    count = len(drawn.time_us)
    for first in range(0, count, SEGMENT_EVENTS):
        part = drawn.part(first, first + SEGMENT_EVENTS)
        table = pa.table(
            {
                "time": part.time_us,
                "ordinal": np.zeros(len(part.time_us), np.int64),
                "key": part.key,
                "type": pa.array(np.array(workloads.TYPES)[part.code]),
                "v": part.v,
            }
        )
        end_us = TIME_MAX if first + SEGMENT_EVENTS >= count else int(part.time_us[-1])
        chain.seal(end_us, with_origin(table, chain.schema))


def _expected(drawn: workloads.Columns) -> int:
    """How many situations are right; and machine code is compiled and kept before anything is measured."""
    engine = Kernel(W1.plan, cache=code_folder(), compile_after=0)
    columns: dict[str, Any] = {
        "key": Numbers(drawn.key),
        "type": Texts(drawn.code.astype(np.int32), workloads.TYPES),
        "v": Numbers(drawn.v),
    }
    return len(engine.feed_columns(Columns(drawn.time_us, columns), TIME_MAX).time)


# ---- latency and failover --------------------------------------------------------------------------------------


def _paced(data: Path, rate: float, pause_s: float = 0.0) -> Callable[[str], list[str]]:
    return lambda name: [sys.executable, str(Path(live_w1.__file__)), str(data), name, str(rate), str(pause_s)]


def _delivered(data: Path) -> Any:
    """Rows of (published, committed)."""
    path = data / "delivered"
    if not path.exists():
        return np.empty((0, 2))
    raw = path.read_bytes()
    whole = len(raw) // live_w1.DELIVERED.size * live_w1.DELIVERED.size
    return np.frombuffer(raw[:whole], np.float64).reshape(-1, 2)


def _commits_p99_ms(count: int) -> float:
    """The floor of a latency that ends with a commit: one record, synced, on the same disk."""
    with tempfile.TemporaryDirectory() as folder:
        storage = SqliteStorage(Path(folder) / "floor.db")
        times_ms = []
        for number in range(count):
            began_s = time.perf_counter()
            storage.write([Persist(((f"{number:012d}", b"x" * 100),))])
            times_ms.append((time.perf_counter() - began_s) * 1e3)
        storage.close()
    return float(np.percentile(times_ms, 99))


async def _latency(data: Path, f: int, rate: float, seconds: float) -> tuple[float, float]:
    """Milliseconds, the half and the worst hundredth."""
    async with _Run(data, f, _paced(data, rate)) as run:
        await run.until(lambda: all(run.member(name) for name in run.replicas) and len(_delivered(data)) > rate)
        await asyncio.sleep(seconds / 5)
        first = len(_delivered(data))
        await asyncio.sleep(seconds)
    rows = _delivered(data)[first:]
    passed_ms = (rows[:, 1] - rows[:, 0]) * 1e3
    return float(np.percentile(passed_ms, 50)), float(np.percentile(passed_ms, 99))


async def _sent_twice(data: Path, f: int, bursts: int) -> float:
    """Of the situations of some bursts: how many were sent more than once, as a share of all. Nothing fails."""
    pause_s, rate = 0.5, 400.0
    async with _Run(data, f, _paced(data, rate, pause_s)) as run:

        def reported(since_s: float) -> bool:
            return all(run.told(name).get("at", 0.0) > since_s for name in run.replicas)

        async def settled() -> tuple[int, int]:
            """Between two bursts: situations delivered, and sent by all replicas."""
            while True:
                count = len(_delivered(data))
                await run.until(partial(reported, time.time()))
                sent = sum(run.told(name).get("transmissions", 0) for name in run.replicas)
                if len(_delivered(data)) == count:
                    return count, sent

        burst = int(rate * pause_s) // 2
        await run.until(lambda: all(run.member(name) for name in run.replicas) and len(_delivered(data)) >= 2 * burst)
        first_count, first_sent = await settled()
        await run.until(lambda: len(_delivered(data)) >= first_count + bursts * burst)
        last_count, last_sent = await settled()
    return (last_sent - first_sent) / (last_count - first_count) - 1.0


def _duplicates(f: int, bursts: int) -> int:
    """Simulated: how many events of a small factory came to a receiver that had them, with a burst every half a second,
    the defaults of the product, and no failure."""
    run = Factory(FactoryRun(f, steps=bursts, tiers=(1, 2, 3), step_us=500_000), seed=1)
    run.play()
    if violations := run.verdict():
        raise RuntimeError(f"f = {f}: {violations[0]}")
    return run.meter.duplicates


async def _failovers(data: Path, kills: int) -> list[float]:
    """Seconds without an answer to what was published after a kill."""
    times: list[float] = []
    async with _Run(data, 1, _paced(data, 1000)) as run:
        await run.until(lambda: len(_delivered(data)) > 1000)
        for _ in range(kills):
            await run.until(lambda: all(run.member(name) for name in run.replicas) and _leader(run) is not None)
            await asyncio.sleep(KILL_PAUSE_S)
            leader = _leader(run)
            if leader is None:
                continue
            killed_s = time.monotonic()
            run.kill(leader)
            times.append(await _answered(run, data, killed_s) - killed_s)
    return times


async def _healed(data: Path, config: CorrelationConfig | None) -> float:
    """Seconds from the loss of a replica, which falls silent and is not started again, to one in its place that has
    caught up, under load."""
    async with _Run(data, 1, _paced(data, 1000), config) as run:
        await run.until(lambda: all(run.member(name) for name in run.replicas) and len(_delivered(data)) > 1000)
        lost = _leader(run) or run.replicas[0]
        began_s = time.monotonic()
        os.kill(run.supervisor.processes[lost].pid, signal.SIGSTOP)

        def whole() -> bool:
            members = run.supervisor.keeping.record.of("W1")
            return lost not in members and sum(m.standing is Standing.CAUGHT_UP for m in members.values()) == 2

        await run.until(whole)
        return time.monotonic() - began_s


def _leader(run: _Run) -> str | None:
    return next((name for name in run.replicas if run.member(name) and run.told(name).get("leads")), None)


async def _answered(run: _Run, data: Path, killed_s: float) -> float:
    found: list[float] = []

    def answered() -> bool:
        rows = _delivered(data)[-20_000:]
        later = rows[rows[:, 0] > killed_s]
        found[:] = later[:1, 1].tolist()
        return bool(found)

    await run.until(answered, 0.01)
    return found[0]
