"""What a node counts as it changes is what counting all of its instances finds."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.processes.test_scale import CONFIG, Three
from unerring.app.listed import counted
from unerring.processes.config import ClusterBounds
from unerring.processes.finished import Finished
from unerring.processes.messages import CANCEL, HOLD, Mail, Outline
from unerring.processes.node import ProcessNode
from unerring.processes.replica import Replica


def tallied(node: ProcessNode) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for row in node.counts():
        found[row["process"], row["status"]] += row["count"]
    return found


def recounted(node: ProcessNode) -> Counter[tuple[str, str]]:
    return Counter((row["process"], row["status"]) for row in node.list())


@pytest.mark.parametrize("seed", range(4))
def test_counts_follow_starts_ends_holds_and_crashes(seed: int) -> None:
    random, three = Random(seed), Three()
    three.start(*(f"i{number}" for number in range(30)))
    for number in range(400):
        three.step()
        name = random.choice(sorted(three.nodes))
        match random.randrange(40):
            case 0 | 1 | 2:
                channel = random.choice(["go", "go", HOLD, CANCEL])
                mail = Mail(f"m{number}", channel, 1 if channel == "go" else None)
                three.carry(name, three.nodes[name].post(f"i{random.randrange(30)}", mail, three.now))
            case 3 if len(three.nodes) == 3:
                three.crash(name)
            case 4 | 5:
                for down in sorted(set(three.disks) - set(three.nodes)):
                    three.boot(down)
        for node in three.nodes.values():
            assert tallied(node) == recounted(node)
    for down in sorted(set(three.disks) - set(three.nodes)):
        three.boot(down)
    assert any(len(node.finished) for node in three.nodes.values())
    assert any(status == "held" for node in three.nodes.values() for _, status in tallied(node))


def test_whole_rows_are_made_only_of_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    three = Three()
    three.start(*(f"i{number}" for number in range(20)))
    three.run_until(lambda: three.all_known(20))
    made: list[str] = []
    query = Replica.query

    def noted(replica: Replica) -> dict[str, Any]:
        made.append(replica.instance)
        return query(replica)

    monkeypatch.setattr(Replica, "query", noted)
    listing = three.nodes["n0"].listing
    found = dict(listing.fields([("status", "running"), ("process", "waiting")]))
    assert sorted(found) == sorted(f"i{number}" for number in range(20))
    assert {name: found["i7"](name) for name in ("instance", "status", "parent", "group", "n", "ended_us")} == {
        "instance": "i7",
        "status": "running",
        "parent": "",
        "group": 0,
        "n": 0,
        "ended_us": None,
    }
    assert made == []
    whole = query(three.nodes["n0"].instances["i7"])
    for name in ("process", "version", "status", "reason", "role", "view", "group", "parent"):
        assert found["i7"](name) == whole[name], name
    assert [instance for instance, _ in listing.fields([("instance", "i7")])] == ["i7"]
    assert not list(listing.fields([("status", "held")]))
    assert listing.row("i7") is not None
    assert made == ["i7"]


def test_an_instance_on_several_nodes_counts_once() -> None:
    """Five nodes, three replicas of each instance: what each node counts of a set of replicas is counted once."""
    names = tuple(f"n{number}" for number in range(5))
    nodes = {name: ProcessNode(name, names, [], {}, Random(1), 0, ClusterBounds(), CONFIG) for name in names}
    for number in range(60):
        outline = Outline("order", "failed" if number % 3 == 0 else "completed", "", {}, version="v")
        for name in names:
            if name in nodes[name].shared.members_of(f"i{number}"):
                nodes[name].roster.add_finished(f"i{number}", outline)
    rows = [node.counts() for node in nodes.values()]
    assert sum(row["count"] for told in rows for row in told) == 180
    for missing in (None, 2):
        told = counted(each for number, each in enumerate(rows) if number != missing)
        assert told["by_process"] == {"order": {"failed": 20, "completed": 40}}
        assert (told["instances"], told["open"]) == (60, 0)


def test_an_outcome_that_is_forgotten_is_counted_no_longer() -> None:
    finished = Finished()
    for number in range(3):
        finished.add(f"i{number}", Outline("order", "failed", "", {}, version="v"))
    finished.remove_oldest()
    assert finished.counts == {("", "order", "failed"): 2}
    finished.remove_oldest()
    finished.remove_oldest()
    assert finished.counts == {}
