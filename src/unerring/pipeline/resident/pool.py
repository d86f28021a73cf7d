"""A pool of resident tasks for the levels of a run: its hub and its jobs, started and stopped together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from unerring.pipeline.connecting import check_shared, is_connect, own_address, prepare
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level
from unerring.pipeline.resident.hub import LOOPBACK, Address, Hub
from unerring.pipeline.resident.job import Jobs
from unerring.pipeline.resident.running import KEEP_S, OnSealed
from unerring.pipeline.streaming import MaySeal, seal_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HUB_PORT: Final = "spark.unerring.hub.port"
"""The setting for a port that a firewall lets through; without it any that is free."""


class Pool:
    """Runs levels until it is stopped."""

    def __init__(
        self,
        spark: SparkSession,
        levels: Sequence[Level],
        bounds: Bounds | None = None,
        *,
        name: str = "unerring",
        on_sealed: OnSealed = lambda level, sealed: None,
        may_seal: MaySeal = seal_at_once,
        tasks: int = 0,
        copies: int = 1,
        keep_s: float = KEEP_S,
        once: bool = False,
    ) -> None:
        """`once`: to the end of what the log holds now, which is when its hub has `finished`."""
        prepare(spark)
        for folder in dict.fromkeys(level.address for level in levels):
            check_shared(spark, folder)
        self.hub = Hub(
            levels,
            bounds,
            on_sealed=on_sealed,
            may_seal=may_seal,
            address=_address(spark),
            copies=copies,
            keep_s=keep_s,
            once=once,
        )
        self.jobs = Jobs(spark, self.hub, name, tasks, once and self.hub.is_short)

    def start(self) -> None:
        self.hub.start()
        self.jobs.start()

    def check(self) -> None:
        """Raise what ended it."""
        if self.hub.error is not None:
            raise self.hub.error

    def stop(self) -> None:
        """No more intervals. What is sealed stays; a new pool goes on from there."""
        self.hub.stop()
        self.jobs.stop()


def _address(spark: SparkSession) -> Address:
    """The hub is where Spark's own driver is found by its executors; over Spark Connect it is in this process."""
    if is_connect(spark):
        return Address(*own_address(spark), int(spark.conf.get(HUB_PORT, None) or 0))
    settings = spark.sparkContext.getConf()
    known_as = settings.get("spark.driver.host")
    if known_as is None or (settings.get("spark.master") or "").startswith("local"):
        return LOOPBACK
    host = settings.get("spark.driver.bindAddress") or known_as
    return Address(host, known_as, int(settings.get(HUB_PORT) or 0))
