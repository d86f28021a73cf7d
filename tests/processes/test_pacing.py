"""What keeps a node's work within bounds, at the very bounds: ticks, silence, heartbeats, states on their way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.test_scale import Three
from unerring.model import Send
from unerring.processes.config import ProcessesConfig
from unerring.processes.context import Context
from unerring.processes.messages import ROUND_US_MAX, Heartbeat, Lead
from unerring.processes.pacing import FORGETS, PAUSES, ROUND_SPARE, Beats, Hearing, Transfers, Wakes
from unerring.processes.pulse import LATE_US_MAX, Pulse
from unerring.processes.watch import Watch

CONFIG = ProcessesConfig(
    tick_us=10_000, heartbeat_us=50_000, suspect_us=200_000, suspect_us_max=1_000_000, transfers_max=2, leads_max=2
)


def test_what_woke_already_does_not_hide_who_comes_after_it() -> None:
    wakes = Wakes()
    wakes.later("a", 9)
    wakes.later("a", 5)  # the time of 9 is of no use any more
    wakes.later("b", 7)
    wakes.now("b")  # nor is that of 7
    wakes.later("c", 10)
    wakes.later("d", 10)
    wakes.forget("d")
    wakes.now("f")
    wakes.forget("f")
    wakes.now("e")
    wakes.later("e", 21)  # nothing is to be done any more before its time
    assert wakes.take(20, 10, lambda _: 20) == ["b", "a", "c"]
    assert wakes.take(20, 10, lambda _: 0) == []
    assert wakes.take(21, 10, lambda _: 22) == []
    assert wakes.take(21, 10, lambda _: 0) == []
    assert wakes.take(22, 10, lambda _: 22) == ["e"]


# --- who is heard ---


def test_patience_with_a_peer_follows_its_longest_pause_which_is_slowly_forgotten() -> None:
    hearing = Hearing(CONFIG)
    assert (hearing.slack_us("a"), hearing.slack_us(""), hearing.round_us("a"), hearing.round_us("")) == (0, 0, 0, 0)
    hearing.beat("b", 20, 0)
    hearing.beat("a", 30, 0)
    hearing.beat("a", 70, 150_000)
    assert [hearing.round_us(peer) for peer in ("a", "b", "c", "")] == [70, 20, 0, 70]
    assert [hearing.slack_us(peer) for peer in ("a", "b", "c", "")] == [100_000, 0, 0, 100_000]
    hearing.beat("a", 70, 200_000)
    assert hearing.slack_us("a") == 2 * (150_000 * (FORGETS - 1) // FORGETS) - 200_000
    hearing.slept(700_000)  # this node's own pause is nobody else's
    hearing.beat("a", 70, 750_000)
    assert hearing.slack_us("a") < 100_000
    hearing.beat("a", 70, 60_000_000)
    assert hearing.slack_us("a") == 800_000, "and never above the bound"
    forgotten = 1_000_000 * (FORGETS - 1) // FORGETS  # what was longer than the bound is remembered as the bound
    hearing.beat("a", 70, 60_000_001)
    for _ in range(300):
        hearing.beat("a", 70, 60_000_001)
        forgotten = forgotten * (FORGETS - 1) // FORGETS
    assert hearing.slack_us("a") == 2 * forgotten - 200_000


def test_silence_begins_with_the_last_sign_and_counts_from_its_bound_on() -> None:
    hearing = Hearing(CONFIG)
    assert (hearing.silent("a", 199_999), hearing.silent("a", 200_000)) == (False, True)
    hearing.hear("a", 1_000)
    assert (hearing.silent("a", 200_999), hearing.silent("a", 201_000)) == (False, True)
    hearing.slept(150_000)
    assert (hearing.silent("a", 349_999), hearing.silent("a", 350_000)) == (False, True)
    hearing.beat("a", 0, 200_000)
    hearing.beat("a", 0, 350_000)
    assert (hearing.silent("a", 449_999), hearing.silent("a", 450_000)) == (False, True), "100 ms more, as it is slow"


def test_a_link_that_breaks_is_that_of_all_machines_of_its_node_and_of_no_other() -> None:
    hearing = Hearing(CONFIG)
    peers = ("n1", "n1/orders", "n10", "n2")
    for peer in peers:
        hearing.hear(peer, 1_000)
        hearing.beat(peer, 0, 1_000)
    hearing.gone("n1", 2_000)
    hearing.gone("n1", 3_000)  # it was broken before
    assert [hearing.gone_until_us(peer) for peer in peers] == [102_000, 102_000, None, None]
    hearing.vanished("n1/orders")
    hearing.vanished("n2")  # its link holds
    assert [hearing.gone_until_us(peer) for peer in peers] == [102_000, 2_000, None, None]
    assert [hearing.silent(peer, 2_000) for peer in peers] == [False, True, False, False]
    hearing.slept(50_000)  # one that vanished is not spared
    assert [hearing.gone_until_us(peer) for peer in peers] == [150_000, 2_000, None, None]
    hearing.slept(60_000)  # and the others once
    assert [hearing.gone_until_us(peer) for peer in peers] == [150_000, 2_000, None, None]
    for peer in peers[:2]:
        hearing.hear(peer, 70_000)
        hearing.beat(peer, 0, 70_000)
    assert [hearing.gone_until_us(peer) for peer in peers] == [None] * 4
    hearing.gone("n1", 80_000)
    assert [hearing.gone_until_us(peer) for peer in peers[:2]] == [180_000] * 2, "nothing of the time before counts"
    hearing.slept(90_000)
    assert [hearing.gone_until_us(peer) for peer in peers[:2]] == [190_000] * 2


# --- whom heartbeats name ---


class Led:
    """An instance that is led here as long as its group is not negative."""

    def __init__(self, instance: str, *others: str) -> None:
        self.instance, self.others, self.group = instance, others, 0

    def lead(self) -> Lead | None:
        return None if self.group < 0 else Lead(self.instance, 0, self.group, False)


def named(beats: Beats, led: dict[str, Led], now: int) -> dict[str, list[tuple[str, int]]]:
    leads = beats.next(led, ("n1", "n2"), now)
    return {peer: [(lead.instance, lead.group) for lead in own] for peer, own in leads.items()}


def test_each_peer_hears_of_its_own_instances_news_at_once_and_the_rest_in_turns() -> None:
    beats = Beats(CONFIG)
    led = {name: Led(name, *others) for name, *others in (("a", "n1", "n2"), ("b", "n2"), ("c", "n1"), ("alone",))}
    for each in led.values():
        beats.note(each)
    pause_us = CONFIG.heartbeat_us
    assert beats.round_us == pause_us * ROUND_SPARE, "two heartbeats name the three that have peers"
    assert named(beats, led, 0) == {"n1": [("a", 0)], "n2": [("a", 0), ("b", 0)]}
    assert beats.round_us == pause_us * ROUND_SPARE
    assert named(beats, led, pause_us) == {"n1": [("a", 0), ("c", 0)], "n2": [("a", 0), ("b", 0)]}
    for each in led.values():
        beats.note(each)  # nothing is new
    assert named(beats, led, 2 * pause_us) == {"n1": [("a", 0)], "n2": [("a", 0), ("b", 0)]}
    led["b"].group = 5
    beats.note(led["b"])
    assert named(beats, led, 3 * pause_us) == {"n1": [("c", 0), ("a", 0)], "n2": [("a", 0), ("b", 5)]}
    led["a"].group = 7
    beats.note(led["a"])
    assert named(beats, led, 4 * pause_us) == {"n1": [("c", 0), ("a", 7)], "n2": [("b", 5), ("a", 7)]}
    led["a"].group = led["b"].group = -1
    del led["c"]
    assert named(beats, led, 5 * pause_us) == {"n1": [], "n2": []}
    assert named(beats, led, 6 * pause_us) == {"n1": [], "n2": []}
    for each in led.values():
        beats.note(each)
    assert beats.round_us == 0, "what is not led is no news"
    led["a"].group = led["b"].group = 7
    for each in led.values():
        beats.note(each)  # as if it had never been
    for number in (7, 8):
        assert named(beats, led, number * pause_us) == {"n1": [("a", 7)], "n2": [("a", 7), ("b", 7)]}


def test_a_round_takes_as_long_as_heartbeats_took_of_late() -> None:
    def after(*pauses_us: int) -> int:
        beats = Beats(CONFIG)
        led = {f"i{n}": Led(f"i{n}", "n1") for n in range(5)}
        for each in led.values():
            beats.note(each)
        now = 1_000
        named(beats, led, now)
        for pause_us in pauses_us:
            now += pause_us
            named(beats, led, now)
        return beats.round_us

    two = 2 * ROUND_SPARE  # two heartbeats more name the five
    usual = CONFIG.heartbeat_us
    assert after(usual, usual, usual) == two * usual
    assert after(usual, 10_000, 0) == two * usual, "they never come quicker than they are sent"
    assert after(usual, 150_000) == two * (usual + 100_000 / PAUSES)
    assert after(usual, usual, 90_000_000) == two * (usual + (CONFIG.suspect_us_max - usual) / PAUSES) // 1


def test_a_round_that_is_said_has_a_bound() -> None:
    beats = Beats(msgspec.structs.replace(CONFIG, heartbeat_us=60_000_000, suspect_us=120_000_000, leads_max=1))
    for number in range(1_200):
        beats.note(Led(f"i{number}", "n1"))
    assert beats.round_us == ROUND_US_MAX


# --- states on their way ---


def test_states_on_their_way_have_a_bound_and_give_way_to_the_next() -> None:
    transfers = Transfers(CONFIG)
    for instance, of in (("a", "n1"), ("b", None), ("c", "n1"), ("d", None), ("e", "n2")):
        transfers.want(instance, of)
    assert transfers.take(0) == [("a", "n1"), ("b", None)]
    assert (transfers.take(0), len(transfers)) == ([], 2)
    transfers.want("a", "n2")  # it is under way
    transfers.shown("a")  # and not from here
    transfers.shown("unknown")
    assert transfers.take(10) == []
    transfers.shown("b")
    assert transfers.take(10) == [("c", "n1")]
    transfers.landed("d")
    transfers.landed("c")
    assert transfers.take(20) == [("e", "n2")]
    transfers.give_up(CONFIG.transfer_us - 1)
    assert len(transfers) == 2
    transfers.give_up(CONFIG.transfer_us)
    assert len(transfers) == 1, "what was asked for first is taken for lost"
    transfers.want("a", "n2")
    assert transfers.take(CONFIG.transfer_us) == [("a", "n2")]


# --- a node's own time ---


@pytest.mark.parametrize(("late_us", "its_own"), [(LATE_US_MAX - 1, True), (LATE_US_MAX, False)])
def test_a_node_takes_silence_for_its_own_lateness_and_not_for_ever(late_us: int, its_own: bool) -> None:
    shared = msgspec.structs.replace(Three().nodes["n0"].shared, config=CONFIG, hearing=Hearing(CONFIG))
    pulse = Pulse(shared, 0)

    def slept(now: int) -> bool:
        shared.hearing.hear("n1", now)
        return pulse.tick(now)

    assert slept(0), "it did not know before that it can win"
    in_time_us = CONFIG.suspect_us // 2
    assert not slept(in_time_us)
    assert slept(2 * in_time_us + 1)
    since_us = now = 2 * in_time_us + 1
    while since_us + LATE_US_MAX - now > 220_000:
        now += 110_000
        assert slept(now)
    now = since_us + late_us
    assert slept(now) is its_own, "all ticks were late for less than the bound, or not"
    now += in_time_us + 1
    assert not slept(now), "it is just slow"
    assert not slept(now + in_time_us)
    assert slept(now + 2 * in_time_us + 1), "one that came in time lets it begin anew"


def test_a_node_that_hears_enough_others_again_waits_for_what_they_say() -> None:
    shared = msgspec.structs.replace(Three().nodes["n0"].shared, config=CONFIG, hearing=Hearing(CONFIG))
    pulse = Pulse(shared, 0)
    said: list[tuple[bool, bool]] = []
    for step in range(12):
        now = step * 100_000
        if step in (0, 1, 8, 9):
            shared.hearing.hear("n1" if step < 5 else "n2", now)
        said.append((pulse.tick(now), pulse.could_win))
    lost = [(False, False)] * 4 + [(True, True)]
    assert said == [(True, True), (False, True), (False, True), (False, False)] + lost + [
        (False, True),
        (False, True),
        (False, False),
    ], "with one of the two others a view can be won"


def test_heartbeats_go_when_they_are_due_to_all_other_nodes() -> None:
    shared: Any = Three().nodes["n0"].shared
    shared.out.take()
    pulse = Pulse(shared, 0)
    heartbeat_us = shared.config.heartbeat_us
    sent = []
    for now in (5, 5 + heartbeat_us - 1, 5 + heartbeat_us):
        pulse.beat({}, now)
        sent.append([(e.to, e.message) for e in shared.out.take() if isinstance(e, Send)])
    assert sent == [[("n1", Heartbeat(())), ("n2", Heartbeat(()))], [], [("n1", Heartbeat(())), ("n2", Heartbeat(()))]]


# --- who leads an instance ---


class Even:
    """Chance that always draws the middle."""

    def random(self) -> float:
        return 0.5


def watching() -> tuple[Watch, Hearing, ProcessesConfig]:
    config = ProcessesConfig(heartbeat_us=50_000, suspect_us=200_000, suspect_us_max=1_000_000, backoff_us=150_000)
    hearing = Hearing(config)
    shared = msgspec.structs.replace(Three().nodes["n0"].shared, config=config, hearing=hearing, entropy=Even())
    return Watch(Context(shared, "i", ("n0", "n1", "n2")), 1_000_000), hearing, config


def test_patience_doubles_with_each_election_up_to_a_bound() -> None:
    watch, _, _ = watching()
    patience_us = [watch.named_until_us(started=True) - 1_000_000]
    for number in range(1, 9):
        watch.candidacy(1_000_000 + number)
        patience_us.append(watch.named_until_us(started=True) - 1_000_000 - number)
    drawn = (1, 2, 4, 8, 16, 32, 64, 64, 64)
    assert patience_us == [200_000 + 75_000 * times for times in drawn]
    watch.led(2_000_000)
    watch.candidacy(2_000_000)
    assert watch.named_until_us(started=True) == 2_000_000 + 200_000 + 150_000, "somebody led meanwhile"


def test_a_leader_is_trusted_while_it_is_heard_and_for_as_long_as_it_is_slow() -> None:
    watch, hearing, _ = watching()
    watch.led(1_000_000, "n1")
    assert watch.led_until_us(started=True) == 1_275_000
    hearing.beat("n1", 5_000_000, 1_000_000)  # it needs that long to name all that it leads
    hearing.hear("n1", 1_100_000)
    assert watch.led_until_us(started=True) == 1_375_000
    hearing.beat("n1", 5_000_000, 1_150_000)
    assert watch.led_until_us(started=True) == 1_475_000, "its heartbeats come 150 ms apart"
    hearing.slept_us = 1_200_000
    assert watch.led_until_us(started=True) == 1_575_000
    hearing.hear("n1", 9_000_000)
    assert watch.led_until_us(started=True) == watch.named_until_us(started=True) == 6_575_000, "it does not name it"


def test_when_a_leaders_link_breaks_the_next_in_turn_does_not_wait_for_the_others() -> None:
    for leader, pause_us in (("n1", 150_000 + 75_000), ("n2", 0), ("elsewhere", 0)):
        watch, hearing, config = watching()
        watch.led(1_000_000, leader)
        hearing.beat(leader, 5_000_000, 1_000_000)
        hearing.gone(leader, 1_100_000)
        assert watch.led_until_us(started=True) == 1_100_000 + 2 * config.heartbeat_us + pause_us, leader
        hearing.vanished(leader)
        assert watch.led_until_us(started=True) == 1_100_000 + pause_us
