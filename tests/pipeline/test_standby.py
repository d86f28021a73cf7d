"""Several drivers of one query: who seals, what is shown and refused, and a leader that is killed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.app import tree_app
from tests.app.live_tree import read_status, readings
from unerring.app import live_cluster, standby
from unerring.app.following import PIECE_EVENTS, Following, to_replica
from unerring.app.live_cluster import topology_of
from unerring.app.live_engine import Drivers
from unerring.app.options import SparkOptions, check_memory
from unerring.app.place import place_of
from unerring.correlation import CorrelationConfig, HandOver, Membership, Replica, Role, Topology
from unerring.correlation.messages import MEMBERSHIP
from unerring.log import EventLog
from unerring.log.sealing import agree_on, seal_interval
from unerring.log.tables import table_of
from unerring.model import ConfigError, Event, LogError, RuleError, Send, Stamp
from unerring.pipeline.checkpoints import committed_us
from unerring.pipeline.level import Level
from unerring.pipeline.sealing_order import SealingOrder
from unerring.pipeline.streaming import output_chains
from unerring.runtime.loop import Driver

from .driver import level_in
from .standby_runs import StandbyRun

FOR_EVER_S = 600.0
PATIENCE_S = 600.0
"""Two Sparks start at once, beside whatever else this machine does."""


@pytest.fixture
def level(tmp_path: Path) -> Level:
    return level_in(tmp_path)


# Who seals


def test_who_leads_seals_at_once(level: Level) -> None:
    order = SealingOrder(lambda: True, FOR_EVER_S)
    assert order(output_chains(level), 10)
    assert (order.sealed, order.held) == (1, 0)


def test_who_does_not_lead_holds_until_another_has_sealed_all_of_it(level: Level) -> None:
    order = SealingOrder(lambda: False, FOR_EVER_S)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(order(output_chains(level), 10)))
    waiting.start()
    *first, last = output_chains(level).values()
    for chain in first:
        seal_interval(chain, None, 7, "r")
        seal_interval(chain, None, 12, "r")
    assert waiting.is_alive()
    seal_interval(last, None, 10, "r")
    waiting.join(600)
    assert answers == [False]
    assert (order.sealed, order.held) == (0, 1)


def test_who_comes_to_lead_while_holding_seals(level: Level) -> None:
    leads = threading.Event()
    order = SealingOrder(leads.is_set, FOR_EVER_S)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(order(output_chains(level), 10)))
    waiting.start()
    leads.set()
    waiting.join(600)
    assert answers == [True]


def test_nothing_rests_on_an_election(level: Level) -> None:
    """The log cannot ask for what does not come: whoever holds it too long seals it, though nobody leads."""
    assert SealingOrder(lambda: False, patience_s=0)(output_chains(level), 10)
    ended = SealingOrder(lambda: False, FOR_EVER_S)
    ended.end()
    assert ended(output_chains(level), 10)


def test_drivers_that_find_different_things_are_told_so(level: Level) -> None:
    import pyarrow as pa

    chain = output_chains(level)["W3"]
    columns = {field.name: pa.nulls(1, field.type) for field in chain.schema.arrow()}
    found = pa.table({**columns, "time": pa.array([5]), "ordinal": pa.array([0])})
    seal_interval(chain, None, 10, "r")
    agree_on(chain, 0, 10, None)
    with pytest.raises(RuleError, match="not deterministic"):
        agree_on(chain, 0, 10, found)


# What runs where


def test_rules_on_spark_are_one_node_that_takes_no_streams() -> None:
    topology = topology_of(tree_app.app, 1, ("Rate", "Peaks"))
    assert [(node.name, node.role, node.inputs, node.outputs) for node in topology.nodes] == [
        ("Steps", Role.CORRELATION, ("Rate",), ("Steps",)),
        ("spark", Role.CORRELATION, (), ("Rate", "Peaks")),
        ("situations", Role.APPLICATION, ("Steps",), ()),
    ]
    alone = topology_of(tree_app.app, 1, ("Rate", "Steps", "Peaks"))
    assert [node.name for node in alone.nodes] == ["spark"]


def test_a_driver_has_the_apps_ranks(tmp_path: Path) -> None:
    whole = tree_app.app.levels(tmp_path)
    assert tree_app.app.levels(tmp_path, ("Rate", "Peaks")) == (whole[0], whole[2])


# Bad input


def test_a_checkpoint_that_another_version_wrote_is_named(level: Level) -> None:
    assert committed_us(level) is None
    folder = level.checkpoint / "files"
    for part in ("commits", "offsets"):
        (folder / part).mkdir(parents=True)
        (folder / part / "3").write_text('v9\n{"other": 1}')
    with pytest.raises(LogError, match="offsets/3 is not an offset that this version wrote"):
        committed_us(level)
    (folder / "offsets" / "3").write_text('v1\n{}\n{"through_us": 77}')
    assert committed_us(level) == 77


def test_drivers_without_room_are_refused_before_they_start() -> None:
    check_memory(2, "1g", free_mb=4000)
    with pytest.raises(ConfigError, match=r"2 drivers with --memory 1g need about 3.4 GiB here, and 2.0 GiB is free"):
        check_memory(2, "1g", free_mb=2048)
    with pytest.raises(ConfigError, match="'plenty' is not a size"):
        check_memory(2, "plenty")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--f", "1", "--once"], "--once does not go with several drivers"),
        (["--f", "1", "--durable"], "keeps everything in its checkpoint"),
        (["--f", "1", "--live", "Nothing"], "has no such rule; it has Rate, Steps, Peaks"),
        (["--live", "Rate", "--live", "Steps", "--live", "Peaks"], "nothing is left for Spark"),
        (["--f", "9", "--memory", "900g"], "10 drivers with --memory 900g need"),
        (["--f", "1", "--master", "here"], "'here' is not a Spark master"),
    ],
)
def test_what_several_drivers_cannot_do_is_a_sentence(tmp_path: Path, options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "unerring", "run", "tests.app.tree_app:app", "--data", str(tmp_path)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "live").exists()


def test_a_driver_whose_rules_have_changed_stays_out_and_says_why(tmp_path: Path) -> None:
    cluster = live_cluster.make_cluster("tests.app.tree_app:app", 1, tmp_path, on_spark=("Rate", "Steps", "Peaks"))
    msgspec.structs.replace(cluster, app="tests.app.sum_app:app").write(tmp_path / "live")
    driver = subprocess.Popen(standby.command(tmp_path, "spark/0", SparkOptions()), stderr=subprocess.PIPE, text=True)
    try:
        wanted = "tests.app.sum_app:app has other rules now than this run was begun with"
        until(lambda: wanted in read_status(tmp_path, "spark/0").get("refused", ""))
        status = [sys.executable, "-m", "unerring", "status", "--data", str(tmp_path)]
        told = subprocess.run(status, capture_output=True, text=True, check=True).stdout
        assert f"spark/0 stopped: {wanted}" in " ".join(told.split())
    finally:
        driver.terminate()
        _, said = driver.communicate(timeout=600)
    assert wanted in said
    assert driver.returncode == 0


# Handing over


class _Alone:
    """A replica's driver whose only peer is the keeper of the record: nobody takes what it has."""

    def __init__(self, topology: Topology, config: CorrelationConfig) -> None:
        self.membership = Membership({}, topology, config, random.Random(1))
        machine = Replica("spark/0", topology, config, None, random.Random(2))
        self.following: Following | None = None
        self.driver = Driver(machine, self, deliver=self._deliver)

    def send(self, to: str, message: Any) -> None:
        if to == MEMBERSHIP:
            for effect in self.membership.handle("spark/0", message, 0):
                if isinstance(effect, Send) and effect.to == "spark/0":
                    self.driver.offer(MEMBERSHIP, effect.message)

    def broadcast(self, message: Any) -> None:
        """To nobody."""

    def _deliver(self, what: Any) -> None:
        if self.following is not None:
            self.following.deliver(what)


def test_what_is_handed_over_waits_in_the_log_while_the_queue_is_full(tmp_path: Path) -> None:
    """Section 9, points 7 and 11: bounded by the queue, in stamp order, from wherever the replica asks."""
    topology = topology_of(tree_app.app, 0, ("Rate",))
    chain = EventLog(tmp_path / "log").create(next(s for s in tree_app.app.outputs if s.name == "Rate"), 1)
    events = [Event("Rate", Stamp(10 * n), (0,), {"machine": 0, "n": n}) for n in range(1, 6001)]
    for first in range(0, 6000, 1500):
        seal_interval(chain, table_of(events[first : first + 1500], chain.schema), (first + 1500) * 10, "r")

    async def play() -> tuple[list[int], list[Event]]:
        host = _Alone(topology, CorrelationConfig(outgoing_events_max=2000))
        host.following = Following(EventLog(tmp_path / "log"), ["Rate"], to_replica)
        machine: Any = host.driver.machine
        running = [asyncio.create_task(host.driver.run()), asyncio.create_task(host.following.run(host.driver))]
        while not machine.outgoing.full:
            await asyncio.sleep(0.01)
        queued = [len(machine.outgoing.queues["Rate"])]
        host.following.deliver(HandOver({"Rate": events[999].stamp}, {"Rate": 1000}))  # it may be asked for anything
        await asyncio.sleep(0.05)
        queued.append(len(machine.outgoing.queues["Rate"]))
        found = machine.outgoing.queues["Rate"].events()
        host.driver.stop("done")
        await running[0]
        running[1].cancel()
        await asyncio.gather(running[1], return_exceptions=True)
        return queued, found

    queued, found = asyncio.run(play())
    assert queued[0] == queued[1] < 2000 + PIECE_EVENTS
    assert [event.stamp for event in found] == [event.stamp for event in events[: len(found)]]


# For real


@pytest.mark.timeout(1800)
@pytest.mark.long
def test_a_leading_driver_is_killed_in_a_mixed_tree_and_nothing_is_wrong(java: Path, tmp_path: Path) -> None:
    """Rate on Spark, Steps live above it."""
    run = StandbyRun(tmp_path, "tests.pipeline.standby_app:pair", readings(240), ("Rate",), rows=100)

    async def play() -> None:
        run.feed(run.events[:80])
        await run.until(run.both_stand, PATIENCE_S)
        leader = run.leader() or ""
        run.kill(leader)
        run.feed(run.events[80:160])
        await run.until(lambda: run.leader() not in (None, leader))
        await run.until(lambda: "leads" in _status(tmp_path))
        run.feed(run.events[160:])
        run.end()
        await run.until(run.sealed)

    asyncio.run(run.supervised(play()))
    assert run.violations() == []


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(2400):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come to that")


def _status(data: Path) -> str:
    from unerring.app.metrics import Metrics

    metrics, said = Metrics(), list[str]()
    Drivers(place_of(data), metrics, said.append).check(0)
    assert 'unerring_driver_leads{driver="spark/' in metrics.text()
    return "\n".join(said)
