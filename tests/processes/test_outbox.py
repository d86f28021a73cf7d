"""Messages of an application on their way to those who store them; and what is published without room."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from tests.processes.test_scale import CONFIG, NAMES, waiting
from unerring.model import SECOND_US, Deliver, Persist, Send
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds
from unerring.processes.messages import (
    WAIT_US_MAX,
    Answer,
    Mail,
    Outline,
    Packed,
    Post,
    Publish,
    Reply,
    Start,
    State,
    Step,
    Stored,
    waits_us,
)
from unerring.processes.node import ProcessNode

FOUR = ("n0", "n1", "n2", "n3", "n4")
RESEND_US = 4 * CONFIG.resend_us


def a_node(names: tuple[str, ...] = NAMES, processes: Any = None, config: Any = CONFIG, **bounds: int) -> ProcessNode:
    node = ProcessNode("n0", names, processes or [waiting()], {}, Random(1), 0, ClusterBounds(**bounds), config)
    node.start(0)
    return node


def sent(effects: list[Any], kind: type) -> list[str]:
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def stored(effects: list[Any]) -> int:
    return sum(isinstance(effect, Deliver) and isinstance(effect.what, Stored) for effect in effects)


def test_a_message_goes_to_all_replicas_again_and_again_until_one_more_than_may_fail_have_stored_it() -> None:
    node = a_node(FOUR, f=1)
    instance = next(id for id in map(str, range(99)) if "n0" not in node.shared.members_of(id))
    members = list(node.shared.members_of(instance))
    assert sent(node.post(instance, Mail("m", "go", 1), 10), Post) == members
    assert sent(node.timer("tick", 10 + RESEND_US - 1), Post) == []
    assert sent(node.timer("tick", 10 + RESEND_US), Post) == members
    now = 10 + RESEND_US
    assert stored(node.handle(members[1], Stored(instance, "m"), now)) == 0
    assert stored(node.handle(members[1], Stored(instance, "m"), now)) == 0, "the same one again"
    assert stored(node.handle(members[0], Stored(instance, "other"), now)) == 0
    assert sent(node.timer("tick", now + RESEND_US), Post) == [members[0], members[2]]
    assert stored(node.handle(members[2], Stored(instance, "m"), now)) == 1
    assert stored(node.handle(members[0], Stored(instance, "m"), now)) == 0, "it is told once"
    assert sent(node.timer("tick", now + 9 * RESEND_US), Post) == []


def test_what_a_lost_disk_had_stored_is_stored_no_more() -> None:
    node = a_node(FOUR, f=1)
    instance = next(id for id in map(str, range(99)) if "n0" not in node.shared.members_of(id))
    one, two, three = node.shared.members_of(instance)
    node.post(instance, Mail("m", "go", 1), 10)
    assert stored(node.handle(one, Stored(instance, "m"), 20)) == 0
    assert stored(node.handle(two, Stored(instance, "m", {one: 5}), 20)) == 0, "who stored it first is another by now"
    assert stored(node.handle(three, Stored(instance, "m", {one: 5}), 20)) == 1


def test_what_is_published_goes_to_all_nodes_until_all_but_those_that_may_fail_have_stored_it() -> None:
    node = a_node(FOUR, f=1)
    effects = node.publish(Publish("p", "c", "k", 1), 10)
    assert sent(effects, Publish) == list(FOUR[1:])
    assert sent(node.post("later", Mail("m", "go", 1), 10 + RESEND_US - 1), Publish) == []
    assert sent(node.publish(Publish("q", "c", "k", 1), 11), Publish) == list(FOUR[1:]), "the others have their time"
    assert [key for e in effects if isinstance(e, Persist) for key, _ in e.puts] == ["p|published"], "here, too"
    for name, delivered in (("n1", 0), ("n2", 0), ("n3", 1)):
        assert stored(node.handle(name, Stored("", "p"), 20)) == delivered
    assert sent(node.timer("tick", 10 + RESEND_US), Publish) == []
    assert sent(node.timer("tick", 11 + RESEND_US), Publish) == list(FOUR[1:])


class Paid(msgspec.Struct):
    who: str = ""
    first: int = 0


def test_without_room_a_publication_is_handed_over_now_and_then_together_with_those_that_came_meanwhile() -> None:
    process = Process("paid", state=Paid)
    process.flow(process.receive("payment", writes="first", key="who"))
    config = msgspec.structs.replace(CONFIG, resend_us_max=SECOND_US)
    node = a_node(("n0",), [process], config, f=0, published_max=2)
    ends: list[str] = []

    def publish(id: str, now: int) -> tuple[int, list[str]]:
        effects = node.handle("partner", Publish(id, "payment", id.partition("-")[0], 7), now)
        ended = [name for name in node.finished if name not in ends]
        ends.extend(ended)
        return len(sent(effects, Stored)), sorted(ended)

    for number in range(4):
        node.begin(Start(f"i{number}", "paid", {"who": f"k{number}"}), 0)
    assert [publish(id, 10) for id in ("a", "b")] == [(1, []), (1, [])]
    assert publish("k0", 20) == (0, ["i0"]), "it is received, and not kept"
    assert publish("k1", 30) == (0, []), "every instance may be the one, so not at once again"
    assert publish("k2", 40) == (0, [])
    assert publish("k3", 50) == (0, []), "this one has to come again: two at once are as many as are kept"
    assert publish("k1", 20 + SECOND_US - 1) == (0, [])
    assert publish("k1", 20 + SECOND_US) == (0, ["i1", "i2"])
    assert publish("k3", 20 + 2 * SECOND_US) == (0, ["i3"])
    assert list(node.shared.published) == ["a", "b"]


def test_what_is_published_is_received_at_once_and_leaves_the_disk_when_it_is_too_old() -> None:
    process = Process("paid", state=Paid)
    process.flow(process.receive("payment", writes="first", key="who"))
    node = a_node(("n0",), [process], f=0, published_keep_us=100)
    node.begin(Start("i", "paid", {"who": "ann"}), 0)
    node.handle("partner", Publish("p", "payment", "ann", 7), 10)
    assert list(node.finished) == ["i"]
    gone = []
    for now in (110, 111):
        effects = node.handle("partner", Publish(f"p{now}", "payment", "bob", 7), now)
        gone.append([key for e in effects if isinstance(e, Persist) for key in e.deletes])
    assert gone == [[], ["p|published"]]


# --- data ---


def test_who_has_to_wait_does_not_wait_for_ever() -> None:
    values = (-5, 0, 70, WAIT_US_MAX, WAIT_US_MAX + 1, "soon", None)
    waits = [waits_us(Reply("i", "i/a/0", "do", Answer.WAIT, value)) for value in values]
    assert waits == [0, 0, 70, WAIT_US_MAX, WAIT_US_MAX, SECOND_US, SECOND_US]


def test_the_groups_that_count_are_those_of_all_views_without_what_was_gone_back_on() -> None:
    state = State("i", "p", "v", 0, (), (0,), {})
    assert (state.executed_in, state.views, state.basis, state.unpacked_from) == (0, (), (), 0)
    lineage = tuple(Step(view, (0,)) for view in (4, 5))
    state = msgspec.structs.replace(state, group=2, lineage=lineage)
    assert (state.executed_in, state.views, state.basis, state.unpacked_from) == (5, (4, 5), (4, 5), 0)
    past = (Packed(2, ((0, 2),), b""), Packed(3, ((1, 1), (3, 2)), b""))
    state = msgspec.structs.replace(state, group=7, past=past)
    assert (state.executed_in, state.views, state.unpacked_from) == (5, (0, 0, 1, 3, 3, 4, 5), 5)
    rewound = msgspec.structs.replace(state, rewound=((2, 3), (7, 7)))
    assert (rewound.views, rewound.basis) == (state.views, (0, -1, -1, 3, 3, 4, -1))


def test_the_oldest_outcomes_are_forgotten_above_the_bound() -> None:
    node = a_node(config=msgspec.structs.replace(CONFIG, finished_max=2))
    gone = []
    for number in range(4):
        node.roster.add_finished(f"i{number}", Outline("p", "completed", "", {}, ended_us=number))
        gone.append([key for e in node.out.take() if isinstance(e, Persist) for key in e.deletes])
    assert gone == [[], [], ["i0|outline", "i0|history"], ["i1|outline", "i1|history"]]
    assert list(node.finished) == ["i2", "i3"]
