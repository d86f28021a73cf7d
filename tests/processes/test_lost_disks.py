"""A node that comes back with an empty disk, played by hand: the interleavings that `rejoin.py` argues with. Right
machines survive them, broken ones do not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.processes.table import INSTANCE, Table, action, one_write, sequence
from unerring.model import InvariantBreach, ProcessError, ProtocolError
from unerring.processes import Mail, Rejoin, Replica, Service, Start
from unerring.processes.messages import (
    CANCEL,
    Ack,
    Clean,
    Decided,
    Heartbeat,
    Name,
    Recalled,
    Replicate,
    Reply,
    Request,
    Vote,
)
from unerring.simulation import process_disk_mutants as broken


def wait(table: Table, names: list[str], times: int = 20, lose: Callable[[str, Any], bool] | None = None) -> None:
    for _ in range(times):
        for name in names:
            table.tick(name, after_us=20_000)
        table.deliver(names, lose)


def no_replies(to: str, message: Any) -> bool:
    return isinstance(message, Reply)


def states_from(group: int) -> Callable[[str, Any], bool]:
    return lambda to, message: isinstance(message, Replicate) and message.state.group >= group


def whole(table: Table, name: str) -> bool:
    return table.nodes[name].shared.incarnations.present


def test_it_takes_part_only_when_f_plus_one_others_have_told_what_they_know() -> None:
    """VR Revisited 4.3: with one of two others away it waits, since that one may know of a promise."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=no_replies)
    table.lose_disk(c)
    wait(table, [a, c], lose=no_replies)
    assert not whole(table, c)
    assert "its disk is empty" in table.nodes[c].rejoin.why_absent
    assert b in table.nodes[c].rejoin.why_absent
    wait(table, [a, b, c], lose=no_replies)
    assert whole(table, c)
    assert table.replica(c).acceptor.rank == (0, 0)
    wait(table, [a, b, c], times=200)
    assert all(INSTANCE in table.nodes[name].finished for name in (a, b, c))
    assert table.violations() == []


def test_a_lost_master_is_undone_by_survivors() -> None:
    """DESIGN 10, survivors: what it executed alone is cancelled by its IID, and everything settles."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_from(1))  # a has executed the group, alone
    assert [line.what for line in table.journal] == ["do"]
    table.lose_disk(a)
    wait(table, [a, b, c], times=300)
    assert [line.what for line in table.journal] == ["do", "do", "undo"]
    assert table.journal[2].iid == table.journal[0].iid
    assert all(INSTANCE in table.nodes[name].finished for name in (a, b, c))
    assert table.violations() == []


def test_where_the_service_cannot_cancel_it_waits_until_an_operator_says_so() -> None:
    write = msgspec.structs.replace(action("w", "r", "x", write=True), compensation="undo")
    table = Table(sequence(write, service=Service("bank", cancels=False)))
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_from(1))
    table.lose_disk(a)
    wait(table, [a, b, c], times=300)
    leader = next(name for name in (a, b, c) if table.replica(name).leading)
    assert table.nodes[leader].query(INSTANCE)["status"] == "completed"  # the result does not wait for it
    assert f"nobody knows what {a} did" in table.nodes[leader].query(INSTANCE)["waits"]
    for name in (a, b, c):
        table.command(name, "forget_node", a)
    wait(table, [a, b, c], times=100)
    assert all(INSTANCE in table.nodes[name].finished for name in (a, b, c))


def test_a_node_that_has_its_disk_is_not_forgotten() -> None:
    table = Table(one_write())
    a, b, _ = table.members
    wait(table, list(table.members))
    with pytest.raises(ProcessError, match="has not lost its disk"):
        table.command(a, "forget_node", b)
    with pytest.raises(ProcessError, match="there is no node 'nobody'"):
        table.command(a, "forget_node", "nobody")


def test_a_node_that_never_comes_back_can_be_forgotten() -> None:
    """Its Clean would be waited for, for ever; then it comes back empty after all, and what it did stays settled."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_from(1))
    wait(table, [b, c], times=300)
    assert INSTANCE not in table.nodes[b].finished
    for name in (b, c):
        table.command(name, "forget_node", a)
    wait(table, [b, c], times=100)
    assert all(INSTANCE in table.nodes[name].finished for name in (b, c))
    table.lose_disk(a)
    wait(table, [a, b, c])
    assert INSTANCE in table.nodes[a].finished
    assert not table.nodes[b].shared.incarnations.gone(a)


def test_all_that_ended_is_known_again_and_is_not_started_twice() -> None:
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    wait(table, [a, b, c])
    assert all(INSTANCE in table.nodes[name].finished for name in (a, b, c))
    for name in (a, b, c):  # one after the other, each caught up before the next: nobody is left who saw it end
        table.lose_disk(name)
        wait(table, [a, b, c])
    table.start()
    wait(table, [a, b, c])
    assert [line.what for line in table.journal] == ["do"]


def test_messages_of_partners_are_known_again() -> None:
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=no_replies)
    for name in (b, c):
        table.post(name, Mail("m", CANCEL, None))
    table.deliver([])
    table.lose_disk(c)
    wait(table, [a, b, c], times=2, lose=no_replies)
    assert [mail.id for mail in table.replica(c).inbox.mailbox.mail] == ["m"]


def test_pages_have_a_size_and_a_crash_in_between_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unerring.processes.rejoin.PAGE_BYTES", 100)
    table = Table(one_write())
    a, b, c = table.members
    for number in range(5):
        table.nodes[a].begin(Start(f"more-{number}", "p", {}), table.now)
    wait(table, [a, b, c])
    table.handed.clear()
    table.lose_disk(c)
    wait(table, [a, b, c], times=1, lose=lambda to, message: isinstance(message, Recalled) and message.after != "")
    assert not whole(table, c)
    first = table.nodes[c].shared.incarnations.lives.mine
    table.restart(c, asks_first=True)
    wait(table, [a, b, c])
    assert whole(table, c)
    assert table.nodes[c].shared.incarnations.lives.mine == first
    assert sum(isinstance(message, Recalled) for _, to, message in table.handed) > 10
    assert sorted(table.nodes[c].finished) == [f"more-{number}" for number in range(5)]


def test_empty_nodes_find_together_and_who_missed_it_hears_of_it() -> None:
    table = Table(one_write())
    a, b, c = table.members
    for name in (a, b, c):
        table.lose_disk(name)
    wait(table, [a, b])
    assert not any(whole(table, name) for name in (a, b))  # c may know something
    wait(table, [a, b, c], times=1, lose=lambda to, message: isinstance(message, Recalled) and to == c)
    wait(table, [a, b, c])
    assert all(whole(table, name) for name in (a, b, c))
    assert table.nodes[c].shared.incarnations.known == {}
    table.start()
    wait(table, [a, b, c])
    assert [line.what for line in table.journal] == ["do"]


@pytest.mark.parametrize("meanwhile", [1, 5, 60])
def test_an_old_disk_that_returns_catches_up_like_an_empty_one(meanwhile: int) -> None:
    """Before somebody else is asked for a view, after that, and after its group was executed elsewhere."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_from(1))  # a has executed the group
    old = dict(table.disks[a])
    table.lose_disk(a)
    wait(table, [a, b, c], times=meanwhile, lose=no_replies)
    table.disks[a] = old
    table.restart(a)
    assert table.nodes[a].shared.incarnations.lives.mine == 0
    wait(table, [a, b, c], times=300)
    assert all(INSTANCE in table.nodes[name].finished for name in (a, b, c))
    assert wrong(table) == []


def test_who_votes_with_an_old_disk_is_told_and_catches_up() -> None:
    """One of three is down: without that vote nobody could win a view."""
    table = Table(one_write())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=no_replies)
    old = dict(table.disks[c])
    table.lose_disk(c)
    wait(table, [a, b, c], times=2, lose=no_replies)
    first = table.nodes[c].shared.incarnations.lives.mine
    table.disks[c] = old
    table.restart(c)
    table.ask_view(b)
    table.deliver([b, c], lose=no_replies)
    assert not whole(table, c)
    wait(table, [a, b, c], times=300)
    assert table.nodes[c].shared.incarnations.lives.mine > first
    assert all(INSTANCE in table.nodes[name].finished for name in (a, b, c))
    assert wrong(table) == []


@pytest.mark.parametrize("founded", ["none", "one"])
def test_nodes_that_crash_while_they_find_together_still_do(founded: str) -> None:
    """Found by `processes-disks` with seed 221000109: one of three had found, and the others had new numbers."""
    table = Table(one_write())
    a, b, c = table.members
    for name in (a, b, c):
        table.lose_disk(name)

    def lost(to: str, message: Any) -> bool:
        return isinstance(message, Recalled) and (to != a or founded == "none")

    wait(table, [a, b, c], times=1, lose=lost)
    assert whole(table, a) == (founded == "one")
    for name in (b, c):
        table.restart(name, asks_first=True)
    wait(table, [a, b, c])
    assert all(whole(table, name) for name in (a, b, c))


@pytest.mark.parametrize("known", [{"node1": 1 << 61}, {"nobody": 1}])
def test_incarnations_that_cannot_be_are_refused(known: dict[str, int]) -> None:
    table = Table(one_write())
    with pytest.raises(ProtocolError, match="which cannot be"):
        table.nodes["node0"].handle("node2", Ack(INSTANCE, 0, 0, known), table.now)
    assert table.nodes["node0"].shared.incarnations.known == {}


# ---- schedules, with the rule and without ----------------------------------------------------------------------------


def hidden_from(*names: str) -> Callable[[str, Any], bool]:
    """These hear nothing of what comes after the start."""
    news = (Decided, Heartbeat)
    return lambda to, message: to in names and (isinstance(message, news) or states_from(1)(to, message))


def voted_before(replica: type[Replica], rejoin: type[Rejoin]) -> Table:
    """c acknowledged a state that only a has beside it, and loses its disk. If it votes at once, b wins a view."""
    table = Table(one_write(), replica, rejoin=rejoin)
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=hidden_from(b))
    decided = table.replica(a).decided
    assert decided is not None
    assert decided[1].group == 1
    table.lose_disk(c)
    wait(table, [b, c], times=300)
    return table


def two_empty(replica: type[Replica], rejoin: type[Rejoin]) -> Table:
    """f = 2. A state is decided by a, d and e; then d and e lose their disks, and hear b, c and each other, but not
    a."""
    table = Table(one_write(), replica, f=2, rejoin=rejoin)
    a, b, c, d, e = table.members
    table.start()
    table.deliver([a, b, c, d, e], lose=hidden_from(b, c))
    for name in (d, e):
        table.lose_disk(name)
    wait(table, [b, c, d, e], times=300)
    return table


def old_acknowledgement(replica: type[Replica], rejoin: type[Rejoin]) -> Table:
    """f = 2. e acknowledged a state of a, loses its disk, and hears b, c and d, who do not have that state. Then d gets
    it, and acknowledges it too: with the old word of e that would be a majority, and nobody else would know."""
    return _old_acknowledgement(Table(one_write(), replica, f=2, rejoin=rejoin))


def lost_twice(replica: type[Replica], rejoin: type[Rejoin]) -> Table:
    """The same, but e has lost a disk before: its old word is one of its second life."""
    table = Table(one_write(), replica, f=2, rejoin=rejoin)
    table.lose_disk(table.members[4])
    wait(table, list(table.members), times=3)
    return _old_acknowledgement(table)


def _old_acknowledgement(table: Table) -> Table:
    a, b, c, d, e = table.members
    table.start()
    states: dict[str, Any] = {}

    def hold(to: str, message: Any) -> bool:
        if states_from(1)(to, message):
            states[to] = message
        return states_from(1)(to, message)

    table.deliver([a, b, c, d, e], lose=hold)
    table.lying = [(a, e, states[e])]
    said: list[Any] = []

    def keep(to: str, message: Any) -> bool:
        if isinstance(message, Ack):
            said.append(message)
        return isinstance(message, Ack)

    table.deliver([a, e], lose=keep)
    table.lose_disk(e)
    wait(table, [b, c, d, e], times=3)
    table.lying = [(a, d, states[d]), (e, a, said[0])]
    table.deliver([a, d, e], lose=lambda to, message: isinstance(message, Heartbeat))
    wait(table, [b, c, e], times=300)
    return table


def executed_and_forgotten(replica: type[Replica], rejoin: type[Rejoin]) -> Table:
    """A master executes alone and loses its disk: nobody may take its silence for a clean conscience."""
    table = Table(one_write(), replica, rejoin=rejoin)
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=states_from(1))
    table.lose_disk(a)
    wait(table, [a, b, c], times=300)
    return table


def named_before(replica: type[Replica], rejoin: type[Rejoin]) -> Table:
    """b is named, reads, writes, and loses its disk. It is named again in the same view: another read would come to
    another request under the same id."""
    actions = (action("read", "", "r", cost=1), action("w", "r", "x", write=True))
    table = Table(sequence(*actions), replica, naming="rotate", rejoin=rejoin)
    a, b, c = table.members
    table.start()
    names: list[tuple[str, str, Any]] = []

    def note(to: str, message: Any) -> bool:
        if isinstance(message, Name):
            names.append((a, to, message))
        return isinstance(message, Replicate) and bool(names)

    for _ in range(3):
        table.tick(a, after_us=20_000)
        table.deliver([a, b, c], lose=note)
    named = names[0][1]
    table.lose_disk(named)
    wait(table, [a, b, c], times=2, lose=lambda to, message: isinstance(message, Name | Replicate))
    table.lying = names[:1]
    table.deliver([a, b, c])
    wait(table, [a, b, c], times=50, lose=lambda to, message: isinstance(message, Clean))
    return table


def begun_before(replica: type[Replica], rejoin: type[Rejoin]) -> Table:
    """a begins an instance, and loses its disk before anybody hears of it; what it sent comes later. Meanwhile somebody
    else has wanted an instance of that name, with another input."""
    table = Table(one_write(), replica, rejoin=rejoin)
    a, b, c = table.members
    table.start()
    sent, table.lying = table.lying, []
    table.lose_disk(a)
    wait(table, [a, b, c], times=3)
    table.lying = [item for item in sent if item[1] == b]
    table.deliver([a, b], lose=lambda to, message: isinstance(message, Ack))
    table.command(a, "begin", Start(INSTANCE, "p", {"x": 7}))
    table.deliver([a, b, c])
    wait(table, [a, b, c], times=100)
    return table


SCHEDULES = [
    (voted_before, Replica, broken.TakesPartAtOnce),
    (voted_before, Replica, broken.AsksTooFew),
    (two_empty, Replica, broken.AnswersFromAnEmptyDisk),
    (old_acknowledgement, Replica, broken.CountsOldVotes),
    (lost_twice, Replica, broken.SameIncarnation),
    (executed_and_forgotten, broken.SaysClean, Rejoin),
    (named_before, broken.TakesUpOldNamings, Rejoin),
    (begun_before, broken.BeginsAgain, Rejoin),
]


@pytest.mark.parametrize(("schedule", "replica", "rejoin"), SCHEDULES)
def test_a_rule_is_needed(schedule: Any, replica: type[Replica], rejoin: type[Rejoin]) -> None:
    assert wrong(schedule(Replica, Rejoin)) == []
    with contextlib.suppress(InvariantBreach, ProtocolError):  # a replica may see that no peer can have sent that
        assert wrong(schedule(replica, rejoin))


def wrong(table: Table) -> list[Any]:
    """Violations; and, once everything is settled, effects of more than one execution."""
    found: list[Any] = list(table.violations())
    if all(INSTANCE in node.finished for node in table.nodes.values()):
        done = [line.iid for line in table.journal if line.what == "do"]
        undone = [line.iid for line in table.journal if line.what == "undo"]
        left = [iid.partition("@")[0] for iid in done if iid not in undone]
        found += [f"the effect of {iid} twice" for iid in left if left.count(iid) > 1]
    return found


def test_messages_that_are_counted_say_what_their_sender_knows() -> None:
    table = Table(one_write())
    a, b, c = table.members
    table.lose_disk(c)
    wait(table, [a, b, c], times=3)
    table.handed.clear()
    table.start()
    table.deliver([a, b, c])
    table.ask_view(b) if INSTANCE in table.nodes[b].instances else None
    table.deliver([a, b, c])
    known = table.nodes[c].shared.incarnations.lives.mine
    told = [m.known for _, _, m in table.handed if isinstance(m, Ack | Vote)]
    assert told
    assert all(one == {c: known} for one in told)
    assert not [m for _, _, m in table.handed if isinstance(m, Clean) and m.lost >= 0]
    assert not [m for _, _, m in table.handed if isinstance(m, Request) and m.mode != "do"]
