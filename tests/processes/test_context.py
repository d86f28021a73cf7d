"""What the parts of a node share: who replicates an instance, how often it is looked at, and whose messages count."""

from __future__ import annotations

import msgspec
import pytest

from tests.processes.alone import INSTANCE, Alone
from tests.processes.test_scale import waiting
from unerring.model import ProcessError
from unerring.processes.context import IDLE_EACH_US, IDLE_US, Shared, replica_set
from unerring.processes.messages import Replicate

FIVE = tuple(f"n{number}" for number in range(5))


def shared() -> Shared:
    it = Alone(waiting())
    it.hear(it.others[0], Replicate(0, it.state()))
    return it.replica.context.shared


def test_the_replicas_of_an_instance_are_the_same_for_every_node_and_release() -> None:
    expected = ("n4", "n0", "n3")
    for nodes in (FIVE, FIVE[::-1]):
        assert replica_set("i", nodes, 1) == expected
    assert sorted(replica_set("i", FIVE, 2)) == list(FIVE)
    assert sorted(replica_set("i", FIVE[:3], 1)) == list(FIVE[:3])
    assert replica_set("i", FIVE, 0) == expected[:1]
    with pytest.raises(ProcessError, match="f = 1 needs 3 nodes, but there are 2; add nodes or lower f"):
        replica_set("i", FIVE[:2], 1)


def test_instances_are_told_apart_by_their_replicas() -> None:
    three = shared()
    assert (three.replicas_of("i"), three.replicas_of("j")) == ("n0,n1,n2", "n0,n1,n2")
    five = msgspec.structs.replace(three, nodes=FIVE)
    for instance in ("i", "j", "k"):
        assert five.members_of(instance) == replica_set(instance, FIVE, 1)
        assert five.replicas_of(instance) == ",".join(sorted(replica_set(instance, FIVE, 1)))


@pytest.mark.parametrize(("count", "us"), [(0, IDLE_US), (2_500, IDLE_US), (2_501, IDLE_US + IDLE_EACH_US)])
def test_each_is_looked_at_the_more_seldom_the_more_are_led_and_followed(count: int, us: int) -> None:
    names = {f"i{number}": None for number in range(count)}
    some, others = dict(list(names.items())[: count // 3]), dict(list(names.items())[count // 3 :])
    split = msgspec.structs.replace(shared(), led=some, followed={"n1": others, "n2": {}})
    assert split.idle_us == us == msgspec.structs.replace(split, led=names, followed={}).idle_us


def test_a_wall_clock_is_so_far_from_the_node_s_own() -> None:
    assert msgspec.structs.replace(shared(), wall_offset_us=1_000).wall_us(7) == 1_007


def test_groups_are_worked_out_once_for_each_cut_and_ended_wait() -> None:
    it = Alone(waiting())
    it.hear(it.others[0], Replicate(0, it.state()))
    context = it.replica.context
    state = it.state()
    assert context.group_at(it.process, state).empty
    assert context.group_at(it.process, state, ("go",)).vertices == ("go",)
    assert context.group_at(it.process, state, ("go",)) is context.group_at(it.process, state, ("go",))
    assert context.majority == 2
    assert context.instance == INSTANCE
    assert sorted((*context.others, context.me)) == ["n0", "n1", "n2"]
