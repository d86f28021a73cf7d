"""Links: FIFO until reset, datagrams that are lost, doubled and reordered, partitions that heal, bounds."""

from __future__ import annotations

import itertools
from random import Random

import pytest
import recorder
from hypothesis import given, strategies as st

from unerring.model import Broadcast, Codec, ConfigError, Effects, FrameError, Message, Send
from unerring.simulation import Bounds, Congestion, LinkSpec, Partition, Pause, Reset, World, calm, draw_faults, inject
from unerring.simulation.network import FATES, LOST, fates

SECOND_US = 1_000_000


class Word(Message, frozen=True):
    text: str


def send(on: World, number: object, sender: str = "a", to: str = "b") -> None:
    assert on.call(sender, "do", [Send(to, number)])


def stream(on: World, until_us: int, period_us: int = 1_000) -> None:
    """Node a numbers its messages to b."""
    numbers = iter(range(1_000_000))
    on.every(period_us, lambda: send(on, next(numbers)), until_us)


def test_a_table_of_fates_has_the_shares_of_its_spec() -> None:
    table = fates(LinkSpec(datagram=True, loss=0.25, duplication=0.125, delay_us=100, spread_us=50))
    assert len(table) == FATES
    assert table.count(LOST) == FATES // 4
    assert sum(fate < LOST for fate in table) == FATES // 8
    delays = sorted(fate for fate in table if fate >= 0)
    assert delays[0] == 100
    assert delays[len(delays) // 2] == 150
    assert delays[-1] > 10_000


@pytest.mark.parametrize(
    "wrong", [{"loss": 0.1}, {"datagram": True, "loss": 0.6, "duplication": 0.6}, {"delay_us": -1}]
)
def test_a_link_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        LinkSpec(**wrong)  # type: ignore[arg-type]


def test_datagrams_are_lost_doubled_and_reordered() -> None:
    on = World(3, LinkSpec(datagram=True, loss=0.1, duplication=0.1, spread_us=5_000))
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    stream(on, SECOND_US)
    on.run_until(2 * SECOND_US)
    got = b[0].messages()
    assert len(set(got)) < 1_001
    assert len(got) > len(set(got))
    assert got != sorted(got)
    assert on.lost == 1_001 - len(set(got))


@given(st.integers(0, 10_000))
def test_a_reliable_link_is_fifo_and_whole_without_resets(seed: int) -> None:
    on = World(seed)
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    stream(on, SECOND_US, 5_000)
    inject(on, draw_faults(Random(seed), ["b"], SECOND_US, [Pause, Congestion]))
    on.run_until(SECOND_US)
    calm(on)
    on.run_until(10 * SECOND_US)
    assert b[0].messages() == list(range(201))


@given(st.integers(0, 10_000))
def test_with_partitions_and_bounds_it_is_fifo_still(seed: int) -> None:
    on = World(seed, bounds=Bounds(held_max=20, inbox_max=20))
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    stream(on, SECOND_US, 2_000)
    inject(on, draw_faults(Random(seed), ["b"], SECOND_US, [Pause, Congestion, Partition]))
    on.run_until(SECOND_US)
    calm(on)
    on.run_until(10 * SECOND_US)
    got = b[0].messages()
    assert all(before < after for before, after in itertools.pairwise(got))
    assert len(got) + on.lost == 501  # Whatever did not arrive was counted as lost.


def test_a_reset_loses_what_was_in_flight_or_lets_it_be_overtaken() -> None:
    seen = set()
    for seed in range(60):
        on = World(seed, LinkSpec(delay_us=100, spread_us=2_000))
        recorder.add(on, "a")
        b = recorder.add(on, "b")
        stream(on, 20_000, 500)
        inject(on, [Reset(at_us=10_050, node="b")])
        on.run_until(SECOND_US)
        got = b[0].messages()
        assert len(set(got)) == len(got)
        assert len(got) + on.lost == 41
        assert 40 in got
        seen.add((on.lost > 0, got != sorted(got)))
    assert {(True, False), (False, True)} <= seen


@pytest.mark.parametrize("one_way", [False, True])
def test_a_partition_cuts_and_heals(one_way: bool) -> None:
    on = World(1, LinkSpec(datagram=True))
    a, b, c = (recorder.add(on, name) for name in "abc")
    inject(on, [Partition(at_us=0, node="a", for_us=SECOND_US, one_way=one_way)])
    on.run_until(SECOND_US // 2)
    send(on, "out")
    send(on, "in", "b", "a")
    send(on, "beside", "b", "c")
    on.run_until(SECOND_US)
    assert b[0].messages() == []
    assert a[0].messages() == (["in"] if one_way else [])
    assert c[0].messages() == ["beside"]
    send(on, "healed")
    on.run_until(2 * SECOND_US)
    assert b[0].messages() == ["healed"]


def test_overlapping_partitions_heal_one_by_one() -> None:
    on = World(1, LinkSpec(datagram=True))
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    first = Partition(at_us=0, node="a", for_us=100)
    inject(on, [first, Partition(at_us=50, node="b", for_us=100)])
    on.run_until(120)
    send(on, "still cut")
    on.run_until(149)
    assert on.nodes["a"].links["b"].blocked == 1
    on.run_until(150)
    assert on.nodes["a"].links["b"].blocked == 0
    on.run_until(SECOND_US)
    assert b[0].messages() in ([], ["still cut"])


def test_a_link_first_used_during_a_partition_is_cut() -> None:
    on = World(1)
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    inject(on, [Partition(at_us=0, node="b", for_us=SECOND_US)])
    on.run_until(1)
    send(on, "held")
    on.run_until(SECOND_US - 1)
    assert b[0].messages() == []


def test_a_broadcast_reaches_the_subscribers_of_that_node_alone() -> None:
    on = World(1)
    a, b, c = (recorder.add(on, name) for name in "abc")
    on.subscribe("b", "a")
    on.run_until(0)
    on.call("a", "do", [Broadcast("x")])
    on.call("b", "do", [Broadcast("nobody listens")])
    on.run_until(SECOND_US)
    assert (a[0].messages(), b[0].messages(), c[0].messages()) == ([], ["x"], [])
    on.unsubscribe("b", "a")
    on.call("a", "do", [Broadcast("y")])
    on.run_until(2 * SECOND_US)
    assert b[0].messages() == ["x"]


def test_nobody_there_and_down_lose_messages_and_say_so() -> None:
    on = World(1)
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    on.run_until(0)
    send(on, 1, to="nowhere")
    assert on.reports == {"nobody there": 1}
    send(on, 2)
    on.crash("b")
    on.run_until(SECOND_US)
    send(on, 3)
    on.run_until(2 * SECOND_US)
    on.start("b")
    on.run_until(3 * SECOND_US)
    assert on.lost == 2
    assert b[1].messages() == []


def test_an_inbox_is_bounded() -> None:
    on = World(1, LinkSpec(datagram=True, spread_us=0), bounds=Bounds(inbox_max=5))
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    stream(on, 50_000)
    inject(on, [Pause(at_us=10, node="b", for_us=SECOND_US)])
    on.run_until(2 * SECOND_US)
    assert b[0].messages() == [0, 1, 2, 3, 4]
    assert on.lost == 46


def test_a_message_that_its_codec_refuses_ends_the_run() -> None:
    on = World(1)
    on.codec = Codec(Word, bytes_max=20)
    recorder.add(on, "a")
    b = recorder.add(on, "b")
    on.every(100, lambda: send(on, Word("short")), until_us=10_000)
    on.run_until(SECOND_US)
    assert len(b[0].messages()) == 101
    assert not on.broken
    on.every(100, lambda: send(on, Word("far too long for the limit")), until_us=2 * SECOND_US, from_us=SECOND_US)
    on.run_until(2 * SECOND_US)
    assert on.broken[0].promise == "the machine of a raised InvariantBreach"
    assert "exceeds the limit of 20" in on.broken[0].witness[0]


def test_a_machine_that_raises_on_a_message_ends_the_run_as_it_would_end_a_driver() -> None:
    def refuse(what: str, value: object, now: int) -> Effects:
        if value == 3:
            raise FrameError("three is no message")
        return []

    on = World(1)
    recorder.add(on, "a")
    b = recorder.add(on, "b", refuse)
    stream(on, 10_000, 700)
    on.run_until(SECOND_US)
    assert b[0].messages() == [0, 1, 2, 3]
    assert on.broken[0].promise == "the machine of b raised FrameError"
