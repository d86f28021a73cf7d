"""A real Prometheus watches a real run: a failure fires its alert, and no other one, and the alert ends with it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.watching import Act, Failure, Watched, WatchedLive, WatchedSpark, alerts, play
from tests.dashboard.running import until
from tests.monitoring import script
from unerring.runtime.os_processes import find

pytestmark = pytest.mark.timeout(1800)
SELDOM = {
    "unerring_violations",
    "unerring_store_requests_total",
    "unerring_instances_waiting",
}
"""What a run has once something is wrong, while an instance waits, or on a store."""
dashboards = script("dashboards")
Stage = Callable[[type[Watched]], Any]


@pytest.fixture(scope="module")
def stage(server: Callable[[str], Path], java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The run of a kind, the same one as long as no other kind is asked for."""
    standing: list[Watched] = []

    def stand(kind: type[Watched]) -> Watched:
        if not any(type(one) is kind for one in standing):
            while standing:
                standing.pop().close()
            standing.append(kind(tmp_path_factory.mktemp("watched"), server("prometheus")))
        return standing[0]

    yield stand
    while standing:
        standing.pop().close()


def has_metrics_of(watched: Watched, *names: str) -> None:
    for name in names:
        wanted = dashboards.metrics_of(name) - SELDOM
        until(lambda wanted=wanted: wanted <= _told(watched.get(watched.metrics)), f"{name}: {wanted}")


def _told(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def slow(seconds: float, who: str) -> Act:
    return lambda one: one.disk.write_text(f"{seconds} {who}\n")


def well(one: Watched) -> None:
    one.disk.unlink()


def begin_vent(one: Watched, id: str) -> None:
    one.command("process", "start", "venting", id)
    until(lambda: "unerring_instances" in one.get(one.metrics), "instances")


def does_not_undo(one: Watched) -> None:
    begin_vent(one, "vent-2")
    one.vents.undoes = False
    one.command("process", "cancel", "vent-2")


def undoes(one: Watched) -> None:
    one.vents.undoes = True  # it is tried again by itself


def hold(one: Watched) -> None:
    begin_vent(one, "vent-1")
    one.command("process", "hold", "vent-1")


def kill_again_and_again(one: Watched) -> None:
    """Each replica of a pair, and each node, in its turn: what they do goes on."""
    turns = [(one.data / "live", name) for name in ("lit/1", "overheating/1", "unsafe/1")]
    turns += [(one.data / "processes", name) for name in ("n1", "n2")]
    for folder, name in turns * 2:
        until(lambda folder=folder, name=name: find(folder, name), f"{name} is there")
        one.stop(folder, name, signal.SIGKILL)


def fill(one: Watched) -> None:
    """Whoever writes the situations down acknowledges them when they are on its disk."""
    slow(10_000, "situations/0")(one)
    until(lambda: "DiskHangs" in one.firing(), "the disk hangs")
    one.tell("Lamp", "burst")


def kill_run(one: Watched) -> None:
    one.run.kill()
    one.run.wait()


def run_again(one: Watched) -> None:
    one.run = one.start_run()


def take_per_event(seconds: float) -> Act:
    return lambda one: one.pace.write_text(f"{seconds}\n")


def at_once(one: Watched) -> None:
    one.pace.unlink()


def flood(one: Watched) -> None:
    """3,000 a second, where the rule takes 2,000 at the most."""
    take_per_event(0.0005)(one)
    one.tell("Lamp", "flood")


def ebb(one: Watched) -> None:
    one.tell("Lamp", "ebb")
    at_once(one)


LIVE = [
    Failure("a service is stopped", {"ServiceAway"}, lambda one: one.fans.stop(), lambda one: one.fans.start()),
    Failure("a sink's target is stopped", {"SinkDown"}, lambda one: one.alarm.stop(), lambda one: one.alarm.start()),
    Failure(
        "a producer sends what does not fit",
        {"EventsInQuarantine"},
        lambda one: one.tell("Door", "bad"),
        lambda one: None,
    ),
    Failure(
        "one of a rule's producers hangs",
        {"InputSilent"},
        lambda one: one.producers["Door"].send_signal(signal.SIGSTOP),
        lambda one: one.producers["Door"].send_signal(signal.SIGCONT),
    ),
    Failure(
        "a stream's only producer hangs",
        {"StreamSilent"},
        lambda one: one.producers["Lamp"].send_signal(signal.SIGSTOP),
        lambda one: one.producers["Lamp"].send_signal(signal.SIGCONT),
    ),
    Failure(
        "events take 40 s to the run",
        {"SituationsLate"},
        lambda one: one.tell("Lamp", "late"),
        lambda one: one.tell("Lamp", "soon"),
    ),
    Failure(
        "a replica hangs",
        {"ProcessDown"},
        lambda one: one.stop(one.data / "live", "lit/1", signal.SIGSTOP),
        lambda one: one.stop(one.data / "live", "lit/1", signal.SIGCONT),
    ),
    Failure(
        "a process node hangs",
        {"ProcessDown"},
        lambda one: one.stop(one.data / "processes", "n2", signal.SIGSTOP),
        lambda one: one.stop(one.data / "processes", "n2", signal.SIGCONT),
    ),
    Failure(
        "an operator holds an instance", {"InstancesHeld"}, hold, lambda one: one.command("process", "resume", "vent-1")
    ),
    Failure("a service does not undo", {"ServiceAway", "StuckInstances"}, does_not_undo, undoes),
    Failure("a node's syncs take 0.3 s", {"DiskSlow"}, slow(0.3, "n1"), well),
    Failure("a node's sync does not end", {"ProcessDown"}, slow(10_000, "n1"), well),
    Failure("a live process's sync does not end", {"DiskHangs"}, slow(10_000, "situations/0"), well),
    Failure("a receiver does not acknowledge", {"DiskHangs", "QueueFills"}, fill, well),
    Failure("more events come than a live rule can take", {"Behind", "QueueFills", "SituationsLate"}, flood, ebb),
    # The last of this producer: one that keeps three events cannot publish thousands a second.
    Failure(
        "a producer keeps too little", {"EventsDeclaredLost"}, lambda one: one.tell("Lamp", "lose"), lambda one: None
    ),
    Failure("processes are killed again and again", {"KeepsDying"}, kill_again_and_again, lambda one: None),
    Failure("the run is killed", {"PartDown"}, kill_run, run_again),
]


def start_again_without_java(*drivers: str) -> Act:
    """Each of them is killed, and the next one's Spark does not come up."""

    def fail(one: WatchedSpark) -> None:
        one.no_java.touch()
        for driver in drivers:
            one.stop(one.data / "live", driver, signal.SIGKILL)

    return fail


def java_is_back(one: WatchedSpark) -> None:
    one.no_java.unlink()


def signal_drivers(number: int) -> Act:
    def send(one: WatchedSpark) -> None:
        for driver in ("spark/0", "spark/1"):
            one.stop(one.data / "live", driver, number)

    return send


def audit(code: int, **environment: str) -> Act:
    words = ("--master", "local[1]", "--memory", "700m")
    return lambda one: one.judged(code, "audit", str(one.data), *words, **environment)


SPARK = [
    Failure(
        "a rule reads a setting, which is another one now",
        {"AuditFoundSomethingWrong"},
        audit(1, WATCHED_STEP="2"),
        audit(0),
    ),
    Failure(
        "a driver is killed, and its Spark does not start",
        {"DriverDown"},
        start_again_without_java("spark/0"),
        java_is_back,
    ),
    Failure("no driver's Spark starts", {"NobodyLeads"}, start_again_without_java("spark/0", "spark/1"), java_is_back),
    Failure(
        "all drivers hang",
        {"NobodyLeads", "ProcessDown"},
        signal_drivers(signal.SIGSTOP),
        signal_drivers(signal.SIGCONT),
    ),
    Failure(
        "a rule takes 3 s for an event, and one comes each second",
        {"Behind", "SituationsLate"},
        take_per_event(3),
        at_once,
    ),
    Failure("a rule does not return from an event", {"DoesNotProgress"}, take_per_event(10_000), at_once),
]


def test_the_metrics_of_the_dashboards_are_there_in_a_live_run(stage: Stage) -> None:
    has_metrics_of(stage(WatchedLive), "run", "channels", "correlation", "processes", "sinks")


@pytest.mark.parametrize("failure", LIVE, ids=[one.name for one in LIVE])
def test_a_failure_of_a_live_run_fires_its_alert_and_no_other(stage: Stage, failure: Failure) -> None:
    play(stage(WatchedLive), failure)


def test_the_metrics_of_the_dashboards_are_there_in_a_run_on_spark(stage: Stage) -> None:
    has_metrics_of(stage(WatchedSpark), "run", "spark")


@pytest.mark.parametrize("failure", SPARK, ids=[one.name for one in SPARK])
def test_a_failure_of_a_run_on_spark_fires_its_alert_and_no_other(stage: Stage, failure: Failure) -> None:
    play(stage(WatchedSpark), failure)


def test_each_alert_of_the_page_is_played_with_the_others_that_it_names() -> None:
    left = {one.name: one.fires for one in (*LIVE, *SPARK)}
    for alert in alerts.ALERTS:
        own = {name: fires for name, fires in left.items() if alert.name in fires <= {alert.name, *alert.with_it}}
        assert set[str]().union(*own.values()) == {alert.name, *alert.with_it}, alert.name
        left = {name: fires for name, fires in left.items() if name not in own}
    assert not left
