"""One of the f+1 drivers of a run on Spark: a replica whose engine is a Spark session of its own.

Every driver runs the same queries over the same log, each with its own checkpoint and states. The replica machine says
who leads; whoever leads seals (`pipeline/sealing_order`), and hands sealed streams over to live rules.
A driver that starts, for the first time or again, becomes a replica once its queries have caught up with the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.app.application import App, load
from unerring.app.following import PAUSE_S_MAX, Following, to_replica
from unerring.app.live_cluster import topology_of
from unerring.app.live_needs import SPARK, rules_on_spark
from unerring.app.metrics import Metrics
from unerring.app.options import SparkOptions, state_memory_bytes
from unerring.app.parts import Parts
from unerring.app.place import Place, Where, place_of
from unerring.app.requests import Requests
from unerring.app.run import Run
from unerring.app.sharding import shards_of
from unerring.app.spark_engine import SparkEngine, StandbyDriver
from unerring.correlation import Replica, Role
from unerring.log import private_folder
from unerring.model import TIME_MIN, ConfigError, UnerringError
from unerring.pipeline import RESTARTS_MAX, SEALED_LOOK_S, Bounds, SealingOrder, jvm
from unerring.runtime import (
    STATUS_S,
    Host,
    RestartsConfig,
    SqliteStorage,
    cluster as clusters,
    dotted,
    end_all,
    marked,
    note,
    own_log,
)

if TYPE_CHECKING:
    pass

LOOK_S: Final = 0.1
CAUGHT_UP_S: Final = 3.0
"""A driver that reaches what was sealed when it looked, in less than this, has caught up."""
SHORTER: Final = 0.7
BREATH_S: Final = 1.0
"""A driver that was killed leaves the machine to the others for so long, before it starts Spark again."""
REFUSED_S: Final = 20.0
"""How long an error of rules, log or disk is shown before the driver checks whether it was corrected."""
RUNNING: Final = "running"
"""A file of a driver's home while it runs; one that is killed leaves it behind."""
MARK: Final = "UNERRING_DRIVER"
"""The environment variable that names the driver to which a process belongs."""


def command(where: Where, name: str, options: SparkOptions) -> list[str]:
    """How a driver is started."""
    place = place_of(where)
    encoded = msgspec.json.encode(options).decode()
    return [sys.executable, "-m", "unerring.app.standby", place.address, str(place.scratch), name, encoded]


class Drive:
    """The engine: a session, a query for each level, and what there is to see of them."""

    def __init__(self, app: App, place: Place, rules: tuple[str, ...], home: Path, options: SparkOptions) -> None:
        self.replica: Replica | None = None
        """Once there is one."""
        self.phase = "STARTING"
        self.refused = ""
        self.order = SealingOrder(self.leads, look_s=place.look_s(SEALED_LOOK_S))
        self._jvm = 0
        self._requests = Requests(home)
        self._ending = False
        config = options.config(str(home / "spark.log"))
        levels = tuple(replace(level, scratch=str(home)) for level in app.levels(place, rules))
        standby = StandbyDriver(levels, home, self.order)
        parts, metrics = Parts(config=RestartsConfig(tries_max=RESTARTS_MAX + 1)), Metrics()
        state_memory = state_memory_bytes(options.state_memory)
        bounds = Bounds(rows_per_batch=options.rows, look_s=place.look_s(0.0), state_memory_bytes=state_memory)
        self.engine = SparkEngine(
            app, place, config, bounds, parts=parts, metrics=metrics, standby=standby, resident=options.resident
        )
        self.run = Run(self.engine, home, parts, metrics)

    def leads(self) -> bool:
        replica = self.replica
        return replica is not None and replica.election.leading

    def start(self) -> None:
        """Bring the session and the queries up; blocks."""
        self.run.start(own_log.say)
        self.phase = "CATCHING_UP"
        spark = self.engine.spark
        process = None if spark is None else jvm.of(spark)
        if process is not None:
            self._jvm = process.pid
            threading.Thread(target=self._end_with, args=(process,), name="jvm", daemon=True).start()

    def _end_with(self, process: Any) -> None:
        """A driver without its JVM is dead, and its peers are to know at once."""
        process.wait()
        if not self._ending:
            own_log.say("the JVM of this driver ended; another driver leads, and this one starts again")
            os._exit(1)

    async def catch_up(self) -> None:
        """Until its queries are where the sealed streams are, but for what comes meanwhile.

        Each round has as much to do as came during the one before. When rounds no longer get shorter, micro-batches of
        this machine take so long, for its peers as well, and this is as near as it gets.
        """
        loop = asyncio.get_running_loop()
        before_s = math.inf
        while True:
            wanted = [view.level.sealed_us() for view in self.engine.views]
            began_s = loop.time()
            while not await asyncio.to_thread(self._reached, wanted):
                await asyncio.sleep(LOOK_S)
            took_s = loop.time() - began_s
            if took_s < CAUGHT_UP_S or took_s > before_s * SHORTER:
                return
            before_s = took_s

    def _reached(self, wanted: list[int]) -> bool:
        self.run.check()
        if not self.engine.under_way:
            return False
        for number, target_us in enumerate(wanted):
            if target_us > TIME_MIN:
                done_us = self.engine.committed_us(number)
                if done_us is None or done_us < target_us:
                    return False
        return True

    async def watch(self) -> None:
        """Raise what ended a query, for as long as the driver runs."""
        while True:
            await asyncio.to_thread(self.run.check)
            await asyncio.sleep(LOOK_S)

    def stop(self) -> None:
        self._ending = True
        self.order.end()
        self.run.stop()

    def describe(self) -> dict[str, Any]:
        """The status for `unerring status` and the metrics."""
        levels = [
            {
                "level": view.level.number,
                "rules": [plan.name for plan in view.level.plans],
                "events": view.events,
                "situations": sum(view.situations.values()),
                "through_us": view.through_us,
                "lag_s": view.lag_us / 1e6,
                "keys": view.keys,
                "batch": view.batch,
                "batch_s": round(view.batch_s, 3),
            }
            for view in self.engine.views
        ]
        order, requests = self.order, self._requests.look()
        driver = {
            "jvm": self._jvm,
            "sealed": order.sealed,
            "held": order.held,
            "levels": levels,
            "requests": requests,
        }
        return {"driver": driver}


async def run_driver(place: Place, name: str, options: SparkOptions) -> None:
    """The process of one driver, until it is asked to end."""
    folder = place.live
    cluster = clusters.read(folder)
    app = load(cluster.app)
    home = folder / dotted(name)
    rules = rules_on_spark(app, cluster.topology)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    os.environ[MARK] = f"{home} {os.getpid()}"
    private_folder(home)
    end_leftovers(home)
    if (home / RUNNING).exists():
        await _pause(ending, BREATH_S)
    (home / RUNNING).touch()
    drive = Drive(app, place, rules, home, options)
    status = folder / "status" / f"{dotted(name)}.json"
    telling = asyncio.create_task(_tell(status, name, drive))
    try:
        await _until(ending, _drive(cluster, name, drive, place, status, telling))
    except UnerringError as error:
        drive.phase, drive.refused = "REFUSED", str(error)
        own_log.say(str(error), "error")
        await asyncio.to_thread(drive.stop)
        if telling.done():
            telling = asyncio.create_task(_tell(status, name, drive))
        await _pause(ending, REFUSED_S)
    else:
        await asyncio.to_thread(drive.stop)
    finally:
        telling.cancel()
    (home / RUNNING).unlink(missing_ok=True)


async def _drive(
    cluster: clusters.Cluster, name: str, drive: Drive, place: Place, status: Path, telling: asyncio.Task[None]
) -> None:
    """Start, catch up, then be a replica until it is over."""
    check_rules(cluster, drive.engine.app)
    await asyncio.to_thread(drive.start)
    await drive.catch_up()
    storage = SqliteStorage(place.live / f"{dotted(name)}.db", encrypted=cluster.topology.secret)
    try:
        replica = Replica(name, cluster.topology, cluster.config, None, random.Random(), storage.load())
        taken = [stream for stream in cluster.topology.made(SPARK) if cluster.topology.is_taken(stream)]
        following = Following(place.log, taken, to_replica, place.look_s(PAUSE_S_MAX), cluster.begins_us)
        host = Host(cluster, name, replica, storage, following.deliver)
        host.also = drive.describe

        async def beside() -> None:
            await asyncio.gather(following.run(host.driver), drive.watch())

        drive.replica = replica
        telling.cancel()
        stopped = await host.run(status, beside)
        raise UnerringError(stopped.why)
    finally:
        drive.replica = None
        storage.close()


def check_rules(cluster: clusters.Cluster, app: App) -> None:
    """Refuse a driver of other rules, or of another version of them, before Spark is started for it."""
    spark = cluster.topology.node(SPARK)
    rules = [plan.name for plan in app.plans if {schema.name for schema in plan.outputs} & set(spark.outputs)]
    ends = [node for node in cluster.topology.nodes if node.role is not Role.CORRELATION]
    everywhere = any(not node.stands_alone for node in ends)
    own = topology_of(app, spark.f, rules, everywhere, shards_of(cluster.topology.nodes))
    if not rules or own.fingerprint() != cluster.topology.fingerprint():
        raise ConfigError(
            f"{cluster.app} has other rules now than this run was begun with ({', '.join(rules)} on Spark); "
            "restore the old rules, or run the new ones in another --data folder"
        )


async def _until(ending: asyncio.Event, work: Any) -> None:
    """Work, until it ends by itself or is asked to."""
    working, asked = asyncio.create_task(work), asyncio.create_task(ending.wait())
    try:
        await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (working, asked):
            task.cancel()
        await asyncio.gather(working, asked, return_exceptions=True)


async def _pause(ending: asyncio.Event, pause_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ending.wait(), pause_s)


async def _tell(status: Path, name: str, drive: Drive) -> None:
    """Write the status while there is no replica."""
    while True:
        fields = {"kind": "Driver", "phase": drive.phase, "refused": drive.refused, **drive.describe()}
        note(status, name, fields)
        await asyncio.sleep(STATUS_S)


def end_leftovers(home: Path) -> int:
    """End what an earlier driver of this home left behind: a JVM that sleeps would wake into a checkpoint in use."""
    left = marked(f"{MARK}={home} ")
    end_all(left, within_s=0)
    return len(left)


def main() -> None:
    options = msgspec.json.decode(sys.argv[4], type=SparkOptions)
    own_log.run, own_log.role = sys.argv[1], sys.argv[3]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run_driver(place_of(sys.argv[1], sys.argv[2]), sys.argv[3], options))


if __name__ == "__main__":
    main()
