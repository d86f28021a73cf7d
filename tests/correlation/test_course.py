"""Under which names a replica takes its streams while the number of shards that make them changes."""

from __future__ import annotations

import pytest

from tests.correlation.test_shards import CONFIG, divided
from tests.correlation.test_upgrades import rules
from unerring.correlation import Batch, Topology, outputs_of, side_by_side
from unerring.correlation.course import Course
from unerring.correlation.intake import Intake
from unerring.correlation.messages import Resume, Switch
from unerring.correlation.snapshot import InputState, Snapshot
from unerring.matching import Merge, Output
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, Effects, Event, Send, Stamp

BEFORE = ("b#0of2", "b#1of2")
AFTER = ("b#0of3", "b#1of3", "b#2of3")
BOTH = side_by_side(divided(low=2), divided(low=3), (), 1)
AT_US = 50


class Taker:
    """What takes b: the node "high", or the application."""

    def __init__(self, node: str = "high", topology: Topology = BOTH) -> None:
        self.intake = Intake(node, topology, CONFIG)
        self.intake.read(topology.founding(), 0)
        self.course = Course(node, topology)
        self.merge = self.course.merge(Merge)

    def take(self, name: str, times: tuple[int, ...] = (), watermark: int = TIME_MIN) -> None:
        incoming = self.intake.streams[name]
        form = outputs_of(BOTH, BOTH.node("low-s0"))["b"]
        events = tuple(form.placed([Output("b", time, 0, 0, (0,), 0, {"k": 0, "v": time}) for time in times]))
        taken = incoming.take(Batch(name, incoming.last, incoming.count, events, watermark))
        self.course.push(name, taken.events, self.merge, self.intake)

    def go_over(self) -> Effects:
        return self.course.go_over(self.merge, self.intake)

    def agree(self) -> None:
        self.intake.switch = Switch(1, AT_US)


def asked() -> Effects:
    """For what was sent under the new names meanwhile."""
    credit = CONFIG.window_events
    return [
        Send(f"low-s{shard}-1/{number}", Resume(name, BEFORE_ALL, 0, 0, credit, TIME_MIN))
        for shard, name in enumerate(AFTER)
        for number in (0, 1)
    ]


def test_without_an_upgrade_streams_stay_under_their_names() -> None:
    taker = Taker(topology=divided(low=2))
    taker.intake.switch = Switch(0, AT_US)
    assert not taker.course.ends
    assert not any(map(taker.course.waits, (*BEFORE, *AFTER)))
    for name in BEFORE:
        taker.take(name, watermark=AT_US)
    taker.merge.release()
    assert taker.go_over() == []
    assert not taker.course.turned
    assert tuple(taker.merge.names) == BEFORE


def test_a_node_goes_over_when_it_has_processed_all_up_to_the_agreed_time() -> None:
    taker = Taker()
    course = taker.course
    assert course.ends
    assert [course.waits(name) for name in (*BEFORE, *AFTER)] == [False] * 2 + [True] * 3
    assert tuple(taker.merge.names) == BEFORE
    taker.take("b#0of2", (10, 40), watermark=60)
    taker.take("b#1of2", watermark=AT_US - 1)
    taker.merge.release()
    assert taker.go_over() == [], "nothing is agreed"
    taker.agree()
    assert taker.go_over() == [], "time 50 is not over"
    taker.take("b#1of2", watermark=AT_US)
    assert taker.go_over() == [], "and not processed"
    taker.merge.release()
    assert not course.turned
    assert taker.go_over() == asked()
    assert course.turned
    assert not course.ends
    assert not any(map(course.waits, AFTER))
    assert tuple(taker.merge.names) == AFTER
    assert [taker.merge.watermark(name) for name in AFTER] == [AT_US] * 3, "what comes anew has nothing up to it"
    assert taker.go_over() == []
    taker.take("b#1of2", watermark=TIME_MAX)  # a last word under a name that has nothing left
    taker.take("b#0of3", (51,), watermark=70)
    for name in AFTER[1:]:
        taker.take(name, watermark=60)
    rows, through = taker.merge.release()
    assert ([row.event.stamp for row in rows], through) == ([Stamp(51)], 60)


def test_an_application_goes_over_when_what_it_has_is_sealed() -> None:
    """It makes nothing, so that nothing says how far it is but what it holds."""
    taker = Taker("app")
    taker.agree()
    taker.take("b#0of2", (10, 40), watermark=AT_US)
    taker.take("b#1of2", watermark=AT_US - 1)
    taker.merge.drop("b#0of2", 2)
    assert taker.go_over() == [], "more of b#1of2 may come"
    taker.take("b#1of2", watermark=AT_US)
    assert taker.go_over() == asked()
    waiting = Taker("app")
    waiting.agree()
    for name in BEFORE:
        waiting.take(name, (10,), watermark=AT_US)
    waiting.merge.drop("b#0of2", 1)
    assert waiting.go_over() == [], "one is not sealed"
    waiting.merge.drop("b#1of2", 1)
    assert waiting.go_over() == asked()


@pytest.mark.parametrize("known", [0, 1, 2, 3])
def test_what_a_state_of_the_log_has_is_not_taken_twice(known: int) -> None:
    taker = Taker()
    taker.merge.advance("b#0of2", known * 10)
    taker.take("b#0of2", (10, 20, 30), watermark=35)
    assert taker.intake.credit("b#0of2") == CONFIG.window_events + known
    taker.take("b#0of2", watermark=38)
    assert taker.merge.size("b#0of2") == 3 - known
    assert taker.merge.watermark("b#0of2") == 38


def state(taker: Taker, switch: Switch | None) -> Snapshot:
    inputs = tuple(
        InputState(name, one.last, one.count, one.watermark, taker.intake.maker(name))
        for name, one in taker.intake.streams.items()
    )
    return Snapshot(inputs, taker.merge.state(), b"", (), (), (), switch)


def test_a_joiner_is_where_the_giver_of_its_snapshot_was() -> None:
    giver = Taker()
    giver.agree()
    early = state(giver, Switch(1, AT_US))
    for name in BEFORE:
        giver.take(name, watermark=AT_US)
    giver.merge.release()
    giver.go_over()
    late = state(giver, Switch(1, AT_US))
    for whole, turned in ((early, False), (late, True), (state(giver, None), False)):
        joiner = Taker()
        joiner.course.restore(whole, joiner.merge)
        assert (joiner.course.turned, joiner.course.ends) == (turned, not turned)
        assert tuple(joiner.merge.names) == (AFTER if turned else BEFORE)
        assert not turned or joiner.merge.watermark(AFTER[0]) == AT_US
        again = Taker()
        kept = again.course.caught_up(whole, again.merge)
        assert again.course.turned == turned, "by its own disk, too"
        assert {lane[0] for lane in kept.merge.lanes} >= set(again.merge.names)


def test_a_state_of_before_an_upgrade_is_completed_by_the_names_that_came_with_it() -> None:
    kept = state(Taker("app", rules("X")), None)
    assert [one.stream for one in kept.inputs] == ["x"]
    after = Taker("app", side_by_side(rules("X"), rules("X", "Q"), ("q",), 1))
    whole = after.course.caught_up(kept, after.merge)
    assert whole.inputs == (*kept.inputs, InputState("q", BEFORE_ALL, 0, TIME_MIN))
    assert whole.merge.lanes == (*kept.merge.lanes, ("q", BEFORE_ALL, TIME_MIN, ()))
    other = Taker("app", rules("X", "Q"))
    assert other.course.caught_up(kept, other.merge) == kept, "without an upgrade it is the state of something else"


def test_what_waits_stays_when_another_stream_comes() -> None:
    taker = Taker("app", rules("X"))
    taker.merge.push(Event("x", Stamp(10), (), {"v": 1}))
    Course("app", side_by_side(rules("X"), rules("X", "Q"), ("q",), 1)).apply(taker.merge)
    assert tuple(taker.merge.names) == ("x", "q")
    assert (taker.merge.size("x"), taker.merge.size("q")) == (1, 0)
