"""The receiving side, question by question: acks, credit, and whom a receiver asks that does not advance."""

from __future__ import annotations

import msgspec

from tests.correlation.test_upgrades import rules
from unerring.correlation import CorrelationConfig, side_by_side
from unerring.correlation.incoming import Verdict
from unerring.correlation.intake import Intake
from unerring.correlation.messages import Ack, AskMore, Batch, Enough, HasMore, Ping, Pong, Resume, Switch
from unerring.correlation.record import Record
from unerring.matching import Merge
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, Effects, Event, Report, Send, Stamp

CONFIG = CorrelationConfig(
    window_events=8,
    patience_us=100,
    patience_us_max=350,
    gap_pause_us=20,
    ack_repeat_us=250,
    ping_us=200,
    suspect_us_min=120,
    suspect_us_max=3_000,
)
BOTH = rules("X", "Y")
X, Y = ("X/0", "X/1"), ("Y/0", "Y/1")


def intake(config: CorrelationConfig = CONFIG) -> Intake:
    """The application's, which takes x from X and y from Y, since time 0."""
    made = Intake("app", BOTH, config)
    made.incarnation = 7
    made.read(BOTH.founding(), 0)
    return made


def batch(first: int, last: int, stream: str = "x", watermark: int = TIME_MIN) -> Batch:
    """Events number `first` to `last`, at these times; none if `last` is before `first`."""
    events = tuple(Event(stream, Stamp(time), (), {"v": time}) for time in range(first, last + 1))
    return Batch(stream, Stamp(first - 1) if first > 1 else BEFORE_ALL, first - 1, events, watermark)


def of(effects: Effects, kind: type) -> Effects:
    return [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def to(names: tuple[str, ...], message: object) -> Effects:
    return [Send(name, message) for name in names]


def asks(machine: Intake, now: int) -> Effects:
    """What it asks at a tick; not the pings and acks of that time."""
    effects = machine.tick(now)
    return [e for e in effects if not (isinstance(e, Send) and isinstance(e.message, Ping | Ack))]


def ack(count: int, credit: int, stream: str = "x") -> Ack:
    return Ack(stream, Stamp(count) if count else BEFORE_ALL, count, 7, credit)


def resume(count: int, credit: int, watermark: int) -> Resume:
    return Resume("x", Stamp(count) if count else BEFORE_ALL, count, 7, credit, watermark)


def test_it_begins_with_acks_to_all_upstream_replicas_and_repeats_them_at_intervals() -> None:
    machine = intake()
    nothing = [*to(X, ack(0, 8)), *to(Y, ack(0, 8, "y"))]
    assert machine.begin(0) == nothing
    pings = to((*X, *Y), Ping(5))
    assert machine.tick(5) == [*nothing, *pings]
    assert of(machine.tick(204), Ping) == []
    assert of(machine.tick(205), Ping) == to((*X, *Y), Ping(205))
    assert of(machine.tick(254), Ack) == []
    machine.take("X/0", batch(1, 2), 254)
    assert of(machine.tick(255), Ack) == [*to(X, ack(2, 8)), *to(Y, ack(0, 8, "y"))]
    assert of(machine.tick(404), Ping) == []
    assert of(machine.tick(504), Ack) == []
    assert of(machine.tick(505), Ack) != []


def test_a_stream_that_pauses_is_asked_for_less_and_less_often_until_it_moves_again() -> None:
    machine = intake()
    machine.begin(0)
    for since, patience_us in ((0, 100), (100, 200), (300, 350), (650, 350)):
        assert asks(machine, since + patience_us - 1) == []
        asked = [*to(X, AskMore("x", 0, 8, TIME_MIN)), *to(Y, AskMore("y", 0, 8, TIME_MIN))]
        assert asks(machine, since + patience_us) == asked, since
    machine.take("X/0", batch(1, 2, watermark=9), 1_050)
    machine.take("X/0", batch(1, 2, watermark=9), 1_100)  # a duplicate is no progress
    assert asks(machine, 1_149) == []
    assert asks(machine, 1_150) == to(X, AskMore("x", 2, 8, 9))
    assert asks(machine, 1_349) == []
    assert asks(machine, 1_350) == [*to(X, AskMore("x", 2, 8, 9)), *to(Y, AskMore("y", 0, 8, TIME_MIN))]


def test_one_that_was_never_begun_is_patient_from_its_first_tick_on() -> None:
    machine = intake()
    assert machine.has_more("X/0", HasMore("x", 5, 5, True)) == [], "nobody was asked"
    assert asks(machine, 40) == []
    assert asks(machine, 139) == []
    assert len(asks(machine, 140)) == 4


def test_the_leader_is_asked_for_what_somebody_has_and_then_all_who_have_it() -> None:
    machine = intake()
    machine.begin(0)
    machine.take("Y/0", batch(1, 1, "y", watermark=1 << 40), 0)
    assert len(asks(machine, 100)) == 4
    for name, leads in (("X/1", False), ("X/0", True), ("Z/0", True)):
        assert machine.has_more(name, HasMore("x", 3, 3, leads)) == []
    assert asks(machine, 199) == []
    asked = Report("correlation.asked")
    assert asks(machine, 200) == [asked, Send("X/0", resume(0, 8, TIME_MIN))]
    assert asks(machine, 299) == [], "patience begins anew"
    assert asks(machine, 300)[:2] == to(X, AskMore("x", 0, 8, TIME_MIN))
    for name, leads in (("X/1", False), ("X/0", True)):
        machine.has_more(name, HasMore("x", 3, 3, leads))
    assert asks(machine, 400) == [asked, *to(("X/1", "X/0"), resume(0, 8, TIME_MIN))], "it was asked, and did not"
    assert machine.take("X/1", batch(1, 1), 410)[1] == [], "who helps is not stopped by its own events"
    assert machine.take("X/0", batch(1, 1), 410)[1] == [], "nor by a duplicate"
    assert machine.take("X/0", batch(2, 2), 410)[1] == [Send("X/1", Enough("x"))]
    assert machine.take("X/0", batch(3, 3), 410)[1] == [], "it is told once"


def test_where_no_leader_answers_all_who_have_it_are_asked_and_a_leader_next_time_first() -> None:
    machine = intake()
    machine.begin(0)
    asks(machine, 100)
    machine.has_more("X/1", HasMore("x", 1, TIME_MIN, False))
    assert asks(machine, 200) == [Report("correlation.asked"), Send("X/1", resume(0, 8, TIME_MIN))]
    machine.has_more("X/1", HasMore("x", 1, TIME_MIN, False))
    machine.has_more("X/0", HasMore("x", 1, TIME_MIN, True))
    effects = [e for e in asks(machine, 300) if e not in to(Y, AskMore("y", 0, 8, TIME_MIN))]
    assert effects == [Report("correlation.asked"), Send("X/0", resume(0, 8, TIME_MIN))]
    machine.take("X/0", batch(1, 1), 310)
    asks(machine, 410)
    for name, leads in (("X/1", False), ("X/0", True)):
        machine.has_more(name, HasMore("x", 2, TIME_MIN, leads))
    effects = [e for e in asks(machine, 510) if not of([e], AskMore)]
    assert effects == [Report("correlation.asked"), Send("X/0", resume(1, 8, TIME_MIN))], "it has served since"


def test_who_has_no_more_than_the_receiver_is_not_asked_for_it() -> None:
    for more, lacks in ((HasMore("x", 2, 9, True), False), (HasMore("x", 3, 9, True), True)):
        machine = intake()
        machine.begin(0)
        machine.take("X/0", batch(1, 2, watermark=9), 0)
        asks(machine, 100)
        machine.has_more("X/0", more)
        assert bool(of(asks(machine, 200), Resume)) == lacks, more
    machine = intake()
    machine.begin(0)
    machine.take("X/0", batch(1, 2, watermark=9), 0)
    asks(machine, 100)
    machine.has_more("X/0", HasMore("x", 2, 10, True))
    assert of(asks(machine, 200), Resume) == [Send("X/0", resume(2, 8, 9))], "a watermark is lacking"
    asks(machine, 300)
    machine.has_more("X/0", HasMore("x", 5, 10, True))
    machine.take("X/0", Batch("x", Stamp(2), 2, (Event("x", Stamp(10), (), {"v": 0}),), 10), 310)
    assert of(asks(machine, 409), Resume) == []
    assert asks(machine, 410)[:2] == to(X, AskMore("x", 3, 8, 10)), "it moves: the rest is perhaps on its way"


def test_a_gap_is_asked_for_at_its_sender_again_after_a_pause() -> None:
    machine = intake()
    machine.take("X/0", batch(1, 2, watermark=2), 0)
    for now, asked in ((5, True), (24, False), (25, True), (44, False)):
        taken, effects = machine.take("X/1", batch(5, 6), now)
        assert taken.verdict is Verdict.GAP
        assert effects == ([Report("correlation.gap"), Send("X/1", resume(2, 8, 2))] if asked else []), now
    assert machine.streams["x"].count == 2


def test_credit_is_the_window_beyond_what_was_processed_and_announced_when_a_quarter_is_free() -> None:
    machine = intake()
    machine.take("X/1", batch(1, 6), 0)
    assert machine.ack("x") == ack(6, 8)
    machine.ack("y")
    assert machine.forget("x", 1) == 1
    assert machine.announce() == []
    assert machine.forget("x", 2) == 1
    assert machine.announce() == [Send("X/1", ack(6, 10))], "to whoever served it last"
    assert machine.announce() == []
    assert machine.forget("x", 1) == 0, "it was forgotten before"
    assert machine.forget("x", 99) == 4
    assert machine.credit("x") == 14
    machine.take("X/0", batch(6, 6), 0)
    assert machine.announce() == [Send("X/0", ack(6, 14))], "a duplicate was served, too"
    for window, announced in ((1, True), (3, True), (7, True)):
        fresh = intake(CorrelationConfig(window_events=window))
        assert bool(fresh.announce()) == announced
        fresh.take("X/0", batch(1, 1), 0)
        assert fresh.announce() == []
        fresh.forget("x", 1)
        assert fresh.announce() == [Send("X/0", ack(1, window + 1))]
    assert intake().announce() == [*to(X, ack(0, 8)), *to(Y, ack(0, 8, "y"))], "nobody has served it yet"


def test_what_waits_to_be_merged_uses_up_credit() -> None:
    machine = intake()
    merge = Merge(BOTH.inputs("app")[1:])
    for stream, maker in (("x", "X/0"), ("y", "Y/0")):
        machine.take(maker, batch(1, 3, stream), 0)
    merge.push_all("y", machine.streams["y"].read(batch(2, 3, "y")))
    machine.consume(merge)
    assert (machine.credit("x"), machine.credit("y")) == (3 + 8, 1 + 8)


def test_only_the_node_that_a_stream_comes_from_is_heard_and_answered() -> None:
    machine = intake()
    taken, effects = machine.take("Y/0", batch(1, 1), 0)
    assert (taken.verdict, len(taken.events), taken.advanced, effects) == (Verdict.ELSEWHERE, 0, False, [])
    assert machine.answers("Z/0") == []
    assert machine.answers("Y/1") == [Send("Y/1", ack(0, 8, "y"))]
    assert machine.reconnected("X/1") == [Send("X/1", ack(0, 8))]
    assert machine.reconnected("Z/0") == []
    machine.take("X/0", batch(1, 2, watermark=5), 0)
    assert machine.ask_all("x") == to(X, resume(2, 8, 5))


def test_an_older_record_says_nothing() -> None:
    machine = Intake("app", BOTH, CONFIG)
    assert machine.begin(0) == []
    members = {name: member for name, member in BOTH.founding().members.items() if name != "X/1"}
    machine.read(Record(5, members), 0)
    assert machine.upstream() == ["X/0", *Y]
    for version in (4, 5):
        machine.read(Record(version, BOTH.founding().members), 0)
        assert machine.upstream() == ["X/0", *Y]
    machine.read(Record(6, BOTH.founding().members), 0)
    assert machine.upstream() == [*X, *Y]


def test_it_is_deaf_when_all_of_some_upstream_node_are_silent() -> None:
    assert not Intake("app", BOTH, CONFIG).deaf(1 << 40), "there is nobody whom it could hear"
    machine = intake()
    assert not machine.deaf(120)
    assert machine.deaf(121)
    machine.hear("X/1", 121)
    assert machine.deaf(121), "nobody of Y"
    machine.hear("Y/0", 121)
    assert not machine.deaf(121 + 120)
    assert not machine.deaf(121 + 242), "twice its one pause"
    assert machine.deaf(121 + 243)


def test_the_latency_follows_the_answers_to_pings_that_can_be_of_this_process() -> None:
    machine = intake()
    assert machine.latency_us == 0
    latencies = []
    for sent_us in (9_900, 9_600, 10_000, 10_001, 7_000, 6_999):
        machine.pong(Pong(sent_us), 10_000)
        latencies.append(machine.latency_us)
    assert latencies == [25, 118, 88, 88, 816, 816]


# Upgrades: X makes x up to time 50, and X-1 from there on.


UPGRADE = side_by_side(rules("X"), rules("X"), ("x",), 1)
NEXT = ("X-1/0", "X-1/1")


def upgrading(at_us: int | None = 50) -> Intake:
    machine = Intake("app", UPGRADE, CONFIG)
    machine.incarnation = 7
    machine.read(UPGRADE.founding(), 0)
    if at_us is not None:
        machine.switch = Switch(1, at_us)
    return machine


def test_a_stream_goes_over_to_the_node_that_takes_over_when_all_of_the_old_one_is_there() -> None:
    machine = upgrading()
    assert machine.makers("x") == ("X", "X-1")
    assert machine.maker("x") == "X"
    assert machine.upstream() == [*X, *NEXT]
    assert machine.take("X-1/0", batch(1, 1), 0)[1] == [], "its time has not come"
    machine.take("X/0", batch(1, 12, watermark=50), 0)
    machine.forget("x", 2)
    assert machine.watermark("x") == 50
    assert machine.go_over("x", 0) == [], "more of its time may follow"
    assert not machine.passed
    machine.take("X/0", batch(13, 12, watermark=51), 10)
    assert machine.watermark("x") == 50, "the old node's end is not the stream's"
    assert machine.go_over("x", 20) == to(NEXT, Ack("x", BEFORE_ALL, 0, 7, 0)), "what waits uses up credit"
    assert machine.passed
    assert machine.watermark("x") == 50
    assert (machine.makers("x"), machine.maker("x")) == (("X-1",), "X-1")
    assert machine.upstream() == [*NEXT, *X]
    assert machine.take("X/1", batch(13, 13), 20)[1] == [Send("X/1", ack(12, 20))], "its last ack"
    assert machine.answers("X-1/1") == [Send("X-1/1", Ack("x", BEFORE_ALL, 0, 7, 0))]
    assert machine.answers("src/0") == []
    assert machine.take("X-1/1", batch(51, 51), 20)[0].verdict is Verdict.GAP, "it has a first event of its own"
    assert asks(machine, 119) == []
    assert asks(machine, 120) == to(NEXT, AskMore("x", 0, 0, 50)), "its patience begins when it takes over"
    assert machine.forget("x", 0) == 10
    assert machine.credit("x") == 8
    assert machine.go_over("x", 30) == []


def test_whoever_served_the_old_node_s_stream_is_not_told_of_credit_for_the_new_one_s() -> None:
    machine = upgrading()
    machine.take("X/0", batch(1, 3, watermark=51), 0)
    machine.go_over("x", 0)
    machine.forget("x", 0)
    assert machine.announce() == to(NEXT, Ack("x", BEFORE_ALL, 0, 7, 8))


def test_until_the_time_of_an_upgrade_is_known_a_stream_stays_where_it_is() -> None:
    machine = upgrading(None)
    machine.take("X/0", batch(1, 3, watermark=99), 0)
    assert machine.watermark("x") == 99
    assert machine.go_over("x", 0) == []
    assert not machine.passed
    machine.switch = Switch(1, 98)
    assert machine.watermark("x") == 98
    machine.rearrange(UPGRADE, 0)
    assert machine.watermark("x") == 98, "it is of this upgrade"
    machine.rearrange(side_by_side(rules("X"), rules("X", "Q"), ("q",), 2), 0)
    assert machine.switch is None, "it was of the one before"


def test_what_is_here_is_compared_with_the_marks_of_the_node_it_comes_from() -> None:
    machine = upgrading()
    machine.take("X/0", batch(1, 3), 0)
    assert [machine.is_after("x", "X/1", Stamp(time)) for time in (2, 3, 4)] == [True, True, False]
    machine.take("X/0", batch(4, 3, watermark=51), 0)
    machine.go_over("x", 0)
    assert machine.is_after("x", "X/1", Stamp(9)), "nothing of that node is needed"
    assert not machine.is_after("x", "X-1/1", Stamp(0))


def test_a_state_of_the_middle_of_an_upgrade_is_gone_on_with() -> None:
    ended = ("X", Stamp(12), 12)
    for maker, gone, makers in (("X-1", ended, ("X-1",)), ("X-1", None, ("X-1",)), ("X", None, ("X", "X-1"))):
        machine = upgrading()
        machine.go_on_with("x", maker, gone)
        assert machine.makers("x") == makers
        assert machine.begin(0) == to(NEXT if makers == ("X-1",) else X, ack(0, 8))
        assert machine.answers("X/0") == (
            [] if makers == ("X-1",) and gone is None else [Send("X/0", ack(12, 20) if gone else ack(0, 8))]
        )
        machine.rearrange(UPGRADE, 0)
        assert machine.makers("x") == (makers if gone is not None else ("X", "X-1"))
    machine = upgrading()
    machine.go_on_with("x", "X-1", ended)
    machine.tick(5_000)
    assert not machine.deaf(5_120), "it listens to those from now on"
    assert machine.deaf(5_121)
    machine = upgrading()
    machine.go_on_with("x", "Z", None)
    assert machine.makers("x") == ("X", "X-1"), "it is not known here"
    machine.end("x")
    assert (machine.makers("x"), machine.maker("x"), machine.begin(0), machine.passed) == ((), "", [], True)
    assert machine.watermark("x") == TIME_MIN
    machine.go_on_with("x", "", ended)
    assert machine.begin(0) == []


def test_a_stream_that_ends_with_an_upgrade_has_ended_in_a_later_state_too() -> None:
    topology = side_by_side(BOTH, rules("Y"), (), 1)
    machine, later = (Intake("app", topology, CONFIG) for _ in range(2))
    for one in (machine, later):
        one.read(topology.founding(), 0)
    assert machine.makers("x") == ("X",)
    machine.switch = Switch(1, 50)
    machine.take("X/0", batch(1, 2, watermark=TIME_MAX), 0)
    assert machine.go_over("x", 0) == [], "nobody takes over"
    assert (machine.maker("x"), machine.passed) == ("", True)
    later.go_on_with("x", machine.maker("x"), machine.ended["x"])
    assert (later.maker("x"), later.passed) == ("", True)
    assert later.answers("X/0") == [Send("X/0", Ack("x", Stamp(2), 2, 0, 10))]


def test_streams_come_and_go_with_the_nodes() -> None:
    machine = intake()
    machine.take("X/0", batch(1, 2), 0)
    machine.take("Y/0", batch(1, 2, "y"), 0)
    machine.rearrange(rules("X"), 5)
    assert list(machine.streams) == ["x"]
    assert machine.streams["x"].count == 2, "what stays goes on"
    assert machine.begin(5) == to(X, ack(2, 8))
    assert asks(machine, 105) == to(X, AskMore("x", 2, 8, TIME_MIN))
    assert machine.reconnected("Y/0") == []
    machine.rearrange(BOTH, 200)
    assert machine.ack("y") == ack(0, 8, "y"), "who comes back begins anew"
    machine.hear("X/0", 321)
    assert machine.deaf(321), "nobody of Y was heard since it came"
    turned = msgspec.structs.replace(
        BOTH, nodes=tuple(msgspec.structs.replace(node, inputs=tuple(reversed(node.inputs))) for node in BOTH.nodes)
    )
    assert list(Intake("app", turned, CONFIG).streams) == ["x", "y"], "by rank, whatever the order of a node's inputs"
