"""The gate of a filter, on SQLite and on a real PostgreSQL: limits over all who ask, pauses, restarts; and its journal,
which the audit reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.processes import postgres
from unerring import Embedded, HttpService, IdempotencyFilter, Limits, PostgresStore, Process, Service, SqliteStore
from unerring.app.process_audit import read_flow, read_journal
from unerring.audit import Passed, Violation, check_flow
from unerring.audit.flow import AT_ONCE, PAUSED, PER_SECOND, PERMIT
from unerring.model import DiskError, ProcessError, WorldError
from unerring.processes import Answer, Request


class Shop:
    """Counts how many it works for at once; each takes a while."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.at_once = self.most = 0
        self.fails = False
        self.takes_s = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append(f"{scope['method']} {scope['unerring'].iid}")
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self.takes_s)
        self.at_once -= 1
        await send({"type": "http.response.start", "status": 503 if self.fails else 200, "headers": []})
        await send({"type": "http.response.body", "body": b'"sold"'})


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with postgres.server() as found:
        parts = dict(part.split("=") for part in found.split())
        yield f"postgresql:///{parts['dbname']}?host={parts['host']}&user={parts['user']}"


class Place:
    """A shop behind a filter with limits, which can be started again."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.shop = Shop()
        self.opened: list[Any] = []

    def open(self, limits: Limits | None) -> HttpService:
        store: Any = PostgresStore(self.where) if self.where.startswith("postgres") else SqliteStore(self.where)
        app = IdempotencyFilter(self.shop, store, limits=limits)
        service = HttpService("http://shop", transport=httpx.ASGITransport(app=app))
        self.opened += [service, store]
        return service

    async def close(self) -> None:
        for each in self.opened:
            await each.close()
        self.opened.clear()

    def judged(self) -> list[Violation]:
        return check_flow(read_flow(self.where), [line.iid for line in read_journal(self.where)])

    def lines(self, *what: str) -> list[Passed]:
        return [line for line in read_flow(self.where) if line.what in what]


Body = Callable[[Place], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgres"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Body], None]:
    where = request.getfixturevalue("dsn") if request.param == "postgres" else str(tmp_path / "shop.db")

    async def with_all(body: Body) -> None:
        place = Place(where)
        if where.startswith("postgres"):
            import psycopg

            with psycopg.connect(where) as connection:
                connection.execute(
                    "DROP TABLE IF EXISTS unerring_flow, unerring_interaction, unerring_journal, unerring_fence"
                )
        try:
            await body(place)
        finally:
            await place.close()

    return lambda body: asyncio.run(with_all(body))


def ask(iid: str, mode: str = "do", key: str = "") -> Request:
    return Request(iid.split("/")[0], iid, "shop", "sell", {}, mode, key=key)


async def insist(service: HttpService, request: Request) -> int:
    """As a master does: until it is done. How often it had to wait."""
    waited = 0
    while (reply := await service.ask(request)).answer == Answer.WAIT:
        waited += 1
        await asyncio.sleep(reply.value / 1e6)
    assert reply.answer == Answer.DONE
    return waited


def test_a_rate_holds_over_all_who_ask_and_is_proved_by_the_journal(play: Callable[[Body], None]) -> None:
    async def body(place: Place) -> None:
        service = place.open(Limits(per_second=20))
        asked = [ask(f"i{n}/sell/0@0") for n in range(50)]
        await asyncio.gather(*(insist(service, request) for request in asked))
        assert len(place.shop.calls) == 50
        assert place.judged() == []
        began = sorted(line.began_us for line in place.lines("do"))
        assert all(later - first >= 1_000_000 for first, later in zip(began, began[20:], strict=False))
        assert (await service.ask(asked[0])).answer == Answer.DONE  # from the record: without a permit
        assert len(place.lines("do")) == 50

    play(body)


def test_no_more_at_once_for_all_and_for_a_key(play: Callable[[Body], None]) -> None:
    async def body(place: Place) -> None:
        place.shop.takes_s = 0.01
        service = place.open(Limits(at_once=3, key_at_once=1))
        asked = [ask(f"i{n}/sell/0@0", key=f"k{n % 5}") for n in range(20)]
        await asyncio.gather(*(insist(service, request) for request in asked))
        assert place.shop.most <= 3
        assert place.judged() == []
        assert {line.key for line in place.lines("do")} == {f"k{n}" for n in range(5)}
        assert await insist(service, ask("i0/sell/0@0", "cancel")) >= 0
        assert [line.key for line in place.lines("undo")] == ["k0"]  # an undo is of the key that it undoes for

    play(body)


def test_a_paused_service_begins_nothing_until_it_is_resumed_also_after_a_restart(
    play: Callable[[Body], None],
) -> None:
    async def body(place: Place) -> None:
        service = place.open(Limits())
        await insist(service, ask("a/sell/0@0"))
        look = await service.steer("pause", "the bank has maintenance")
        assert look["paused"] == "the bank has maintenance"
        assert (await service.ask(ask("b/sell/0@0"))).answer == Answer.WAIT
        assert (await service.ask(ask("a/sell/0@0"))).answer == Answer.DONE
        await place.close()
        service = place.open(Limits())
        assert (await service.ask(ask("b/sell/0@0"))).answer == Answer.WAIT
        assert (await service.ask(ask("a/sell/0@0", "cancel"))).answer == Answer.WAIT
        assert place.shop.calls == ["POST a/sell/0@0"]
        assert (await service.steer("show"))["waiting"] == 2
        assert (await service.steer("resume"))["paused"] == ""
        await insist(service, ask("b/sell/0@0"))
        await insist(service, ask("a/sell/0@0", "cancel"))
        assert place.shop.calls == ["POST a/sell/0@0", "POST b/sell/0@0", "DELETE a/sell/0@0"]
        assert place.judged() == []
        with pytest.raises(ProcessError, match="can pause, resume and show"):
            await service.steer("explode")

    play(body)


def test_after_a_restart_a_rate_still_holds(play: Callable[[Body], None]) -> None:
    async def body(place: Place) -> None:
        service = place.open(Limits(per_second=2))
        for name in "ab":
            assert await insist(service, ask(f"{name}/sell/0@0")) == 0
        await place.close()
        service = place.open(Limits(per_second=2))
        await insist(service, ask("c/sell/0@0"))
        began = [line.began_us for line in place.lines("do")]
        assert began[2] - began[1] >= 1_000_000

    play(body)


def test_a_service_that_fails_is_left_alone_until_it_is_resumed(play: Callable[[Body], None]) -> None:
    async def body(place: Place) -> None:
        service = place.open(Limits(failures_max=2, failures_pause_s=600))
        place.shop.fails = True
        for name in "ab":
            assert (await service.ask(ask(f"{name}/sell/0@0"))).answer == Answer.UNKNOWN
        assert (await service.ask(ask("c/sell/0@0"))).answer == Answer.WAIT
        assert len(place.shop.calls) == 2
        assert (await service.steer("show"))["shut_s"] > 0
        place.shop.fails = False
        assert (await service.steer("resume"))["shut_s"] == 0  # somebody knows that it is well again
        await insist(service, ask("c/sell/0@0"))
        await insist(service, ask("a/sell/0@0"))
        assert [line.iid for line in place.lines("failed")] == ["a/sell/0@0", "b/sell/0@0"]

    play(body)


def test_a_second_gate_on_one_database_is_refused(play: Callable[[Body], None]) -> None:
    async def body(place: Place) -> None:
        service = place.open(Limits(at_once=1))
        await insist(service, ask("a/sell/0@0"))
        second = place.open(Limits(at_once=1))
        reply = await second.ask(ask("b/sell/0@0"))
        assert reply.answer == Answer.UNKNOWN
        assert "run one filter" in str(reply.value)
        assert place.shop.calls == ["POST a/sell/0@0"]
        with pytest.raises(ProcessError, match="run one filter"):
            await second.steer("show")

    play(body)


def test_a_filter_without_limits_cannot_be_paused_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        place = Place(str(tmp_path / "shop.db"))
        service = place.open(None)
        with pytest.raises(ProcessError, match="give its filter some"):
            await service.steer("pause")
        await place.close()
        away = HttpService("http://127.0.0.1:1")
        with pytest.raises(WorldError, match="does not answer"):
            await away.steer("pause")
        await away.close()

    asyncio.run(body())
    assert issubclass(DiskError, WorldError)


class Order(msgspec.Struct):
    customer: str = ""
    urgency: int = 0
    receipt: str = ""


def test_actions_name_whose_they_are_and_how_urgent(tmp_path: Path) -> None:
    order = Process("order", state=Order, services=[Service("shop")])

    @order.action(service="shop", writes="receipt", write=True, key="customer", priority="urgency")
    async def sell(customer: str) -> str: ...

    order.flow(sell)
    place = Place(str(tmp_path / "shop.db"))

    async def body() -> None:
        services = {"shop": place.open(Limits(key_per_second=3, shares={"gold": 2}))}
        async with Embedded([order], tmp_path / "orders.db", services) as engine:
            runs = [engine.run("order", f"o{n}", customer=f"c{n % 2}", urgency=n) for n in range(8)]
            await asyncio.gather(*runs)
            assert (await engine.steer_service("shop", "show"))["limits"]["key_per_second"] == 3
            with pytest.raises(ProcessError, match="it has shop"):
                await engine.steer_service("bank", "pause")
            with pytest.raises(ProcessError, match="hold the instances"):
                await engine.steer_service("local", "pause")
        await place.close()

    asyncio.run(body())
    assert place.judged() == []
    assert sorted(line.key for line in place.lines("do")) == ["c0"] * 4 + ["c1"] * 4
    other = Process("other", state=Order, services=[Service("shop")])
    other.action(service="shop", priority="none")(sell)
    with pytest.raises(ProcessError, match="priority 'none'"):
        other.flow("sell")


# ---- the checker -----------------------------------------------------------------------------------------------------

LIMITS = Passed("limits", '{"at_once": 2, "per_second": 3, "key_at_once": 1, "shares": {}}', "", 0, 0)


def do(iid: str, from_us: int, until_us: int, key: str = "") -> Passed:
    return Passed("do", iid, key, from_us, until_us)


def test_the_checker_shows_what_was_too_much() -> None:
    fine = [LIMITS, do("a", 0, 10, "x"), do("b", 5, 20, "y"), do("c", 10, 30, "x"), do("d", 1_000_000, 2_000_000)]
    assert check_flow(fine) == []
    (often,) = check_flow([*fine, do("e", 20, 25, "z")])
    assert often.promise == PER_SECOND
    assert often.witness[0] == "4 in a second, and 3 are allowed"
    (both,) = check_flow([LIMITS, do("a", 0, 10, "x"), do("b", 5, 20, "y"), do("c", 9, 30, "z")])
    assert (both.promise, both.witness[0]) == (AT_ONCE, "3 at once, and 2 are allowed")
    (of_key,) = check_flow([LIMITS, do("a", 0, 10, "x"), do("b", 5, 20, "x")])
    assert (of_key.promise, of_key.witness[0]) == (AT_ONCE, "2 at once for the key 'x', and 1 are allowed")
    paused = [
        LIMITS,
        Passed("pause", "why", "", 5, 5),
        do("a", 4, 9, "x"),
        do("b", 7, 8),
        Passed("resume", "", "", 9, 9),
    ]
    (inside,) = check_flow(paused)
    assert (inside.promise, inside.witness) == (PAUSED, ("paused at 5 (why)", "do b from 7 to 8"))
    assert [v.promise for v in check_flow(fine[:3], ["old", "a", "strange", "b"])] == [PERMIT]
    changed = [LIMITS, do("a", 0, 1), Passed("limits", '{"at_once": null}', "", 0, 0)]
    assert check_flow([*changed, *(do(str(n), 10, 20) for n in range(9))]) == []
