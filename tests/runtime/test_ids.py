"""Ids that people choose: any letters, which travel in headers and come back as they were; what cannot be part of an id
is said when it is given, not by every call afterwards."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from unerring import Embedded, Process, Service
from unerring.app.process_audit import audit_processes
from unerring.model import InstanceFailed, ProcessError
from unerring.processes.messages import Answer, Request
from unerring.processes.schedules import Schedule
from unerring.runtime.process_control import Command, ask_node, control_of
from unerring.runtime.services import HttpService, IdempotencyFilter, Interaction, SqliteStore
from unerring.runtime.services.headers import Headers, read, written


class Order(msgspec.Struct):
    item: str = ""
    receipt: str = ""
    paid: int = 0


def order() -> Process:
    process = Process("order", state=Order, services=[Service("shop")])

    @process.action(service="shop", writes="receipt", write=True)
    async def verkäufe(item: str) -> str: ...

    return process.flow(verkäufe, process.receive("payment", writes="paid"))


class Shop:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        interaction: Interaction = scope["unerring"]
        self.seen.append((scope["method"], interaction.iid))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b'"sold"'})


@pytest.mark.parametrize("instance", ["Müller-1", "注文 7", "50%41", "a b  c"])
def test_an_id_with_any_letters_goes_on_and_is_undone_and_judged(tmp_path: Path, instance: str) -> None:
    shop = Shop()

    async def main() -> None:
        store = SqliteStore(tmp_path / "shop.db")
        service = HttpService("http://shop", transport=httpx.ASGITransport(app=IdempotencyFilter(shop, store)))
        async with Embedded([order()], tmp_path / "nodes" / "n.db", {"shop": service}) as engine:
            await engine.start("order", instance, item="bolt")
            async with asyncio.timeout(600):
                while not engine.query(instance)["history"]:
                    await asyncio.sleep(0.005)
            await engine.cancel(instance)
            with pytest.raises(InstanceFailed, match="was cancelled"):
                await asyncio.wait_for(engine.result(instance), 600)
        await store.close()

    (tmp_path / "nodes").mkdir()
    asyncio.run(main())
    iid = f"{instance}/verkäufe/0@0"
    assert shop.seen == [("POST", iid), ("DELETE", iid)]
    verdict = audit_processes(tmp_path / "nodes", [order()], [str(tmp_path / "shop.db")])
    assert (verdict.violations, verdict.instances, verdict.interactions) == ((), {"cancelled": 1}, 2)


@pytest.mark.parametrize(
    "iid", ["i/a/0@0", "of an earlier release\n/a/0@0", "Müller/ü/0@3~", " a /x/0", "100%/a", "a%41/a", "注文/x/1"]
)
def test_what_is_written_into_headers_is_read_again(iid: str) -> None:
    instance = iid.split("/")[0]
    request = Request(instance, iid, "s", "op", {}, view=3, group=2, basis=(0, -1, 5), settle=True)
    headers = {name.encode(): value.encode("ascii") for name, value in written(request).items()}
    assert all(value == value.strip() for value in headers.values()), "HTTP would take spaces at the ends away"
    assert read(headers) == Headers(iid, instance, 3, 2, (0, -1, 5), True)


def test_a_key_of_somebody_elses_client_is_taken_as_it_is() -> None:
    assert read({b"idempotency-key": b"50%41"}) == Headers("50%41", "50%41")


BAD = ["a\nb", "a\r\nSet-Cookie: x", "a\tb", "a\x00b", "\ud800", "x" * 501]


@pytest.mark.parametrize("id", BAD)
def test_what_cannot_be_an_id_is_refused_at_the_start_however_it_is_started(tmp_path: Path, id: str) -> None:
    async def main() -> None:
        async with Embedded([order()], tmp_path / "n.db", {"shop": HttpService("http://shop")}) as engine:
            with pytest.raises(ProcessError, match=r"invalid instance id|exceeds the limit of 500"):
                await engine.start("order", id, item="bolt")
            for message in (engine.signal("o", "payment", 1, id=id), engine.publish("payment", "k", 1, id=id)):
                with pytest.raises(ProcessError, match=r"invalid message id|exceeds the limit of 500"):
                    await message
            if id == BAD[0]:
                control = control_of(engine, tmp_path / "n.sock")
                await control.open()
                with pytest.raises(ProcessError, match="invalid instance id"):
                    await asyncio.to_thread(ask_node, control.path, Command("start", id, "order"))
                await control.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Schedule("nightly\n", "order", 10**9),
        lambda: Process("or\nder").flow(),
        lambda: Process("order@1", state=Order).flow(Process("order@1").sleep("s", 1)),
    ],
)
def test_names_that_ids_are_made_of_are_checked_where_they_are_given(make: Callable[[], object]) -> None:
    with pytest.raises(ProcessError):
        make()


def test_a_name_that_is_part_of_ids_has_no_character_that_ids_are_put_together_with() -> None:
    for name in ("or\nder", "a|b", "order@1"):
        process = Process(name, state=Order)
        with pytest.raises(ProcessError, match="invalid process name"):
            process.flow(process.sleep("s", 1))
    for name in ("a|b", "a\nb", "a'b"):
        process = Process("order", state=Order)
        with pytest.raises(ProcessError, match="invalid action name"):
            process.flow(process.sleep(name, 1))


def test_a_message_with_a_bar_in_its_id_would_be_lost_by_a_restart(tmp_path: Path) -> None:
    """Its key on disk could not be told from another instance's; it was acknowledged, and gone after a restart."""

    async def main() -> None:
        async with Embedded([order()], tmp_path / "n.db", {"shop": HttpService("http://shop")}) as engine:
            await engine.start("order", "o", item="bolt")
            with pytest.raises(ProcessError, match="invalid message id"):
                await engine.signal("o", "payment", 1, id="a|b")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Unerring-View", "--5"),
        ("Unerring-View", "1" + "0" * 25),
        ("Unerring-View", "-2"),
        ("Unerring-View", ""),
        ("Unerring-View", "1_0"),
        ("Unerring-Group", "-1"),
        ("Unerring-Group", "9" * 12),
        ("Unerring-Basis", "0,x"),
        ("Unerring-Basis", "0,,1"),
        ("Unerring-Basis", "9" * 30),
        ("Unerring-Instance", b"M\xfcller"),
        ("Unerring-Instance", "%ff"),
        ("Unerring-Instance", "a%00b"),
        ("Idempotency-Key", "a%00b"),
        ("Idempotency-Key", b"M\xfcller"),
    ],
)
def test_a_header_that_cannot_be_read_is_a_400_with_a_sentence(tmp_path: Path, name: str, value: Any) -> None:
    """Two ids with other letters must not become one, and a number that the database cannot hold must not be a 500."""

    async def main() -> None:
        store, shop = SqliteStore(tmp_path / "shop.db"), Shop()
        asgi = httpx.ASGITransport(app=IdempotencyFilter(shop, store), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=asgi, base_url="http://shop") as client:
            headers = {"Idempotency-Key": "i/a/0@0", "Unerring-Instance": "i", name: value}
            for method in ("POST", "DELETE"):
                response = await client.request(method, "/sell", headers=headers, content=b"{}")
                assert response.status_code == 400
                assert f"the header {name} " in response.json()["why"]
        await store.close()
        assert shop.seen == []

    asyncio.run(main())


def test_a_database_that_fails_is_a_503_with_a_sentence(tmp_path: Path) -> None:
    async def main() -> None:
        store, shop = SqliteStore(tmp_path / "shop.db"), Shop()
        asgi = httpx.ASGITransport(app=IdempotencyFilter(shop, store))
        async with httpx.AsyncClient(transport=asgi, base_url="http://shop") as client:
            store.connection.execute("DROP TABLE unerring_journal")
            response = await client.post("/sell", headers={"Idempotency-Key": "i/a/0@0"}, content=b"{}")
            assert (response.status_code, response.headers["unerring-answer"]) == (503, "unknown")
            assert "database failed, so that the outcome is unknown: no such table" in response.json()["why"]
            assert store.connection.execute("SELECT * FROM unerring_interaction").fetchall() == [], "rolled back"
            await store.close()
            response = await client.request("DELETE", "/sell", headers={"Idempotency-Key": "i/a/0@0"})
            assert (response.status_code, response.headers["unerring-answer"]) == (503, "unknown")

    asyncio.run(main())


def test_what_was_gone_back_on_stays_in_the_journals_basis(tmp_path: Path) -> None:
    """Views of groups that count no longer are -1; without them the others stand at the wrong place."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "shop.db")
        service = HttpService("http://shop", transport=httpx.ASGITransport(app=IdempotencyFilter(Shop(), store)))
        reply = await service.ask(Request("i", "i/a/0@2", "shop", "sell", {}, view=2, group=4, basis=(0, -1, 2)))
        assert reply.answer == Answer.DONE
        await service.close()
        await store.close()

    asyncio.run(main())
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        assert connection.execute("SELECT basis FROM unerring_journal").fetchall() == [("0,-1,2",)]
