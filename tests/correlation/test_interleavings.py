"""The interleavings that break simpler designs, each by its name, played by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.correlation.table import Table, line, perfect, schema
from unerring.correlation import CorrelationConfig, NodeSpec, Role, Topology
from unerring.correlation.messages import (
    MEMBERSHIP,
    Ack,
    AskAcks,
    AskConfirmation,
    Batch,
    Confirmation,
    Gossip,
    Pruned,
    ReadRecord,
    Register,
    Registered,
    Resume,
    SnapshotPart,
)
from unerring.model import TIME_MAX, Event, Send, Stamp

SECOND = 1_000_000


def started(levels: int = 1, f: int = 1, **bounds: int) -> Table:
    table = Table(line(levels, f), CorrelationConfig(**bounds))
    table.run(SECOND)
    return table


def published(times: list[int]) -> list[Event]:
    return [Event("a", Stamp(time), (), {"v": time}) for time in times]


def ends_perfect(table: Table, times: list[int], stream: str) -> None:
    """What comes afterwards depends on all that came before, so it is perfect only if that was."""
    later = [times[-1] + 10 * number for number in range(1, 10)]
    for time in later:
        table.run_until(lambda: not table.machines["src/0"].full)
        table.publish(time)
    table.call("src/0", "end", "a")
    table.run_until(lambda: table.machines["app/0"].intake.streams[stream].watermark == TIME_MAX)
    expected = perfect(table.topology, published(times + later))[stream]
    assert expected, "nothing is to be delivered, so nothing is shown"
    assert table.situations(stream) == expected


def leader(table: Table, node: str) -> str:
    leaders = [name for name, m in table.machines.items() if name.startswith(f"{node}/") and m.election.leading]
    assert leaders, f"nobody leads {node}"
    return leaders[0]


def other(name: str) -> str:
    return f"{name[:-1]}{1 - int(name[-1])}"


def test_failure_free() -> None:
    """Figure 2 (b), no failure: one leader a node, every situation once."""
    table = started(levels=3)
    times = list(range(10, 200, 7))
    table.publish(*times)
    table.run(SECOND)
    ends_perfect(table, times, "s3")
    for node in ("N1", "N2", "N3"):
        assert sum(table.machines[f"{node}/{i}"].election.leading for i in (0, 1)) == 1


def test_an_evicted_replica_that_comes_back_does_not_accept_over_a_hole() -> None:
    table = started()
    table.publish(10)
    table.run(SECOND // 2)
    for name in list(table.machines):
        table.cut("N1/1", name)
    table.call(MEMBERSHIP, "evict", "N1/1")
    table.run(SECOND // 2)
    assert table.record().members["N1/1"].standing == "gone"
    table.publish(20, 30, 40)
    table.run(SECOND)
    assert table.machines["src/0"].outgoing.queues["a"].mark == Stamp(40), "pruned without the evicted one"
    zombie = table.machines["N1/1"]
    position = zombie.intake.streams["a"].last
    table.heal()
    table.call("src/0", "publish", published([50]))
    batch = table.machines["src/0"].outgoing.queues["a"].batch(4, 5)
    table.perform("N1/1", zombie.handle("src/0", batch, table.now))
    assert zombie.intake.streams["a"].last == position == Stamp(10)
    table.run_until(lambda: table.caught_up("N1/0", "N1/1"))
    assert table.machines["N1/1"].incarnation == 2
    ends_perfect(table, [10, 20, 30, 40, 50], "s1")


def test_two_upstreams_that_each_think_another_replica_dead_evict_nobody() -> None:
    table = started(levels=2)
    table.cut("N1/0", "N2/0")
    table.cut("N1/1", "N2/1")
    table.publish(10, 20, 30)
    table.run(4 * SECOND)
    assert all(member.standing == "caught_up" for member in table.record().members.values())
    table.heal()
    ends_perfect(table, [10, 20, 30], "s2")


def test_a_joiner_registers_at_every_upstream_so_one_that_dies_takes_nothing_along() -> None:
    table = started(levels=2)
    table.publish(10, 20)
    table.run(SECOND)
    table.crash("N2/1")
    table.start("N2/1")
    asked: set[str] = set()
    for _ in range(30):
        asked |= {to for sender, to, message in table.waiting if sender == "N2/1" and isinstance(message, Register)}
        table.pass_on()
    assert asked == {"N1/0", "N1/1"}
    table.crash(leader(table, "N1"))
    table.publish(30, 40)
    table.run(SECOND)
    dead = next(name for name in ("N1/0", "N1/1") if name not in table.machines)
    table.start(dead)
    table.run_until(lambda: table.caught_up("N2/1", dead))
    ends_perfect(table, [10, 20, 30, 40], "s2")


def test_caught_up_waits_for_an_upstream_that_has_not_confirmed() -> None:
    table = started(levels=2)
    table.publish(10, 20)
    table.run(SECOND)
    table.cut("N1/0", "N2/1")
    table.crash("N2/1")
    table.start("N2/1")
    table.run(3 * SECOND)
    assert not table.caught_up("N2/1")
    table.heal()
    table.run_until(lambda: table.caught_up("N2/1"))


def test_a_restarted_replica_s_old_acks_do_not_count() -> None:
    table = started()
    table.publish(10)
    table.run(SECOND)
    source = table.machines["src/0"].outgoing
    table.crash("N1/1")
    old = Ack("a", Stamp(20), 2, 1, 100)
    table.start("N1/1")
    table.run_until(lambda: table.record().members["N1/1"].incarnation == 2)
    table.run(SECOND)
    table.cut("src/0", "N1/1")
    table.publish(20)
    table.perform("src/0", table.machines["src/0"].handle("N1/1", old, table.now))
    table.run(SECOND)
    assert len(source.queues["a"]) == 1, "the new incarnation has not acknowledged it"
    table.heal()
    ends_perfect(table, [10, 20], "s1")


def test_a_snapshot_holds_the_outgoing_queue() -> None:
    table = started(levels=2)
    for name in ("N2/0", "N2/1"):
        table.cut("N1/0", name)
        table.cut("N1/1", name)
    table.publish(*range(10, 100, 10))
    table.run(SECOND)
    made = table.machines["N1/0"].outgoing.queues["s1"].events()
    assert made, "nothing was made, so nothing is shown"
    table.crash("N1/1")
    table.heal()
    for name in ("N2/0", "N2/1"):
        table.cut("N1/0", name)
    table.start("N1/1")
    table.run_until(lambda: table.machines["N1/1"].holding)
    assert table.machines["N1/1"].outgoing.queues["s1"].events() == made
    table.run_until(lambda: table.machines["N2/0"].intake.streams["s1"].last == made[-1].stamp)


def test_a_stale_leader_s_pruning_is_not_followed() -> None:
    """Gossip carries acks per receiver; a replica that has read of a joiner keeps what the joiner lacks."""
    table = started(levels=2)
    table.publish(10, 20, 30, 40)
    table.run(SECOND)
    stale, fresh = "N1/0", "N1/1"
    table.crash("N2/1")
    table.cut(stale, MEMBERSHIP)
    table.start("N2/1")
    table.run_until(lambda: table.record().members["N2/1"].incarnation == 2)
    table.cut(fresh, "N2/1")
    table.cut(stale, "N2/1")
    table.publish(50, 60, 70, 80)
    table.run(SECOND)
    queue = table.machines[fresh].outgoing.queues["s1"]
    before = queue.mark
    receipts = tuple(
        msgspec.structs.replace(receipt, last=queue.last, count=queue.count)
        for receipt in table.machines[stale].outgoing.receipts()
        if (receipt.receiver, receipt.incarnation) != ("N2/1", 2)
    )
    gossip = Gossip(1, 1, True, 0, receipts)
    table.perform(fresh, table.machines[fresh].handle(stale, gossip, table.now))
    assert queue.mark == before
    table.heal()
    table.run_until(lambda: table.caught_up("N2/0", "N2/1"))
    ends_perfect(table, [10, 20, 30, 40, 50, 60, 70, 80], "s2")


def test_acks_that_reach_only_one_of_two_leaders_reach_the_other_by_gossip() -> None:
    table = started(levels=2)
    for name in ("N1/0", "N1/1"):
        table.machines[name].election.leading = True
        table.machines[name].outgoing.lead()
    for name in ("N2/0", "N2/1"):
        table.cut(name, "N1/1", both=False)
    table.publish(*range(10, 100, 10))
    table.run(SECOND)
    queues = [table.machines[name].outgoing.queues["s1"] for name in ("N1/0", "N1/1")]
    assert queues[0].mark == queues[1].mark
    assert queues[1].mark_count > 0
    table.heal()
    ends_perfect(table, list(range(10, 100, 10)), "s2")


def test_the_diamond_does_not_wait_for_itself_under_back_pressure() -> None:
    """X -> Y, Z -> W with the smallest bounds: watermark needs no credit."""
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a",)),
        NodeSpec("X", Role.CORRELATION, ("a",), ("y0", "z0"), 1),
        NodeSpec("Y", Role.CORRELATION, ("y0",), ("y",), 1),
        NodeSpec("Z", Role.CORRELATION, ("z0",), ("z",), 1),
        NodeSpec("W", Role.CORRELATION, ("y", "z"), ("w",), 1),
        NodeSpec("app", Role.APPLICATION, ("w",)),
    )
    topology = Topology(nodes, tuple(schema(name) for name in ("a", "y0", "z0", "y", "z", "w")))
    table = Table(topology, CorrelationConfig(window_events=1, outgoing_events_max=1, batch_events_max=1))
    times = list(range(10, 400, 10))
    for time in times:
        table.run_until(lambda: not table.machines["src/0"].full)
        table.publish(time)
    ends_perfect(table, times, "w")


def test_a_receiver_reachable_only_from_a_normal_replica_is_served() -> None:
    table = started(levels=2)
    table.run_until(lambda: any(table.machines[f"N1/{i}"].election.leading for i in (0, 1)))
    table.cut(leader(table, "N1"), "N2/1")
    table.publish(*range(10, 100, 10))
    made = table.machines["N2/0"].intake.streams["s1"]
    table.run(2 * SECOND)
    assert table.machines["N2/1"].intake.streams["s1"].last == made.last
    assert made.count > 0


def test_credit_that_ends_inside_a_time() -> None:
    table = started(window_events=2, outgoing_events_max=4)
    burst = [Event("a", Stamp(10, n), (), {"v": n}) for n in range(9)]
    table.call("src/0", "publish", burst)
    table.call("src/0", "end", "a")
    table.run_until(lambda: table.machines["app/0"].intake.streams["s1"].watermark == TIME_MAX)
    assert table.situations("s1") == perfect(table.topology, burst)["s1"]


def test_two_joins_at_neighbouring_levels_at_once() -> None:
    table = started(levels=3)
    table.publish(10, 20, 30)
    table.run(SECOND)
    table.crash("N1/1", "N2/1", "N3/1")
    table.publish(40, 50)
    for name in ("N3/1", "N2/1", "N1/1"):
        table.start(name)
    table.run_until(lambda: table.caught_up("N1/1", "N2/1", "N3/1"))
    table.crash("N1/0", "N2/0", "N3/0")
    table.publish(60, 70)
    table.run(SECOND)
    ends_perfect(table, [10, 20, 30, 40, 50, 60, 70], "s3")


def test_an_eviction_that_counts_a_dead_member_as_remaining_is_not_written() -> None:
    table = started()
    table.crash("N1/1")
    table.call(MEMBERSHIP, "evict", "N1/0")
    table.run(4 * SECOND)
    assert table.record().members["N1/0"].standing == "caught_up"
    late = Confirmation("a round of long ago", "N1/0", 1)
    table.perform(MEMBERSHIP, table.machines[MEMBERSHIP].handle("N1/1", late, table.now))
    assert table.record().members["N1/0"].standing == "caught_up"


def test_a_replica_of_another_node_cannot_confirm_an_eviction() -> None:
    """It remains in its own node; of the one that loses a replica nobody may be left."""
    table = started(levels=2)
    table.crash("N1/1")
    membership = table.machines[MEMBERSHIP]
    table.call(MEMBERSHIP, "evict", "N1/0")
    round = membership.rounds["N1/0"].number
    assert table.machines["N2/0"].handle(MEMBERSHIP, AskConfirmation(round, "N1/0"), table.now) == []
    table.perform(MEMBERSHIP, membership.handle("N2/0", Confirmation(round, "N1/0", 1), table.now))
    assert table.record().members["N1/0"].standing == "caught_up"


def test_a_lost_ack_is_repeated() -> None:
    table = started()
    table.publish(10, 20)
    for _ in range(20):
        table.drop(lambda sender, to, message: to == "src/0" and isinstance(message, Ack))
        table.pass_on(lambda sender, to, message: not (to == "src/0" and isinstance(message, Ack)))
    assert len(table.machines["src/0"].outgoing.queues["a"]) == 2
    table.run(SECOND)
    assert len(table.machines["src/0"].outgoing.queues["a"]) == 0


def test_watermark_has_the_stream_s_prev_not_the_last_one_sent() -> None:
    """A lagging zombie that pruned by gossip must not promise over what this receiver lacks."""
    table = started(levels=2)
    table.publish(10, 20, 30, 40, 50)
    table.run(SECOND)
    zombie = table.machines["N1/0"]
    queue = zombie.outgoing.queues["s1"]
    assert queue.mark == queue.last, "all pruned"
    zombie.outgoing.lead()
    batch = queue.batch(queue.count, queue.count)
    assert batch.prev == queue.last
    fresh: Any = type(zombie.intake.streams["a"])("s1")
    assert fresh.take(batch).verdict.name == "GAP"


def test_a_snapshot_holds_the_merge_buffer() -> None:
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a",)),
        NodeSpec("quiet", Role.SOURCE, outputs=("b",)),
        NodeSpec("N", Role.CORRELATION, ("a", "b"), ("s",), 1),
        NodeSpec("app", Role.APPLICATION, ("s",)),
    )
    table = Table(Topology(nodes, tuple(schema(name) for name in ("a", "b", "s"))))
    table.run(SECOND)
    table.publish(10, 20, 30)
    table.run(SECOND)
    assert table.machines["src/0"].outgoing.queues["a"].mark == Stamp(30), "acknowledged by both, and pruned"
    table.crash("N/1")
    table.start("N/1")
    table.run_until(lambda: table.caught_up("N/1"))
    table.crash("N/0")
    table.call("quiet/0", "end", "b")
    table.call("src/0", "end", "a")
    table.run_until(lambda: table.machines["app/0"].intake.streams["s"].watermark == TIME_MAX)
    from unerring.simulation.query_tree import reference

    assert table.situations("s") == reference(table.topology, {"a": published([10, 20, 30]), "b": []})["s"]


def test_a_normal_replica_cut_off_from_gossip_asks_rather_than_fill_up() -> None:
    table = started(levels=2, outgoing_events_max=4)
    table.cut("N1/0", "N1/1")
    asked = False
    times = list(range(10, 300, 10))
    for time in times:
        table.run_until(lambda: not table.machines["src/0"].full)
        table.publish(time)
        asked = asked or any(isinstance(message, AskAcks) for _, _, message in table.waiting)
        table.run(20_000)
    ends_perfect(table, times, "s2")


def test_pruned_from_an_upstream_does_not_stop_a_replica_that_is_caught_up() -> None:
    table = started()
    table.publish(10)
    table.run(SECOND)
    replica = table.machines["N1/0"]
    table.perform("N1/0", replica.handle("src/0", Pruned("a", Stamp(99), 1), table.now))
    table.run(SECOND)
    assert replica.phase.name == "MEMBER"
    assert replica.incarnation == 1


def test_a_corrupt_snapshot_is_refused_and_another_one_taken() -> None:
    table = started(levels=1, f=2)
    table.publish(10, 20)
    table.run(SECOND)
    table.crash("N1/2")
    table.start("N1/2")
    spoilt = 0
    for _ in range(60):
        for at, (sender, to, message) in enumerate(table.waiting):
            if isinstance(message, SnapshotPart) and not spoilt:
                spoilt += 1
                data = bytes([message.data[0] ^ 1]) + message.data[1:]
                table.waiting[at] = (sender, to, msgspec.structs.replace(message, data=data))
        table.pass_on()
    assert spoilt
    assert not table.machines["N1/2"].holding
    table.run_until(lambda: table.caught_up("N1/2"))


def test_a_replica_with_other_rules_is_refused_with_a_sentence() -> None:
    table = started()
    table.crash("N1/1")
    topology = table.topology
    table.topology = msgspec.structs.replace(topology, rules="another version")
    table.start("N1/1")
    stops: list[str] = []
    for _ in range(10):
        for sender, to, message in list(table.waiting):
            if to == "N1/1":
                effects = table.machines["N1/1"].handle(sender, message, table.now)
                stops += [effect.why for effect in effects if type(effect).__name__ == "Stop"]
        table.pass_on(lambda sender, to, message: to != "N1/1")
    assert any("other rules" in why for why in stops)


def test_a_late_enter_of_a_dead_process_does_not_displace_its_successor() -> None:
    table = started()
    table.crash("N1/1")
    table.start("N1/1")
    late = [entry for entry in table.waiting if entry[0] == "N1/1"]
    table.crash("N1/1")
    table.start("N1/1")
    table.run_until(lambda: table.caught_up("N1/1"))
    incarnation = table.machines["N1/1"].incarnation
    table.waiting += late
    table.run(SECOND)
    assert table.caught_up("N1/1")
    assert table.machines["N1/1"].incarnation == incarnation


@pytest.mark.parametrize("f", [1, 2])
def test_f_of_f_plus_one_fail_at_every_level_at_once(f: int) -> None:
    table = started(levels=3, f=f)
    table.publish(10, 20, 30)
    table.run(50_000)
    table.crash(*[f"N{level}/{number}" for level in (1, 2, 3) for number in range(f)])
    table.publish(40, 50, 60)
    table.run(2 * SECOND)
    ends_perfect(table, [10, 20, 30, 40, 50, 60], "s3")


def test_durable_replicas_survive_the_loss_of_all_of_them() -> None:
    table = Table(line(levels=2), CorrelationConfig(durable_snapshot_events=3), durable=True)
    table.run(SECOND)
    times = list(range(10, 120, 10))
    table.publish(*times[:6])
    table.run(SECOND // 2)
    everyone = list(table.machines)
    table.crash(*everyone)
    for name in everyone:
        table.start(name)
    table.run(SECOND)
    table.publish(*times[6:])
    table.run(SECOND)
    assert all(table.machines[f"N{level}/{i}"].incarnation == 1 for level in (1, 2) for i in (0, 1))
    ends_perfect(table, times, "s2")


def test_registered_confirms_each_stream_s_mark() -> None:
    table = started(levels=2)
    table.publish(10, 20, 30)
    table.run(SECOND)
    upstream = table.machines["N1/0"]
    answers = [
        effect.message
        for effect in upstream.handle("N2/7", Register(5, 9), table.now)
        if getattr(effect, "to", "") == "N2/7"
    ]
    assert isinstance(answers[0], Registered)
    assert dict(answers[0].marks) == {"s1": upstream.outgoing.queues["s1"].mark}
    table.publish(40, 50, 60, 70)
    table.run(SECOND)
    assert upstream.outgoing.queues["s1"].mark == dict(answers[0].marks)["s1"], "pinned for whoever registered"


def test_an_answer_to_a_joiner_asks_nobody_else_again() -> None:
    """Each answer made it ask all others at once: with a record older than its upstream, that was a storm."""
    table = started(levels=2)
    table.cut("N1/0", "N2/1")
    table.cut("N1/1", "N2/1")
    table.crash("N2/1")
    table.start("N2/1")
    table.run(SECOND)
    joiner = table.machines["N2/1"]
    newer = table.record().members["N1/0"].incarnation + 1
    now = table.now + joiner.config.join_retry_us
    sent = [
        effect.message
        for _ in range(10)
        for effect in joiner.handle("N1/0", Registered(newer, (), ()), now)
        if isinstance(effect, Send)
    ]
    assert sum(isinstance(message, Register) for message in sent) == 2, "each upstream replica once"
    assert sum(isinstance(message, ReadRecord) for message in sent) == 10, "each says that the record is old"
    table.heal()
    table.run_until(lambda: table.caught_up("N2/1"))


def test_resume_is_an_ack() -> None:
    table = started()
    table.publish(10, 20)
    table.run(SECOND)
    table.cut("N1/0", "src/0", both=False)
    table.publish(30)
    table.run(SECOND // 2)
    source = table.machines["src/0"]
    assert len(source.outgoing.queues["a"]) == 1
    replica = table.machines["N1/0"].intake
    last = replica.streams["a"]
    resume = Resume("a", last.last, last.count, 1, last.count + 10, last.watermark)
    table.perform("src/0", source.handle("N1/0", resume, table.now))
    assert len(source.outgoing.queues["a"]) == 0
    assert isinstance(source.outgoing.queues["a"].batch(3, 3), Batch)


def test_a_receiver_that_its_leader_does_not_reach_is_served_after_a_pause_too() -> None:
    """Liveness does not rest on the leader: whoever has more than the receiver serves it when asked."""
    table = started(levels=2)
    table.publish(10, 20)
    table.run(3 * SECOND)
    for replica in ("N2/0", "N2/1"):
        table.cut(leader(table, "N1"), replica, both=False)
    table.publish(30, 40)
    table.run(3 * SECOND)
    streams = [table.machines[name].intake.streams["s1"] for name in ("N2/0", "N2/1")]
    assert [stream.watermark for stream in streams] == [40, 40], "watermarks are served too"
    table.heal()
    ends_perfect(table, [10, 20, 30, 40], "s2")
