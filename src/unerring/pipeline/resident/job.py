"""The Spark jobs that a pool's tasks belong to: one for each task, so that one that fails does not end the others.

Spark places, starts and retries the tasks; which partitions they hold is the hub's to say. A job that Spark gives up is
submitted again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from unerring.model import WorldError
from unerring.pipeline.connecting import is_connect, name_jobs, parallelism_max, thread_of
from unerring.pipeline.resident.hub import Hub
from unerring.pipeline.resident.task import serve
from unerring.pipeline.session import sentence_of, with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # A resident task sends Spark nothing until it ends: that is not idleness.
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "0",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "false",
}
"""Of a session of the jobs' own, so that the user's keeps its settings."""
TRIES_MAX: Final = 12
"""How often a task is submitted again that ends before it has been there for a while."""
GOOD_S: Final = 60.0
PAUSE_S: Final = 0.2


class Jobs:
    """The tasks of a hub."""

    def __init__(self, spark: SparkSession, hub: Hub, name: str, count: int = 0, short: bool = False) -> None:
        """`count`: how many tasks; by default as many as can run at once, but no more than there are partitions.
        `short`: one task is soon done with all that there is, sooner than rules are compiled."""
        self._short = short
        self._spark = with_settings(spark, SETTINGS)
        self._hub = hub
        self._name = name
        self._rules = ", ".join(plan.name for line in hub.lines for plan in line.level.plans)
        partitions = sum(line.level.buckets for line in hub.lines)
        # A task that waits for its slot is what makes dynamic allocation ask for another executor.
        self.count = count or max(1, 1 if short else min(partitions, parallelism_max(spark) or partitions))
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(self.count):
            thread = thread_of(self._spark, self._run, number)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """After the hub has ended: the tasks end by themselves."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        if is_connect(self._spark):
            self._spark.stop()  # this session alone, not the user's and not the server

    def group(self, number: int) -> str:
        """Spark's name for the jobs of a task: one, and another each time that it is submitted again."""
        return f"{self._name}: task {number + 1} of {self.count}"

    def _run(self, number: int) -> None:
        tries = 0
        while not self._ending.is_set() and self._hub.error is None:
            began_s = time.monotonic()
            error = self._once(number)
            if self._ending.is_set():
                return
            tries = 1 if time.monotonic() - began_s > GOOD_S else tries + 1
            if tries > TRIES_MAX:
                why = "it ended by itself" if error is None else sentence_of(error)
                self._hub.fail(WorldError(f"task {number + 1} of {self.count} cannot be kept running: {why}"))
                return
            self._ending.wait(PAUSE_S * tries)

    def _once(self, number: int) -> Exception | None:
        """One job with one task, until it ends."""
        hub = self._hub
        levels = tuple(line.level for line in hub.lines)
        group = self.group(number)
        name_jobs(self._spark, group, f"{group}, resident: it runs until the run ends ({self._rules})")
        try:
            frame = self._spark.range(0, 1, 1, 1)
            frame.mapInArrow(serve(levels, hub.address, hub.secret, not self._short), "nothing int").collect()
        except Exception as error:  # Spark's and py4j's: a worker that died, an executor that is gone
            return error
        return None
