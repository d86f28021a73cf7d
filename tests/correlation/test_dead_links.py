"""LeaderDead between nodes: what the paper says of a leader that cannot reach the leader of the next node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlation.table import Table, line
from unerring.correlation import CorrelationConfig
from unerring.correlation.dead_links import DeadLinks
from unerring.correlation.messages import LeaderDead
from unerring.correlation.outgoing import Outgoing
from unerring.evaluation import Severed
from unerring.model import MILLISECOND_US, Disconnected, Effects, Send

EVERY_US = 10 * MILLISECOND_US


def leaders(table: Table, node: str) -> list[str]:
    return [name for name in (f"{node}/0", f"{node}/1") if table.machines[name].election.leading]


def begun() -> tuple[Table, int]:
    """Two levels that have worked for a while, and the last time published."""
    table = Table(line(levels=2))
    table.run(500 * MILLISECOND_US)
    time = 0
    for _ in range(50):
        time += 10
        table.publish(time)
        table.run(EVERY_US)
    assert leaders(table, "N1") == ["N1/0"]
    assert leaders(table, "N2") == ["N2/0"]
    return table, time


def without_situations(table: Table, time: int, notices: bool) -> int:
    """Cut the leaders off from each other, under load: how long no situation comes from events published later."""
    table.cut("N1/0", "N2/0")
    if notices:
        for one, other in (("N1/0", "N2/0"), ("N2/0", "N1/0")):
            table.call(one, "handle", other, Disconnected(other, "the connection was reset"))
    cut_us, cut_at = table.now, time
    while not any(event.stamp.time > cut_at for event in table.situations("s2")):
        time += 10
        table.publish(time)
        table.run(EVERY_US)
        assert table.now < cut_us + 5_000 * MILLISECOND_US, "no situation came"
    return table.now - cut_us


def test_a_leader_tells_the_others_of_a_leader_that_it_cannot_reach() -> None:
    """Section V.B: "If a leader l1 detects a failed link to another leader l2, it sends a LEADERDEADEVENT to the
    remaining replicas of l2"; lines 51-53: they elect another one."""
    table, time = begun()
    told: list[tuple[str, str, str]] = []
    perform = table.perform

    def watched(name: str, effects: Effects) -> None:
        told.extend(
            (name, e.to, e.message.leader)  # type: ignore[union-attr]
            for e in effects
            if isinstance(getattr(e, "message", None), LeaderDead)
        )
        perform(name, effects)

    table.perform = watched  # type: ignore[method-assign]
    assert without_situations(table, time, notices=True) <= 100 * MILLISECOND_US
    assert told[0] == ("N1/0", "N2/1", "N2/0")
    assert "N2/1" in leaders(table, "N2")


@pytest.mark.parametrize("notices", [True, False])
def test_situations_come_no_later_than_by_asking_for_them(notices: bool) -> None:
    """Without it the leader that is cut off is not deaf, since it hears the other replicas of the previous node; it has
    to find out that nothing comes, and whom to ask for it."""
    told_us, asked_us = (Severed(told, seed=120_020_000).without_situations_us(notices) for told in (True, False))
    assert told_us <= asked_us
    assert told_us < 200 * MILLISECOND_US or not notices
    assert asked_us > 200 * MILLISECOND_US


def test_a_leader_that_is_told_of_as_unreachable_gets_its_lead_back_when_the_link_is_up() -> None:
    table, time = begun()
    without_situations(table, time, notices=True)
    table.heal()
    table.run_until(lambda: leaders(table, "N2") == ["N2/0"])


def test_only_the_previous_node_and_peers_are_believed() -> None:
    table, _ = begun()
    for stranger in ("src/0", "app/0", "N9/0"):
        table.call("N2/1", "handle", stranger, LeaderDead("N2/0"))
        assert leaders(table, "N2") == ["N2/0"]
        assert not table.drop(lambda sender, to, message: sender == "N2/1" and type(message).__name__ == "Vote")


def test_a_run_without_failures_says_nothing() -> None:
    table, _ = begun()
    table.run(3_000 * MILLISECOND_US)
    said: list[Any] = []
    perform = table.perform

    def watched(name: str, effects: Effects) -> None:
        said.extend(e for e in effects if isinstance(getattr(e, "message", None), LeaderDead))
        perform(name, effects)

    table.perform = watched  # type: ignore[method-assign]
    table.run(5_000 * MILLISECOND_US)  # nothing is published
    assert said == []


def links(config: CorrelationConfig) -> tuple[DeadLinks, Outgoing]:
    """Those of N1/0, which leads, to N2/0 and N2/1."""
    outgoing = Outgoing("N1/0", line(levels=2), ("s1",), config)
    outgoing.read(line(levels=2).founding())
    outgoing.lead()
    return DeadLinks(config), outgoing


def told(*names: str) -> Effects:
    """Of these, to their peers."""
    peer = {"N2/0": "N2/1", "N2/1": "N2/0"}
    return [Send(peer[name], LeaderDead(name)) for name in names]


def test_a_link_is_dead_when_pings_and_acks_must_have_come_and_did_not() -> None:
    ms = MILLISECOND_US
    for config, silent_us in (
        (CorrelationConfig(ping_us=100 * ms, ack_repeat_us=250 * ms), 500 * ms),
        (CorrelationConfig(ping_us=300 * ms, ack_repeat_us=250 * ms), 600 * ms),
        (CorrelationConfig(suspect_us_min=700 * ms), 700 * ms),
    ):
        machine, outgoing = links(config)
        assert machine.tell(outgoing, 1_000) == [], "watched from now on"
        assert machine.tell(outgoing, 1_000 + silent_us) == []
        assert machine.tell(outgoing, 1_001 + silent_us) == told("N2/0", "N2/1")


def test_a_receiver_that_was_always_slow_is_borne_longer_up_to_a_bound() -> None:
    ms = MILLISECOND_US
    for suspect_us_max, borne_us in ((3_000 * ms, 800 * ms), (600 * ms, 600 * ms), (200 * ms, 500 * ms)):
        machine, outgoing = links(CorrelationConfig(suspect_us_max=suspect_us_max))
        for number in range(9):
            machine.hear("N2/0", number * 400 * ms)
            machine.hear("N2/1", number * 400 * ms)
        heard_us = 8 * 400 * ms
        assert machine.tell(outgoing, heard_us + borne_us) == []
        assert machine.tell(outgoing, heard_us + borne_us + 1) == told("N2/0", "N2/1")


def test_it_is_told_at_once_when_a_link_ends_and_again_until_something_is_heard() -> None:
    config = CorrelationConfig()
    machine, outgoing = links(config)
    machine.ended("N2/1")
    assert machine.tell(outgoing, 1_000) == told("N2/1")
    again = 1_000 + config.lease_us // 2
    for now in range(1_000, again, config.lease_us // 8):
        machine.hear("N2/0", now)
    assert machine.tell(outgoing, again - 1) == []
    assert machine.tell(outgoing, again) == told("N2/1")
    assert machine.tell(outgoing, again + 1) == []
    for name in ("N2/0", "N2/1"):
        machine.hear(name, again + 2)
    assert machine.tell(outgoing, again + config.lease_us // 2) == []
    machine.ended("N2/1")
    assert machine.tell(outgoing, again + config.lease_us // 2 + 1) == told("N2/1"), "another link that ends is news"


def test_who_was_heard_again_is_news_when_it_falls_silent_again() -> None:
    machine, outgoing = links(CorrelationConfig())
    machine.tell(outgoing, 0)
    late = 500 * MILLISECOND_US + 1
    assert machine.tell(outgoing, late) == told("N2/0", "N2/1")
    machine.hear("N2/1", late)
    machine.ended("N2/1")
    assert machine.tell(outgoing, late) == told("N2/1")
    machine, outgoing = links(CorrelationConfig())
    machine.ended("N2/0")
    machine.hear("N2/0", 0)  # before it was told
    machine.hear("N2/1", 0)
    assert machine.tell(outgoing, 1) == []


def test_only_a_leader_tells() -> None:
    machine, outgoing = links(CorrelationConfig())
    outgoing.leading = False
    machine.ended("N2/0")
    assert machine.tell(outgoing, 0) == []
    outgoing.lead()
    assert machine.tell(outgoing, 1) == told("N2/0")
