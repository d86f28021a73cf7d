"""Pools on Spark: whatever happens to their tasks, what is sealed is what the oracle finds."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import InheritableThread

from unerring.matching.oracle import run_tree
from unerring.model import Event
from unerring.pipeline.connecting import is_connect
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.resident.hub import GREETING_MAX, Hub
from unerring.pipeline.resident.job import SETTINGS
from unerring.pipeline.resident.pool import Pool
from unerring.pipeline.resident.wire import Greet, Kept, Wire
from unerring.pipeline.session import settings
from unerring.rules.tree import ranks_of

from ..worlds import TYPED, as_table, missing, pair, random_events, sealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWER = pair("Pairs", TYPED, "A", "B", 40)
PLANS = (LOWER, missing("Misses", TYPED, "A", "B", 15), pair("Upper", LOWER.output, "B", "B", 200))
EVENTS = random_events(4, 400, 9)
END_US = EVENTS[-1].stamp.time
PATIENCE_S = 600.0


def levels_in(data: Path) -> tuple[Level, ...]:
    levels = levels_of(PLANS, (TYPED,), str(data), 2)
    levels[0].log.create(TYPED, 2)
    return levels


def feed(levels: tuple[Level, ...], events: list[Event], each: int = 10) -> None:
    chain = levels[0].log.chain(TYPED.name)
    for at in range(0, len(events), each):
        part = [event for event in events[at : at + each] if event.stamp.time > chain.through_us]
        if part:
            chain.seal(part[-1].stamp.time, as_table(part, TYPED))


@contextmanager
def running(spark: SparkSession, levels: tuple[Level, ...], **options: Any) -> Iterator[Pool]:
    pool = Pool(spark, levels, **options)
    pool.start()
    try:
        yield pool
    finally:
        pool.stop()


def until(condition: Callable[[], bool], pool: Pool) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, [pool.hub.sealed_us(n) for n in range(len(pool.hub.lines))]
        pool.check()
        threading.Event().wait(0.02)


def finish(pool: Pool) -> None:
    pool.start()
    try:
        until(lambda: pool.hub.finished, pool)
    finally:
        pool.stop()


def reached(pool: Pool, time_us: int) -> Callable[[], bool]:
    return lambda: all(pool.hub.sealed_us(number) >= time_us for number in range(len(pool.hub.lines)))


def greeted(pool: Pool) -> Callable[[], bool]:
    return lambda: len(pool.hub.tasks) == pool.jobs.count


def pid_of(task: str) -> int:
    return int(task.rpartition("/")[2])


def check(data: Path) -> None:
    wanted = run_tree(PLANS, EVENTS, ranks_of(PLANS, (TYPED,)), END_US)
    for plan in PLANS:
        mine = [event for event in wanted if event.stream == plan.name]
        assert mine
        assert sealed(data, plan.name) == mine


@pytest.mark.timeout(900)
@pytest.mark.long_over_connect
def test_a_tree_is_found_though_a_task_is_killed_and_another_sleeps(any_spark: SparkSession, tmp_path: Path) -> None:
    levels = levels_in(tmp_path)
    slept = []
    with running(any_spark, levels, keep_s=0.05) as pool:
        until(greeted(pool), pool)
        feed(levels, EVENTS[:100])
        until(reached(pool, EVENTS[99].stamp.time), pool)
        first, second = pool.hub.tasks
        os.kill(pid_of(first), signal.SIGKILL)
        feed(levels, EVENTS[:200])
        until(reached(pool, EVENTS[199].stamp.time), pool)
        until(lambda: greeted(pool)() and first not in pool.hub.tasks, pool)
        if not is_connect(any_spark):
            tracker = any_spark.sparkContext.statusTracker()
            jobs = [tracker.getJobIdsForGroup(pool.jobs.group(number)) for number in range(2)]
            assert sorted(map(len, jobs)) == [1, 2], "Spark gave one job up, and it was submitted again"
        slept.append(pid_of(second))
        os.kill(slept[0], signal.SIGSTOP)
        try:
            feed(levels, EVENTS[:300])
            until(reached(pool, EVENTS[299].stamp.time), pool)
        finally:
            os.kill(slept[0], signal.SIGCONT)
        feed(levels, EVENTS)
        until(reached(pool, END_US), pool)
    check(tmp_path)


def test_what_spark_takes_for_idle_is_not_killed(spark: SparkSession, tmp_path: Path) -> None:
    """A task sends Spark nothing for as long as it runs."""
    levels = levels_in(tmp_path)
    impatient = dict.fromkeys(SETTINGS, "1")
    impatient["spark.sql.execution.pyspark.udf.killOnIdleTimeout"] = "true"
    with settings(spark, impatient), running(spark, levels) as pool:
        until(greeted(pool), pool)
        before, began_s = pool.hub.tasks, time.monotonic()
        until(lambda: time.monotonic() > began_s + 2.5 or pool.hub.tasks != before, pool)
        assert pool.hub.tasks == before
        assert {key: spark.conf.get(key) for key in impatient} == impatient, "the user's own"
        feed(levels, EVENTS[:50])
        until(reached(pool, EVENTS[49].stamp.time), pool)


def test_one_task_holds_all_and_a_copy_of_it_is_one_more_task(spark: SparkSession, tmp_path: Path) -> None:
    """A cluster with one free slot is enough; and Spark may start a copy of a task that it takes for slow."""
    levels = levels_in(tmp_path)
    with running(spark, levels, tasks=1) as pool:
        feed(levels, EVENTS[:200], 100)
        until(reached(pool, EVENTS[199].stamp.time), pool)
        assert len(pool.hub.tasks) == 1
        copy = InheritableThread(target=pool.jobs._once, args=(0,), session=spark)
        copy.start()
        until(lambda: len(pool.hub.tasks) == 2, pool)
        feed(levels, EVENTS, 100)
        until(reached(pool, END_US), pool)
    copy.join()
    check(tmp_path)


def test_a_pool_goes_on_where_another_one_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """Each interval's state is kept, so that the second one reads only what is new."""
    levels = levels_in(tmp_path)
    rows: list[int] = []
    for last in (200, 400):
        rows.clear()
        with running(spark, levels, keep_s=0.0, on_sealed=lambda level, one: rows.append(one.rows)) as pool:
            feed(levels, EVENTS[:last])
            until(reached(pool, EVENTS[last - 1].stamp.time), pool)
            until(lambda: all(line.state_us == line.end_us for line in pool.hub.lines), pool)
    check(tmp_path)
    found = sum(event.stream == "Pairs" for event in sealed(tmp_path, "Pairs"))
    assert 200 <= sum(rows) <= 200 + found


def test_a_pool_that_runs_once_ends_with_what_is_there_and_keeps_its_states(
    spark: SparkSession, tmp_path: Path
) -> None:
    levels = levels_in(tmp_path)
    rows: list[int] = []
    for last in (150, 300, 400):
        rows.clear()
        feed(levels, EVENTS[:last])
        pool = Pool(spark, levels, once=True, on_sealed=lambda level, one: rows.append(one.rows))
        feed(levels, EVENTS[: last + 20])  # too late for it
        finish(pool)
        assert pool.jobs.count == 1, "one task is enough for so little"
        end_us = EVENTS[last - 1].stamp.time
        assert [(level.sealed_us(), line.state_us) for level, line in zip(levels, pool.hub.lines, strict=True)] == [
            (end_us, end_us)
        ] * len(levels)
    check(tmp_path)
    assert sum(rows) < 200, "the last one reads only what is new"


def test_a_pool_that_runs_once_over_nothing_ends(spark: SparkSession, tmp_path: Path) -> None:
    levels = levels_in(tmp_path)
    finish(Pool(spark, levels, once=True))
    assert all(not sealed(tmp_path, plan.name) for plan in PLANS)


def test_what_is_wrong_with_the_log_ends_it_with_a_sentence(any_spark: SparkSession, tmp_path: Path) -> None:
    levels = levels_in(tmp_path)
    feed(levels, EVENTS[:100])
    segment = sorted((tmp_path / "log" / TYPED.name / "segments").glob("*.parquet"))[3]
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.write_bytes(bytes(data))
    with running(any_spark, levels) as pool:
        until_failed(pool)
        assert pool.hub.final
        assert pool.hub.failed == "1"
        assert segment.name in str(pool.hub.error)


def until_failed(pool: Pool) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while pool.hub.error is None:
        assert time.monotonic() < end_s
        threading.Event().wait(0.02)


class Talk:
    """What a stranger may try."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def raw(self, data: bytes) -> bytes:
        """Say something of its own after what both draw; what comes back."""
        with socket.create_connection(self._hub.address) as stranger:
            stranger.sendall(os.urandom(16) + data)
            got = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := stranger.recv(100):
                    got += piece
            return got[16:]

    def wire(self, secret: bytes) -> Wire:
        return Wire(socket.create_connection(self._hub.address), secret, dialled=True)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(levels_in(tmp_path))
    hub.start()
    yield hub
    hub.stop()


def test_strangers_get_nothing(hub: Hub) -> None:
    talk = Talk(hub)
    for first in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\0\0\0\1\0", b"\0\0\x10\x01" + bytes(9)):
        assert talk.raw(first) == b""
    guessed = talk.wire(b"guessed")
    guessed.send(Greet("stranger"))
    assert guessed.to_task() is None
    guessed.close()
    assert hub.tasks == []
    assert hub.error is None


def test_a_frame_that_is_repeated_costs_its_connection(hub: Hub) -> None:
    """Somebody who hears a task cannot say the same again."""
    heard: list[bytes] = []

    class Overheard(socket.socket):
        def sendall(self, data: Any, flags: int = 0) -> None:
            heard.append(bytes(data))
            super().sendall(data, flags)

    connection = Overheard()
    connection.connect(hub.address)
    wire = Wire(connection, hub.secret, dialled=True)
    wire.send(Greet("task/1"))
    until_true(lambda: hub.tasks == ["task/1"])
    wire.send(Kept(0, 0, 5))
    connection.sendall(heard[-1])
    until_true(lambda: hub.tasks == [])
    assert Talk(hub).raw(heard[0] + heard[1]) == b""
    assert hub.tasks == []
    wire.close()


def test_those_who_only_connect_are_so_many_and_no_more(hub: Hub) -> None:
    idle = [socket.create_connection(hub.address) for _ in range(GREETING_MAX)]
    for one in idle:
        assert len(one.recv(16)) == 16, "it draws for those that it waits for"
    with socket.create_connection(hub.address) as one_more:
        assert one_more.recv(1) == b""
    idle.pop().close()
    until_true(lambda: _greets(hub))
    for one in idle:
        one.close()


def _greets(hub: Hub) -> bool:
    try:
        wire = Talk(hub).wire(hub.secret)
        wire.send(Greet("task/2"))
    except OSError:
        return False
    until_true(lambda: hub.tasks == ["task/2"])
    wire.close()
    return True


def until_true(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        threading.Event().wait(0.01)
