"""Limits of services: never more than allowed, nobody waits for ever, keys in turns, what is urgent first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from unerring import Embedded, Process, Service
from unerring.audit import check_flow, flow
from unerring.model import ConfigError
from unerring.processes import Answer, Limiter, Limits, Reply, Request, Retry
from unerring.simulation.limited import LimitedService
from unerring.simulation.process_parts import Temper

SECOND_US = 1_000_000


class Crowd:
    """Many who ask, come back when they are told to, and take their time when they may begin."""

    def __init__(self, limits: Limits, seed: int = 0) -> None:
        self.limiter = Limiter(limits)
        self.random = Random(seed)
        self.now = 0
        self.turn = 0
        self.queue: list[tuple[int, int, str, Any]] = []
        self.begun: list[tuple[int, str, str]] = []
        self.spans: list[tuple[int, int, str]] = []
        self.asked = 0
        self.silent: Callable[[str, int], bool] = lambda id, now: False
        """Who cannot ask now."""

    def at(self, us: int, what: str, of: Any) -> None:
        self.turn += 1
        heapq.heappush(self.queue, (us, self.turn, what, of))

    def comes(self, us: int, id: str, key: str = "", urgency: int = 0, takes_us: int = 1_000) -> None:
        self.at(us, "ask", (id, key, urgency, takes_us))

    def run(self, until_us: int) -> None:
        while self.queue and self.queue[0][0] <= until_us:
            self.now, _, what, of = heapq.heappop(self.queue)
            if what == "end":
                self.limiter.end(of, False, self.now)
                continue
            id, key, urgency, takes_us = of
            if self.silent(id, self.now):
                self.at(self.now + 100_000, what, of)
                continue
            self.asked += 1
            wait_us = self.limiter.ask(id, id, key, urgency, self.now)
            if wait_us:
                self.at(self.now + wait_us + self.random.randrange(20_000), what, of)
            else:
                self.begun.append((self.now, id, key))
                self.spans.append((self.now, self.now + takes_us, key))
                self.at(self.now + takes_us, "end", id)

    def most_in_a_second(self, key: str | None = None) -> int:
        times = [at for at, _, k in self.begun if key in (None, k)]
        return max((sum(at <= other < at + SECOND_US for other in times) for at in times), default=0)

    def most_at_once(self, key: str | None = None) -> int:
        spans = [(a, b) for a, b, k in self.spans if key in (None, k)]
        return max((sum(a <= at < b for a, b in spans) for at, _ in spans), default=0)


limit = st.none() | st.integers(1, 4)


@settings(max_examples=60, deadline=None)
@given(
    limits=st.builds(Limits, at_once=limit, per_second=limit, key_at_once=limit, key_per_second=limit),
    crowd=st.lists(
        st.tuples(
            st.integers(0, 3 * SECOND_US), st.sampled_from("abc"), st.integers(0, 2), st.integers(1_000, 700_000)
        ),
        max_size=25,
    ),
    seed=st.integers(0, 1_000),
)
def test_never_more_than_allowed_and_nobody_waits_for_ever(limits: Limits, crowd: list[Any], seed: int) -> None:
    world = Crowd(limits, seed)
    for number, (us, key, urgency, takes_us) in enumerate(crowd):
        world.comes(us, f"{key}{number}", key, urgency, takes_us)
    world.run(90 * SECOND_US)
    assert len(world.begun) == len(crowd)
    assert limits.per_second is None or world.most_in_a_second() <= limits.per_second
    assert limits.at_once is None or world.most_at_once() <= limits.at_once
    for key in "abc":
        assert limits.key_per_second is None or world.most_in_a_second(key) <= limits.key_per_second
        assert limits.key_at_once is None or world.most_at_once(key) <= limits.key_at_once
    assert world.limiter.waiting == 0


def test_a_rate_is_used_up_though_nobody_is_let_in_too_early() -> None:
    world = Crowd(Limits(per_second=50))
    for number in range(2_000):
        world.comes(0, f"i{number}")
    world.run(20 * SECOND_US)
    assert world.most_in_a_second() <= 50
    assert len(world.begun) >= 0.95 * 50 * 20
    assert world.asked < 20 * 2_000  # and nobody asks all the time


def test_a_rate_is_used_up_while_a_third_of_those_who_wait_is_dead_now_and_then() -> None:
    """Every five seconds the instances of another node ask nothing for two; then they come back, each to its place."""
    world = Crowd(Limits(per_second=20))
    world.silent = lambda id, now: now % (5 * SECOND_US) < 2 * SECOND_US and int(id) % 3 == now // (5 * SECOND_US) % 3
    for number in range(1_000):
        world.comes(0, str(number))
    world.run(30 * SECOND_US)
    assert world.most_in_a_second() <= 20
    assert len(world.begun) >= 0.95 * 20 * 30
    assert world.asked < 12 * 1_000


def test_keys_come_in_turns_by_their_shares() -> None:
    world = Crowd(Limits(per_second=40, shares={"gold": 3}))
    for number in range(400):  # the crowd of one key is there first, and large
        world.comes(0, f"loud{number}", "loud")
    for number in range(200):
        world.comes(1_000, f"gold{number}", "gold")
        world.comes(1_000, f"quiet{number}", "quiet")
    world.run(6 * SECOND_US)
    late = [key for at, _, key in world.begun if at > SECOND_US]
    counts = {key: late.count(key) for key in ("loud", "gold", "quiet")}
    assert len(late) > 150
    assert abs(counts["loud"] - counts["quiet"]) <= 12
    assert 2.2 <= counts["gold"] / counts["quiet"] <= 4


def test_what_is_urgent_comes_before_all_others() -> None:
    world = Crowd(Limits(per_second=10))
    for number in range(100):
        world.comes(0, f"i{number}")
    world.comes(2_500_000, "urgent", urgency=5)
    world.run(20 * SECOND_US)
    (at,) = [at for at, id, _ in world.begun if id == "urgent"]
    assert at <= 3_800_000


def test_a_key_that_is_full_does_not_hold_up_the_others() -> None:
    world = Crowd(Limits(at_once=10, key_at_once=1))
    for number in range(50):
        world.comes(0, f"slow{number}", "slow", takes_us=10 * SECOND_US)
    world.comes(1_000, "other", "other")
    world.run(2 * SECOND_US)
    assert [id for _, id, _ in world.begun] == ["slow0", "other"]


def test_who_does_not_come_back_loses_its_place() -> None:
    limiter = Limiter(Limits(at_once=1))
    assert limiter.ask("first", "first", "", 0, 0) == 0
    assert limiter.ask("dead", "dead", "", 9, 1_000) > 0
    wait_us = limiter.ask("next", "next", "", 0, 2_000)
    limiter.end("first", False, 3_000)
    assert wait_us > 0
    assert limiter.ask("next", "next", "", 0, 10 * SECOND_US) == 0
    assert limiter.waiting == 0


def test_after_enough_failures_the_service_is_left_alone_and_then_tried_by_one() -> None:
    limiter = Limiter(Limits(failures_max=2, failures_pause_s=5))
    for number in (1, 2):
        assert limiter.ask(f"i{number}", f"i{number}", "", 0, number) == 0
    limiter.end("i1", True, 10)
    limiter.end("i2", True, 10)
    assert limiter.ask("i3", "i3", "", 0, 20) >= 4 * SECOND_US
    later = 10 + 5 * SECOND_US
    assert limiter.ask("i3", "i3", "", 0, later) == 0
    assert limiter.ask("i4", "i4", "", 0, later + 1) > 0
    limiter.end("i3", True, later + 2)
    assert limiter.ask("i4", "i4", "", 0, later + 3) >= 4 * SECOND_US
    assert limiter.ask("i4", "i4", "", 0, 2 * later) == 0
    limiter.end("i4", False, 2 * later + 1)
    assert limiter.ask("i5", "i5", "", 0, 2 * later + 2) == 0
    assert limiter.ask("i6", "i6", "", 0, 2 * later + 2) == 0


@pytest.mark.parametrize(
    "bad",
    [{"at_once": 0}, {"per_second": -1}, {"key_at_once": 0}, {"per_second": 0.5}, {"shares": {"a": 0}}]
    + [{"failures_max": 0}, {"failures_pause_s": 0}],
)
def test_a_limit_that_lets_nothing_through_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Limits(**bad)


class Tale(msgspec.Struct):
    at: int = 0
    receipt: str = ""


class Narrow:
    """A service that carries out one request after the other, and is given four at once."""

    at_once_max = 4

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.asked: list[str] = []
        self.at_once = 0
        self.most = 0

    async def ask(self, request: Request) -> Reply:
        self.asked.append(request.iid)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        async with self.turn:
            await asyncio.sleep(0.015)
        self.at_once -= 1
        return Reply(request.instance, request.iid, request.mode, Answer.DONE, "r")

    async def close(self) -> None: ...


def test_a_slow_service_is_asked_in_turns_and_nobody_gives_up(tmp_path: Path) -> None:
    """Time-outs are for what was asked, not for what waits to be: the patience here is less than it takes."""
    process = Process("tale", state=Tale, services=[Service("narrow")])
    short = Retry(attempt_us=1_000_000, attempts_max=2, backoff_us=1_000, backoff_max_us=1_000)

    @process.action(service="narrow", writes="receipt", write=True, retry=short)
    async def ask(at: int) -> str: ...

    process.flow(ask)
    narrow = Narrow()

    async def scenario() -> None:
        async with Embedded([process], tmp_path / "tales.db", {"narrow": narrow}) as engine:
            await asyncio.gather(*(engine.run("tale", f"t{number}") for number in range(200)))

    asyncio.run(scenario())
    assert narrow.most <= 4
    assert sorted(set(narrow.asked)) == sorted(f"t{number}/ask/0@0" for number in range(200))


@pytest.mark.parametrize("mode", ["cancel", "undo"])
def test_a_simulated_gate_writes_an_undo_down_as_the_filter_does(mode: str) -> None:
    service = LimitedService("bank", True, Temper(0, 0, 0, 0, 0, 0, 0, 0, 0), {}, Random(0), lambda: len(service.flow))
    service.start(0)
    for number, how in enumerate(("do", mode), 1):
        service.handle("master", Request("i", "i/pay/0@0", "bank", "write", None, how), 0)
        service.timer(f"work {number}", 0)
    assert [line.what for line in service.flow] == ["limits", "do", "undo"]
    paused = [*service.flow[:2], msgspec.structs.replace(service.flow[1], what="pause"), service.flow[2]]
    assert [violation.promise for violation in check_flow(paused)] == [flow.PAUSED]
