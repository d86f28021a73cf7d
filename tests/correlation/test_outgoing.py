"""The upstream side (Figure 3, lines 19-50): who is sent what and when, whose acks count, and what is kept for whom."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.correlation.table import schema
from tests.correlation.test_shards import divided
from unerring.correlation import (
    Ack,
    CorrelationConfig,
    NodeSpec,
    Resume,
    Role,
    Switch,
    Topology,
    alone,
    side_by_side,
)
from unerring.correlation.messages import (
    MEMBERSHIP,
    AskAcks,
    AskMore,
    Batch,
    Enough,
    HasMore,
    NotMember,
    Pruned,
    Receipt,
    Register,
    Registered,
    WaitsFor,
)
from unerring.correlation.outgoing import AHEAD_MAX, Outgoing, StreamPosition
from unerring.correlation.record import Member, Record, Standing
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, Deliver, Event, ProtocolError, Send, Stamp

GONE, JOINING, CAUGHT_UP = Standing.GONE, Standing.JOINING, Standing.CAUGHT_UP
ACK = Ack("a", BEFORE_ALL, 0, 1, 99)


def topology() -> Topology:
    """N takes both streams of the source, M one of them, and nobody that of M."""
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a", "b"), f=1),
        NodeSpec("N", Role.CORRELATION, ("a", "b"), ("s",), 1),
        NodeSpec("M", Role.CORRELATION, ("a",), ("t",)),
        NodeSpec("app", Role.APPLICATION, ("s",)),
    )
    return Topology(nodes, tuple(schema(name) for name in "abst"))


def event(time: int, stream: str = "a", ordinal: int = 0) -> Event:
    return Event(stream, Stamp(time, ordinal), (), {"v": time})


def outgoing(name: str = "src/0", leading: bool = True, **bounds: int) -> Outgoing:
    made = Outgoing(name, topology(), topology().node(name.partition("/")[0]).outputs, CorrelationConfig(**bounds))
    made.incarnation = 3
    made.read(topology().founding())
    if leading:
        made.lead()
    return made


def record(version: int, **members: Member) -> Record:
    """The founding record, with these others: `N0` for N/0."""
    named = {f"{name[:-1]}/{name[-1]}": member for name, member in members.items()}
    return Record(version, {**topology().founding().members, **named})


def fill(made: Outgoing, *times: int, stream: str = "a") -> None:
    for time in times:
        made.append(stream, [event(time, stream)])
        made.advance(time, stream)


def acked(made: Outgoing, name: str, count: int, credit: int = 99, stream: str = "a", incarnation: int = 1) -> Any:
    last = Stamp(count, 0) if count else BEFORE_ALL
    return made.ack(name, Ack(stream, last, count, incarnation, credit))


def sent(effects: list[Any]) -> list[tuple[str, int, int, int]]:
    """Of batches: to whom, from which number to which, and the watermark."""
    batches = [(e.to, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, Batch)]
    return [(to, one.index, one.index + len(one.events), one.watermark) for to, one in batches]


# ---- sending ---------------------------------------------------------------------------------------------------


def test_a_receiver_is_sent_what_it_has_credit_for_and_the_watermark_before_the_rest() -> None:
    made = outgoing()
    fill(made, 1, 2, 3)
    assert made.flush(0) == [], "nobody has said what it has"
    acked(made, "N/0", 0, 2)
    acked(made, "M/0", 1, 9)
    assert sent(made.flush(0)) == [("N/0", 0, 2, 2), ("M/0", 1, 3, 3)]
    assert made.transmissions == 4
    assert sent(made.flush(10**6)) == [], "nothing is new"
    acked(made, "N/0", 2, 2)
    assert sent(made.flush(10**6)) == [], "no credit"
    acked(made, "N/0", 2, 3)
    assert sent(made.flush(10**6)) == [("N/0", 2, 3, 3)]
    assert made.receivers() == ["N/0", "N/1", "M/0"]


def test_only_leaders_send_and_who_was_asked_for_as_long_as_its_lease() -> None:
    made = outgoing(leading=False, lease_us=500)
    fill(made, 1, 2)
    for name in ("N/0", "N/1"):
        acked(made, name, 0)
    assert made.flush(0) == []
    assert made.resume("N/0", Resume("a", BEFORE_ALL, 0, 1, 99, TIME_MIN), 100) == []
    assert sent(made.flush(599)) == [("N/0", 0, 2, 2)]
    fill(made, 3)
    assert made.flush(600) == [], "the lease is over"
    made.resume("N/0", Resume("a", Stamp(3, 0), 3, 1, 99, 3), 700)
    fill(made, 4)
    assert made.flush(701) == [], "it lacked nothing: there was no lease"
    made.resume("N/0", Resume("a", Stamp(3, 0), 3, 1, 99, 3), 700)
    made.enough("N/1", Enough("a"))
    assert sent(made.flush(701)) == [("N/0", 3, 4, 4)]
    fill(made, 5)
    made.enough("N/0", Enough("a"))
    made.enough("N/0", Enough("x"))
    assert made.flush(702) == [], "a leader serves it again"


def test_few_events_wait_while_enough_messages_are_on_the_way_and_a_full_message_does_not() -> None:
    made = outgoing(flights_max=2, batch_events_max=3)
    acked(made, "N/0", 0)
    for time in (1, 2, 3, 4):
        fill(made, time)
        assert sent(made.flush(0)) == ([("N/0", time - 1, time, time)] if time < 3 else [])
    fill(made, 5)
    assert sent(made.flush(0)) == [("N/0", 2, 5, 5)], "three fill a message"
    fill(made, 6)
    assert made.flush(0) == []
    acked(made, "N/0", 1)
    assert made.flush(0) == [], "two are still on the way"
    acked(made, "N/0", 2)
    assert sent(made.flush(0)) == [("N/0", 5, 6, 6)]
    acked(made, "N/0", 6)
    fill(made, *range(7, 14))
    assert sent(made.flush(0)) == [("N/0", 6, 9, 9), ("N/0", 9, 12, 12), ("N/0", 12, 13, 13)]
    assert made.transmissions == 13
    acked(made, "N/0", 13)
    for now in (1, 2):
        made.advance(20 + now, "a")
        assert sent(made.flush(now * 10**6)) == [("N/0", 13, 13, 20 + now)]
    fill(made, 30)
    assert sent(made.flush(3 * 10**6)) == [("N/0", 13, 14, 30)], "watermarks are not waited for"


def test_a_watermark_alone_goes_out_once_in_a_pause_and_as_far_as_what_was_sent() -> None:
    made = outgoing(watermark_pause_us=100)
    acked(made, "M/0", 0, 1)
    fill(made, 1)
    assert sent(made.flush(1000)) == [("M/0", 0, 1, 1)]
    assert not made.watermark_waits
    made.advance(5, "a")
    assert (made.flush(1099), made.watermark_waits) == ([], True)
    assert sent(made.flush(1100)) == [("M/0", 1, 1, 5)]
    assert not made.watermark_waits
    acked(made, "M/0", 1, 1)
    made.append("a", [event(9)])
    assert made.flush(1150) == [], "no credit"
    made.advance(12, "a")
    assert made.flush(1199) == [], "too soon"
    assert sent(made.flush(1200)) == [("M/0", 1, 1, 8)], "no credit for the event: capped before it"
    made.advance(13, "a")
    assert (made.flush(2000), made.watermark_waits) == ([], False), "it waits for credit, not for time"
    made.ack("M/0", Ack("a", Stamp(1, 0), 1, 1, 1))
    assert made.flush(3000) == []
    made.ack("M/0", Ack("a", Stamp(1, 0), 1, 1, 2))
    assert sent(made.flush(3000)) == [("M/0", 1, 2, 13)]
    made.advance(14, "a")
    made.leading = False
    assert not made.watermark_waits


def test_who_was_connected_anew_is_sent_again_what_it_has_not_acknowledged() -> None:
    made = outgoing(flights_max=1)
    fill(made, 1, 2, 3)
    for name in ("N/0", "N/1"):
        acked(made, name, 0)
    made.flush(0)
    acked(made, "N/0", 1)
    acked(made, "N/1", 1)
    made.reconnected("N/0")
    assert sent(made.flush(0)) == [("N/0", 1, 3, 3)]
    acked(made, "N/0", 3)
    made.reconnected("N/0")
    assert sent(made.flush(0)) == [("N/0", 3, 3, 3)], "the watermark alone, at once"


def test_a_new_leader_asks_each_receiver_once_and_waits_for_its_word_no_longer_than_it_must() -> None:
    made = outgoing(leading=False, ask_us=100)
    for stream in "ab":
        fill(made, 1, 2, stream=stream)
        for name in ("N/0", "N/1"):
            acked(made, name, 0, stream=stream)
    made.lead()
    assert made.flush(1000) == [Send(name, AskAcks()) for name in ("N/0", "N/1")], "once for both streams"
    assert made.flush(1050) == []
    acked(made, "N/0", 1)
    assert sent(made.flush(1050)) == [("N/0", 1, 2, 2)], "it has said what it has of this stream"
    assert made.flush(1099) == []
    assert sent(made.flush(1100)) == [("N/1", 0, 2, 2), ("N/0", 0, 2, 2), ("N/1", 0, 2, 2)]
    at_once = outgoing(leading=False, ask_us=0)
    fill(at_once, 1)
    acked(at_once, "N/0", 0)
    at_once.lead()
    assert sent(at_once.flush(0)) == [("N/0", 0, 1, 1)], "as in the paper"
    at_once.lead()
    assert sent(at_once.flush(0)) == [("N/0", 0, 1, 1)], "what it sent before may be lost"


def test_who_lacks_what_is_pruned_or_has_more_than_was_made_here_is_sent_nothing() -> None:
    made = outgoing(name="N/0")
    fill(made, 1, 2, 3, stream="s")
    made.learn(Receipt("s", "app/0", 1, Stamp(2, 0), 2, 99))
    made.learn(Receipt("s", "app/0", 1, Stamp(7, 0), 5, 99))
    assert made.flush(0) == [], "another replica has made more and sent it"
    fill(made, 4, 7, 8, stream="s")
    assert sent(made.flush(0)) == [("app/0", 5, 6, 8)], "made here, too, by now"
    with pytest.raises(ProtocolError, match=r"stream s: app/0 has .* as number 6, and this replica another event"):
        made.learn(Receipt("s", "app/0", 1, Stamp(9, 0), 6, 99))


# ---- back-pressure ---------------------------------------------------------------------------------------------


def test_a_queue_is_full_at_its_bound_and_fills_from_half_of_it() -> None:
    made = outgoing(outgoing_events_max=4)
    states = []
    for time in (1, 2, 3, 4):
        states.append((made.filling, made.full, made.waits_for()))
        fill(made, time)
    assert states == [(False, False, ())] * 2 + [(True, False, ())] * 2
    assert (made.filling, made.full) == (True, True)
    assert made.waits_for() == ("N/0", "N/1", "M/0"), "nobody has said anything"
    assert made.ask_acks() == [
        *(Send(name, AskAcks()) for name in ("N/0", "N/1", "M/0")),
        Send(MEMBERSHIP, WaitsFor(("N/0", "N/1", "M/0"))),
    ]
    for name, count in (("N/0", 2), ("N/1", 0), ("M/0", 1)):
        acked(made, name, count)
    assert made.waits_for() == ("N/1",)
    acked(made, "N/1", 1)
    assert (made.waits_for(), made.full) == ((), True), "they have some of it, which is not pruned yet"
    made.prune()
    assert (made.full, made.filling) == (False, True)
    fill(made, 5)
    assert made.waits_for() == ("N/1", "M/0")
    acked(made, "N/1", 4)
    acked(made, "M/0", 4)
    made.prune()
    assert (made.filling, made.waits_for()) == (True, ()), "three of four, for the sake of who has two"
    assert made.ask_acks() == [Send(name, AskAcks()) for name in ("N/0", "N/1", "M/0")]


def test_a_queue_of_six_fills_from_three_on() -> None:
    made = outgoing(outgoing_events_max=6)
    states = []
    for time in range(1, 8):
        states.append((made.filling, made.full))
        fill(made, time)
    assert states == [(False, False)] * 3 + [(True, False)] * 3 + [(True, True)]


def test_a_stream_that_is_cut_has_room_for_what_its_parts_have() -> None:
    shards = divided(low=2)
    config = CorrelationConfig(outgoing_events_max=4)
    made = Outgoing("src/0", shards, shards.node("src").outputs, config)
    made.read(shards.founding())
    keyed = [Event("a", Stamp(time, 0), (time,), {"k": time, "v": time}) for time in range(1, 9)]
    owners = dict(made.cuts["a"].cut(keyed))
    assert made.own == ("a",)
    for one in keyed[:4]:
        made.append("a", [one])
    assert (made.filling, made.full) == (True, False)
    counts = {name: sum(one.stamp.time <= 4 for one in part) for name, part in owners.items()}
    assert max(counts.values()) < 4
    assert {name: made.queues[name].count for name in counts} == counts
    made.advance(4, "a")
    assert {queue.watermark for queue in made.queues.values()} == {4}
    made.advance(9)
    assert {queue.watermark for queue in made.queues.values()} == {9}


def test_those_on_whose_account_a_queue_is_full_are_of_any_stream_and_of_its_parts() -> None:
    made = outgoing(outgoing_events_max=2)
    fill(made, 1, 2, stream="b")
    assert made.waits_for() == ("N/0", "N/1")
    shards = divided(low=2)
    made = Outgoing("src/0", shards, shards.node("src").outputs, CorrelationConfig(outgoing_events_max=5))
    made.read(shards.founding())
    keys = (0, 1, 2, 3, 4, 5, 6, 7, 3, 3)
    keyed = [Event("a", Stamp(1, number), (key,), {"k": key, "v": 1}) for number, key in enumerate(keys)]
    made.append("a", keyed)
    assert made.waits_for() == ("low-s0/0", "low-s0/1", "low-s1/0", "low-s1/1")
    first = made.queues["a@k:0of2"]
    for number in (0, 1):
        made.ack(f"low-s0/{number}", Ack("a@k:0of2", first.last, first.count, 1, 99))
    made.prune()
    assert (len(first), len(made.queues["a"])) == (0, 10), "the first event is of the other part"
    assert made.waits_for() == ("low-s1/0", "low-s1/1")


def test_a_feeder_is_told_once_of_each_step_and_not_while_there_is_no_room() -> None:
    made = outgoing(outgoing_events_max=2)

    def told(again: bool = False) -> list[Any]:
        return [effect.what for effect in made.taken(again) if isinstance(effect, Deliver)]

    begun = [StreamPosition(stream, BEFORE_ALL, 0, TIME_MIN) for stream in "ab"]
    assert (told(), told(), told(again=True)) == (begun, [], begun)
    fill(made, 1)
    assert (told(), told()) == ([StreamPosition("a", Stamp(1, 0), 1, 1)], [])
    made.advance(3, "b")
    assert told() == [StreamPosition("b", BEFORE_ALL, 0, 3)]
    fill(made, 2)
    assert (told(), told(again=True)) == ([], []), "it is full"
    for name in ("N/0", "N/1", "M/0"):
        acked(made, name, 1)
    made.prune()
    assert told() == [StreamPosition("a", Stamp(2, 0), 2, 2), StreamPosition("b", BEFORE_ALL, 0, 3)]


def test_what_an_engine_made_up_to_a_time_is_queued_and_ends_where_the_node_does() -> None:
    """With the agreed time: all that an old node sends is before it, and then nothing comes any more."""
    both = side_by_side(topology(), topology(), ("s",), 1)
    made = Outgoing("N/0", both, ("s",), CorrelationConfig())
    made.take({"s": [event(3, "s"), event(4, "s")]}, 5)
    assert [one.stamp.time for one in made.queues["s"].events()] == [3, 4]
    assert made.queues["s"].watermark == 5
    made.advance(6, "s")
    made.span.learn(Switch(1, 8))
    made.take({"s": [event(8, "s"), event(9, "s")]}, 9)
    assert [one.stamp.time for one in made.queues["s"].events()] == [3, 4, 8]
    assert made.queues["s"].watermark == TIME_MAX
    made.read(both.founding())
    made.lead()
    made.ack("app/0", Ack("s", BEFORE_ALL, 0, 1, 99))
    [batch] = [effect.message for effect in made.flush(0) if isinstance(effect, Send)]
    assert batch.switch == Switch(1, 8), "whoever has got past the time knows of it"
    late = Outgoing("N/0", both, ("s",), CorrelationConfig())
    late.span.learn(Switch(1, 8))
    late.advance(9, "s")
    assert late.queues["s"].watermark == 9, "an engine that hands over later says so itself"


def test_parts_that_nobody_takes_any_more_go_with_their_topology() -> None:
    shards = divided(low=2)
    made = Outgoing("src/0", shards, shards.node("src").outputs, CorrelationConfig())
    made.read(shards.founding())
    made.register("low-s1/1", Register(3, 3))
    later = side_by_side(shards, divided(), (), 1)
    made.rearrange(later)
    assert made.receivers() == ["low-s0/0", "low-s0/1", "low-s1/0", "low-s1/1"], "low-1 has not entered"
    made.span.learn(Switch(1, 8))
    made.rearrange(later)
    assert made.span.switch == Switch(1, 8)
    newer = {name: member for name, member in shards.founding().members.items() if not name.startswith("low")}
    made.read(Record(4, {**newer, "low-1/0": Member(2, CAUGHT_UP)}, 1))
    made.rearrange(alone(later, 8))
    assert list(made.queues) == ["a"]
    assert made.receivers() == ["low-1/0"]
    made.append("a", [Event("a", Stamp(9, 0), (1,), {"k": 1, "v": 1})])
    assert made.waits_for() == ()
    made.ack("low-1/0", Ack("a", Stamp(9, 0), 1, 2, 9))
    made.prune()
    assert made.queues["a"].mark == Stamp(9, 0)


# ---- acks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "registered", "refused", "accepted"),
    [
        (None, 0, (AHEAD_MAX + 2,), (1, 2, AHEAD_MAX + 1)),
        (None, 40, (1, 39, 40 + AHEAD_MAX + 1), (40, 41, 40 + AHEAD_MAX)),
        (Member(2, CAUGHT_UP), 0, (0, 1, 2 + AHEAD_MAX + 1), (2, 3, 2 + AHEAD_MAX)),
        (Member(2, JOINING), 5, (1, 3, 4, 5 + AHEAD_MAX + 1), (2, 5, 6, 5 + AHEAD_MAX)),
        (Member(2, GONE), 0, (1, 2, 2 + AHEAD_MAX + 1), (3, 2 + AHEAD_MAX)),
        (Member(2, GONE), 5, (1, 2, 3, 4), (5, 6)),
        (Member(1, GONE), 0, (0, 1), (2,)),
        (Member(60, CAUGHT_UP), 0, (59, 60 + AHEAD_MAX + 1), (60, 60 + AHEAD_MAX)),
    ],
)
def test_an_ack_counts_of_who_is_in_the_record_or_may_be_in_the_next_ones(
    member: Member | None, registered: int, refused: tuple[int, ...], accepted: tuple[int, ...]
) -> None:
    """A late ack of a predecessor would prune what its successor lacks; one of nobody would pin for ever."""
    for incarnations, answers in ((refused, NotMember(7)), (accepted, None)):
        for incarnation in incarnations:
            made = outgoing(leading=False)
            members = dict(record(7).members)
            del members["N/0"]
            if registered:
                made.register("N/0", Register(registered, 8))
            made.read(Record(7, members if member is None else {**members, "N/0": member}))
            assert made.ack("N/0", msgspec.structs.replace(ACK, incarnation=incarnation)) == answers, incarnation
            held = {receipt.incarnation for receipt in made.receipts()}
            assert held == (set() if answers else {incarnation})


def test_late_repeated_and_reordered_acks_change_nothing_and_credit_only_grows() -> None:
    made = outgoing()
    fill(made, 1, 2, 3, 4)
    acked(made, "N/0", 2, 3)
    acked(made, "N/0", 1, 4)
    acked(made, "N/0", 2, 2)
    assert made.receipts() == (Receipt("a", "N/0", 1, Stamp(2, 0), 2, 4),)
    assert sent(made.flush(0)) == [("N/0", 2, 4, 4)]
    acked(made, "N/0", 4, 4)
    fill(made, 5)
    made.ack("N/0", Ack("x", Stamp(9, 0), 9, 1, 9))
    assert made.receipts() == (Receipt("a", "N/0", 1, Stamp(4, 0), 4, 4),), "no such stream"
    made.learn(Receipt("x", "N/0", 1, Stamp(9, 0), 9, 9))
    acked(made, "N/0", 5, 9, incarnation=2)
    made.read(record(3, N0=Member(2, JOINING)))
    made.learn(Receipt("a", "N/0", 1, Stamp(5, 0), 5, 9))
    assert made.receipts() == (Receipt("a", "N/0", 2, Stamp(5, 0), 5, 9),), "the incarnation before is forgotten"


def test_what_a_receiver_lacks_is_served_told_to_be_pruned_or_unknown() -> None:
    made = outgoing(leading=False)
    fill(made, 1, 2, 3)
    for name in ("N/0", "N/1", "M/0"):
        acked(made, name, 2)
    made.prune()

    def resume(count: int, stream: str = "a", incarnation: int = 1) -> list[Any]:
        last = Stamp(count, 0) if count else BEFORE_ALL
        return made.resume("N/0", Resume(stream, last, count, incarnation, 99, count), 0)

    assert resume(1) == [Send("N/0", Pruned("a", Stamp(2, 0), 3))]
    assert resume(2) == []
    assert sent(made.flush(1)) == [("N/0", 2, 3, 3)]
    assert resume(2) == []
    assert sent(made.flush(1)) == [("N/0", 2, 3, 3)], "it was lost"
    assert resume(2, "x") == []
    assert resume(2, incarnation=99) == [Send("N/0", NotMember(1))]
    more = AskMore("a", 2, 99, 2)
    assert made.more("N/0", more) == [Send("N/0", HasMore("a", 3, 3, False))]
    made.lead()
    assert made.more("N/0", more) == [Send("N/0", HasMore("a", 3, 3, True))]
    assert made.more("N/0", msgspec.structs.replace(more, count=3, watermark=3)) == []
    assert made.more("N/0", msgspec.structs.replace(more, stream="x")) == []


# ---- pruning ---------------------------------------------------------------------------------------------------


def test_what_the_slowest_of_all_receivers_has_is_pruned_and_nothing_before_all_have_spoken() -> None:
    made = outgoing()
    fill(made, 1, 2, 3)
    for name, count, mark_count in (("N/0", 3, 0), ("N/1", 2, 0), ("M/0", 1, 1), ("M/0", 3, 2), ("N/1", 3, 3)):
        acked(made, name, count)
        made.prune()
        assert (made.queues["a"].mark_count, made.queues["a"].count) == (mark_count, 3)
    untaken = outgoing(name="M/0")
    fill(untaken, 1, 2, stream="t")
    untaken.prune()
    assert untaken.queues["t"].mark == Stamp(2, 0), "nobody takes it"
    unread = Outgoing("M/0", topology(), ("t",), CorrelationConfig())
    fill(unread, 1, stream="t")
    unread.prune()
    assert unread.queues["t"].mark == BEFORE_ALL, "no record was read yet"


def test_a_stream_is_kept_while_one_of_its_parts_is() -> None:
    shards = divided(low=2)
    made = Outgoing("src/0", shards, shards.node("src").outputs, CorrelationConfig())
    made.read(shards.founding())
    keyed = [Event("a", Stamp(1, number), (number,), {"k": number, "v": number}) for number in range(8)]
    made.append("a", keyed)
    parts = {name: list(part) for name, part in made.cuts["a"].cut(keyed)}
    assert all(len(part) > 1 for part in parts.values())
    for shard, (name, part) in enumerate(parts.items()):
        made.prune()
        assert made.queues["a"].mark_count == keyed.index(min(parts["a@k:1of2"] if shard else keyed, key=keyed.index))
        for replica in (0, 1):
            made.ack(f"low-s{shard}/{replica}", Ack(name, part[-1].stamp, len(part), 1, 99))
    made.prune()
    assert [len(queue) for queue in made.queues.values()] == [0, 0, 0]


# ---- receivers -------------------------------------------------------------------------------------------------


def test_a_joiner_is_pinned_from_its_registration_on_until_a_newer_record_says_who_it_is() -> None:
    made = outgoing()
    fill(made, 1, 2)
    fill(made, 1, stream="b")
    for name in ("N/0", "N/1", "M/0"):
        acked(made, name, 1)
    made.prune()
    assert made.register("N/1", Register(2, 3)) == Registered(3, (("a", Stamp(1, 0)), ("b", BEFORE_ALL)), (1, 0))
    assert made.register("M/0", Register(2, 2)) == Registered(3, (("a", Stamp(1, 0)),), (1,))
    assert made.register("app/0", Register(1, 1)) is None, "it takes nothing here that is known yet"
    for name in ("N/0", "N/1", "M/0"):
        acked(made, name, 2)
    made.prune()
    assert made.queues["a"].mark_count == 1
    made.read(record(2, M0=Member(2, JOINING)))
    acked(made, "M/0", 2, incarnation=2)
    made.prune()
    assert made.queues["a"].mark_count == 1, "that of N/1 stands in a later one"
    assert (made.version_min, made.registered) == (3, {"N/1": (2, 3)})
    made.read(record(3, M0=Member(2, JOINING), N1=Member(2, JOINING)))
    made.prune()
    assert made.queues["a"].mark_count == 1, "it has not acknowledged anything in its new life"
    acked(made, "N/1", 2, incarnation=2)
    made.prune()
    assert made.queues["a"].mark_count == 2
    made.read(record(2))
    assert made.record.version == 3, "older"


def test_a_joiner_is_served_once_it_is_registered_or_in_the_record() -> None:
    made = outgoing()
    fill(made, 1)
    made.register("N/7", Register(2, 3))
    acked(made, "N/7", 0, incarnation=2)
    acked(made, "N/8", 0)
    assert sent(made.flush(0)) == [("N/7", 0, 1, 1)]
    made.read(record(2))
    assert made.flush(1) == [], "nobody knows yet who N/8 is"
    made.read(record(3, N7=Member(2, JOINING), N8=Member(1, CAUGHT_UP)))
    assert sent(made.flush(2)) == [("N/8", 0, 1, 1)], "what it has, it has said"
    assert made.registered == {}
    assert made.receivers() == ["N/0", "N/1", "N/7", "N/8", "M/0"]


@pytest.mark.parametrize(
    ("member", "before", "register", "answers"),
    [
        (None, None, Register(AHEAD_MAX + 1, 5 + AHEAD_MAX), True),
        (None, None, Register(AHEAD_MAX + 2, 5), False),
        (None, None, Register(1, 5 + AHEAD_MAX + 1), False),
        (Member(9, CAUGHT_UP), None, Register(9, 5), True),
        (Member(9, CAUGHT_UP), None, Register(8, 5), False),
        (Member(9, CAUGHT_UP), None, Register(9 + AHEAD_MAX, 6), True),
        (Member(9, CAUGHT_UP), None, Register(9 + AHEAD_MAX + 1, 6), False),
        (Member(9, GONE), None, Register(9, 6), False),
        (Member(9, GONE), None, Register(10, 6), True),
        (Member(9, JOINING), Register(12, 6), Register(9, 6), True),
        (Member(9, JOINING), Register(12, 6), Register(11, 6), False),
        (Member(9, JOINING), Register(12, 6), Register(12, 7), True),
    ],
)
def test_who_registers_is_in_the_record_or_may_be_in_the_next_ones(
    member: Member | None, before: Register | None, register: Register, answers: bool
) -> None:
    made = outgoing()
    members = dict(record(5).members)
    del members["N/0"]
    made.read(Record(5, members if member is None else {**members, "N/0": member}))
    if before is not None:
        assert isinstance(made.register("N/0", before), Registered)
    known = dict(made.registered)
    answer = made.register("N/0", register)
    assert isinstance(answer, Registered if answers else NotMember)
    newer = answers and (before is None or register.incarnation >= before.incarnation) and register.version > 5
    assert made.registered == ({"N/0": (register.incarnation, register.version)} if newer else known)


def test_registrations_of_a_snapshot_count_unless_newer_ones_are_known() -> None:
    made = outgoing()
    made.register("N/0", Register(3, 4))
    made.adopt([("N/0", 2, 9), ("N/1", 1, 4), ("M/0", 2, 1)])
    assert made.registered == {"N/0": (3, 4), "N/1": (1, 4)}, "the last one stands in a record that was read"
    made.adopt([("N/0", 4, 5)])
    assert made.registered["N/0"] == (4, 5)


def test_an_ack_that_turned_out_a_lie_is_not_told_to_peers() -> None:
    made = outgoing(leading=False)
    fill(made, 1)
    made.ack("N/0", Ack("a", Stamp(3, 0), 2, 1, 99))
    acked(made, "N/1", 1)
    assert [receipt.receiver for receipt in made.receipts()] == ["N/0", "N/1"], "nobody can know yet"
    fill(made, 2, 3)
    assert [receipt.receiver for receipt in made.receipts()] == ["N/1"]
