"""Real nodes and a real HTTP service behind the filter: masters and followers killed and stopped while they work."""

from __future__ import annotations

import random
from pathlib import Path

from tests.faults import HOUR_S
from tests.processes.cluster import Cluster, pass_time


def torment(cluster: Cluster, failures: int, seed: int) -> None:
    """Kill -9 or SIGSTOP somebody, mostly whoever leads, again and again, while instances are under way."""
    draw = random.Random(seed)
    number = 0
    while cluster.failures < failures:
        for _ in range(draw.randint(1, 3)):
            if cluster.open() < 6:
                cluster.want(f"p{number}", number)
                number += 1
        cluster.wait_awake(cluster.names)
        pass_time(draw.random() * 0.4)
        victim = cluster.master() or draw.choice(cluster.names)
        if draw.random() < 0.25:
            victim = draw.choice([*cluster.names, "service"])
        kind = draw.random()
        if cluster.network is not None and kind < 0.5:
            victim = draw.choice(cluster.names) if victim == "service" else victim
            others = [name for name in [*cluster.names, "shop"] if name != victim]
            cluster.cut(victim, draw.sample(others, draw.randint(1, len(others))), both=draw.random() < 0.7)
            pass_time(draw.random() * 1.5)
            cluster.network.heal()
        elif kind < 0.7:
            cluster.pause(victim, stopped=True)
            pass_time(draw.random() * 0.8)
            cluster.pause(victim, stopped=False)
        else:
            cluster.kill(victim)
            pass_time(draw.random() * 0.8)
            cluster.start(victim)


def test_killed_and_stopped_nodes_leave_one_execution(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.want("calm", 1)
        cluster.wait_settled(60)
        torment(cluster, failures=5, seed=1)
        cluster.wait_settled(90)
        assert cluster.check() == []


def test_a_node_whose_disk_is_lost_while_it_works_leaves_one_execution(tmp_path: Path) -> None:
    """Kill -9 of whoever leads, its database deleted, and the same command again: three times, each time another one
    that leads, after the one before has caught up."""
    with Cluster(tmp_path) as cluster:
        for number in range(3):
            for at in range(3):
                cluster.want(f"p{number}-{at}", number)
            cluster.wait_awake(cluster.names)
            cluster.wait_whole(cluster.names, 60)
            pass_time(0.3)
            victim = cluster.master() or cluster.names[number]
            cluster.kill(victim)
            cluster.lose_disk(victim)
            cluster.start(victim)
        cluster.wait_settled(120)
        assert cluster.check() == []


def test_wrong_clocks_and_a_disk_that_fails_leave_one_execution(faulty: Path, tmp_path: Path) -> None:
    """One node starts with a clock an hour ahead, which is then set right: it is let in though it comes with an earlier
    time than before. Another one's clocks leap while it runs, and the disk of the third one fails."""
    with Cluster(tmp_path, faulty=faulty) as cluster:
        first, second, third = (cluster.faults[name] for name in cluster.names)
        cluster.wait_awake(cluster.names)
        for number, leap_s in enumerate((HOUR_S, -HOUR_S)):
            cluster.want(f"p{number}", number)
            first.leap(wall_s=leap_s)
            cluster.kill("n0")
            cluster.start("n0")
            cluster.wait_settled(120)
        second.leap(wall_s=HOUR_S, elapsed_s=HOUR_S)
        third.fail_syncs()
        cluster.want("p2", 2)
        assert "this replica must stop" in cluster.wait_ended("n2", 120)
        third.mend()
        cluster.start("n2")
        cluster.wait_settled(120)
        assert cluster.check() == []
        assert first.clocks_read > 0 < second.clocks_read
        assert third.disk_felt > 0
