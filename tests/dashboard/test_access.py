"""Who may look at the dashboard and change something: tokens with roles, sessions, the audit trail, connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from unerring.app.folder import remember
from unerring.app.status import RunStatus
from unerring.dashboard import OWNER, Access, BoundedConnection, Dashboard, read_tokens
from unerring.dashboard.access import CHANGES_AT_ONCE_MAX, CHANGES_PER_S_MAX, COOKIE, SESSIONS_MAX
from unerring.dashboard.connections import CONNECTIONS_MAX
from unerring.log import EventLog
from unerring.model import Actor, ConfigError, Who, read_policy, read_who, schema_of
from unerring.rules.workloads import Typed
from unerring.runtime.certificates import make_certificates
from unerring.runtime.timeline import Timeline

HOST = "http://127.0.0.1"
TOKENS = {f"token-of-{role}": read_who(f"{role}/ann") for role in Actor}
PAGE = {"origin": HOST}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    data = tmp_path / "run"
    EventLog(data / "log").create(schema_of(Typed), 1)
    remember(data, "tests.app.tree_app:app")
    return data


Ask = Callable[..., httpx.Response]


@pytest.fixture
def ask(run: Path) -> Callable[..., Ask]:
    """Asks a dashboard without a socket; the cookies are those of one browser."""

    def of(access: Access, **more: Any) -> Ask:
        dashboard = Dashboard(RunStatus(run), access, **more)
        jar = httpx.Cookies()

        def request(method: str, path: str, **more: Any) -> httpx.Response:
            async def go() -> httpx.Response:
                transport = httpx.ASGITransport(dashboard.app)
                async with httpx.AsyncClient(transport=transport, base_url=HOST, cookies=jar) as client:
                    answer = await client.request(method, path, **more)
                    jar.update(client.cookies)
                    return answer

            return asyncio.run(go())

        return request

    return of


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("role", ["", *Actor])
def test_what_each_role_may_do_with_the_dashboard(ask, role) -> None:
    request = ask(Access(TOKENS, private=True))
    given = bearer(f"token-of-{role}") if role else {}
    looks = role in (Actor.VIEWER, Actor.OPERATOR)
    assert request("GET", "/api/status", headers=given).status_code == (200 if looks else 401)
    changed = request("POST", "/api/commands/kill", headers=given, json={"who": "nobody"})
    expected = {Actor.OPERATOR: 400, Actor.VIEWER: 403}.get(role, 401)  # 400: there is no such process
    assert changed.status_code == expected
    started = request("POST", "/api/processes/start", headers=given, json={"process": "p", "instance": "i"})
    # What only processes can refuse comes later: nobody but an operator got as far as that.
    assert (started.status_code not in (401, 403)) is (role == Actor.OPERATOR)


def test_without_tokens_of_viewers_everybody_on_loopback_looks_as_before(ask) -> None:
    request = ask(Access({"secret-token": OWNER}))
    assert request("GET", "/api/status").status_code == 200
    assert request("POST", "/api/commands/kill", json={"who": "n0"}).status_code == 401


def test_a_browser_logs_in_once_and_its_cookie_is_done_right(ask) -> None:
    request = ask(Access(TOKENS, private=True), secure=True)
    assert request("GET", "/").headers["location"] == "/login"
    page = request("GET", "/login")
    assert "Log in" in page.text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    wrong = request("POST", "/login", data={"token": "guessed"}, headers=PAGE)
    assert (wrong.status_code, COOKIE in wrong.headers.get("set-cookie", "")) == (403, False)
    entered = request("POST", "/login?next=https://evil.example", data={"token": "token-of-viewer"}, headers=PAGE)
    assert (entered.status_code, entered.headers["location"]) == (303, "/"), "nobody is sent elsewhere"
    cookie = entered.headers["set-cookie"].lower()
    for part in ("httponly", "samesite=strict", "secure", "path=/", "max-age=28800"):
        assert part in cookie
    assert "token-of-viewer" not in cookie


def test_a_session_changes_what_its_role_may_and_only_from_our_own_page(ask) -> None:
    access = Access(TOKENS, private=True)
    request = ask(access)
    request("POST", "/login", data={"token": "token-of-operator"}, headers=PAGE)
    assert request("GET", "/api/status").status_code == 200
    kill = {"json": {"who": "nobody"}}
    assert request("POST", "/api/commands/kill", headers=PAGE, **kill).status_code == 400
    assert request("POST", "/api/commands/kill", headers={"origin": "https://evil.example"}, **kill).status_code == 403
    assert request("POST", "/api/commands/kill", **kill).status_code == 403, "no browser leaves Origin out"
    request("POST", "/logout", headers=PAGE)
    assert access._sessions == {}
    assert request("GET", "/api/status").status_code == 401


def test_sessions_have_a_bound_and_are_kept_as_hashes() -> None:
    access = Access(TOKENS)
    values = [access.begin(OWNER) for _ in range(SESSIONS_MAX + 5)]
    assert len(access._sessions) == SESSIONS_MAX
    assert access.session(values[-1]) == OWNER
    assert access.session(values[0]) is None
    assert all(value not in str(access._sessions) for value in values[-3:])
    assert access.who("guessed") is None
    assert access.who("") is None


def test_one_identity_asks_for_so_many_changes_and_the_others_notice_nothing(ask, monkeypatch) -> None:
    monkeypatch.setattr("unerring.dashboard.access.CHANGES_AT_ONCE_MAX", 3)
    monkeypatch.setattr("unerring.dashboard.access.CHANGES_PER_S_MAX", 0.0)
    request = ask(
        Access({"token-of-anna": Who("any", "operator", "anna"), "token-of-bob": Who("any", "operator", "bob")})
    )

    def kill(token: str) -> httpx.Response:
        return request("POST", "/api/commands/kill", headers=bearer(token), json={"who": "nobody"})

    assert [kill("token-of-anna").status_code for _ in range(5)] == [400, 400, 400, 429, 429]
    assert "operator/anna asks for more than" in kill("token-of-anna").json()["error"]
    assert kill("token-of-bob").status_code == 400, "there is no such process; it was heard"
    assert request("GET", "/api/status", headers=bearer("token-of-anna")).status_code == 200


def test_changes_come_back_with_time_and_a_bound_holds_how_many_are_remembered() -> None:
    access, ann = Access({}), Who("any", "operator", "ann")
    assert [access.exceeds(ann, 0.0) for _ in range(CHANGES_AT_ONCE_MAX + 2)] == [False] * CHANGES_AT_ONCE_MAX + [
        True
    ] * 2
    assert [access.exceeds(ann, 1 / CHANGES_PER_S_MAX) for _ in range(2)] == [False, True]
    assert not access.exceeds(ann, 1e6)
    for number in range(2 * SESSIONS_MAX):
        access.exceeds(Who("any", "operator", f"n{number}"), 1e6)
    assert len(access._changes) == SESSIONS_MAX


def test_every_change_is_in_the_timeline_with_who_and_from_where(ask, run) -> None:
    request = ask(Access(TOKENS, private=True))
    request("POST", "/login", data={"token": "token-of-operator"}, headers=PAGE)
    request("POST", "/api/processes/cancel", headers=PAGE, json={"instance": "order-17"})
    request("POST", "/api/processes/cancel", headers=bearer("token-of-viewer"), json={"instance": "order-18"})
    entries = Timeline(run).added()
    assert [(one.who, one.what, one.said) for one in entries] == [
        ("operator/ann", "login", "the dashboard, from 127.0.0.1"),
        ("operator/ann", "commanded", "cancel order-17, from 127.0.0.1"),
    ]
    assert "token-of" not in (run / "timeline.jsonl").read_text()


def test_a_policy_says_more_closely_what_an_operator_may(ask) -> None:
    policy = read_policy('[[allow]]\nwho = "operator/*"\nview = ["*"]\ncommand = ["restart"]\n')
    request = ask(Access(TOKENS, policy, private=True))
    given = bearer("token-of-operator")
    assert request("POST", "/api/commands/restart", headers=given, json={"who": "nobody"}).status_code == 400
    refused = request("POST", "/api/commands/kill", headers=given, json={"who": "nobody"})
    assert (refused.status_code, "no right 'command kill'" in refused.json()["error"]) == (403, True)


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("viewer/ann secret-of-somebody\noperator/bob s3cret\n", 0o600, "entry 2: write ROLE/NAME TOKEN"),
        ("viewer/ann secret-of-somebody\nking/bob secret-of-another-one\n", 0o600, "there is no role 'king'"),
        ("viewer/ann secret-of-somebody\noperator/bob secret-of-another-one\n", 0o644, "others may read"),
        ("an-operators-own-token\n", 0o644, "others may read the file of tokens"),
        ("# nothing\n", 0o600, "has no token in it"),
    ],
)
def test_a_file_of_tokens_with_a_mistake_gets_a_sentence(tmp_path, text, mode, sentence) -> None:
    file = tmp_path / "tokens"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=sentence) as refused:
        read_tokens(file)
    assert "s3cret" not in str(refused.value)


def test_tokens_with_roles_are_read(tmp_path) -> None:
    file = tmp_path / "tokens"
    file.write_text("viewer/ann secret-of-somebody  # from accounting\n\noperator/bob secret-of-another-one\n")
    file.chmod(0o600)
    assert {token: str(who) for token, who in read_tokens(file).items()} == {
        "secret-of-somebody": "viewer/ann",
        "secret-of-another-one": "operator/bob",
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@contextlib.contextmanager
def serving(run: Path, **more: Any) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = Dashboard(RunStatus(run), "secret-token").app
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, http=BoundedConnection, **more)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def test_idle_connections_keep_nobody_out(run) -> None:
    with serving(run) as port, contextlib.ExitStack() as idle:
        for _ in range(4 * CONNECTIONS_MAX):
            idle.enter_context(socket.create_connection(("127.0.0.1", port)))
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/api/status", timeout=60).status_code == 200


def test_it_speaks_tls(run, tmp_path) -> None:
    make_certificates(tmp_path / "tls", [])
    with serving(run, ssl_certfile=tmp_path / "tls" / "node.pem", ssl_keyfile=tmp_path / "tls" / "node.key") as port:
        trust = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
        assert httpx.get(f"https://127.0.0.1:{port}/api/status", verify=trust, timeout=60).status_code == 200


def test_a_token_in_an_address_is_no_token(ask) -> None:
    """Addresses stand in logs and histories; the page has its token behind a #, which no browser sends."""
    request = ask(Access(TOKENS, private=True))
    assert request("GET", "/api/status?token=token-of-operator").status_code == 401
    assert request("POST", "/api/commands/kill?token=token-of-operator", json={"who": "n0"}).status_code == 401
    assert request("POST", "/login?token=token-of-operator", headers=PAGE).status_code == 403
