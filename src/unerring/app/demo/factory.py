"""The whole system on one machine: a factory whose machines die, and a verdict that can be checked.

    plant ── lossy channels ──┬─▶ log ─▶ live correlation, f = 1 ─▶ situations ─▶ processes, 3 nodes ─▶ services
                              └─▶ log ─▶ Spark                   ─▶ situations

Both gears watch the same plant, each with a log of its own; only the live one acts. While it runs, a leader of a
correlation group, a process node and the Spark driver are killed with -9. At the end the audit recomputes the perfect
run from both logs, the gears' situations are compared, and the services' journals are counted against the situations.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.audit.report import Report
from unerring.model import TIME_MAX, CallerError, Event, NetworkError

APP: Final = "factory.app:app"
READY_S: Final = 120.0
CATCH_UP_S: Final = 180.0
LOOK_S: Final = 0.2


class FactoryVerdict(msgspec.Struct, frozen=True):
    """Promises 1 to 3, each with its figures; empty lists of violations mean that they were kept."""

    events: int
    situations: dict[str, int]
    actions: dict[str, int]
    failures: list[str]
    channels: list[str]
    correlation: list[str]
    processes: list[str]

    @property
    def holds(self) -> bool:
        return not (self.channels or self.correlation or self.processes)


class Part:
    """One operating-system process of the demonstration, its words in a file."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str], *command: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, *command]
        self._environment = environment
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, *more: str) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command,
                *more,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    async def line(self) -> str:
        """The next line that it says."""
        said = await asyncio.wait_for(self._running.stdout.readline(), READY_S) if self._running.stdout else b""
        if not said:
            raise NetworkError(f"{self.name} of the demo ended early; its words are in {self.log}")
        return said.decode().strip()

    def kill(self) -> None:
        """kill -9, with everything that it started (Spark's driver is two processes)."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)

    async def end(self) -> None:
        """As Ctrl-C would."""
        if self.process is None or self.process.returncode is not None:
            return
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(self.process.wait(), 60)
        except TimeoutError:
            self.kill()
            await self.process.wait()

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self.process is None:
            raise NetworkError(f"{self.name} of the demo is not running")
        return self.process


class Factory:
    """One showing of it."""

    def __init__(self, folder: Path, seed: int, events: int, rate: int, say: Callable[[str], Any]) -> None:
        self.folder = folder.absolute()
        self.seed, self.events, self.rate = seed, events, rate
        self.failures: list[str] = []
        self._say = say
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(examples()), *sys.path])}
        self.live_data, self.spark_data = self.folder / "live", self.folder / "spark"
        self.services = self._part("services", "-m", "factory.services", str(self.folder / "services"))
        plant = ("--seed", str(seed), "--events", str(events), "--rate", str(rate))
        self.plant = self._part("plant", "-m", "factory.producer", str(self.folder / "plant"), *plant)

    def _part(self, name: str, *command: str) -> Part:
        self.folder.mkdir(parents=True, exist_ok=True)
        return Part(name, self.folder, self._environment, *command)

    # --- the schedule

    async def play(self) -> FactoryVerdict:
        running: list[Part] = []
        try:
            await self._open(running)
            await self._break()
            await self._catch_up()
        finally:
            for part in reversed(running):
                self._say(f"ending {part.name}")
                await part.end()
        return await self._judge()

    async def _open(self, running: list[Part]) -> None:
        for part in (self.services, self.plant):
            await part.start()
            running.append(part)
        self._environment["FACTORY_SERVICES"] = await self.services.line()
        self._environment["FACTORY_CHANNELS"] = await self.plant.line()
        self._say(f"the plant publishes {self.events:,} events over lines that lose, double and reorder")
        watching = {**self._environment, "FACTORY_ACTS": "0"}
        run = ("-m", "unerring", "run", APP, "--data")
        self.live = Part("live", self.folder, self._environment, *run, str(self.live_data), "--engine", "live")
        self.spark = Part("spark", self.folder, watching, *run, str(self.spark_data), "--memory", "1g")
        for part in (self.live, self.spark):
            await part.start()
            running.append(part)
        self._say("live correlation with f = 1 and three process nodes start; Spark starts beside them")
        await self._until(lambda: bool(self._leader()), "live correlation has leaders")
        await self._until(lambda: self._through("live", "ProductionRate") > 0, "live situations come")
        self._say("the first situations are delivered")

    async def _break(self) -> None:
        leader = self._leader()
        if leader:
            os.kill(leader["pid"], signal.SIGKILL)
            self._failed(f"leader {leader['name']} of live correlation, process {leader['pid']}")
        await asyncio.sleep(2)
        node = self._pid_of_node()
        if node:
            os.kill(node, signal.SIGKILL)
            self._failed(f"process node, process {node}")
        await self._until(lambda: self._through("spark", "ProductionRate") > 0, "Spark's situations come")
        self.spark.kill()
        await self.spark._running.wait()
        self._failed("the Spark driver, its Python and its Java")
        await self.spark.start()

    def _failed(self, what: str) -> None:
        self.failures.append(what)
        self._say(f"[red]kill -9:[/] {what}")

    async def _catch_up(self) -> None:
        while await self.plant.line() != "complete":
            pass
        self._say("the plant's day is over; both gears catch up")
        for gear in ("live", "spark"):
            for rule in ("RegionDivision", "Shortage", "Standstill", "RegionRate"):
                await self._until(
                    lambda gear=gear, rule=rule: self._through(gear, rule) >= TIME_MAX,  # type: ignore[misc]
                    f"{gear}: {rule} is complete",
                )
        await self._until(lambda: not self._open_instances(), "all processes have ended")

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + CATCH_UP_S
        while not condition():
            for part in (self.services, self.plant, self.live, self.spark):
                if part.process is not None and part.process.returncode not in (None, -signal.SIGKILL):
                    raise NetworkError(f"{part.name} of the demo ended; its words are in {part.log}")
            if time.monotonic() > deadline:
                raise NetworkError(f"the demo waited {CATCH_UP_S:.0f} s in vain until {what}; see {self.folder}")
            await asyncio.sleep(LOOK_S)

    # --- what there is to see

    def _leader(self) -> dict[str, Any]:
        from unerring.runtime.live.status import processes

        if not (self.live_data / "live").exists():
            return {}
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            for told in processes(self.live_data / "live"):
                if told["name"].startswith("StorageDivision/") and told.get("leads") and told.get("pid"):
                    return told
        return {}

    def _pid_of_node(self) -> int:
        import psutil

        for process in psutil.process_iter(["pid", "cmdline"]):
            words = process.info["cmdline"] or []
            if "node" in words and str(self.live_data / "processes") in words:
                return int(process.info["pid"])
        return 0

    def _through(self, gear: str, stream: str) -> int:
        """Up to which time a gear has delivered a stream."""
        from unerring.log import EventLog

        data = self.live_data if gear == "live" else self.spark_data
        if not (data / "log" / stream / "stream.json").exists():
            return 0
        return EventLog(data / "log").chain(stream).refresh()

    def _open_instances(self) -> list[str]:
        from unerring.runtime.process_control import Wish, ask, sockets

        found: dict[str, bool] = {}
        for path in sockets(self.live_data / "processes"):
            with contextlib.suppress(NetworkError):
                for told in ask(path, Wish("list"), within_s=5.0):
                    found[told["instance"]] = found.get(told["instance"], False) or "ended_us" in told
        wanted = self._wanted()
        return [instance for instance in wanted if not found.get(instance)]

    def _wanted(self) -> dict[str, str]:
        """The instances that the live gear's situations ask for, and their processes."""
        app = self._app()
        return {
            reaction.instance(situation): reaction.process
            for reaction in app.reactions
            for situation in self._delivered(self.live_data, reaction.situation)
        }

    def _delivered(self, data: Path, stream: str) -> list[Event]:
        """All situations of a stream, in order."""
        from unerring.log import EventLog
        from unerring.pipeline.feeding import events_of

        if not (data / "log" / stream / "stream.json").exists():
            return []
        chain = EventLog(data / "log").chain(stream)
        chain.refresh()
        return [
            event
            for span in chain.spans(chain.base.from_us, TIME_MAX)
            for event in events_of(chain.read(span.from_us, span.through_us), chain.schema)
        ]

    def _app(self) -> Any:
        from unerring.app import load

        os.environ.update({key: value for key, value in self._environment.items() if key.startswith("FACTORY_")})
        if str(examples()) not in sys.path:
            sys.path.insert(0, str(examples()))
        return load(APP)

    # --- the verdict

    async def _judge(self) -> FactoryVerdict:
        situations, events, channels, correlation = await self._audit()
        return FactoryVerdict(
            events=events,
            situations=situations,
            actions=dict(self._effects()),
            failures=self.failures,
            channels=channels,
            correlation=correlation + self._differences(),
            processes=self._actions_wrong(),
        )

    async def _audit(self) -> tuple[dict[str, int], int, list[str], list[str]]:
        """What the audit says of both logs."""
        channels: list[str] = []
        correlation: list[str] = []
        counts: dict[str, int] = {}
        events = 0
        for gear, data in (("live", self.live_data), ("spark", self.spark_data)):
            self._say(f"the audit recomputes the perfect run from the log of {gear}")
            part = Part(f"audit-{gear}", self.folder, self._environment, "-m", "unerring", "audit", str(data), "--json")
            await part.start()
            said = await part._running.stdout.read() if part._running.stdout else b""
            code = await part._running.wait()
            if code not in (0, 1):
                raise CallerError(f"the audit of {gear} could not judge; its words are in {part.log}")
            report = msgspec.json.decode(said, type=Report)
            events = sum(report.events.values())
            counts = {rule.stream: rule.delivered for rule in report.rules}
            channels += [f"{gear}: {violation}" for violation in report.intake_violations]
            correlation += [f"{gear}: {rule.stream}: {rule.wrong} wrong" for rule in report.rules if rule.wrong]
        return counts, events, channels, correlation

    def _differences(self) -> list[str]:
        """Situations that one gear gave and the other did not, stamps and payloads included."""
        app = self._app()
        wrong = []
        for schema in app.outputs:
            live, spark = (self._delivered(data, schema.name) for data in (self.live_data, self.spark_data))
            if live != spark:
                wrong.append(f"{schema.name}: live gave {len(live):,}, Spark {len(spark):,}, and they differ")
        return wrong

    def _effects(self) -> Counter[str]:
        return Counter(effect.operation for effect in self._journal() if not effect.undone)

    def _journal(self) -> list[Any]:
        self._app()
        from factory.services import OPERATIONS, journal  # type: ignore[import-not-found]

        return [effect for name in OPERATIONS for effect in journal(self.folder / "services", name)]

    def _actions_wrong(self) -> list[str]:
        """Every situation that asks for a process has the effects of exactly one execution; nothing else has any."""
        wanted = self._wanted()
        done = Counter((effect.instance, effect.operation) for effect in self._journal() if not effect.undone)
        ends = {"relieve": "tell_management", "repair": "tell_customers"}
        wrong = [
            f"{instance}: {operation} was done {count} times"
            for (instance, operation), count in done.items()
            if count > 1
        ]
        wrong += [
            f"{instance} was never ended" for instance, process in wanted.items() if not done[instance, ends[process]]
        ]
        wrong += sorted({f"{instance} was started by no situation" for instance, _ in done if instance not in wanted})
        return wrong


def examples() -> Path:
    """Where the factory is: beside the source."""
    found = Path(__file__).parents[4] / "examples"
    if not (found / "factory").is_dir():
        raise CallerError("the factory is one of the examples, which are not installed; run the demo in a clone")
    return found
