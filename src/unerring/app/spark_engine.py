"""The Spark engine of a run: a session and a streaming query for each level, from the log into the log."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from unerring.app import batches
from unerring.app.application import App
from unerring.app.metrics import Metrics
from unerring.app.parts import Parts
from unerring.app.place import Where, place_of, shown
from unerring.app.spark_levels import Duties, MicroBatches, ResidentTasks, RunningLevels
from unerring.audit import moment
from unerring.log import LocalStore
from unerring.model import NetworkError
from unerring.pipeline import Bounds, Gauges, SparkConfig, connecting, is_started, jvm, start
from unerring.runtime import What, own_number, timeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unerring.app.upgrading import Pending
    from unerring.pipeline import Level, MaySeal, Sealed

NOTE_S: Final = 0.25
"""How often a level's progress is written down at the most."""
RESCALED_LOOK_S: Final = 5.0
"""How often a run looks whether it was rescaled."""
FINISHED_LOOK_S: Final = 0.01
"""How often a run that ends by itself looks whether it has."""
STORE_RESCALED_LOOK_S: Final = 30.0
"""The same at a store, where every look is a request."""


@dataclass
class LevelView:
    """The status of one level."""

    level: Level
    events: int = 0
    situations: dict[str, int] = field(default_factory=dict)
    through_us: int | None = None
    keys: int = 0
    batch: int | None = None
    batch_s: float = 0.0
    lag_us: int = 0
    """How far the log of its inputs was ahead of it when it last sealed, in event time."""
    again_s: float | None = None
    """When its query is started again, after Spark could not run it; by a monotonic clock."""
    unnoted: list[Sealed] = field(default_factory=list)
    """Sealed, and not written down yet."""
    noting: threading.Lock = field(default_factory=threading.Lock)
    _last_s: float = field(default_factory=time.monotonic)
    _noted_s: float = field(default_factory=time.monotonic)

    @property
    def part(self) -> str:
        """Its name among the parts of a run."""
        return f"level {self.level.label}"

    def to_note(self, at_once: bool) -> tuple[list[Sealed], float]:
        """What was sealed since this was asked last, if that is a while ago, and how long."""
        now_s = time.monotonic()
        if now_s - self._noted_s < NOTE_S and not at_once:
            return [], 0.0
        with self.noting:
            sealed, self.unnoted = self.unnoted, []
        if not sealed:
            return [], 0.0
        before_s, self._noted_s = self._noted_s, now_s
        return sealed, now_s - before_s

    def take(self, sealed: Sealed) -> None:
        now_s = time.monotonic()
        self.batch_s, self._last_s = now_s - self._last_s, now_s
        self.events += sealed.rows
        for name, count in sealed.situations.items():
            self.situations[name] = self.situations.get(name, 0) + count
        self.through_us, self.keys, self.batch = sealed.through_us, sealed.keys, sealed.batch


@dataclass(frozen=True)
class StandbyDriver:
    """One of several drivers of a run: which levels it runs, where it keeps its own files, and when it seals."""

    levels: tuple[Level, ...]
    home: Path
    may_seal: MaySeal


class SparkEngine:
    """One driver of an app's rules. A second one beside it does no harm; it only computes the same again."""

    def __init__(
        self,
        app: App,
        where: Where,
        config: SparkConfig,
        bounds: Bounds | None = None,
        *,
        parts: Parts | None = None,
        metrics: Metrics | None = None,
        standby: StandbyDriver | None = None,
        resident: bool = False,
    ) -> None:
        """`standby`: this is one of several drivers, which somebody else supervises. `resident`: levels are run by
        tasks that stay, not in micro-batches."""
        self.app = app
        self.place = place_of(where)
        self.config = config
        self.bounds = bounds or Bounds()
        self.parts = parts or Parts()
        self.metrics = metrics or Metrics()
        self.standby = standby
        self.resident = resident
        self._due: Pending | None = None
        """The upgrade that happens before anything else."""
        self.views = self._views(standby.levels if standby else self._levels_to_run())
        self._pending: Pending | None = None
        self.upgraded = ""
        """The app whose rules follow, once these have got to the time that was agreed for that."""
        self._running: RunningLevels | None = None
        self._look_s = 0.0
        """When it looks next whether the run was rescaled; by a monotonic clock."""
        self._spark: SparkSession | None = None
        self._owns_spark = False
        self._gauges: Gauges | None = None

    def start(self, say: Callable[[str], None]) -> None:
        """Bring the session and the queries up; `say` hears how far it is."""
        self._create_log()
        if self.standby is None:
            own_number(self.place.scratch, batches.DRIVER)
            timeline.note_start(self.place.scratch, batches.DRIVER, f"as process {os.getpid()}")
        self._spark = self._start_spark(say)
        self._complete(self._spark, say)
        for view in self.views:
            say(f"starting level {view.level.label}: {', '.join(plan.name for plan in view.level.plans)}")
        self._running = self._levels()
        self._running.start(self._spark)

    @property
    def name(self) -> str:
        """The driver's name: of several, each has its home under its own."""
        return batches.DRIVER if self.standby is None else self.standby.home.name.replace(".", "/")

    @property
    def spark(self) -> SparkSession | None:
        """The session, once it is there."""
        return self._spark

    @property
    def under_way(self) -> bool:
        """Whether every level runs, which takes Spark a while."""
        return self._running is not None and self._running.under_way

    def waits_for(self) -> str:
        """Whether a level has not begun."""
        return "" if self.under_way else "levels are starting"

    def committed_us(self, number: int) -> int | None:
        """Up to where this driver is done with one of its levels; None before it has begun."""
        return None if self._running is None else self._running.committed_us(number)

    def __str__(self) -> str:
        return f"{self.app.name} runs in {self.place}"

    def _create_log(self) -> None:
        log = self.place.log
        if isinstance(log.store, LocalStore):
            log.store.sweep(time.time())
        for schema in {schema.name: schema for schema in (*self.app.streams, *self.app.outputs)}.values():
            log.create(schema, self.app.buckets)

    def _start_spark(self, say: Callable[[str], None]) -> SparkSession:
        check_master(self.config.master)
        if self.config.connects:
            say(f"connecting to Spark at {connecting.shown(self.config.master)}")
        else:
            say(f"starting Spark on {self.config.master} (its log: {shown(self.config.log or '')})")
        self._owns_spark = self._owns_spark or self.config.connects or not is_started()
        spark = start(self.config, f"unerring {self.app.name}")
        self._gauges = Gauges(spark, [view.level.label for view in self.views])
        return spark

    def run_once(self, say: Callable[[str], None]) -> None:
        """Detect in what the log holds now, and end there. The next run goes on from it."""
        self._create_log()
        self._spark = self._start_spark(say)
        self._complete(self._spark, say)
        self._run_available(self._spark, say)
        self._look_for_upgrade()
        if self.upgraded and self._follows():
            before, self.views = self.views, self._views(self._levels_to_run())
            self._gauges = Gauges(self._spark, [view.level.label for view in (*before, *self.views)])
            self._complete(self._spark, say)
            self._run_available(self._spark, say)
            self.views = [*before, *self.views]
        self.upgraded = ""

    def _run_available(self, spark: SparkSession, say: Callable[[str], None]) -> None:
        for view in self.views:
            say(f"level {view.level.label}: {', '.join(plan.name for plan in view.level.plans)}")
        if self.resident:
            self._run_resident(spark)
        else:
            self._run_in_batches(spark)

    def _run_resident(self, spark: SparkSession) -> None:
        """All levels at once."""
        running = self._running = ResidentTasks(self._duties(), once=True)
        running.start(spark)
        while not running.finish():
            running.check(rescaled=False)
            time.sleep(FINISHED_LOOK_S)
        running.stop()
        self._running = None

    def _run_in_batches(self, spark: SparkSession) -> None:
        """Level after level."""
        from unerring.pipeline import detect_available, successor

        for view in self.views:
            self.parts.began(view.part)
            on_sealed = self._on_sealed(view)
            detect_available(spark, view.level, self.bounds, on_sealed=on_sealed)
            while (following := successor(view.level)) is not None:
                view.level = following
                detect_available(spark, view.level, self.bounds, on_sealed=on_sealed)

    def _levels_to_run(self) -> tuple[Level, ...]:
        from unerring.app.upgrading import edition_to_run, levels_in

        rules, self._due = edition_to_run(self.place, self.app)
        return levels_in(self.place, rules, self.app.buckets)

    def _views(self, levels: Sequence[Level]) -> list[LevelView]:
        within = self.bounds.state_memory_bytes
        return [LevelView(replace(level, state_memory_bytes=within)) for level in levels]

    def _complete(self, spark: SparkSession, say: Callable[[str], None]) -> None:
        """Let new rules take over where the old ones have ended."""
        if self._due is not None:
            say(f"the rules of {self._due.proposed.app} take over at {moment(self._due.at_us)}")
            self._due.take_over(spark)
            timeline.note(self.place.scratch, batches.DRIVER, What.UPGRADED, f"to {self._due.proposed.app}")
            self._due = None

    def _follows(self) -> bool:
        """Whether the rules and reactions that take over are those of this app."""
        from unerring.app.editions import same_edition

        return self._pending is not None and same_edition(self.app, self._pending.proposed)

    def _look_for_upgrade(self) -> None:
        from unerring.app.upgrading import pending_in

        if self._pending is None:
            self._pending = pending_in(self.place)
        if self._pending is not None and not self._pending.waits_for():
            self.upgraded = self._pending.proposed.app

    def check(self) -> None:
        """Start levels again that Spark could not run, or that go on with other partitions; raise what cannot go on."""
        rescaled = time.monotonic() > self._look_s
        if rescaled:
            pause_s = RESCALED_LOOK_S if self.place.is_folder else STORE_RESCALED_LOOK_S
            self._look_s = time.monotonic() + pause_s
        if self._running is not None:
            self._running.check(rescaled)
        if self.standby is None and (rescaled or self._pending is not None) and self._running is not None:
            self._look_for_upgrade()
        for view in self.views:
            self._note(view)

    def stop(self) -> None:
        """No more batches. What is sealed stays; a new run goes on from there."""
        if self._running is not None:
            self._running.stop()
        for view in self.views:
            self._note(view, at_once=True)
        if self._owns_spark and not self.upgraded:  # the new rules go on with this session
            jvm.end(self._spark)
        if self._running is not None and self.standby is None:
            timeline.note(self.place.scratch, batches.DRIVER, What.ENDED, "with the run")

    def go_on_from(self, before: SparkEngine) -> None:
        """Use the session of the engine that ended when these rules took over."""
        self._owns_spark = before._owns_spark

    def _levels(self) -> RunningLevels:
        return ResidentTasks(self._duties()) if self.resident else MicroBatches(self._duties())

    def _duties(self) -> Duties:
        from unerring.pipeline import seal_at_once

        may_seal = self.standby.may_seal if self.standby else seal_at_once
        return Duties(f"unerring {self.app.name}", self.views, self.bounds, self.parts, self._on_sealed, may_seal)

    def _note(self, view: LevelView, at_once: bool = False) -> None:
        """Write a line for what was sealed, now and then: resident tasks seal many times a second."""
        sealed, took_s = view.to_note(at_once)
        if sealed:
            batches.note(self.place.scratch, _batch(self.name, view, sealed, took_s))
            self._tell_spark(view, sealed[-1])

    def _tell_spark(self, view: LevelView, last: Sealed) -> None:
        if self._gauges is None or self._spark is None or not jvm.is_alive(self._spark):
            return
        self._gauges.set(
            view.level.label,
            rows_read=view.events,
            rows_out=sum(view.situations.values()),
            state_keys=last.keys,
            state_bytes=last.state_bytes or 0,
            watermark_us=last.through_us,
            lag_us=view.lag_us,
        )

    def _on_sealed(self, view: LevelView) -> Callable[[Sealed], None]:
        label = view.level.label
        inputs = view.level.chains()

        def on_sealed(sealed: Sealed) -> None:
            view.take(sealed)
            self.parts.well(view.part)
            self.metrics.add("unerring_events_total", sealed.rows, level=label)
            for name, count in sealed.situations.items():
                self.metrics.add("unerring_situations_total", count, stream=name)
            self.metrics.set("unerring_level_watermark_seconds", sealed.through_us / 1e6, level=label)
            self.metrics.set("unerring_batch_seconds", view.batch_s, level=label)
            self.metrics.set("unerring_state_keys", sealed.keys, level=label)
            reached = min(batches.reached_us(chain, sealed.through_us) for chain in inputs.values())
            view.lag_us = max(reached - sealed.through_us, 0)
            self.metrics.set("unerring_lag_seconds", view.lag_us / 1e6, level=label)
            with view.noting:
                view.unnoted.append(sealed)
            self._note(view, not self.resident)

        return on_sealed


def _batch(driver: str, view: LevelView, sealed: Sequence[Sealed], took_s: float) -> batches.Batch:
    last = sealed[-1]
    situations: dict[str, int] = {}
    for one in sealed:
        for name, count in one.situations.items():
            situations[name] = situations.get(name, 0) + count
    return batches.Batch(
        at_us=batches.now_us(),
        driver=driver,
        level=view.level.number,
        unkeyed=view.level.unkeyed,
        rules=tuple(plan.name for plan in view.level.plans),
        batch=last.batch,
        took_s=took_s,
        events=sum(one.rows for one in sealed),
        situations=situations,
        through_us=last.through_us,
        lag_s=view.lag_us / 1e6,
        keys=last.keys,
        state_bytes=last.state_bytes,
    )


def check_master(master: str) -> None:
    """Spark tries a minute or more to reach a standalone master before it gives up; this takes seconds."""
    if master.startswith(connecting.SCHEME):
        connecting.check_reached(master)
    if not master.startswith("spark://"):
        return
    for address in re.split(r",", master.removeprefix("spark://")):
        parts = urlsplit(f"spark://{address}")
        try:
            with socket.create_connection((parts.hostname or "", parts.port or 7077), timeout=5):
                return
        except (OSError, ValueError) as error:
            last = error
    raise NetworkError(f"there is no Spark master at {master} ({last}); start it, or run with --master 'local[*]'")
