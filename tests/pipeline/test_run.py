"""A whole run, from a channel to situations: stopped, started again, and nothing is missing or doubled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unerring.app import App
from unerring.app.options import RunOptions
from unerring.app.place import place_of
from unerring.app.run import METRICS_FILE, Run, run_of
from unerring.app.spark_engine import SparkEngine
from unerring.rules.workloads import W1, W3, Typed
from unerring.runtime.channel import Publisher

from .worlds import sealed

SECOND_US = 1_000_000
ROUNDS = 200
LOOK_S = 0.2
"""How often a streaming query looks: its looks are most of what it costs."""


@contextmanager
def running(app: App, data: Path, options: RunOptions) -> Iterator[Run[SparkEngine]]:
    run: Run[Any] = run_of("tests:none", app, options, place_of(data))
    if not options.stays:
        run.engine.bounds = replace(run.engine.bounds, look_s=LOOK_S)
    try:
        run.start(lambda text: None)
        yield run
    finally:
        run.stop()


def wait(condition: Callable[[], bool], run: Run[SparkEngine], timeout_s: float = 120) -> None:
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.05)):
        run.check()
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError(f"it did not come to that: {[view.through_us for view in run.engine.views]}")


@pytest.fixture(params=["micro-batches", "resident", "connect"])
def options(request: pytest.FixtureRequest) -> RunOptions:
    if request.param == "connect":
        return RunOptions(master=request.getfixturevalue("connect_server").url)
    request.getfixturevalue("spark")
    return RunOptions(master="local[2]", resident=request.param == "resident")


@pytest.mark.long_over_connect
def test_a_live_run_goes_on_where_it_was_stopped(options: RunOptions, tmp_path: Path) -> None:
    with Publisher("tcp://127.0.0.1:0", Typed) as out:
        app = App("line", rules=[W1, W3], channels={Typed: out.address}, buckets=2)
        at = 0
        with running(app, tmp_path, options) as run:

            def heard() -> bool:
                # A consumer starts with what is published after it came: publish until the first event is there.
                nonlocal at
                at += 1
                out.publish(Typed(0, "C", 0.0), at=at)
                return run.engine.views[0].level.log.chain("Typed").through_us > 0

            wait(heard, run)
            publish(out, 1, ROUNDS)
            wait(lambda: run.engine.views[0].situations.get("W1", 0) >= ROUNDS // 2, run)
            # The view is updated first; a later check writes the metrics down.
            wait(lambda: "unerring_events_total" in (tmp_path / METRICS_FILE).read_text(), run)
        publish(out, ROUNDS + 1, 2 * ROUNDS)  # while nobody listens: the producer keeps it for the registered log
        with running(app, tmp_path, options) as run:
            out.watermark(3 * ROUNDS * SECOND_US)
            wait(lambda: (run.engine.views[0].through_us or 0) >= 3 * ROUNDS * SECOND_US, run)
    pairs = sealed(tmp_path, "W1")
    assert [event.stamp.time for event in pairs] == [n * SECOND_US + 1 for n in range(1, 2 * ROUNDS + 1)]
    # Key 1 is silent from its last A on, which only the promise of progress lets us know.
    misses = sealed(tmp_path, "W3")
    assert [event.stamp.time for event in misses] == [(2 * ROUNDS + 1) * SECOND_US + 5 * SECOND_US]


def publish(out: Publisher[Typed], first: int, last: int) -> None:
    """Each second an A and, a microsecond later, its B; at the very end an A that stays alone."""
    events, times = [], []
    for n in range(first, last + 1):
        events += [Typed(n % 7, "A", 0.5), Typed(n % 7, "B", 0.5)]
        times += [n * SECOND_US, n * SECOND_US + 1]
    if last == 2 * ROUNDS:
        events.append(Typed(1, "A", 0.5))
        times.append((last + 1) * SECOND_US)
    out.publish_many(events, at=times)
