"""How a driver of Spark keeps its levels running: in micro-batches, or by resident tasks. Both seal the same."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from unerring.model import UnerringError, WorldError
from unerring.pipeline import Bounds, MaySeal, committed_us, jvm, master_of, own_sentence, sentence_of
from unerring.runtime import GivenUp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from unerring.app.parts import Parts
    from unerring.app.spark_engine import LevelView
    from unerring.pipeline import Level, Pool, Sealed

    OnSealed = Callable[[LevelView], Callable[[Sealed], None]]

NO_SLOT_S: Final = 60.0
"""How long a pool waits for its first task before it says so."""
_INITIALIZING: Final = "Initializing"
"""Spark's status of a query that has not begun."""


class RunningLevels(Protocol):
    """The levels of a driver."""

    def start(self, spark: SparkSession) -> None: ...

    @property
    def under_way(self) -> bool:
        """Whether everything is up, which takes Spark a while."""
        ...

    def check(self, rescaled: bool) -> None:
        """Start again what Spark could not run, or, if it is time to look, what goes on with other partitions; raise
        what cannot go on."""
        ...

    def committed_us(self, number: int) -> int | None:
        """Up to where this driver is done with a level; None before it has begun."""
        ...

    def stop(self) -> None:
        """No more intervals. What is sealed stays."""
        ...


@dataclass(frozen=True)
class Duties:
    """What both are to do."""

    name: str
    views: Sequence[LevelView]
    bounds: Bounds
    parts: Parts
    on_sealed: OnSealed
    may_seal: MaySeal


class MicroBatches:
    """A streaming query for each level."""

    def __init__(self, duties: Duties) -> None:
        self._spark: SparkSession | None = None
        self._duties = duties
        self._views = duties.views
        self._queries: list[StreamingQuery] = []

    def start(self, spark: SparkSession) -> None:
        self._spark = spark
        for view in self._views:
            self._queries.append(self._detect(spark, view))

    @property
    def under_way(self) -> bool:
        return all(query.isActive and not query.status["message"].startswith(_INITIALIZING) for query in self._queries)

    def check(self, rescaled: bool) -> None:
        for number, query in enumerate(self._queries):
            if not query.isActive and query.exception() is not None:
                self._queries[number] = self._again(self._views[number], query)
            elif rescaled and query.isActive:
                self._queries[number] = self._rescaled(self._views[number], query)

    def committed_us(self, number: int) -> int | None:
        return committed_us(self._views[number].level)

    def stop(self) -> None:
        if self._spark is not None and jvm.is_alive(self._spark):
            for query in self._queries:
                query.stop()

    def _rescaled(self, view: LevelView, query: StreamingQuery) -> StreamingQuery:
        """The query of a level's new partitions, if it has reached the time that was agreed for them."""
        from unerring.pipeline import successor

        following = successor(view.level)
        if following is None or self._spark is None:
            return query
        query.stop()
        view.level = following
        return self._detect(self._spark, view)

    def _again(self, view: LevelView, query: StreamingQuery) -> StreamingQuery:
        """Start a level again that Spark could not run, after a pause; what is wrong with rules, log or disk is not
        tried twice."""
        error = query.exception()
        if view.again_s is None:
            stopped = f"{view.part} stopped: {sentence_of(error)}"
            final = own_sentence(error) is not None
            pause_s = self._duties.parts.failed(view.part, GivenUp(stopped) if final else WorldError(stopped))
            view.again_s = time.monotonic() + pause_s
        if self._spark is None or time.monotonic() < view.again_s:
            return query
        view.again_s = None
        return self._detect(self._spark, view)

    def _detect(self, spark: SparkSession, view: LevelView) -> StreamingQuery:
        from unerring.pipeline import detect_stream

        self._duties.parts.began(view.part)
        on_sealed = self._duties.on_sealed(view)
        return detect_stream(
            spark, view.level, self._duties.bounds, on_sealed=on_sealed, may_seal=self._duties.may_seal
        )


def no_slot(master: str) -> str:
    """Spark itself waits silently."""
    return (
        f"no resident task has started on {master} within {NO_SLOT_S:.0f} s; it needs one free slot: end other jobs of "
        "this session or add executors, and the run goes on by itself\n"
    )


class ResidentTasks:
    """A pool for all levels."""

    def __init__(self, duties: Duties, once: bool = False) -> None:
        """`once`: they end with what the log holds now; see `finish`."""
        self._once = once
        self._spark: SparkSession | None = None
        self._duties = duties
        self._views = duties.views
        self._again_s: float | None = None
        self._pool: Pool | None = None
        self._no_slot_s = math.inf
        """When it says that no task has come; by a monotonic clock."""

    def start(self, spark: SparkSession) -> None:
        self._spark = spark
        self._pool = self._new_pool(spark)
        self._pool.start()
        self._no_slot_s = time.monotonic() + NO_SLOT_S

    @property
    def under_way(self) -> bool:
        return self._pool is not None and bool(self._pool.hub.tasks)

    def finish(self) -> bool:
        """Whether all that the log held is sealed. Where a level was rescaled, its new partitions begin then."""
        if self._pool is None or self._spark is None or not self._pool.hub.finished:
            return False
        pool = self._pool
        self._rescale(self._spark, pool)
        return self._pool is pool

    def check(self, rescaled: bool) -> None:
        if self._pool is None or self._spark is None:
            return
        error = self._pool.hub.error
        if error is not None:
            self._again(self._spark, self._pool, error)
        elif rescaled:
            self._rescale(self._spark, self._pool)
        if self.under_way:
            self._no_slot_s = math.inf
        elif time.monotonic() > self._no_slot_s:
            self._no_slot_s = math.inf
            sys.stderr.write(no_slot(master_of(self._spark)))

    def committed_us(self, number: int) -> int | None:
        return None if self._pool is None else self._pool.hub.sealed_us(number)

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.stop()

    def _new_pool(self, spark: SparkSession) -> Pool:
        from unerring.pipeline import Pool

        hear = {view.level.label: self._duties.on_sealed(view) for view in self._views}

        def on_sealed(level: Level, sealed: Sealed) -> None:
            hear[level.label](sealed)

        for view in self._views:
            self._duties.parts.began(view.part)
        levels = [view.level for view in self._views]
        return Pool(
            spark,
            levels,
            self._duties.bounds,
            name=self._duties.name,
            on_sealed=on_sealed,
            may_seal=self._duties.may_seal,
            once=self._once,
        )

    def _again(self, spark: SparkSession, pool: Pool, error: UnerringError) -> None:
        """Start a pool again that Spark could not run, after a pause; what is wrong with rules, log or disk is not
        tried twice."""
        if self._again_s is None:
            part = next((view.part for view in self._views if view.level.label == pool.hub.failed), "")
            final = GivenUp(str(error)) if pool.hub.final else error
            pause_s = self._duties.parts.failed(part or self._views[0].part, final)
            self._again_s = time.monotonic() + pause_s
            pool.stop()
        if time.monotonic() >= self._again_s:
            self._again_s = None
            self.start(spark)

    def _rescale(self, spark: SparkSession, pool: Pool) -> None:
        """Begin a pool with other partitions, if a level has reached the time that was agreed for them."""
        from unerring.pipeline import successor

        following = [successor(view.level) for view in self._views]
        if any(level is not None for level in following):
            pool.stop()
            for view, level in zip(self._views, following, strict=True):
                view.level = level or view.level
            self.start(spark)
