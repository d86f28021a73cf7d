"""The filter knows its callers: whoever guesses an interaction id can do nothing with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.runtime.test_filter import Shop, ask
from unerring.model import Actor, UnerringError
from unerring.processes import Answer, Limits
from unerring.runtime.secret import shared_secret
from unerring.runtime.services.clients import HttpService
from unerring.runtime.services.filter import IdempotencyFilter
from unerring.runtime.services.proof import AT, FLOW, PROOF, proof
from unerring.runtime.services.store import SqliteStore

Scenario = Callable[[HttpService, httpx.AsyncClient, IdempotencyFilter], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario, client: dict[str, Any] | None = None, **options: Any) -> None:
    """A process's client and a stranger's, before one filter."""

    async def run() -> None:
        store = SqliteStore(tmp_path / "shop.db")
        async with store.transaction("test") as transaction:
            transaction.connection.execute("CREATE TABLE sold (count INTEGER)")
        filter = IdempotencyFilter(Shop(), store, **options)
        transport = httpx.ASGITransport(app=filter)
        service = HttpService("http://shop", transport=transport, **client or {})
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as stranger:
            await scenario(service, stranger, filter)
        await service.close()
        await store.close()

    asyncio.run(run())


GUESSED = {"Idempotency-Key": "i/sell/0@0", "Unerring-Instance": "i", "Unerring-View": "0"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"Unerring-View": "7"},
        {"Unerring-Settle": "1"},
        {"Unerring-Proof": "0" * 64},
        {"Unerring-Caller": "node/n0", "Unerring-Proof": "ff"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_guessed_id_undoes_forestalls_and_fences_nothing(tmp_path, method, more) -> None:
    async def scenario(service: HttpService, stranger: httpx.AsyncClient, filter: IdempotencyFilter) -> None:
        for before in (True, False):  # the attack comes first, and again after the original
            refused = await stranger.request(method, "/sell", headers={**GUESSED, **more}, content=b'{"count": 9}')
            assert refused.status_code == 401
            assert refused.headers["unerring-answer"] == "unknown"
            reply = await service.ask(ask("i/sell/0@0"))
            assert reply.answer == Answer.DONE, before
        assert filter.reports["filter.unproved"] == 2

    play(tmp_path, scenario)


def test_a_key_of_another_program_s_own_lies_apart(tmp_path) -> None:
    async def scenario(service: HttpService, stranger: httpx.AsyncClient, filter: IdempotencyFilter) -> None:
        key = {"Idempotency-Key": "i/sell/0@0"}
        assert (await service.ask(ask("i/sell/0@0"))).answer == Answer.DONE
        assert (await stranger.request("DELETE", "/sell", headers={**key, "Unerring-View": "9"})).status_code == 200
        assert (await service.ask(ask("i/sell/0@0"))).answer == Answer.DONE, "it was not cancelled"
        assert (await service.ask(ask("i/sell/1@0"))).answer == Answer.DONE, "nor fenced"
        late = await stranger.post("/sell", headers=key, content=b'{"count": 1}')
        assert late.headers["unerring-answer"] == "fenced", "its own tombstone counts for itself"

    play(tmp_path, scenario)


def test_a_proof_is_for_one_request_alone(tmp_path) -> None:
    async def scenario(service: HttpService, stranger: httpx.AsyncClient, filter: IdempotencyFilter) -> None:
        lower = {name.lower(): value for name, value in GUESSED.items()}
        shown = proof(shared_secret(), "POST", "/sell", lower, b'{"count":3}')
        for method, path, body, changed in (
            ("DELETE", "/sell", b'{"count":3}', {}),
            ("POST", "/refund", b'{"count":3}', {}),
            ("POST", "/sell", b'{"count":4}', {}),
            ("POST", "/sell", b'{"count":3}', {"unerring-view": "1"}),
            ("POST", "/sell", b'{"count":3}', {"unerring-instance": "j"}),
            ("POST", "/sell", b'{"count":3}', {"unerring-settle": "1"}),
        ):
            headers = {**lower, **changed, PROOF: shown}
            assert (await stranger.request(method, path, headers=headers, content=body)).status_code == 401
        good = await stranger.post("/sell", headers={**lower, PROOF: shown}, content=b'{"count":3}')
        assert good.status_code == 200

    play(tmp_path, scenario)


def test_a_gate_is_closed_by_operators_alone_and_by_no_old_command(tmp_path) -> None:
    async def scenario(service: HttpService, stranger: httpx.AsyncClient, filter: IdempotencyFilter) -> None:
        assert (await stranger.post("/", headers={FLOW: "pause"})).status_code == 401
        old = {FLOW: "pause", AT: "1000000000"}
        old[PROOF] = proof(shared_secret(), "POST", "/", old, b"")
        assert (await stranger.post("/", headers=old)).status_code == 401
        assert (await service.ask(ask("i/sell/0@0"))).answer == Answer.DONE
        assert (await service.steer("pause", "maintenance"))["paused"]

    play(tmp_path, scenario, limits=Limits())


def test_each_caller_may_have_a_secret_of_its_own_and_the_policy_says_who_may_call(tmp_path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[[allow]]\nwho = "node/*"\ncall = ["shop"]\n')
    secrets = {who: tmp_path / who.replace("/", ".") for who in ("node/n0", "viewer/ann")}
    for file in secrets.values():
        shared_secret(file)

    def scenario(allowed: bool) -> Scenario:
        async def body(service: HttpService, stranger: httpx.AsyncClient, filter: IdempotencyFilter) -> None:
            reply = await service.ask(ask("i/sell/0@0"))
            assert reply.answer == (Answer.DONE if allowed else Answer.UNKNOWN)

        return body

    options: dict[str, Any] = {"secret": secrets, "policy": str(policy), "name": "shop"}
    for number, (caller, file, allowed) in enumerate(
        [
            ("node/n0", "node/n0", True),
            ("viewer/ann", "viewer/ann", False),  # known, and not allowed
            ("node/n0", "viewer/ann", False),  # another one's name
            ("node/n1", "node/n0", False),  # unknown
        ]
    ):
        (tmp_path / str(number)).mkdir()
        play(tmp_path / str(number), scenario(allowed), {"secret": secrets[file], "caller": caller}, **options)


def test_whoever_has_no_such_secret_is_told_what_to_do(tmp_path) -> None:
    async def scenario(service: HttpService, stranger: httpx.AsyncClient, filter: IdempotencyFilter) -> None:
        reply = await service.ask(ask("i/sell/0@0"))
        assert reply.answer == Answer.UNKNOWN, "it is tried again, and nothing has happened"
        assert "both need the same secret file" in reply.value

    play(tmp_path, scenario, {"secret": tmp_path / "other"})


@pytest.mark.parametrize("role", Actor)
def test_of_all_roles_nodes_and_services_ask_by_default(tmp_path, role) -> None:
    """Carry out, undo, and close the gate: each with a genuine secret of its own."""
    file = tmp_path / "secret"
    shared_secret(file)
    allowed = role in (Actor.NODE, Actor.SERVICE)

    async def scenario(service: HttpService, stranger: httpx.AsyncClient, filter: IdempotencyFilter) -> None:
        reply = await service.ask(ask("i/sell/0@0"))
        assert reply.answer == (Answer.DONE if allowed else Answer.UNKNOWN)
        undone = await service.ask(ask("i/sell/0@0", "cancel"))
        assert (undone.answer != Answer.UNKNOWN) is allowed
        if not allowed:
            with pytest.raises(UnerringError):
                await service.steer("pause", "maintenance")

    who = f"{role}/ann"
    play(tmp_path, scenario, {"secret": file, "caller": who}, secret={who: file}, name="shop", limits=Limits())
