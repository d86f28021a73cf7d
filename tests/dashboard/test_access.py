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

from tests.dashboard.doors import bearer, small_run
from tests.dashboard.running import until
from unerring.app.status import RunStatus
from unerring.dashboard import (
    OWNER,
    Access,
    BoundedConnection,
    Dashboard,
    access as bounds,
    read_tokens,
)
from unerring.dashboard.access import (
    CHANGES_AT_ONCE_MAX,
    CHANGES_PER_S_MAX,
    COOKIE,
    LOGINS_AT_ONCE_MAX,
)
from unerring.dashboard.connections import CONNECTIONS_MAX
from unerring.dashboard.entrance import LOGIN_BYTES_MAX
from unerring.dashboard.pace import KNOWN_MAX, Pace
from unerring.dashboard.server import STREAMS_PER_HOLDER_MAX
from unerring.dashboard.sessions import CODE_S_MAX, SESSIONS_MAX, SESSIONS_PER_WHO_MAX, Sessions
from unerring.model import Actor, ConfigError, Who, read_policy, read_who
from unerring.runtime.certificates import make_certificates
from unerring.runtime.guard import NOTED_MAX
from unerring.runtime.timeline import Timeline

HOST = "http://127.0.0.1"
TOKENS = {f"token-of-{role}": read_who(f"{role}/ann") for role in Actor}
PAGE = {"origin": HOST}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_run(tmp_path / "run")


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
    assert len(access.sessions) == 0
    assert request("GET", "/api/status").status_code == 401


def test_whoever_logs_in_often_ends_its_own_sessions_and_nobody_else_s() -> None:
    sessions = Sessions()
    anna, bob = Who("any", "operator", "anna"), Who("any", "viewer", "bob")
    first = sessions.begin(anna)
    values = [sessions.begin(bob) for _ in range(SESSIONS_MAX + 5)]
    assert sessions.whose(first) == anna
    assert [sessions.whose(value) == bob for value in values] == [False] * (len(values) - SESSIONS_PER_WHO_MAX) + [
        True
    ] * SESSIONS_PER_WHO_MAX
    assert all(value not in str(vars(sessions)) for value in values[-3:])
    for number in range(2 * SESSIONS_MAX):
        sessions.begin(Who("any", "viewer", f"n{number}"))
    assert len(sessions) == SESSIONS_MAX
    access = Access(TOKENS)
    assert access.who("guessed") is None
    assert access.who("") is None


def test_a_code_logs_in_once_and_dies_within_a_minute(monkeypatch) -> None:
    sessions, now = Sessions(), 100.0
    monkeypatch.setattr("unerring.dashboard.sessions.time.monotonic", lambda: now)
    code = sessions.code(OWNER)
    assert [sessions.exchange(one) for one in ("guessed", code, code)] == [None, OWNER, None]
    late = sessions.code(OWNER)
    now += CODE_S_MAX
    assert sessions.exchange(late) is None
    codes = [sessions.code(OWNER) for _ in range(1000)]
    assert len(sessions._codes) < 1000
    assert sessions.exchange(codes[-1]) == OWNER


def test_a_browser_with_the_code_is_logged_in_and_a_second_one_is_not(ask) -> None:
    access = Access(TOKENS, private=True)
    request = ask(access)
    code = access.sessions.code(OWNER)
    assert request("POST", "/login", data={"code": code}, headers=PAGE).status_code == 303
    assert request("GET", "/api/who").json() == {"who": str(OWNER)}
    again = request("POST", "/login", data={"code": code}, headers=PAGE)
    assert (again.status_code, "was used" in again.text) == (403, True)


def test_logins_have_a_bound_of_each_identity_and_so_have_their_lines(ask, run) -> None:
    request = ask(Access(TOKENS, private=True))
    log_in = [
        request("POST", "/login", data={"token": f"token-of-{who}"}, headers=PAGE).status_code
        for who in ["viewer"] * (LOGINS_AT_ONCE_MAX + 5) + ["operator"]
    ]
    assert log_in == [303] * LOGINS_AT_ONCE_MAX + [429] * 5 + [303]
    noted = [one.what for one in Timeline(run).added()]
    assert (noted.count("login"), noted.count("refused")) == (LOGINS_AT_ONCE_MAX + 1, 1)


def test_wrong_tokens_wait_for_their_answer_and_right_ones_never_do(run, monkeypatch) -> None:
    """Guessing is slow, and nobody can lock others out with it."""
    monkeypatch.setattr(bounds, "FAILURES_PER_S_MAX", 0.0)
    access = Access(TOKENS, private=True, failed_s=1e9)

    async def go() -> None:
        transport = httpx.ASGITransport(Dashboard(RunStatus(run), access).app)
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:

            async def show(token: str) -> int:
                return (await client.get("/api/who", headers=bearer(token))).status_code

            assert [await show("guessed") for _ in range(bounds.FAILURES_AT_ONCE_MAX)] == [401] * 10
            waiting = [asyncio.create_task(show("guessed")) for _ in range(bounds.WAITING_MAX)]
            while access._waiting < bounds.WAITING_MAX:
                await asyncio.sleep(0)
            assert not any(one.done() for one in waiting)
            assert await show("guessed") == 429
            wrong = await client.post("/login", data={"token": "guessed"}, headers=PAGE)
            assert wrong.status_code == 429
            assert await show("token-of-viewer") == 200
            right = await client.post("/login", data={"token": "token-of-viewer"}, headers=PAGE)
            assert right.status_code == 303
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert access._waiting == 0

    asyncio.run(go())


def test_more_than_a_form_is_not_read(ask) -> None:
    request = ask(Access(TOKENS, private=True))
    large = request("POST", "/login", content=b"token=" + b"x" * LOGIN_BYTES_MAX, headers=PAGE)
    assert (large.status_code, "send less" in large.text) == (403, True)


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
    pace = Pace(CHANGES_AT_ONCE_MAX, CHANGES_PER_S_MAX)
    assert [pace.exceeds("ann", 0.0) for _ in range(CHANGES_AT_ONCE_MAX + 2)] == [False] * CHANGES_AT_ONCE_MAX + [
        True
    ] * 2
    assert [pace.exceeds("ann", 1 / CHANGES_PER_S_MAX) for _ in range(2)] == [False, True]
    assert not pace.exceeds("ann", 1e6)
    for number in range(2 * KNOWN_MAX):
        pace.exceeds(number, 1e6)
    assert len(pace._left) == KNOWN_MAX


def test_every_change_is_in_the_timeline_with_who_and_from_where(ask, run) -> None:
    request = ask(Access(TOKENS, private=True))
    request("POST", "/login", data={"token": "token-of-operator"}, headers=PAGE)
    request("POST", "/api/processes/cancel", headers=PAGE, json={"instance": "order-17"})
    request("POST", "/api/processes/cancel", headers=bearer("token-of-viewer"), json={"instance": "order-18"})
    entries = Timeline(run).added()
    refusal = "viewer/ann has no right 'cancel *'; nothing was changed, from 127.0.0.1"
    assert [(one.who, one.what, one.said) for one in entries] == [
        ("operator/ann", "login", "the dashboard, from 127.0.0.1"),
        ("operator/ann", "commanded", "cancel order-17, from 127.0.0.1"),
        ("dashboard", "refused", refusal),
    ]
    assert "token-of" not in (run / "timeline.jsonl").read_text()


def test_a_policy_says_more_closely_what_an_operator_may(ask) -> None:
    policy = read_policy('[[allow]]\nwho = "operator/*"\nview = ["*"]\ncommand = ["restart"]\n')
    request = ask(Access(TOKENS, policy, private=True))
    given = bearer("token-of-operator")
    assert request("POST", "/api/commands/restart", headers=given, json={"who": "nobody"}).status_code == 400
    refused = request("POST", "/api/commands/kill", headers=given, json={"who": "nobody"})
    assert (refused.status_code, "no right 'command kill'" in refused.json()["error"]) == (403, True)


def test_a_refusal_is_noted_once_and_counted_each_time(ask, run) -> None:
    request = ask(Access(TOKENS, private=True))
    for _ in range(3):
        request("POST", "/api/commands/kill", headers=bearer("token-of-viewer"), json={"who": "n0"})
        request("GET", "/api/status", headers=bearer("token-of-producer"))
        request("GET", "/api/status", headers=bearer("guessed"))
        request("GET", "/api/status")
    assert [one.said for one in Timeline(run).added() if one.what == "refused"] == [
        "viewer/ann has no right 'command kill'; nothing was changed, from 127.0.0.1",
        f"producer/ann has no right 'view {run}', from 127.0.0.1",
        "somebody showed a token or code that is not known, from 127.0.0.1",
    ]
    metrics = request("GET", "/metrics", headers=bearer("token-of-viewer")).text
    assert "unerring_dashboard_refused_total 9\n" in metrics
    for number in range(2 * NOTED_MAX):
        request("POST", f"/api/commands/verb{number}", headers=bearer("token-of-viewer"), json={"who": "n0"})
    assert sum(one.what == "refused" for one in Timeline(run).added()) == NOTED_MAX


def test_a_policy_that_changes_ends_the_sessions_and_streams_of_who_may_look_no_longer(run, tmp_path) -> None:
    """With a mistake in it, the former one stays in force."""
    policy = tmp_path / "policy.toml"
    policy.write_text('[[allow]]\nwho = "*/*"\nview = ["*"]\n')
    access = Access(TOKENS, private=True, policy_file=str(policy))
    ann, bob = access.begin(Who("any", "viewer", "ann")), access.begin(Who("any", "viewer", "bob"))
    with serving(run, access) as port, contextlib.ExitStack() as opened:
        client = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        watched = client.stream("GET", "/api/stream", headers={"cookie": f"{COOKIE}={ann}"})
        changes = opened.enter_context(watched).iter_bytes()
        assert next(changes).startswith(b"retry")
        policy.write_text('[[allow]]\nwho = "*/*"\nwatch = ["*"]\n')
        until(lambda: access.reports["policy.not_reloaded"], "the mistake is seen")
        assert access.session(ann) is not None
        policy.write_text('revoked = ["viewer/ann"]\n[[allow]]\nwho = "*/*"\nview = ["*"]\n')
        until(lambda: access.session(ann) is None, "the session has ended")
        assert access.session(bob) is not None
        assert sum(1 for _ in changes) >= 0, "the stream has ended"
        cookies = {"cookie": f"{COOKIE}={ann}"}
        assert client.get("/api/status", headers=cookies).status_code == 401
        assert client.get("/api/status", headers=bearer("token-of-viewer")).status_code == 401, "ann's, too"
        assert client.get("/api/status", headers={"cookie": f"{COOKIE}={bob}"}).status_code == 200
    noted = [one.said for one in Timeline(run).added() if one.what == "refused"]
    assert any("there is no right 'watch'; use one of" in said for said in noted)


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
def serving(run: Path, access: Access | str = "secret-token", **more: Any) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    app = Dashboard(RunStatus(run), access).app
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


def test_streams_without_a_token_keep_nobody_out(run) -> None:
    """Another user of the host, with as many as the dashboard takes of everybody."""
    with serving(run) as port, contextlib.ExitStack() as opened:
        mine = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        watched = mine.stream("GET", "/api/stream", headers=bearer("secret-token"))
        changes = opened.enter_context(watched).iter_bytes()
        assert next(changes).startswith(b"retry")
        answers, others = [], CONNECTIONS_MAX - 2  # one more would end the oldest of them
        for _ in range(others):
            other = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            other.sendall(b"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            answers.append(other.recv(12))
        assert answers == [b"HTTP/1.1 200"] * STREAMS_PER_HOLDER_MAX + [b"HTTP/1.1 429"] * (
            others - STREAMS_PER_HOLDER_MAX
        )
        assert httpx.get(f"http://127.0.0.1:{port}/api/status", timeout=60).status_code == 200
        with httpx.stream(
            "GET", f"http://127.0.0.1:{port}/api/stream", headers=bearer("secret-token"), timeout=60
        ) as another:
            assert another.status_code == 200
        assert next(changes), "it goes on"


def test_requests_that_never_end_keep_nobody_out_and_cut_off_nobody_else(run) -> None:
    begun = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\ntoken="
    with serving(run) as port, contextlib.ExitStack() as opened:
        mine = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))
        changes = opened.enter_context(mine.stream("GET", "/api/stream", headers=bearer("secret-token"))).iter_bytes()
        assert next(changes).startswith(b"retry")
        for _ in range(2 * CONNECTIONS_MAX):
            other = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            with contextlib.suppress(ConnectionError):
                other.sendall(begun)
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/api/status", timeout=60).status_code == 200
        assert next(changes), "it goes on"


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
