"""Channels into the log: a channel that has nothing to say must not keep absences from being found."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from unerring.app import App
from unerring.app.feeds import Feeds
from unerring.log import EventLog, Quarantine
from unerring.model import TIME_MAX
from unerring.pipeline.partition import Partition
from unerring.pipeline.versions import enter
from unerring.rules.workloads import W3, Typed
from unerring.runtime.channel import Publisher

from .worlds import advance, sealed

SECOND_US = 1_000_000


def wait(condition: Callable[[], bool], feeds: Feeds, timeout_s: float = 60) -> None:
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        assert feeds.error is None
        pause.wait(0.01)
    raise AssertionError("it did not come to that")


def test_a_quiet_channel_lets_absences_be_found(tmp_path: Path) -> None:
    app = App("quiet", rules=[W3], buckets=2)
    [level] = app.levels(tmp_path)
    enter(level)
    log = EventLog(tmp_path / "log")
    with Publisher("tcp://127.0.0.1:0", Typed) as out:
        feeds = Feeds(log, {"Typed": out.address}, {"Typed": app.streams[0]}, app.buckets)
        feeds.start()
        try:
            at = 0

            def heard() -> bool:
                # A consumer starts with what is published after it came: publish until the first event is there.
                nonlocal at
                at += 1
                out.publish(Typed(1, "A", 0.0), at=at)
                return log.chain("Typed").through_us > 0

            wait(heard, feeds)
            out.watermark(10 * SECOND_US)  # and not one event more
            wait(lambda: log.chain("Typed").through_us == 10 * SECOND_US, feeds)
            partitions = [Partition(level, bucket) for bucket in range(level.buckets)]
            advance(level, partitions, log.chain("Typed").through_us)
            found = sealed(tmp_path, "W3")
            assert [event.stamp.time for event in found][-1:] == [at + 5 * SECOND_US]
            out.end()
            wait(lambda: log.chain("Typed").through_us == TIME_MAX, feeds)
        finally:
            feeds.stop()
    assert feeds.error is None


def test_events_of_one_time_come_into_the_log_and_the_last_time_does_not_wait_for_another(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    with Publisher("tcp://127.0.0.1:0", Typed) as out:
        feeds = Feeds(log, {"Typed": out.address}, {"Typed": App("ties", rules=[W3]).streams[0]}, 2)
        feeds.start()
        try:
            at = 0

            def heard() -> bool:
                nonlocal at
                at += 1
                out.publish(Typed(1, "A", 0.0), at=at)
                return log.chain("Typed").through_us > 0

            wait(heard, feeds)
            tie = 5 * SECOND_US + 1
            out.publish(Typed(1, "B", 0.0), at=tie)
            out.publish(Typed(2, "B", 0.0), at=tie, ordinal=1)
            out.publish_many([Typed(key, "B", 0.0) for key in (3, 4, 5)], at=[tie, tie, tie])
            wait(lambda: log.chain("Typed").through_us == tie, feeds)
            rows = log.chain("Typed").read(tie - 1, tie).to_pylist()
            many = 70_000  # more than a consumer takes in hand
            out.publish_many([Typed(key, "B", 0.0) for key in range(many)], at=[tie + 1] * many)
            wait(lambda: log.chain("Typed").through_us == tie + 1, feeds)
            assert len(log.chain("Typed").read(tie, tie + 1)) == many
            out.publish(Typed(6, "B", 0.0))  # by this publisher's own clock: over at once
            wait(lambda: log.chain("Typed").through_us > tie, feeds)
        finally:
            feeds.stop()
    assert [(row["key"], row["ordinal"]) for row in rows] == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]
    assert log.chain("Typed").through_us > 1_000_000 * SECOND_US
    assert Quarantine(log.store, "Typed").events() == []
