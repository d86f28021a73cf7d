"""The supervised processes of a run: sources, replicas and the sink of rules that run live, and several drivers of
Spark, each a replica too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from unerring.app import live, live_cluster
from unerring.app.application import App
from unerring.app.generations import begin_anew
from unerring.app.live_needs import SPARK
from unerring.app.live_upgrade import LiveUpgrade
from unerring.app.metrics import Metrics
from unerring.app.options import RunOptions, check_memory
from unerring.app.parts import LoopThread, Parts
from unerring.app.place import Place
from unerring.app.standby import command
from unerring.correlation import node_of
from unerring.model import CallerError
from unerring.runtime import LiveSupervisor, processes

LOOK_S: Final = 1.0
UPGRADE: Final = "upgrade"
"""What the part is called that waits for an app that cannot be loaded."""
TAKES_PART: Final = ("member", "running")
"""States of processes: a replica that has caught up, and any other that is well."""


class LiveEngine:
    """Runs them under a supervisor, on an event loop of its own."""

    def __init__(
        self,
        address: str,
        app: App,
        options: RunOptions,
        place: Place,
        say: Callable[[str], Any],
        parts: Parts,
        metrics: Metrics,
    ) -> None:
        self._address = address
        self._app = app
        self._options = options
        self._place = place
        self._say = say
        self._parts = parts
        self._drivers = Drivers(place, metrics, say)
        self._on_spark = () if options.engine == "live" else on_spark(app, options.live)
        self._supervisor: LiveSupervisor | None = None
        self._thread: LoopThread | None = None
        self._due_s = 0.0
        self._upgrade: LiveUpgrade | None = None
        self._look_s = 0.0
        self.upgraded = ""
        """The app whose rules have taken over."""

    def start(self, say: Callable[[str], None]) -> None:
        o = self._options
        if self._supervisor is not None:
            return  # the processes go on
        if self._on_spark:
            from unerring.app.spark_engine import check_master

            check_master(o.driver.config("").master)
            check_memory(o.drivers, o.driver.memory)
        f = o.tolerated if o.engine == "live" else o.f or 0
        cluster = live_cluster.make_cluster(
            self._address,
            f,
            self._place,
            o.config,
            durable=o.durable,
            tls=o.tls,
            tls_hours=o.tls_hours,
            policy=o.policy,
            hosts=o.hosts,
            placement=o.placement,
            etcd=o.etcd,
            on_spark=self._on_spark,
            shards=o.shards,
        )
        cluster = begin_anew(cluster, self._place)
        supervisor = LiveSupervisor(cluster, self._place.live, self._command, o.here, self._say, ca=o.tls)
        self._supervisor = supervisor
        self._thread = LoopThread("live engine", supervisor.run, self._parts.end)
        self._thread.start()
        if not self._on_spark and not (cluster.hosts and self._place.is_folder):
            certify = partial(live_cluster.certify, options=o, app=self._app.name)
            self._upgrade = LiveUpgrade(
                self._place, supervisor, f, self._thread.call, self._say, certify, self._address, self._upgrade_waits
            )

    def _upgrade_waits(self, why: str) -> None:
        if why:
            self._parts.began(UPGRADE)
        self._parts.waits(UPGRADE, why)

    def go_on_from(self, before: LiveEngine) -> None:
        """The processes of a run whose rules these follow: those that did not change have gone on."""
        self._supervisor, self._thread, self._upgrade = before._supervisor, before._thread, before._upgrade
        if self._upgrade is not None:
            self._upgrade.conclude()

    def is_turn(self, count: int, on: bool, among: Sequence[str] = ()) -> bool:
        """Whether this host is one of the first so many of the list that are there; `on`: it was so far."""
        supervisor = self._supervisor
        return supervisor is not None and supervisor.keeping.presence.is_turn(count, on, among)

    def check(self) -> None:
        """Say what changes among the drivers of Spark, and measure them; carry on with an upgrade."""
        if self._upgrade is not None and not self.upgraded and time.monotonic() >= self._look_s:
            self._look_s = time.monotonic() + self._place.look_s(LOOK_S)
            self.upgraded = self._upgrade.look()
        if self._on_spark and self._supervisor is not None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + LOOK_S
            self._drivers.check(self._supervisor.restarts)

    def stop(self) -> None:
        if self._thread is not None and self._supervisor is not None and not self.upgraded:
            self._thread.call(self._supervisor.stop)
            self._thread.join()

    def __str__(self) -> str:
        name, place, o = self._app.name, self._place, self._options
        count = len(self._here)
        if not self._on_spark:
            return f"{name} runs live in {place} with f = {o.tolerated}: {count} processes"
        others = count - (o.drivers if not o.hosts else sum(node_of(name) == SPARK for name in self._here))
        beside = f" and {others} live processes" if others else ""
        return f"{name} runs on Spark in {place} with {o.drivers} drivers{beside}"

    def waits_for(self) -> str:
        """Which process of this host does not take part: not started, silent, or still catching up. A host that is
        stopped before the one before has caught up is one failure more than f."""
        here = self._here
        states = {one["name"]: one["state"] for one in processes(self._place.live)} if here else {}
        waiting = [f"{name} is {states.get(name, 'starting')}" for name in here if states.get(name) not in TAKES_PART]
        return ", ".join(waiting)

    @property
    def _here(self) -> list[str]:
        return [] if self._supervisor is None else self._supervisor.wanted

    def _command(self, name: str) -> list[str]:
        if node_of(name) == SPARK:
            return command(self._place, name, self._options.driver)
        return live.command(self._place, name)


def on_spark(app: App, live_rules: Sequence[str]) -> tuple[str, ...]:
    """The rules that are left for Spark."""
    names = [plan.name for plan in app.plans]
    for rule in live_rules:
        if rule not in names:
            raise CallerError(f"--live {rule}: app {app.name} has no such rule; it has {', '.join(names)}")
    left = tuple(name for name in names if name not in live_rules)
    if not left:
        raise CallerError("--live names all rules, so that nothing is left for Spark; use --engine live")
    return left


class Drivers:
    """The status of several drivers of Spark."""

    def __init__(self, place: Place, metrics: Metrics, say: Callable[[str], Any]) -> None:
        self._place = place
        self._metrics = metrics
        self._say = say
        self._states: dict[str, str] = {}

    def check(self, restarts: int) -> None:
        """Say what changed; measure."""
        for status in processes(self._place.live):
            if node_of(status["name"]) == SPARK:
                self._measure(status)
                self._tell(status)
        self._metrics.set("unerring_process_restarts_total", restarts)

    def _measure(self, status: dict[str, Any]) -> None:
        name, set_ = status["name"], self._metrics.set
        set_("unerring_driver_up", _is_up(status), driver=name)
        set_("unerring_driver_leads", _leads(status), driver=name)
        set_("unerring_driver_elections_total", status.get("elections", 0), driver=name)
        driver = status.get("driver", {})
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

    def _tell(self, status: dict[str, Any]) -> None:
        name = status["name"]
        state = status["state"].replace("_", " ").replace("member", "leads" if _leads(status) else "stands by")
        if status.get("refused"):
            state = f"stopped: {status['refused']}"
        if self._states.get(name) != state:
            self._states[name] = state
            self._say(f"{name} {state}" if _is_up(status) or ":" in state else f"{name} is {state}")


def _is_up(status: dict[str, Any]) -> bool:
    return bool(status["state"] == "member")


def _leads(status: dict[str, Any]) -> bool:
    return bool(status.get("leads")) and _is_up(status)
