"""One agreed time: what of a node's outputs counts, and where streams stand in a state that was made of the log."""

from __future__ import annotations

import pytest

from tests.correlation.test_shards import divided, event, whole
from unerring.correlation import Switch, Topology, alone, lanes_at, outputs_of, side_by_side
from unerring.correlation.switching import Lane, Span, is_ahead, lane_of
from unerring.matching import Cutter
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, Event, Stamp

AT = Switch(1, 20)
MADE = [event(time, 0, ordinal) for time in (19, 20, 21) for ordinal in (0, 1)]


def times(span: Span) -> list[int]:
    return [made.stamp.time for made in span.counted(MADE)]


def changed() -> Topology:
    """`low` goes, `low-1` comes, `high` stays."""
    return side_by_side(whole(), whole(), ("b",), 1)


def test_an_old_node_counts_up_to_the_agreed_time_and_a_new_one_after_it() -> None:
    """The time itself is the old node's, with all its ordinals."""
    old, new, stays = (Span(changed(), changed().node(name)) for name in ("low", "low-1", "high"))
    everything = [19, 19, 20, 20, 21, 21]
    assert [times(span) for span in (old, new, stays)] == [everything, [], everything], "nothing is agreed yet"
    assert [[span.watermark(time) for time in (19, 20, 21)] for span in (old, new, stays)] == [
        [19, 20, 21],
        [TIME_MIN] * 3,
        [19, 20, 21],
    ]
    for span in (old, new, stays):
        span.learn(None)
        span.learn(Switch(2, 5))
        assert span.switch is None, "of another upgrade"
        span.learn(AT)
        span.learn(None)
        assert span.switch == AT
    assert [times(span) for span in (old, new, stays)] == [[19, 19, 20, 20], [21, 21], everything]
    assert [[span.watermark(time) for time in (19, 20, 21)] for span in (old, new, stays)] == [
        [19, TIME_MAX, TIME_MAX],
        [20, 20, 21],
        [19, 20, 21],
    ]


def test_a_node_that_came_and_goes_again_counts_between_the_two_times() -> None:
    again = side_by_side(alone(changed(), 19), whole(), ("b",), 2)
    span = Span(again, again.node("low-1"))
    assert times(span) == [20, 20, 21, 21]
    span.learn(Switch(2, 20))
    assert times(span) == [20, 20]
    assert [span.watermark(time) for time in (18, 19, 20)] == [19, 19, TIME_MAX]


def test_who_has_not_heard_of_an_upgrade_takes_nothing_from_beyond_its_time() -> None:
    assert [is_ahead(switch, changed()) for switch in (None, Switch(0, 5), AT, Switch(2, 5))] == [False] * 3 + [True]


LOG = [event(1, 0), event(5, 0), event(5, 0, 1), event(6, 0), event(7, 0), event(7, 0, 1), event(8, 0)]


@pytest.mark.parametrize(
    ("mark", "through_us", "lane"),
    [
        # At its mark already, in the middle of a time: the rest of that time is in the state.
        ((Stamp(5, 0), 2), 5, Lane(Stamp(5, 1), 3, 5, ())),
        ((Stamp(5, 0), 2), 7, Lane(Stamp(7, 1), 6, 7, ())),
        ((Stamp(7, 1), 6), 7, Lane(Stamp(7, 1), 6, 7, ())),
        # Pruned further than the state is: what is between waits.
        ((Stamp(7, 0), 5), 5, Lane(Stamp(7, 1), 6, 7, tuple(LOG[3:6]))),
        ((Stamp(8, 0), 7), 0, Lane(Stamp(8, 0), 7, 8, tuple(LOG))),
        ((BEFORE_ALL, 0), 0, Lane(BEFORE_ALL, 0, 0, ())),
    ],
)
def test_a_stream_of_the_log_stands_at_the_time_of_the_state_or_at_its_mark(
    mark: tuple[Stamp, int], through_us: int, lane: Lane
) -> None:
    assert lane_of(mark, LOG, through_us) == lane


def test_a_whole_stream_and_a_part_of_it_stand_where_their_marks_and_the_state_say() -> None:
    topology = divided(low=2)
    log = [event(1 + n // 2, n, n % 2) for n in range(12)]
    own = Cutter(topology.schema("a"), ("k",), 2).cut(log)[1]
    asked: list[tuple[str, Stamp]] = []

    def events(stream: str, after: Stamp) -> list[Event]:
        asked.append((stream, after))
        return log

    marks = {"a@k:1of2": (own[0].stamp, 1), "a": (Stamp(5, 0), 9)}
    lanes = lanes_at(topology, marks, 3, events)
    upto = [one for one in own if one.stamp.time <= 3]
    assert lanes["a@k:1of2"] == Lane(upto[-1].stamp, len(upto), 3, ())
    assert lanes["a"] == Lane(Stamp(5, 1), 10, 5, tuple(log[6:10]))
    assert asked == [("a", own[0].stamp), ("a", Stamp(5, 0))], "by the name that it has in the log"


def test_what_shards_made_waits_in_one_of_their_parts_as_far_as_any_of_them_is_pruned() -> None:
    """The log has them together and numbered: which of them made an event, nobody knows any more."""
    both = side_by_side(divided(low=2, high=2), divided(low=3, high=3), (), 1)
    made = [Event("b", Stamp(time, 0), (time,), {"k": time, "v": 0}) for time in range(1, 9)]
    marks = {"b#0of3": (Stamp(5, 0), 2), "b#0of2": (Stamp(4, 0), 3), "b#1of2": (Stamp(6, 0), 4)}
    asked: list[tuple[str, Stamp]] = []

    def events(stream: str, after: Stamp) -> list[Event]:
        asked.append((stream, after))
        return made

    lanes = lanes_at(both, marks, 3, events)
    form = outputs_of(both, both.node("low-s0"))["b"]
    assert lanes["b#0of2"] == Lane(Stamp(4, 0), 3, TIME_MIN, tuple(form.replaced(made[3:6])), 6)
    assert lanes["b#1of2"] == Lane(Stamp(6, 0), 4, TIME_MIN, (), 6)
    assert lanes["b#0of3"] == Lane(BEFORE_ALL, 0, TIME_MIN, ())
    assert asked == [("b", Stamp(4, 0))]
    later = lanes_at(both, marks, 7, lambda stream, after: made)
    assert {(lane.waiting, lane.has_us) for name, lane in later.items() if name != "b#0of3"} == {((), 7)}
