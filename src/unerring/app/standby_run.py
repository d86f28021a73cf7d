"""`unerring run APP --engine spark --f N`: N+1 drivers of one query, supervised; live rules beside them, if asked."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.app import live
from unerring.app.application import App, load
from unerring.app.inputs import Inputs, rules_of
from unerring.app.live import LIVE, SPARK
from unerring.app.live_run import supervise
from unerring.app.metrics import Metrics
from unerring.app.parts import Parts
from unerring.app.running import METRICS_FILE, check_master
from unerring.app.standby import SparkOptions, command
from unerring.correlation.record import node_of
from unerring.log import EventLog, LocalStore
from unerring.model import CallerError, ConfigError
from unerring.pipeline.session import SparkConfig
from unerring.runtime.live import Cluster, LiveSupervisor
from unerring.runtime.live.status import processes

LOOK_S: Final = 1.0
BESIDE_MB: Final = 700
"""What a driver needs besides its JVM's heap: the rest of the JVM, its Python, its workers."""


class StandbyOptions(msgspec.Struct, frozen=True):
    """How many drivers, which rules are live, and how each driver is started."""

    f: int = 1
    live: tuple[str, ...] = ()
    tls: str = ""
    spark: SparkOptions = SparkOptions()


def options_of(f: int, live_rules: Sequence[str], tls: str, master: str, memory: str, rows: int, state: str) -> Any:
    """What the command line says; an empty master or memory is chosen so that f+1 drivers share this machine."""
    master = master or f"local[{max(1, (os.cpu_count() or 1) // (f + 1))}]"
    spark = SparkOptions(master, memory or "1g", rows, state)
    SparkConfig(master=spark.master, memory=spark.memory)
    return StandbyOptions(f, tuple(live_rules), tls, spark)


def run_standby(
    address: str,
    options: StandbyOptions,
    data: Path,
    say: Callable[[str], Any],
    metrics: Metrics,
    parts: Parts | None = None,
) -> None:
    """Run until SIGINT or SIGTERM, or until channels or actions fail; a new run in the folder goes on from there."""
    data = data.absolute()
    parts = parts or Parts(data, say)
    app = load(address)
    on_spark = _on_spark(app, options.live)
    check_master(options.spark.master)
    check_memory(options.f + 1, options.spark.memory, options.spark.master)
    cluster = live.make_cluster(address, options.f, data, tls=options.tls, on_spark=on_spark)
    cluster = live.begin_anew(cluster, data)
    feeds = None
    if app.channels:
        from unerring.app.feeds import feeds_of

        feeds = feeds_of(app, data, parts)
    inputs = Inputs(EventLog(data / "log"), rules_of(app))
    try:
        asyncio.run(_supervise(cluster, data, app, options, Watch(data, metrics, say, parts, inputs)))
    finally:
        if feeds is not None:
            feeds.stop()
    say("stopped; the next run goes on from here")


def _on_spark(app: App, live_rules: Sequence[str]) -> tuple[str, ...]:
    names = [plan.name for plan in app.plans]
    for rule in live_rules:
        if rule not in names:
            raise CallerError(f"--live {rule}: app {app.name} has no such rule; it has {', '.join(names)}")
    on_spark = tuple(name for name in names if name not in live_rules)
    if not on_spark:
        raise CallerError("--live names all rules, so that nothing is left for Spark; use --engine live")
    return on_spark


def check_memory(drivers: int, memory: str, master: str, free_mb: int | None = None) -> None:
    """A sentence, if this machine has no room for so many drivers: the kernel would kill one after the other."""
    sized = re.fullmatch(r"(\d+)([mg])b?", memory.strip().lower())
    if sized is None:
        raise ConfigError(f"--memory {memory!r} is no size; write for example 700m or 1g")
    heap_mb = int(sized[1]) * (1024 if sized[2] == "g" else 1)
    wanted_mb = drivers * (heap_mb + BESIDE_MB)
    free_mb = _free_mb() if free_mb is None else free_mb
    if free_mb is not None and wanted_mb > free_mb:
        raise ConfigError(
            f"{drivers} drivers with --memory {memory} need about {wanted_mb / 1024:.1f} GiB here, and "
            f"{free_mb / 1024:.1f} GiB is free; choose a smaller --memory or --f, or free some"
        )


def _free_mb() -> int | None:
    try:
        told = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(told[1]) // 1024 if told else None


async def _supervise(cluster: Cluster, data: Path, app: App, options: StandbyOptions, watch: Watch) -> None:
    def how(name: str) -> list[str]:
        return command(data, name, options.spark) if node_of(name) == SPARK else live.command(data, name)

    supervisor = LiveSupervisor(cluster, data / LIVE, how, say=watch.say)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
    others = len(supervisor.wanted) - options.f - 1
    beside = f" and {others} live processes" if others else ""
    watch.say(
        f"{app.name} runs on Spark in {data} with {options.f + 1} drivers{beside}; Ctrl-C stops it, status shows it"
    )
    await supervise(supervisor, watch.run(supervisor))


class Watch:
    """Says what changes among the drivers, and keeps the metrics."""

    def __init__(
        self,
        data: Path,
        metrics: Metrics,
        say: Callable[[str], Any],
        parts: Parts | None = None,
        inputs: Inputs | None = None,
    ) -> None:
        self.say = say
        self._data = data
        self._metrics = metrics
        self._parts = parts or Parts()
        self._inputs = inputs
        self._said: dict[str, str] = {}

    async def run(self, supervisor: LiveSupervisor) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._parts.look)
            self._parts.measure(self._metrics)
            if self._inputs is not None:
                await asyncio.to_thread(self._inputs.measure, self._metrics)
            found = await asyncio.to_thread(processes, self._data / LIVE)
            for told in found:
                if node_of(told["name"]) == SPARK:
                    self.look_at(told)
            self._metrics.set("unerring_driver_restarts_total", supervisor.restarts)
            text = self._metrics.text().encode()
            await asyncio.to_thread(LocalStore(self._data).replace, METRICS_FILE, text)

    def look_at(self, told: dict[str, Any]) -> None:
        name, set_ = told["name"], self._metrics.set
        up = told["state"] == "member"
        leads = bool(told.get("leads")) and up
        set_("unerring_driver_up", up, driver=name)
        set_("unerring_driver_leads", leads, driver=name)
        set_("unerring_driver_elections_total", told.get("elections", 0), driver=name)
        driver = told.get("driver", {})
        set_("unerring_driver_sealed_total", driver.get("sealed", 0), driver=name)
        set_("unerring_driver_held_total", driver.get("held", 0), driver=name)
        for level in driver.get("levels", ()):
            labels = {"driver": name, "level": level["level"]}
            set_("unerring_events_total", level["events"], **labels)
            set_("unerring_lag_seconds", level["lag_s"], **labels)
            set_("unerring_batch_seconds", level["batch_s"], **labels)
            set_("unerring_state_keys", level["keys"], **labels)
            if level["through_us"] is not None:
                set_("unerring_level_watermark_seconds", level["through_us"] / 1e6, **labels)
        state = told["state"].replace("_", " ").replace("member", "leads" if leads else "stands by")
        if told.get("refused"):
            state = f"stopped: {told['refused']}"
        if self._said.get(name) != state:
            self._said[name] = state
            self.say(f"{name} {state}" if up else f"{name} is {state}" if ":" not in state else f"{name} {state}")
