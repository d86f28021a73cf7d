"""Quiet is cheap: whom a receiver asks that does not advance, and who then serves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.correlation.table import Table, line
from tests.correlation.test_interleavings import ends_perfect, leader, other, started
from unerring.correlation import Batch, CorrelationConfig, Resume
from unerring.correlation.messages import AskMore, Enough, HasMore

SECOND = 1_000_000
PATIENCE_US = CorrelationConfig().patience_us


class Counted(Table):
    """Keeps every message, with its sender and receiver. What is `late` stays under way."""

    def __init__(self, *arguments: Any) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.late: Callable[[str, str, Any], bool] = lambda *_: False
        super().__init__(*arguments)

    def pass_on(self, wanted: Callable[[str, str, Any], bool] = lambda *_: True) -> int:
        def now(sender: str, to: str, message: Any) -> bool:
            return wanted(sender, to, message) and not self.late(sender, to, message)

        self.sent += [entry for entry in self.waiting if now(*entry)]
        return super().pass_on(now)

    def of(self, *kinds: type) -> list[tuple[str, str, Any]]:
        return [entry for entry in self.sent if isinstance(entry[2], kinds)]


def counted(f: int = 1) -> Counted:
    table = Counted(line(2, f))
    table.run(SECOND)
    table.publish(10, 20)
    table.run(3 * SECOND)
    table.sent.clear()
    return table


@pytest.mark.parametrize("f", [0, 1, 2, 3])
def test_a_pause_costs_no_duplicates(f: int) -> None:
    """Section V.C: without a failure an event is sent once to each receiver, whatever the pauses between bursts."""
    table = started(levels=2, f=f)
    times = []
    for burst in range(6):
        times += [burst * 1000 + number for number in range(10, 20)]
        table.publish(*times[-10:])
        table.run(SECOND // 2)
    for level, receivers in ((1, f + 1), (2, 1)):
        replicas = [table.machines[f"N{level}/{i}"].outgoing for i in range(f + 1)]
        sent = sum(outgoing.transmissions for outgoing in replicas)
        assert sent == replicas[0].queues[f"s{level}"].count * receivers, f"level {level}"
    ends_perfect(table, times, "s2")


@pytest.mark.parametrize("late_us", range(0, 2_000_000, 250_000))
def test_a_burst_that_meets_the_question_is_not_sent_twice(late_us: int) -> None:
    """The receivers ask whether there is more just when there is: the normal replica has it before they do."""
    table = counted()
    leading = leader(table, "N1")
    table.run(late_us)
    table.late = lambda sender, _, message: sender == leading and isinstance(message, Batch)
    table.publish(30, 40)
    table.run(PATIENCE_US // 2)
    table.late = lambda *_: False
    table.run(3 * SECOND)
    assert table.of(Resume) == []
    made = table.machines[leading].outgoing.queues["s1"].count
    assert sum(table.machines[name].outgoing.transmissions for name in ("N1/0", "N1/1")) == 2 * made
    ends_perfect(table, [10, 20, 30, 40], "s2")


def test_nobody_answers_where_nobody_has_more() -> None:
    table = counted()
    table.run(10 * SECOND)
    assert table.of(AskMore)
    assert table.of(HasMore, Resume, Enough) == []


def test_the_leader_is_asked_first() -> None:
    """What it sent was lost; the others have it too, and are not asked for it."""
    table = counted()
    leading = leader(table, "N1")
    table.late = lambda sender, to, message: (sender, to, type(message)) == (leading, "N2/0", Batch)
    table.publish(30, 40)
    table.run(20_000)
    table.drop(table.late)
    table.late = lambda *_: False
    table.run(3 * SECOND)
    assert {(sender, to) for sender, to, _ in table.of(Resume) if sender == "N2/0"} == {("N2/0", leading)}
    assert table.machines[other(leading)].outgoing.transmissions == 0
    ends_perfect(table, [10, 20, 30, 40], "s2")


def test_the_others_are_asked_where_the_leader_does_not_answer_and_told_when_it_serves_again() -> None:
    """Liveness does not rest on the leader; and two serve a receiver no longer than they must."""
    table = counted()
    leading = leader(table, "N1")
    helper = table.machines[other(leading)]
    for name in ("N2/0", "N2/1"):
        table.cut(leading, name, both=False)
    times = [10, 20, 30, 40]
    table.publish(30, 40)
    table.run(3 * PATIENCE_US)
    assert {to for _, to, _ in table.of(Resume)} == {helper.name}
    assert all(table.machines[name].intake.streams["s1"].watermark == 40 for name in ("N2/0", "N2/1"))
    table.heal()
    for time in range(50, 100, 10):
        times.append(time)
        table.publish(time)
        table.run(10_000)
    assert {(sender, to) for sender, to, _ in table.of(Enough)} >= {("N2/0", helper.name)}
    served = helper.outgoing.transmissions
    table.publish(100, 110)
    table.run(2 * SECOND)
    assert helper.outgoing.transmissions == served, "it still serves"
    ends_perfect(table, [*times, 100, 110], "s2")


def test_a_receiver_whose_credit_is_used_up_is_told_of_nothing_more() -> None:
    """What a receiver has no room for is not lacking: no replica would send it."""
    table = counted()
    source = table.machines["src/0"]
    queue = source.outgoing.queues["a"]
    table.cut("src/0", "N1/0", both=False)
    table.publish(30, 40)
    assert source.outgoing.more("N1/0", AskMore("a", 2, 2, 29)) == []
    assert [type(effect.message) for effect in source.outgoing.more("N1/0", AskMore("a", 2, 9, 29))] == [HasMore]
    assert [type(effect.message) for effect in source.outgoing.more("N1/0", AskMore("a", 2, 2, 28))] == [HasMore]
    assert source.outgoing.more("N1/0", AskMore("a", queue.count + 1, 99, 29)) == []
