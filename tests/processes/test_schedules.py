"""Interleavings that chance finds too rarely, played by hand: right machines survive them, broken ones do not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.table import Lose, Table, action, one_write, sequence
from unerring.model import Disconnected, InvariantBreach, ProtocolError, Send, Vanished
from unerring.processes.graph import Kind, Vertex
from unerring.processes.messages import CANCEL, Mail, Name, Replicate, Reply, Request, RequestView
from unerring.processes.out import Out
from unerring.processes.replica import Replica
from unerring.simulation import process_mutants as broken


def states_of_group(group: int, but_to: str = "") -> Lose:
    return lambda to, message: isinstance(message, Replicate) and message.state.group >= group and to != but_to


def requests(to: str, message: Any) -> bool:
    return isinstance(message, Request)


def figure_8(replica: type[Replica]) -> Table:
    """Raft's figure 8: what view 0 executed is decided again in view 2, while a state of view 1 lies elsewhere."""
    table = Table(one_write(), replica)
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_of_group(1))  # a has executed the group in view 0, alone
    table.ask_view(b)
    table.deliver([b, c], lose=states_of_group(1))  # b has executed it in view 1, alone
    table.ask_view(a)
    table.deliver([a, c])  # c has promised view 1 to b
    table.ask_view(a)
    table.deliver([a, c])  # view 2 goes on to the end
    table.ask_view(b)
    table.deliver([b, c])  # c has promised view 2 to a
    table.ask_view(b)
    table.deliver([b, c])
    return table


def two_candidates(replica: type[Replica]) -> Table:
    """Two candidates of one view ask the same third replica; then each reads something else."""
    table = Table(one_write(reads_first=True), replica)
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=requests)
    table.ask_view(b)
    asked = list(table.lying)
    table.lying = []
    table.ask_view(c)
    also_asked = list(table.lying)
    table.lying = asked
    table.deliver([a, b], lose=requests)
    table.lying = also_asked
    table.deliver([a, c], lose=requests)
    for name in (b, c):
        if table.replica(name).master.execution is not None:
            table.tick(name, after_us=3_000_000)
            table.deliver([a, name])
    return table


def accepted_by_the_old_master_only(replica: type[Replica]) -> Table:
    """A new view's state reaches the old master and nobody else; then a third view finds the old master's state."""
    table = Table(one_write(), replica, f=2)
    a, b, c, d, e = table.members
    table.start()
    table.deliver([a, b, c, d, e], lose=states_of_group(1, but_to=b))
    table.ask_view(c)

    def lost(to: str, message: Any) -> bool:
        return (isinstance(message, Replicate) and to != a) or (isinstance(message, RequestView) and to in (a, b))

    table.deliver([a, c, d, e], lose=lost)
    table.ask_view(d)
    table.deliver([b, d, e])
    return table


def crash_before_the_sync(replica: type[Replica], out: type[Out] = Out) -> Table:
    """A follower crashes while it keeps the state that it acknowledges."""
    table = Table(one_write(), replica, out=out)
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_of_group(1))
    table.send_again(a)
    table.deliver([a, b], crash_at_persist=b)
    table.restart(b)
    table.ask_view(b)
    table.deliver([b, c])
    return table


def restart_after_a_read(replica: type[Replica]) -> Table:
    """A master that has read, and asked for a write, restarts before the answer comes."""
    table = Table(sequence(action("read", "", "r", cost=1), action("w", "r", "x", write=True)), replica)
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=lambda to, message: isinstance(message, Reply) and "/w/" in message.iid)
    table.restart(a)
    table.deliver([a, b, c])
    return table


def backup_of_another_input(replica: type[Replica]) -> Table:
    """A replica worked ahead on a state that was not decided, and becomes master of the same group later."""
    table = Table(sequence(action("w", "", "x", write=True, alone=True), action("read", "x", "r")), replica, f=2)
    a, b, c, d, e = table.members
    table.start()
    table.deliver([a, b, c, d, e], lose=states_of_group(1, but_to=b))
    table.ask_view(c)
    table.deliver([c, d, e], lose=states_of_group(2))
    table.ask_view(b)
    table.deliver([b, d, e])  # they have promised view 1
    table.ask_view(b)
    table.deliver([b, d, e])
    return table


def cancelled_while_a_master_is_away(replica: type[Replica]) -> Table:
    """The process is cancelled while somebody's execution outside the lineage builds on a decided write."""
    first, second = action("w", "", "x", write=True, alone=True), action("z", "x", "y", write=True, alone=True)
    table = Table(sequence(first, second), replica)
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_of_group(2))
    for name in (b, c):
        table.post(name, Mail("m", CANCEL, None))
    table.ask_view(b)
    table.deliver([b, c])
    return table


def cancelled_after_another_was_named(replica: type[Replica], comes: bool = True) -> Table:
    """A planner names another and restarts before that one hears of it, if it does; somebody asks to cancel."""
    table = Table(sequence(Vertex("rest", Kind.SLEEP), action("w", "", "x", write=True)), replica, naming="rotate")
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c])
    table.tick(a, after_us=2_000)  # the sleep is over
    named: list[tuple[str, str, Any]] = []

    def late(to: str, message: Any) -> bool:
        if isinstance(message, Name):
            named.append((a, to, message))
        return isinstance(message, Name)

    table.deliver([a, b, c], lose=late)
    assert [to for _, to, _ in named] == [b]
    table.restart(a)
    for name in (a, c):
        table.post(name, Mail("m", CANCEL, None))
    table.deliver([a, c], lose=states_of_group(2))  # they know of the command, but what comes next is for b to say
    table.lying = named if comes else []
    table.deliver([a, b, c])
    return table


@pytest.mark.parametrize(
    ("schedule", "wrong"),
    [
        (figure_8, broken.ComparesByExecutingView),
        (two_candidates, broken.VotesTwice),
        (accepted_by_the_old_master_only, broken.CompensatesOnAccept),
        (restart_after_a_read, broken.ReadsAgain),
        (backup_of_another_input, broken.AdoptsAnyBackup),
        (cancelled_while_a_master_is_away, broken.UndoesAtOnce),
        (cancelled_after_another_was_named, broken.UsesAGivenSlot),
    ],
)
def test_a_rule_is_needed(schedule: Any, wrong: type[Replica]) -> None:
    assert schedule(Replica).violations() == []
    assert goes_wrong(schedule, wrong)


def goes_wrong(schedule: Any, wrong: type[Replica]) -> bool:
    """Either the checker sees it, or a replica sees that no peer of its kind can have sent it."""
    try:
        return bool(schedule(wrong).violations())
    except (InvariantBreach, ProtocolError):
        return True


def test_what_is_acknowledged_is_on_disk() -> None:
    assert crash_before_the_sync(Replica).violations() == []
    assert crash_before_the_sync(Replica, broken.AnswersBeforeDisk).violations() != []


def test_an_instance_ends_on_the_table() -> None:
    """The schedules above mean something: undisturbed, the same table runs to the end."""
    table = Table(one_write(reads_first=True))
    table.start()
    table.deliver(list(table.members))
    decided = table.replica(table.members[0]).decided
    assert decided is not None
    assert decided[1].status == "completed"
    assert table.violations() == []


def sent_ahead(replica: type[Replica]) -> Table:
    """A state reaches the others while the disk of its master still writes it; the master crashes and comes back."""
    table = Table(
        sequence(action("read", "", "r", cost=1, alone=True, slow=True), action("w", "r", "x", write=True)), replica
    )
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=lambda to, message: isinstance(message, Reply))
    sent: list[tuple[str, str, Any]] = []

    def capture(to: str, message: Any) -> bool:
        if isinstance(message, Replicate) and message.state.group == 1:
            sent.append((a, to, message))
        return isinstance(message, Replicate)

    table.tick(a, after_us=3_000_000)
    table.deliver([a, b, c], lose=capture, crash_at_persist=a)
    assert [to for _, to, _ in sent] == [b, c]
    table.restart(a)
    again, table.lying = table.lying, sent
    table.deliver([a, b, c])
    table.lying = again
    table.deliver([a, b, c])
    table.ask_view(b)
    table.deliver([a, b, c])
    return table


def test_a_state_sent_before_it_was_on_disk_is_not_made_anew() -> None:
    table = sent_ahead(Replica)
    assert table.violations() == []
    assert table.replica(table.members[1]).query()["status"] == "completed"


def test_making_it_anew_gives_two_states_of_one_view_and_group() -> None:
    with pytest.raises(ProtocolError, match="another state of view 0 and group 1"):
        sent_ahead(broken.MakesASentStateAnew)


def first_read_asked_again(replica: type[Replica]) -> Table:
    """The master of a read and a write got no answer to the read, and has asked again."""
    table = Table(
        sequence(action("read", "", "r", cost=1, alone=True, slow=True), action("w", "r", "x", write=True)), replica
    )
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=lambda to, message: isinstance(message, Reply))
    table.tick(a, after_us=3_000_000)
    return table


def won_and_forgotten(replica: type[Replica]) -> Table:
    """b wins view 1 with the vote of c, which alone has the state of group 1, and crashes after c has that state of
    view 1 and before its own disk has. When it comes back, it has a majority with a, which knows nothing of it."""
    table = first_read_asked_again(replica)
    a, b, c = table.members
    table.deliver([a, b, c], lose=states_of_group(1, but_to=c), crash_at_persist=a)
    table.restart(a)
    table.ask_view(b)
    table.deliver([b, c], crash_at_persist=b)
    assert table.replica(c).acceptor.rank == (1, 1)
    table.restart(b)
    assert table.replica(b).acceptor.rank == (0, 0)
    table.suspect(b)
    table.deliver([a, b, c], lose=lambda to, message: to == c and isinstance(message, RequestView))
    return table


def test_who_won_a_view_and_crashed_leaves_it() -> None:
    table = won_and_forgotten(Replica)
    assert table.violations() == []
    assert [table.replica(name).acceptor.rank[0] for name in table.members] == [2, 2, 2]
    assert table.replica(table.members[1]).query()["status"] == "completed"


def test_who_goes_on_in_it_makes_two_states_of_one_view_and_group() -> None:
    with pytest.raises(ProtocolError, match="another state of view 1 and group 1"):
        won_and_forgotten(broken.AsksForItsViewAgain)


def test_the_disks_of_a_view_change_write_at_the_same_time() -> None:
    """The candidate asks before its promise is on disk, and sends the first state of its view before that is: its own
    vote and its own acknowledgement come behind its disk."""
    table = Table(one_write())
    _, b, c = table.members
    table.start()
    table.deliver(list(table.members), lose=requests)
    replica, node = table.replica(b), table.nodes[b]
    replica.election.ask_view(table.now, "the test says so")
    asked = node.out.take()
    assert [type(effect).__name__ for effect in asked] == ["Send", "Send", "Persist", "Report"]
    vote = table.replica(c).election
    vote.on_request_view(b, RequestView("i", 1), table.now)
    votes = [effect.message for effect in table.nodes[c].out.take() if isinstance(effect, Send)]
    effects = node.handle(c, votes[0], table.now)
    assert [type(effect).__name__ for effect in effects] == ["Send", "Send", "Persist", "Send"]
    sent = [effect for effect in effects if isinstance(effect, Send)]
    assert [type(effect.message).__name__ for effect in sent] == ["Replicate", "Replicate", "Ack"]
    assert sent[2].to == b


def test_who_named_another_and_restarts_hands_over_again_whatever_is_asked_since() -> None:
    table = cancelled_after_another_was_named(Replica, comes=False)
    a, b, c = table.members
    for _ in range(5):
        for name in (a, b, c):
            table.tick(name, after_us=20_000)
        table.deliver([a, b, c])
    assert [table.nodes[name].query("i")["status"] for name in (a, b, c)] == ["completed"] * 3


def test_who_names_a_replica_that_cannot_lead_goes_on_without_it() -> None:
    """One of three is down, one does not have this version of the process yet, and masters are named in turns."""
    table = Table(one_write(), naming="rotate")
    a, b, _ = table.members
    table.lacking = [b]
    table.restart(b)
    table.start()
    for _ in range(30):
        for name in (a, b):
            table.tick(name, after_us=20_000)
        table.deliver([a, b])
    assert table.nodes[a].query("i")["status"] == "completed"


def test_nodes_that_are_always_late_take_over_in_the_end() -> None:
    """Each of their ticks comes so late that it could have been a pause; the master is gone all the time."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_of_group(1))
    for _ in range(300):
        for name in (b, c):
            table.tick(name, after_us=75_000)
        table.deliver([b, c])
    assert table.nodes[b].query("i")["status"] == "completed"


def test_nodes_that_are_always_late_do_not_wait_for_one_whose_link_is_down() -> None:
    """Each tick comes so late that it could have been a pause. Who is gone is spared for that once."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    for _ in range(5):
        table.deliver([a, b, c], lose=states_of_group(1))
        table.tick(a, after_us=20_000)
    table.deliver([a, b, c], lose=states_of_group(1))
    for name in (b, c):
        table.nodes[name].handle(a, Disconnected(a, "it ended"), table.now)
    gone_us = table.now
    while table.nodes[b].query("i")["status"] != "completed":
        assert table.now - gone_us < 3_000_000
        for name in (b, c):
            table.tick(name, after_us=75_000)
        table.deliver([b, c])


def test_the_next_in_turn_takes_the_place_of_one_that_vanished_at_once_and_the_other_lets_it() -> None:
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    for _ in range(5):
        table.deliver([a, b, c], lose=requests)
        for name in (a, b, c):
            table.tick(name, after_us=20_000)
    table.deliver([a, b, c], lose=requests)
    for name in (b, c):
        table.command(name, "handle", a, Disconnected(a, "it ended"))
        assert table.replica(name).election.votes is None
        table.command(name, "handle", a, Vanished(a))
    assert table.replica(b).election.votes is not None, "without a tick"
    for _ in range(2):
        table.tick(c, after_us=20_000)
    assert table.replica(c).election.votes is None
    table.deliver([b, c])
    assert table.replica(b).query()["status"] == "completed"
    assert table.replica(b).acceptor.view == 1


def test_if_the_next_in_turn_is_gone_too_another_one_leads() -> None:
    table = Table(one_write(), f=2)
    a, b, c, d, e = table.members
    table.start()
    for _ in range(5):
        table.deliver([a, b, c, d, e], lose=requests)
        for name in table.members:
            table.tick(name, after_us=20_000)
    table.deliver([a, b, c, d, e], lose=requests)
    for name in (c, d, e):
        for gone in (a, b):
            table.command(name, "handle", gone, Disconnected(gone, "it ended"))
            table.command(name, "handle", gone, Vanished(gone))
    assert [table.replica(name).election.votes for name in (c, d, e)] == [None] * 3
    vanished_us = table.now
    while table.nodes[c].query("i")["status"] != "completed":
        assert table.now - vanished_us < 10 * table.config.backoff_us
        for name in (c, d, e):
            table.tick(name, after_us=5_000)
        table.deliver([c, d, e])


def test_a_first_group_that_only_reads_is_decided_with_the_start() -> None:
    table = Table(sequence(action("read", "", "r", cost=1), action("w", "r", "x", write=True, alone=True)))
    a, b, c = table.members
    table.start()
    assert table.disks == {a: {}, b: {}, c: {}}, "nothing is on disk before the state after the group"
    table.deliver([a, b, c])
    sent = [(to, message.state.group) for _, to, message in table.handed if isinstance(message, Replicate)]
    assert sent == [(b, 1), (c, 1), (b, 2), (c, 2)]
    assert table.replica(a).query()["status"] == "completed"
    assert table.violations() == []


@pytest.mark.parametrize("why", ["it takes long", "it writes", "no reply comes"])
def test_otherwise_the_start_is_decided_first(why: str) -> None:
    table = Table(sequence(action("act", "", "r", cost=1, write=why == "it writes", slow=why == "it takes long")))
    a, b, c = table.members
    table.start()
    if why == "no reply comes":
        table.deliver([a, b, c], lose=requests)
        table.tick(a, table.config.tick_us - 1)
        assert table.replica(a).acceptor.accepted is None
        table.tick(a, 1)
    table.deliver([a, b, c], lose=requests)
    assert [table.replica(name).acceptor.rank for name in (a, b, c)] == [(0, 0)] * 3
    table.tick(a, 3_000_000)
    table.deliver([a, b, c])
    assert table.replica(a).query()["status"] == "completed"
    assert table.violations() == []


def written_by_nobody(replica: type[Replica]) -> Table:
    """The first replica is cut off from the others, crashes, and is not asked for the instance again."""
    table = Table(one_write(), replica)
    a, _, _ = table.members
    table.start()
    table.deliver([a], crash_at_persist=a)
    table.restart(a)
    table.tick(a, after_us=3_000_000)
    table.deliver(list(table.members))
    return table


def test_nothing_is_written_before_a_majority_knows_of_the_instance() -> None:
    assert written_by_nobody(Replica).journal == []


def test_a_write_before_that_is_an_effect_of_an_instance_that_nobody_knows() -> None:
    table = written_by_nobody(broken.WritesBeforeItStarts)
    assert [line.what for line in table.journal] == ["do"]
    assert [one.acceptor.accepted for node in table.nodes.values() for one in node.instances.values()] == [None]


def test_who_crashes_before_anybody_heard_of_the_start_starts_anew() -> None:
    table = Table(sequence(action("read", "", "r", cost=1)))
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], crash_at_persist=a)
    table.restart(a)
    assert not table.nodes[a].instances
    table.start()
    table.deliver([a, b, c])
    assert table.reads == 2
    assert table.replica(b).acceptor.accepted is not None
    assert table.violations() == []


def shown_while_the_disk_writes(replica: type[Replica]) -> int:
    """The group that a master shows to be decided. Its next state was sent ahead, and one of two others has accepted
    it: without the disk that still writes it that is no majority."""
    table = first_read_asked_again(replica)
    a, b, _ = table.members
    table.deliver([a, b], crash_at_persist=a)
    accepted, shown = table.replica(b).acceptor.accepted, table.replica(a).decided
    assert accepted is not None
    assert accepted.state.group == 1
    assert shown is not None
    return shown[1].group


def test_a_state_that_the_disk_still_writes_is_shown_to_nobody() -> None:
    assert shown_while_the_disk_writes(Replica) == 0
    assert shown_while_the_disk_writes(broken.CountsWhatIsNotOnDisk) == 1


def test_a_sleep_that_began_on_a_clock_far_ahead_ends_in_time_elsewhere() -> None:
    table = Table(sequence(action("w", "", "x", write=True), Vertex("rest", Kind.SLEEP, time_us=300_000)))
    a, b, c = table.members
    table.ahead_us[a] = 3_600 * 1_000_000
    table.restart(a)
    table.start()
    table.deliver([a, b, c])
    table.ask_view(b)
    table.deliver([b, c])
    assert table.replica(b).query()["status"] == "running"
    table.tick(b, after_us=200_000)
    table.deliver([b, c])
    assert table.replica(b).query()["status"] == "running"
    table.tick(b, after_us=100_000)
    table.deliver([b, c])
    assert table.replica(b).query()["status"] == "completed"


def test_a_node_that_returns_after_weeks_undoes_its_part_and_everything_settles() -> None:
    """The old master did its group alone and vanished. Weeks later the others have long completed; nothing settled."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_of_group(1))
    table.now += 21 * 24 * 3600 * 1_000_000
    table.ask_view(b)
    table.deliver([b, c])
    assert table.replica(b).query()["status"] == "completed"
    assert [line.what for line in table.journal] == ["do", "do"]
    table.restart(a)
    for _ in range(20):
        for name in (b, a, c):
            table.tick(name, after_us=60_000)
        table.deliver([a, b, c])
    assert [line.what for line in table.journal] == ["do", "do", "undo"]
    assert table.journal[2].iid == table.journal[0].iid
    assert all("i" in table.nodes[name].finished for name in (a, b, c))
