"""What tracing costs: the processor time of an event with tracing off, and with one trace in a hundred, over that of
the same program without the code of tracing, by turns.

The program without is this one with every statement of tracing cut out of its source. `channel`: publisher, channel and
writer of the log are in this process, three times, and get a batch of events in turns. `live`: `unerring run --engine
live` of W1 on a channel, all processes together, until its situations are sealed. Spans go to a receiver that reads and
answers them, in a process of its own. A ratio is the median of the rounds' ratios, so that other work on the machine,
which meets all three alike, does not matter.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import importlib.util
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import psutil

import unerring
from unerring import App, AsyncPublisher
from unerring.log import EventLog, MemoryStore
from unerring.model import schema_of
from unerring.rules import W1, Typed

MODES: Final = ("without", "off", "sampled")
GOALS: Final = {"off": 1.01, "sampled": 1.05}
RATE: Final = 0.01
BATCH: Final = 500
SEED: Final = 450_000_000
SCHEMA: Final = schema_of(Typed)
CHANNEL: Final = os.environ.get("TRACING_BENCH_CHANNEL", "tcp://127.0.0.1:9")
app = App("w1", rules=[W1], channels={Typed: CHANNEL}, buckets=1, start="earliest")
PATIENCE_S: Final = 120.0
RECEIVER: Final = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Page(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): ...
server = HTTPServer(("127.0.0.1", 0), Page)
print(server.server_port, flush=True)
server.serve_forever()
"""


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="unerring-tracing-") as name, _receiver() as url:
        folder = Path(name)
        cut = without_tracing(folder / "without")
        yield from _figures("channel", asyncio.run(_channel(cut, url, *((2, 5_000) if quick else (60, 20_000)))))
        rounds, events = (1, 2_000) if quick else (5, 2_000_000)
        played: list[dict[str, float]] = []
        for number in range(rounds):
            one = {}
            for mode in _turn(number):
                one[mode] = _live(folder / f"{number}-{mode}", mode, folder / "without", url, events)
            played.append(one)
        yield from _figures("live", played)


def _figures(what: str, rounds: list[dict[str, float]]) -> Iterator[dict[str, Any]]:
    yield _figure(f"{what}.us_per_event", min(one["without"] for one in rounds), "µs")
    for mode, goal in GOALS.items():
        ratio = statistics.median(one[mode] / one["without"] for one in rounds)
        yield _figure(f"{what}.{mode}", ratio, "ratio", goal)


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    return {
        "bench": "tracing",
        "figure": name,
        "value": round(value, 4),
        "unit": unit,
        "goal": None if goal is None else f"≤ {goal}",
        "met": met,
    }


def _turn(number: int) -> tuple[str, ...]:
    """Each mode is first, second and last equally often."""
    first = number % len(MODES)
    return (*MODES[first:], *MODES[:first])


@contextlib.contextmanager
def _receiver() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        try:
            yield f"http://127.0.0.1:{receiver.stdout.readline().strip()}"
        finally:
            receiver.kill()


# ---- the same program without -----------------------------------------------------------------------------------


def without_tracing(to: Path) -> Path:
    """A copy of the package in which nobody asks for a tracer; the folder that is imported from."""
    ours = Path(unerring.__file__).parent
    shutil.copytree(ours, to / "unerring", ignore=shutil.ignore_patterns("__pycache__"))
    for path in sorted((to / "unerring").rglob("*.py")):
        source = path.read_text()
        if "traces" in source and path.parent.name != "tracing":
            path.write_text(ast.unparse(_Cut().visit(ast.parse(source))))
    return to / "unerring"


class _Cut(ast.NodeTransformer):
    """What is done only with a tracer goes, and so does the question for it."""

    def visit_If(self, node: ast.If) -> Any:
        absent = _absent(node.test)
        if absent is None:
            return self.generic_visit(node)
        kept = [self.visit(statement) for statement in (node.body if absent else node.orelse)]
        return kept or ast.Pass()

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        absent = _absent(node.test)
        return self.generic_visit(node) if absent is None else self.visit(node.body if absent else node.orelse)

    def visit_Call(self, node: ast.Call) -> Any:
        asks = isinstance(node.func, ast.Name) and node.func.id == "tracer"
        return ast.Constant(None) if asks else self.generic_visit(node)


def _absent(test: ast.expr) -> bool | None:
    """What is left of a condition if there is no tracer: whether it holds; None: it is of something else."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and _absent(test.values[0]) is False:
        return False
    if not isinstance(test, ast.Compare) or not ast.unparse(test.left).lstrip("_").endswith("traces"):
        return None
    return {ast.Is: True, ast.IsNot: False}.get(type(test.ops[0]))


# ---- a channel ---------------------------------------------------------------------------------------------------


async def _channel(cut: Path, url: str, rounds: int, events: int) -> list[dict[str, float]]:
    """Microseconds of this process for an event, by mode."""
    async with contextlib.AsyncExitStack() as stack:
        lines: dict[str, _Line] = {}
        for mode in MODES:
            bare = mode == "without"
            out: Any = _module("runtime.channel.publisher", cut if bare else None)
            into: Any = _module("app.feeds", cut if bare else None)
            with _asked(_variables(mode, url)):
                lines[mode] = await stack.enter_async_context(_line(out, into))
                await lines[mode].play(events)  # by then both ends have asked whether they trace
        return [
            {mode: 1e6 * await lines[mode].play(events) / events for mode in _turn(number)} for number in range(rounds)
        ]


def _module(name: str, cut: Path | None) -> ModuleType:
    """A module of the package, or of the copy of it without tracing, beside the other one."""
    if cut is None:
        return importlib.import_module(f"unerring.{name}")
    path = cut / f"{name.replace('.', '/')}.py"
    spec = importlib.util.spec_from_file_location(f"without_tracing_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _variables(mode: str, url: str) -> dict[str, str]:
    if mode != "sampled":
        return {}
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_TRACES_SAMPLER": "traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": str(RATE),
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
    }


@contextlib.contextmanager
def _asked(variables: dict[str, str]) -> Iterator[None]:
    """A process asks once whether it traces; here it asks for each line."""
    telling: Any = importlib.import_module("unerring.tracing.telling")
    os.environ.update(variables)
    telling._of_process = None
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name)


class _Line:
    """A publisher, its channel, and the writer of a log in memory."""

    def __init__(self, out: AsyncPublisher[Any], log: EventLog) -> None:
        self._out = out
        self._log = log
        self._time_us = 0

    async def play(self, events: int) -> float:
        """Seconds of processor time until so many more events are sealed."""
        values = [Typed(n % 1000, "ABCD"[n % 4], n / 1000) for n in range(BATCH)]
        began_s = time.process_time()
        for _ in range(0, events, BATCH):
            times = [self._time_us + 1000 * n for n in range(1, BATCH + 1)]
            self._time_us = times[-1]
            await self._out.publish_many(values, at=times)
        await self._out.watermark(self._time_us)
        chain = self._log.chain(SCHEMA.name)
        deadline_s = time.monotonic() + PATIENCE_S
        while chain.refresh() < self._time_us:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the log is at {chain.through_us} and not at {self._time_us}")
            await asyncio.sleep(0.002)
        return time.process_time() - began_s


@contextlib.asynccontextmanager
async def _line(out: Any, into: Any) -> Any:
    log = EventLog(MemoryStore())
    async with out.AsyncPublisher("tcp://127.0.0.1:0", Typed, name="bench") as publishing:
        taking = into.Feeds(log, {SCHEMA.name: publishing.address}, {SCHEMA.name: SCHEMA}, 1, start=into.Start.EARLIEST)
        taking.start()
        try:
            yield _Line(publishing, log)
        finally:
            await asyncio.to_thread(taking.stop)


# ---- the live engine -----------------------------------------------------------------------------------------------


def _live(data: Path, mode: str, cut: Path, url: str, events: int) -> float:
    """Microseconds of all processes of a run for an event, from when it is up until all is sealed."""
    return asyncio.run(_live_run(data, mode, cut, url, events))


async def _live_run(data: Path, mode: str, cut: Path, url: str, events: int) -> float:
    data.mkdir()
    async with AsyncPublisher("tcp://127.0.0.1:0", Typed, name="bench") as out:
        first = [str(cut)] if mode == "without" else []
        path = os.pathsep.join([*first, str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, **_variables(mode, url), "PYTHONPATH": path, "TRACING_BENCH_CHANNEL": out.address}
        command = [sys.executable, "-m", "unerring", "run", "tracing:app", "--engine", "live", "--f", "1"]
        with (data / "run.log").open("wb") as log:
            run = subprocess.Popen([*command, "--data", str(data / "run")], env=variables, stdout=log, stderr=log)
        log_of = EventLog(data / "run" / "log")
        try:
            return 1e6 * await _spent_s(run, out, log_of, events) / events
        except BaseException:
            sys.stderr.write((data / "run.log").read_text())
            raise
        finally:
            run.send_signal(signal.SIGINT)
            await asyncio.to_thread(run.wait, PATIENCE_S)


async def _spent_s(run: subprocess.Popen[bytes], out: AsyncPublisher[Any], log: EventLog, events: int) -> float:
    """The first few events are for what is compiled and joined, and do not count."""
    draw = random.Random(SEED)
    time_us, before_s = 0, 0.0
    for count in (2 * BATCH, events):
        before_s = _cpu_s(run.pid)
        for _ in range(0, count, BATCH):
            times = [time_us + 1000 * n for n in range(1, BATCH + 1)]
            time_us = times[-1]
            values = [Typed(draw.randrange(1000), draw.choice("ABCD"), draw.random()) for _ in times]
            await out.publish_many(values, at=times)
        await out.watermark(time_us)
        deadline_s = time.monotonic() + PATIENCE_S
        while not _sealed(log, time_us):
            if run.poll() is not None or time.monotonic() > deadline_s:
                raise TimeoutError(f"the run has not sealed its situations up to {time_us}")
            await asyncio.sleep(0.02)
    return _cpu_s(run.pid) - before_s


def _sealed(log: EventLog, time_us: int) -> bool:
    made = log.declaration(W1.plan.name) is not None
    return made and log.chain(W1.plan.name).refresh() >= time_us


def _cpu_s(pid: int) -> float:
    """Of a process and all that it started."""
    own = psutil.Process(pid)
    spent = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in spent)
