"""LeaderDead between nodes: what the paper says of a leader that cannot reach the leader of the next node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlation.table import Table, line
from unerring.correlation.messages import LeaderDead
from unerring.evaluation import Severed
from unerring.model import MILLISECOND_US, Disconnected, Effects

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
