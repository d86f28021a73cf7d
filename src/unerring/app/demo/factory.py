"""The whole system on one machine: a factory whose machines die, and a verdict that can be checked.

    plant ── lossy channels ──┬─▶ log ─▶ live correlation, f = 1 ─▶ situations ─▶ processes, 3 nodes ─▶ services
                              └─▶ log ─▶ Spark                   ─▶ situations

Both engines watch the same plant, each with a log of its own; only the live one acts. While it runs, a leader of live
correlation, a process node and the Spark driver are killed with -9. The verdict is made by an audit (verdict.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app.application import App, load
from unerring.app.demo import mutants
from unerring.app.demo.folders import RunFolder, effects_in, runs_in
from unerring.app.demo.parts import Part
from unerring.app.demo.verdict import APP, PUBLISHED, FactoryVerdict
from unerring.app.folder import run_in
from unerring.app.place import Place
from unerring.model import TIME_MIN, CallerError, NetworkError, protect_json
from unerring.tracing import named

WAIT_S: Final = 240.0
LOOK_S: Final = 0.2
SHORT_LIFE: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java for a minute: compile fast rather than well. A run that lasts is better off without."""
COUNT_S: Final = 1.0
MASTER_LOOK_S: Final = 0.05
MASTER_S: Final = 10.0


class Shape(msgspec.Struct, frozen=True):
    """How long a showing is."""

    events: int = 6_000
    rate: int = 400
    """Events a second, at the most; in the middle of its day the plant waits for the last failure."""

    @classmethod
    def fast(cls) -> Shape:
        return cls(events=2_000, rate=200)


class Factory:
    """One showing. `play` is the schedule; what a screen shows are the public attributes."""

    def __init__(
        self, folder: Path, seed: int, shape: Shape, say: Callable[[str], Any], mutant: str = "", data: str = ""
    ) -> None:
        """`data`: the store of the two runs, if they are not to be in the folder too."""
        if mutant:
            mutants.check(mutant)
            if data:
                raise CallerError("a mutant is planted in files of a folder; leave --data out")
        if any(folder.glob("*")):
            raise CallerError(f"{folder} is not empty; the demo needs an empty folder for its runs")
        self.folder = folder.absolute()
        self.data = data or str(self.folder)
        self.shape = shape
        self.live, self.spark = (RunFolder(place) for place in runs_in(self.data, self.folder))
        if data:
            self.live.place.check()
            if any(run_in(run.place) is not None for run in (self.live, self.spark)):
                raise CallerError(f"{data} has runs already; the demo needs an empty place for its own")
        self.running = False
        """From the first live situation to the end of its parts."""
        self.published = 0
        self.lost_in_transit = 0
        self.failures: list[str] = []
        self.instances: dict[str, bool] = {}
        self.effects: dict[str, int] = {}
        self._say = say
        self._mutant = mutant
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(examples()), *filter(None, sys.path)]),
            "SPARK_SUBMIT_OPTS": SHORT_LIFE,
        }
        self._services = self._part("services", "-m", "factory.services", str(self.folder / "services"))
        plant = ("--seed", str(seed), "--events", str(shape.events), "--rate", str(shape.rate), "--hold")
        self._plant = self._part("plant", "-m", "factory.producer", str(self.folder / "plant"), *plant)
        self._running: list[Part] = []
        self._app: App | None = None

    # --- the schedule

    async def play(self) -> FactoryVerdict:
        beside = [asyncio.create_task(self._count())]
        try:
            await self._open()
            beside.append(asyncio.create_task(self._kill_a_master()))
            await self._break()
            await self._catch_up()
            await beside[-1]
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            self.running = False
            await self._end()
        (self.folder / PUBLISHED).write_bytes(protect_json(self.published))
        if self._mutant:
            self._say(f"[yellow]mutant {self._mutant}:[/] {mutants.plant(self._mutant, self.folder)}")
        return await self._judge()

    async def _open(self) -> None:
        for part in (self._services, self._plant):
            await self._start(part)
        self._environment["FACTORY_SERVICES"] = await self._services.line()
        self._environment["FACTORY_CHANNELS"] = await self._plant.line()
        self._app = self._load()
        self._say(f"the plant publishes {self.shape.events:,} events over connections that lose, duplicate and reorder")
        self._live_run = self._part("live", *_run(self.live.place), "--engine", "live", **named("live"))
        watching = {"FACTORY_ACTS": "0", **named("spark")}
        self._spark_run = self._part("spark", *_run(self.spark.place), "--memory", "1g", **watching)
        await self._start(self._spark_run)
        await self._start(self._live_run)
        self._say("Spark starts; live correlation (f = 1) and three process nodes start beside it")
        await self._until(lambda: self.live.through("RegionDivision") > TIME_MIN, "live situations come")
        self.running = True
        self._say("[green]live:[/] the first situations are delivered")

    async def _break(self) -> None:
        leader = next((one for one in self.live.replicas() if _leads(one, "storage")), None)
        if leader is None:
            raise NetworkError(f"the demo found no leader of storage; see {self._live_run.log}")
        os.kill(leader["pid"], signal.SIGKILL)
        self._failed(f"{leader['name']}, a leader of live correlation (process {leader['pid']})")
        await self._until(lambda: self.spark.through("RegionDivision") > TIME_MIN, "Spark's situations come")
        self._say("[green]Spark:[/] the first situations are delivered")
        await self._spark_run.kill()
        self._failed("the Spark driver, its Python and its Java")
        await self._spark_run.start()
        self._plant.tell("go on")
        self._say("Spark's driver is started again; meanwhile the plant continues")

    async def _kill_a_master(self) -> None:
        """Kill a master as soon as one is at work; processes are short, so if none is seen, any node that had one."""
        seen_s: float | None = None
        while seen_s is None or time.monotonic() < seen_s + MASTER_S:
            master = await asyncio.to_thread(self.live.master)
            if master:
                os.kill(master, signal.SIGKILL)
                self._failed(f"a process node, the master of a running process (process {master})")
                return
            seen_s = seen_s or (time.monotonic() if self.instances else None)
            await asyncio.sleep(MASTER_LOOK_S)
        node = await asyncio.to_thread(self.live.node)
        os.kill(node, signal.SIGKILL)
        self._failed(f"a process node (process {node})")

    async def _catch_up(self) -> None:
        app = self._loaded
        outputs = [schema.name for schema in app.outputs]
        await self._until(lambda: self.published >= self.shape.events, "the plant's day is over")
        self._say("the plant's day is over; both engines catch up")
        await self._until(lambda: self.live.complete(outputs), "the live engine is complete")
        self._say("[green]live:[/] complete")
        await self._until(lambda: self.spark.complete(outputs), "Spark is complete")
        self._say("[green]Spark:[/] complete")
        wanted = self.live.wanted(app)
        await self._until(lambda: all(self.instances.get(one) for one in wanted), "all processes have ended")
        self._say(f"[green]processes:[/] all {len(wanted):,} have ended")

    def _failed(self, what: str) -> None:
        self.failures.append(what)
        self._say(f"[red]kill -9:[/] {what}")

    # --- parts

    def _part(self, name: str, *command: str, **more: str) -> Part:
        self.folder.mkdir(parents=True, exist_ok=True)
        return Part(name, self.folder, self._environment | more, *command)

    async def _start(self, part: Part) -> None:
        await part.start()
        self._running.append(part)

    async def _end(self) -> None:
        """The plant stays until nobody asks it any more."""
        for part in reversed(self._running):
            await part.end()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not await asyncio.to_thread(condition):
            for part in self._running:
                part.check()
            if time.monotonic() > deadline:
                raise NetworkError(
                    f"the demo waited {WAIT_S:.0f} s in vain until {what}; the log files are in {self.folder}"
                )
            await asyncio.sleep(LOOK_S)

    # --- what there is to see

    async def _count(self) -> None:
        while True:
            if self._app is not None:
                await asyncio.to_thread(self._look, [schema.name for schema in self._app.outputs])
            await self._hear()
            await asyncio.sleep(COUNT_S)

    def _look(self, outputs: list[str]) -> None:
        for engine in (self.live, self.spark):
            engine.look(outputs)
        self.instances = self.live.instances()
        self.effects = effects_in(self.folder / "services")

    async def _hear(self) -> None:
        """Read the plant's own counts, if it has written any."""
        if self._app is None:
            return
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.01):
                    line = await self._plant.line()
                self.published, self.lost_in_transit = msgspec.json.decode(line, type=tuple[int, int])

    @property
    def _loaded(self) -> App:
        if self._app is None:
            raise NetworkError("the demo has not begun")
        return self._app

    def _load(self) -> App:
        os.environ.update({key: value for key, value in self._environment.items() if key.startswith("FACTORY_")})
        if str(examples()) not in sys.path:
            sys.path.insert(0, str(examples()))
        return load(APP)

    # --- the verdict

    async def _judge(self) -> FactoryVerdict:
        part = self._part("audit", "-m", "unerring.app.demo.verdict", str(self.folder), self.data)
        self._say("the audit recomputes the perfect run from both logs, on Spark")
        await part.start()
        verdict, code = await part.all()
        if code:
            raise NetworkError(f"the audit could not check the run; its output is in {part.log}")
        return msgspec.json.decode(verdict, type=FactoryVerdict)


def _run(place: Place) -> tuple[str, ...]:
    return "-m", "unerring", "run", APP, "--data", place.address, "--scratch", str(place.scratch)


def _leads(status: dict[str, Any], node: str) -> bool:
    return bool(status["name"].startswith(f"{node}/") and status.get("leads") and status.get("pid"))


def examples() -> Path:
    """Where the factory is: beside the source, or packed with it."""
    here = Path(__file__).parent
    for folder in (here / "examples", here.parents[3] / "examples"):
        if (folder / "factory").is_dir():
            return folder
    raise CallerError("the factory, one of the examples, is missing; run the demo in a clone of the repository")
