"""The filter in front of services: one body for SQLite and for a real PostgreSQL, asked by HTTP clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.processes import postgres
from unerring.processes.messages import Answer, Reply, Request
from unerring.processes.packing import runs_of
from unerring.runtime.services import HttpService, IdempotencyFilter, Interaction, PostgresStore, SqliteStore


class Shop:
    """An ASGI application that counts what it sells, in the filter's own transaction."""

    def __init__(self) -> None:
        self.behaves = "well"
        self.calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        interaction: Interaction = scope["unerring"]
        body = (await receive())["body"]
        count = msgspec.json.decode(interaction.original or body)["count"]
        change = -count if scope["method"] == "DELETE" else count
        sql = f"INSERT INTO sold (count) VALUES ({change})"
        answer = interaction.connection.execute(sql)
        if isinstance(answer, Awaitable):
            await answer
        if self.behaves == "raises":
            raise RuntimeError("broken")
        status = {"well": 200, "refuses": 409, "refuses for good": 410, "fails": 503}[self.behaves]
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b'"sold"'})


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with postgres.server() as found:
        yield found


Played = Callable[[HttpService, Shop, Callable[[], Awaitable[int]]], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgres"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Played], None]:
    where = request.getfixturevalue("dsn") if request.param == "postgres" else ""

    async def with_all(body: Played) -> None:
        store: Any = PostgresStore(where) if where else SqliteStore(tmp_path / "shop.db")
        shop = Shop()

        async def execute(sql: str) -> Any:
            async with store.transaction("test") as transaction:
                answer = transaction.connection.execute(sql)
                rows = await answer if isinstance(answer, Awaitable) else answer
                if not sql.startswith("SELECT"):
                    return None
                row = rows.fetchone()
                return await row if isinstance(row, Awaitable) else row

        async def sold() -> int:
            return int((await execute("SELECT COALESCE(SUM(count), 0) FROM sold"))[0])

        for table in ("sold", "unerring_interaction", "unerring_fence"):
            await execute(f"DROP TABLE IF EXISTS {table}" if table == "sold" else f"DELETE FROM {table}")
        await execute("CREATE TABLE sold (count INTEGER)")
        service = HttpService("http://shop", transport=httpx.ASGITransport(app=IdempotencyFilter(shop, store)))
        try:
            await body(service, shop, sold)
        finally:
            await service.close()
            await store.close()

    return lambda body: asyncio.run(with_all(body))


def ask(iid: str, mode: str = "do", view: int = 0, count: int = 3) -> Request:
    return Request("i", iid, "shop", "sell", {"count": count}, mode, view)


async def answers(service: HttpService, *requests: Request) -> list[str]:
    return [(await service.ask(request)).answer for request in requests]


def test_a_repeated_iid_has_its_effect_once(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        first, second = await service.ask(ask("i/a/0@0")), await service.ask(ask("i/a/0@0"))
        assert first == second == Reply("i", "i/a/0@0", "do", Answer.DONE, "sold")
        assert (shop.calls, await sold()) == (1, 3)

    play(body)


def test_a_long_lineage_comes_in_short_and_is_taken(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        long = msgspec.structs.replace(ask("i/a/0@0"), group=7, basis=runs_of((0, 0, 0, 0, 1, 2)))
        assert await answers(service, long) == [Answer.DONE]

    play(body)


def test_many_at_once_have_one_effect(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        replies = await asyncio.gather(*(service.ask(ask("i/a/0@0")) for _ in range(12)))
        assert {reply.answer for reply in replies} == {Answer.DONE}
        assert await sold() == 3

    play(body)


def test_an_iid_with_another_request_is_refused(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        assert await answers(service, ask("i/a/0@0"), ask("i/a/0@0", count=4)) == [Answer.DONE, Answer.UNKNOWN]
        assert await sold() == 3

    play(body)


def test_cancel_undoes_once_and_the_iid_stays_cancelled(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        asked = [ask("i/a/0@0"), ask("i/a/0@0", "cancel", 1), ask("i/a/0@0", "cancel", 1), ask("i/a/0@0")]
        assert await answers(service, *asked) == [Answer.DONE, Answer.DONE, Answer.DONE, Answer.FENCED]
        assert (shop.calls, await sold()) == (2, 0)

    play(body)


def test_a_tombstone_refuses_the_late_original(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        assert await answers(service, ask("i/a/0@0", "cancel", 0), ask("i/a/0@0")) == [Answer.DONE, Answer.FENCED]
        assert shop.calls == 0

    play(body)


def test_a_fence_refuses_lower_views_but_no_repetition(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        asked = [ask("i/a/0@1", view=1), ask("i/b/0@3", view=3), ask("i/c/0@2", view=2), ask("i/a/0@1", view=1)]
        assert await answers(service, *asked) == [Answer.DONE, Answer.DONE, Answer.FENCED, Answer.DONE]
        assert await answers(service, ask("i/d/0", view=-1)) == [Answer.DONE]  # non-compensable ones pass
        assert await sold() == 9

    play(body)


def test_refusals_are_recorded_and_leave_nothing(play: Callable[[Played], None]) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        shop.behaves = "refuses"
        assert await answers(service, ask("i/a/0@0")) == [Answer.REFUSED]
        shop.behaves = "refuses for good"
        assert await answers(service, ask("i/b/0@0")) == [Answer.FINAL]
        shop.behaves = "well"
        assert await answers(service, ask("i/a/0@0"), ask("i/b/0@0")) == [Answer.REFUSED, Answer.FINAL]
        assert await sold() == 0

    play(body)


@pytest.mark.parametrize("how", ["raises", "fails"])
def test_a_failure_records_nothing_and_may_be_repeated(play: Callable[[Played], None], how: str) -> None:
    async def body(service: HttpService, shop: Shop, sold: Callable[[], Awaitable[int]]) -> None:
        shop.behaves = how
        assert await answers(service, ask("i/a/0@0")) == [Answer.UNKNOWN]
        assert await sold() == 0
        shop.behaves = "well"
        assert await answers(service, ask("i/a/0@0")) == [Answer.DONE]
        shop.behaves = how
        assert await answers(service, ask("i/a/0@0", "cancel", 1)) == [Answer.UNKNOWN]  # not undone: asked again later
        assert await sold() == 3
        shop.behaves = "well"
        assert await answers(service, ask("i/a/0@0", "cancel", 1)) == [Answer.DONE]
        assert await sold() == 0

    play(body)


def test_answers_that_cannot_be_read_are_unknown_or_garbage() -> None:
    """What a status means without the filter's mark is in test_http_answers."""

    def respond(request: httpx.Request) -> httpx.Response:
        kind = msgspec.json.decode(request.content)["kind"]
        if kind == "hangs":
            raise httpx.ReadTimeout("too slow", request=request)
        return {
            "garbage": httpx.Response(200, content=b"<html>"),
            "huge": httpx.Response(200, content=b"1" * 5000),
            "fine": httpx.Response(200, content=b"7"),
        }[kind]

    async def body() -> list[str]:
        service = HttpService("http://x", reply_bytes_max=1000, transport=httpx.MockTransport(respond))
        kinds = ("hangs", "garbage", "huge", "fine")
        replies = [await service.ask(Request("i", "i/a/0@0", "x", "op", {"kind": kind})) for kind in kinds]
        await service.close()
        assert replies[1].value == {"garbage": "<html>"}
        return [reply.answer for reply in replies]

    assert asyncio.run(body()) == ["unknown", "done", "unknown", "done"]


@pytest.mark.parametrize("came", [b"", b'{"count"'])
def test_a_request_that_is_cut_off_is_no_request(tmp_path: Path, came: bytes) -> None:
    """A client that gives up while it sends must not leave a half request recorded under its id: the whole one, when it
    comes again, would be taken for another request for ever."""

    async def main() -> None:
        store, shop, answers = SqliteStore(tmp_path / "shop.db"), Shop(), []
        store.connection.execute("CREATE TABLE sold (count INTEGER)")
        scope = {"type": "http", "method": "POST", "path": "/buy", "headers": [(b"idempotency-key", b"i/buy/0@0")]}
        whole = {"type": "http.request", "body": b'{"count": 3}', "more_body": False}
        half = [{"type": "http.request", "body": came, "more_body": True}] if came else []

        async def send(message: Any) -> None:
            answers.append(message)

        for messages in ([*half, {"type": "http.disconnect"}], [whole]):
            given = iter(messages)

            async def receive(given: Iterator[Any] = given) -> Any:
                return next(given)

            await IdempotencyFilter(shop, store)(dict(scope), receive, send)
        assert shop.calls == 1
        assert [message["status"] for message in answers if message["type"] == "http.response.start"] == [200]
        assert store.connection.execute("SELECT count FROM sold").fetchall() == [(3,)]
        await store.close()

    asyncio.run(main())
