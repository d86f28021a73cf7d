"""One replica by itself: what it takes of whom, when it works, what it tells, and when it stops or begins anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlation.one import (
    CAUGHT_UP,
    CONFIG,
    GONE,
    JOINING,
    TICK_US,
    One,
    event,
    kinds,
    member,
    record_of,
    stamp,
    to,
    topology,
)
from unerring.correlation import (
    ENGINE,
    MEMBERSHIP,
    Ack,
    Batch,
    Forget,
    Produced,
    Resume,
    Switch,
    side_by_side,
)
from unerring.correlation.election import DEAF_US
from unerring.correlation.engine import HandOver
from unerring.correlation.messages import (
    SEALER,
    AskAcks,
    AskConfirmation,
    AskMore,
    Elected,
    Enter,
    Entered,
    Gossip,
    HasMore,
    LeaderDead,
    NotMember,
    Pong,
    Pruned,
    ReadRecord,
    Receipt,
    RecordIs,
    Register,
)
from unerring.correlation.outgoing import StreamPosition
from unerring.correlation.record import Member, Record
from unerring.correlation.replica import FLUSH, PROCESS, TICK
from unerring.matching import Quarantined
from unerring.model import (
    BEFORE_ALL,
    TIME_MIN,
    Connected,
    Deliver,
    Disconnected,
    ProtocolError,
    Report,
    Send,
    SetTimer,
    Stamp,
    Stop,
)

# ---- events ----------------------------------------------------------------------------------------------------


def test_a_founding_member_begins_empty_and_says_so_to_all_upstream() -> None:
    one = One()
    assert kinds(one.begun) == ["SetTimer", "Enter"]
    assert one.begun[0] == SetTimer(TICK, TICK_US)
    assert one.batch(1, 2) == [], "it has not entered"
    effects = one.enter()
    assert to(effects, Ack) == [(name, Ack("a", BEFORE_ALL, 0, 1, CONFIG.window_events)) for name in ("src/0", "src/1")]
    assert (one.machine.incarnation, one.machine.holding) == (1, True)


def test_who_has_not_entered_believes_nobody_but_a_keeper() -> None:
    one = One()
    forged = Entered(one.token, 1, True, one.layout.founding())
    with pytest.raises(ProtocolError, match="Entered from N/1, which does not keep the membership record"):
        one.hear("N/1", forged)
    assert not one.machine.holding
    one.hear("membership/b", forged)
    assert one.machine.holding


def test_events_are_processed_after_a_pause_at_once_and_within_it_together() -> None:
    one = member()
    effects = one.batch(1, 2, 5_000)
    assert to(effects, Ack) == [("src/0", Ack("a", Stamp(2, 0), 2, 1, 2 + CONFIG.window_events))]
    assert one.made == 2
    effects = one.batch(3, 3, 5_999)
    assert [e for e in effects if isinstance(e, SetTimer)] == [SetTimer(PROCESS, 6_000)]
    assert [e for e in one.batch(4, 4, 5_999) if isinstance(e, SetTimer)] == [], "it is set"
    assert one.made == 2
    one.tick(6_000, PROCESS)
    assert one.made == 4
    one.batch(5, 5, 7_000)
    assert one.made == 5
    assert one.machine.engine.through == [2, 4, 5]
    assert one.tick(9_000, PROCESS) == [], "nothing has come"
    assert one.machine.engine.through == [2, 4, 5]
    assert kinds(one.batch(6, 6, 9_500)) == ["Ack"]


def test_what_comes_twice_or_from_elsewhere_or_too_early_leaves_all_as_it_was() -> None:
    one = member()
    one.batch(1, 2, 5_000)
    assert kinds(one.batch(1, 2, 10_000)) == ["Ack"], "the answer may have been lost"
    assert one.batch(3, 2, 10_000) == [], "a watermark again"
    gap = one.batch(4, 5, 10_000)
    assert kinds(gap) == ["Report", "Resume"]
    assert one.batch(3, 3, 10_000, stream="x") == []
    ahead = one.batch(3, 3, 10_000, switch=Switch(1, 50))
    assert ahead == [], "past an upgrade that is not known here"
    assert (one.made, one.machine.intake.streams["a"].count) == (2, 2)
    assert kinds(one.batch(3, 2, 10_000, watermark=7)) == [], "nothing to acknowledge"
    assert one.machine.merge.through == 7


def test_what_rules_refuse_is_delivered_and_reported_and_the_rest_goes_on() -> None:
    one = member()
    wrong = event(1, -5)
    effects = one.batch(1, 2, 5_000, events=(wrong, event(2)))
    assert effects[:2] == [Report("correlation.quarantined", "negative"), Deliver(Quarantined("R", wrong, "negative"))]
    assert one.made == 1


def test_a_replica_whose_receivers_do_not_keep_up_stops_processing_until_there_is_room() -> None:
    one = member(outgoing_events_max=3, patience_us=200_000, ask_us=0)
    one.batch(1, 2, 5_000)
    one.batch(3, 4, 10_000)
    assert one.made == 4
    assert kinds(one.batch(5, 6, 20_000)) == ["Ack"]
    assert one.made == 4, "it is full"
    one.acked(1, 21_000)
    assert one.made == 4
    effects = one.acked(2, 22_000)
    assert one.made == 6, "there is room, for whole times"
    assert all(kinds(some).count("SetTimer") == 0 for some in effects)
    asked = to(one.tick(30_000), AskAcks)
    assert asked == [("app/0", AskAcks()), ("app/1", AskAcks())]
    assert to(one.tick(30_000 + 199_999), AskAcks) == []
    assert to(one.tick(30_000 + 200_000), AskAcks) == asked


def test_many_events_are_processed_in_steps() -> None:
    one = member(process_events_max=2)
    effects = one.batch(1, 5, 5_000)
    assert one.machine.engine.through == [2]
    assert [e for e in effects if isinstance(e, SetTimer)] == [SetTimer(PROCESS, 6_000)]
    assert [e for e in one.tick(6_000, PROCESS) if isinstance(e, SetTimer)] == [SetTimer(PROCESS, 7_000)]
    assert [e for e in one.tick(7_000, PROCESS) if isinstance(e, SetTimer)] == []
    assert one.machine.engine.through == [2, 4, 5]


def leading() -> One:
    one = member(watermark_pause_us=4_000)
    one.hear("N/1", Elected(1, "N/0"), 1_000)
    for name in ("app/0", "app/1"):
        one.hear(name, Ack("s", BEFORE_ALL, 0, 1, 999), 1_000)
    return one


def test_a_leader_sends_what_it_made_and_a_watermark_held_back_with_a_timer() -> None:
    one = leading()
    effects = one.batch(1, 2, 5_000)
    assert [(name, len(b.events), b.watermark) for name, b in to(effects, Batch)] == [("app/0", 2, 2), ("app/1", 2, 2)]
    effects = one.batch(3, 2, 6_500, watermark=3)
    assert effects == [SetTimer(FLUSH, 10_500)]
    assert one.batch(3, 2, 6_600, watermark=4) == [SetTimer(PROCESS, 7_500)]
    assert one.tick(7_500, PROCESS) == []
    effects = one.tick(10_500, FLUSH)
    assert [(name, len(b.events), b.watermark) for name, b in to(effects, Batch)] == [("app/0", 0, 4), ("app/1", 0, 4)]
    assert one.batch(3, 2, 11_000, watermark=5) == [SetTimer(FLUSH, 15_000)]


def test_a_leader_that_hears_of_a_better_one_leaves_it_the_lead() -> None:
    one = One(name="N/1")
    one.enter()
    one.hear("N/0", Elected(1, "N/1"), 1_000)
    one.hear("app/0", Ack("s", BEFORE_ALL, 0, 1, 999), 1_000)
    assert [len(b.events) for _, b in to(one.batch(1, 2, 5_000), Batch)] == [2]
    effects = one.hear("N/0", Gossip(1, 1, True, 0, ()), 6_000)
    assert effects == [Report("correlation.stepped_down", "N/1 leaves the lead to N/0")]
    assert to(one.batch(3, 4, 9_000), Batch) == []
    effects = one.hear("N/0", Disconnected("N/0", "the connection was reset"), 10_000)
    assert Report("correlation.leader", "N/1 leads") in effects
    assert to(one.tick(11_000), Gossip)[0][1].leader


def test_a_leader_that_hears_nothing_from_upstream_says_so_once_and_how_far_upstream_is() -> None:
    one = leading()

    def gossip(now: int) -> tuple[list[Any], int]:
        effects = one.tick(now)
        [(_, said)] = to(effects, Gossip)
        return [message for name, message in to(effects, LeaderDead) if name == "N/1"], said.latency_us

    assert gossip(100_000) == ([], 0)
    one.hear("src/0", Pong(92_000), 100_000)
    assert gossip(200_000) == ([], 2_000), "a quarter of what it took"
    later = 200_000 + CONFIG.suspect_us_max + 1
    assert gossip(later) == ([LeaderDead("N/0")], DEAF_US)
    assert gossip(later + 100_000) == ([], DEAF_US)
    one.hear("src/1", Pong(later), later + 100_000)
    assert gossip(later + 200_000)[1] < DEAF_US


def test_a_leader_tells_the_peers_of_a_receiver_whose_link_has_ended() -> None:
    one = leading()
    ended = Disconnected("app/0", "the connection was reset")
    assert to(one.hear("app/0", ended, 2_000), LeaderDead) == [("app/1", LeaderDead("app/0"))]
    assert to(member().hear("app/0", ended, 2_000), LeaderDead) == [], "it does not lead"


def test_a_connection_that_is_new_repeats_both_ways() -> None:
    one = leading()
    one.batch(1, 2, 5_000)
    effects = one.hear("app/0", Connected("app/0", 1), 6_000)
    assert [(name, b.index, len(b.events)) for name, b in to(effects, Batch)] == [("app/0", 0, 2)]
    effects = one.hear("src/1", Connected("src/1", 1), 6_000)
    assert to(effects, Ack) == [("src/1", Ack("a", Stamp(2, 0), 2, 1, 2 + CONFIG.window_events))]


# ---- acks, gossip, records ---------------------------------------------------------------------------------------


def test_whose_acks_and_gossip_count() -> None:
    one = member()
    one.batch(1, 3, 5_000)
    assert one.hear("app/0", Ack("s", Stamp(3, 0), 3, 500, 9)) == [Send("app/0", NotMember(1))]
    one.hear("app/0", Ack("s", Stamp(3, 0), 3, 1, 99))
    receipts = (Receipt("s", "app/1", 1, Stamp(2, 0), 2, 99),)
    read = [Send(MEMBERSHIP, ReadRecord(1, 1, 0, passed=True))]
    queue = one.machine.outgoing.queues["s"]
    for sender, incarnation in (("app/1", 1), ("N/1", 2), ("N/7", 1)):
        for version, effects in ((1, []), (2, read)):
            assert one.hear(sender, Gossip(incarnation, version, False, 0, receipts), 5_000) == effects
            assert queue.mark_count == 0, "no peer's"
    assert one.hear("N/1", Gossip(1, 2, False, 0, receipts), 5_000) == read
    assert queue.mark_count == 2
    assert one.hear("app/1", NotMember(1), 5_000) == []
    assert one.hear("app/1", NotMember(2), 5_000) == read


def test_who_resumes_with_an_incarnation_that_was_not_read_yet_is_looked_for_in_the_record() -> None:
    one = member()
    one.batch(1, 3, 5_000)
    read = Send(MEMBERSHIP, ReadRecord(1, 1, 0, passed=True))
    for name, incarnation, looked in (("app/0", 1, False), ("app/0", 2, True), ("app/9", 1, True)):
        effects = one.hear(name, Resume("s", BEFORE_ALL, 0, incarnation, 9, TIME_MIN), 5_000)
        assert (read in effects) is looked
        assert [len(b.events) for _, b in to(effects, Batch)] == ([] if name == "app/9" or incarnation == 2 else [3])
    assert to(one.hear("app/0", AskMore("s", 1, 9, 1), 5_000), HasMore) == [("app/0", HasMore("s", 3, 3, leads=False))]


def test_what_an_upstream_pruned_counts_of_one_in_the_record_alone() -> None:
    one = member()
    one.batch(1, 3, 5_000)
    lacks = [
        Report("correlation.pruned", "N/0 lacks what src/1 has pruned"),
        Send(MEMBERSHIP, ReadRecord(1, 1, 0, passed=True)),
    ]
    assert one.hear("src/1", Pruned("a", Stamp(4, 0), 1)) == lacks
    for name, pruned in (
        ("src/1", Pruned("a", Stamp(3, 0), 1)),
        ("src/1", Pruned("a", Stamp(4, 0), 2)),
        ("src/7", Pruned("a", Stamp(4, 0), 1)),
        ("src/1", Pruned("x", Stamp(4, 0), 1)),
    ):
        assert one.hear(name, pruned) == []
    assert one.machine.holding, "it goes on until the record says that it is gone"


def test_what_a_replica_does_at_intervals() -> None:
    one = member(gossip_us=50_000, record_poll_us=1_000_000)
    read = ("membership", ReadRecord(1, 1, 0, passed=True))

    def tick(now: int) -> tuple[bool, list[Any]]:
        effects = one.tick(now)
        assert effects[0] == SetTimer(TICK, now + TICK_US)
        return read in to(effects, ReadRecord), to(effects, Gossip)

    one.batch(1, 2, 5_000)
    one.acked(1, 5_000)
    receipts = tuple(Receipt("s", name, 1, Stamp(1, 0), 1, 999) for name in ("app/0", "app/1"))
    read_at_once, [(name, gossip)] = tick(10_000)
    assert read_at_once
    assert (name, gossip.incarnation, gossip.version, gossip.leader) == ("N/1", 1, 1, False)
    assert gossip.receipts == receipts
    assert tick(59_999) == (False, [])
    again, [(name, gossip)] = tick(60_000)
    assert not again
    assert [tick(now)[0] for now in (1_009_999, 1_010_000, 1_010_001)] == [False, True, False]


def test_a_record_says_who_goes_on_who_stops_and_who_begins_anew() -> None:
    one = member()
    one.batch(1, 2, 5_000)
    assert one.hear(MEMBERSHIP, RecordIs(record_of(1, N0=Member(2, CAUGHT_UP)))) == [], "not newer"
    stop = Stop("another process has entered as N/0; this one is not needed any more")
    assert one.hear(MEMBERSHIP, RecordIs(record_of(2, N0=Member(2, JOINING)))) == [stop]
    assert one.hear(MEMBERSHIP, RecordIs(Record(2, {}))) == [stop]
    one.hear(MEMBERSHIP, RecordIs(record_of(3)))
    assert (one.machine.record.version, one.made) == (3, 2)
    effects = one.hear(MEMBERSHIP, RecordIs(record_of(4, N0=Member(1, GONE))), 9_000)
    assert effects[0] == Report("correlation.joins_anew", "N/0 is no longer in the record")
    [(_, enter)] = to(effects, Enter)
    assert (enter.replica, enter.incarnation, enter.token == one.token) == ("N/0", 0, False)
    assert (one.made, one.machine.holding) == (0, False)
    one.token = enter.token
    one.enter(record_of(5, N0=Member(2, JOINING)), founding=False, incarnation=2)
    assert (one.machine.incarnation, one.machine.holding) == (2, False)


# ---- engines that work on their own time -------------------------------------------------------------------------


def test_an_asynchronous_engine_hands_over_from_where_the_replica_is_and_no_one_else_does() -> None:
    one = One(engine=None)
    asked = Deliver(HandOver({"s": BEFORE_ALL}, {"s": 0}))
    effects = one.enter()
    assert effects[-2:] == [asked, Deliver(StreamPosition("s", BEFORE_ALL, 0, TIME_MIN))]
    two = Batch("s", BEFORE_ALL, 0, (event(1, stream="s"), event(2, stream="s")), 2)
    assert one.hear("N/1", Produced((two,))) == []
    assert one.made == 0
    assert one.hear(ENGINE, Produced((two,))) == [Deliver(StreamPosition("s", Stamp(2, 0), 2, 2))]
    gap = Batch("s", Stamp(3, 0), 3, (event(4, stream="s"),), 4)
    position = Deliver(StreamPosition("s", Stamp(2, 0), 2, 2))
    assert one.hear(ENGINE, Produced((gap,))) == [Deliver(HandOver({"s": Stamp(2, 0)}, {"s": 2})), position]
    assert one.made == 2


def test_the_time_of_an_upgrade_comes_with_what_an_engine_hands_over() -> None:
    both = side_by_side(topology(), topology(), ("s",), 1)
    one = One(both, engine=None)
    one.enter()
    made = tuple(event(time, stream="s") for time in (1, 2, 3))
    one.hear(ENGINE, Produced((Batch("s", BEFORE_ALL, 0, made, 3, Switch(1, 2)),)))
    assert one.machine.outgoing.span.switch == Switch(1, 2)
    assert [each.stamp.time for each in one.machine.outgoing.queues["s"].events()] == [1, 2]


def test_what_an_engine_hands_over_is_on_disk_once_it_is_enough_for_a_new_state() -> None:
    one = One(engine=None, disk={}, durable_snapshot_events=3)
    one.enter()
    for number, writes in ((1, False), (2, False), (3, True), (4, False)):
        batch = Batch("s", stamp(number - 1), number - 1, (event(number, stream="s"),), number)
        assert ("Persist" in kinds(one.hear(ENGINE, Produced((batch,))))) is writes
    again = One(engine=None, disk=one.disk)
    again.enter(founding=False)
    assert again.made == 3, "the fourth is handed over again"


def test_a_sealer_makes_room_for_what_it_keeps_itself() -> None:
    layout = topology()
    one = One(layout, engine=None, name="app/0", window_events=4)
    one.enter()
    events = tuple(event(time, stream="s") for time in (1, 2, 3))
    one.hear("N/0", Batch("s", BEFORE_ALL, 0, events, 3))
    assert one.machine.intake.credit("s") == 4
    assert one.hear("N/0", Forget("s", 2)) == one.hear(SEALER, Forget("s", 2, "M")) == []
    assert one.machine.intake.credit("s") == 4
    effects = one.hear(SEALER, Forget("s", 2))
    assert to(effects, Ack) == [("N/0", Ack("s", Stamp(3, 0), 3, 1, 6))]
    assert to(one.hear(SEALER, Forget("s", 3, "N")), Ack) == [("N/0", Ack("s", Stamp(3, 0), 3, 1, 7))]
    assert one.machine.merge.size("s") == 0


# ---- durable ---------------------------------------------------------------------------------------------------


def test_a_durable_replica_goes_on_after_a_crash_with_what_it_had_acknowledged() -> None:
    disk: dict[str, bytes] = {}
    one = One(disk=disk, durable_snapshot_events=4)
    one.enter()
    effects = one.batch(1, 2, 5_000)
    assert kinds(effects)[0] == "Persist", "on disk before it is acknowledged"
    logged = set(disk)
    one.batch(3, 3, 10_000)
    assert len(set(disk) - logged) == 1
    again = One(disk=disk)
    assert (again.made, again.machine.engine.count) == (3, 3)
    again.enter(founding=False)
    assert again.machine.holding
    assert kinds(again.hear(MEMBERSHIP, AskConfirmation("7", "N/1"))) == ["Confirmation"], "as a member, at once"
    effects = one.batch(4, 4, 15_000)
    assert kinds(effects)[-1] == "Persist", "a snapshot, instead of four events"
    last = One(disk=disk)
    assert (last.made, last.machine.engine.count) == (4, 4)
    assert last.machine._journal.batches == []
    assert last.machine.timer(TICK, 0)[0] == SetTimer(TICK, TICK_US)
    evicted = One(disk=disk)
    evicted.enter(record_of(4, N0=Member(2, JOINING)), founding=False, incarnation=2)
    assert (evicted.machine.holding, evicted.made) == (False, 0), "of an incarnation that is gone"


def test_a_durable_replica_keeps_what_it_has_told_a_joiner() -> None:
    disk: dict[str, bytes] = {}
    one = One(disk=disk)
    one.enter()
    one.batch(1, 3, 5_000)
    one.acked(2)
    assert kinds(one.hear("app/1", Register(2, 1))) == ["Persist", "Registered"]
    assert kinds(one.hear("app/1", Register(2, 1))) == ["Registered"], "said already"
    one.acked(3)
    assert kinds(one.hear("app/1", Register(2, 1))) == ["Persist", "Registered"]
