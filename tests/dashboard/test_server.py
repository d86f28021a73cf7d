"""The dashboard's API: what it answers, what it refuses, and in which words."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from rich.console import Console

from tests.dashboard.crowd import Writer, many_nodes
from tests.dashboard.plant import EXAMPLES, ended_run
from unerring.app import why
from unerring.app.status import RunStatus
from unerring.cli import main
from unerring.dashboard import Dashboard
from unerring.dashboard.screen import render_status
from unerring.dashboard.statics import STATIC
from unerring.dashboard.watch import Watch
from unerring.model import Event
from unerring.runtime import os_processes as processes, timeline
from unerring.runtime.timeline import Timeline

TOKEN = "the-right-one"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Event]]]:
    sys.path.insert(0, str(EXAMPLES))
    from factory.app import app
    from factory.plant import Plant

    data = tmp_path_factory.mktemp("served") / "run"
    yield data, ended_run(data, app, list(Plant(seed=3).events(900)))
    sys.path.remove(str(EXAMPLES))


class Client:
    """Asks the application without a socket."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._app = dashboard.app

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())


@pytest.fixture
def client(run: tuple[Path, list[Event]]) -> Client:
    return Client(Dashboard(RunStatus(run[0]), TOKEN))


def test_the_status_is_the_document(run: tuple[Path, list[Event]], client: Client) -> None:
    told, own = client.get("/api/status").json(), RunStatus(run[0]).look()
    assert told["situations"]["total"] == len(run[1])
    assert {name: told[name] for name in told if name != "situations"} == msgspec.to_builtins(
        {name: own[name] for name in own if name != "situations"}
    )


def test_what_happened_is_told_to_who_asks_first(client: Client) -> None:
    told = client.get("/api/timeline").json()
    assert [one["what"] for one in told["last"]] == ["started", "ended"]
    assert told["count"] == 2


@pytest.mark.parametrize("at_once", [1, 7, 256])
def test_situations_are_read_backwards_in_pages_without_a_gap(
    run: tuple[Path, list[Event]], client: Client, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why, "AT_ONCE", at_once)
    found: list[tuple[int, int, str]] = []
    before: dict[str, Any] = {}
    while True:
        asked = {"count": 150, "streams": "ProductionRate,RegionRate", **before}
        page = client.get("/api/situations", params=asked).json()["events"]
        found += [(one["time_us"], one["ordinal"], one["stream"]) for one in page]
        if len(page) < 150:
            break
        before = {name: page[-1][name] for name in ("time_us", "ordinal", "stream")}
    wanted = [(e.stamp.time, e.stamp.ordinal, e.stream) for e in run[1] if e.stream in ("ProductionRate", "RegionRate")]
    assert sorted(found) == sorted(wanted)
    assert [at for at, *_ in found] == sorted((at for at, *_ in found), reverse=True)
    some = client.get("/api/situations", params={"find": "f.1.2", "count": 5}).json()["events"]
    assert len(some) == 5
    assert all("F.1.2" in str(one["payload"]) for one in some)


def test_the_page_asks_for_all_of_its_modules_at_once(client: Client) -> None:
    """Or a browser would find out module by module what else it needs."""
    page = client.get("/").text
    asked = set(re.findall(r'(?:href|src)="/static/(\w+)\.js"', page))
    assert asked == {path.stem for path in STATIC.glob("*.js")} - {"enter"}, "which is the login page's"


def test_a_file_of_the_page_is_sent_again_only_if_it_changed(client: Client) -> None:
    answer = client.get("/static/main.js")
    assert (answer.status_code, answer.content) == (200, (STATIC / "main.js").read_bytes())
    assert answer.headers["content-type"].startswith("text/javascript")
    again = client.get("/static/main.js", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/../server.py").status_code == 404


def test_what_cannot_be_answered_is_a_sentence(client: Client) -> None:
    for path, status, said in (
        ("/api/situations?streams=Nothing", 400, "there are no situations 'Nothing'; choose one of ProductionRate"),
        ("/api/situations?count=many", 400, "count='many' is not a whole number"),
        ("/api/why?stream=Shortage&time_us=5&ordinal=0", 400, "the log has no Shortage at 5#0"),
        ("/api/why?stream=Produced&time_us=5", 400, "'Produced' is not a situation of app factory"),
        ("/api/instances/none", 400, "knows an instance 'none'"),
        ("/api/graphs/none", 400, "the graph of process 'none' is not known here"),
    ):
        answer = client.get(path)
        assert answer.status_code == status, path
        assert said in answer.json()["error"]
    assert client.get("/audit").status_code == 404


NASTY = [
    "-5",
    "-1",
    "9" * 30,
    "-" + "9" * 30,
    "9" * 5_000,
    "1e3",
    "--5",
    "0x10",
    "nan",
    "\x00",
    "\ud7ff",
    "%ff",
    "é",
    "",
]
ASKED = {
    "/api/situations": ("count", "time_us", "ordinal", "stream", "streams", "find"),
    "/api/why": ("stream", "time_us", "ordinal"),
    "/api/instances": ("first", "count", "find", "status", "process"),
    "/api/graphs/relieve": ("version",),
}


@pytest.mark.parametrize("path", ASKED)
def test_no_query_parameter_is_a_traceback(client: Client, path: str) -> None:
    """`count=-5` was a 500. An exception of the application would be raised here."""
    for name in ASKED[path]:
        for value in NASTY:
            answer = client.get(path, params={"stream": "Shortage", "time_us": "5", name: value})
            assert answer.status_code in (200, 400), (name, value)
            assert answer.status_code == 200 or len(answer.json()["error"]) > 10
    for name in {"count", "first", "ordinal"} & set(ASKED[path]):
        answer = client.get(path, params={"stream": "Shortage", name: "-5"})
        assert answer.json()["error"].startswith(f"{name}='-5' is out of range; it must be from 0 to ")


@pytest.mark.parametrize("path", ["/api/instances/", "/api/graphs/", "/static/", "/"])
def test_no_path_is_a_traceback(client: Client, path: str) -> None:
    for name in ("%00", "%ff", "..%2f..%2fetc%2fpasswd", "é", "a" * 3_000, "%0a", "-1"):
        assert client.get(path + name).status_code < 500, name


@pytest.mark.parametrize("name", ["authorization", "origin", "range", "if-none-match", "if-modified-since", "host"])
def test_no_header_is_a_traceback(client: Client, name: str) -> None:
    for value in (
        b"",
        b"\xff\xfe",
        b"bytes=-",
        b"bytes=5-1",
        b"bytes=" + b"9" * 30 + b"-",
        b"Bearer \xfc",
        b"[::1",
        b"-5",
    ):
        for method, path in (("POST", "/api/commands/kill"), ("GET", "/"), ("GET", "/static/main.js")):
            answer = client.request(
                method, path, headers={name: value}, content=b"[" * 2_000 if method == "POST" else b""
            )
            assert answer.status_code < 500, (value, path)


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[" * 5_000, b'{"who": 5}', b'{"who": "\\ud800"}', b"{}", b'{"who": "../x"}']
)
def test_no_command_is_a_traceback(client: Client, body: bytes) -> None:
    for verb in ("kill", "restart", "dance", "%00"):
        answer = client.post(f"/api/commands/{verb}", headers={"authorization": f"Bearer {TOKEN}"}, content=body)
        assert answer.status_code == 400


def test_a_page_of_another_name_cannot_speak_for_us(client: Client) -> None:
    """A name that somebody lets point to 127.0.0.1 is not ours."""
    assert client.get("/api/status", headers={"host": "evil.example"}).status_code == 400
    assert "default-src 'self'" in client.get("/").headers["content-security-policy"]


def test_nothing_is_changed_without_the_token(run: tuple[Path, list[Event]], client: Client) -> None:
    data = run[0]
    program = "import sys; from pathlib import Path; from unerring.runtime.os_processes import own_number\n"
    program += "own_number(Path(sys.argv[1]), 'n0'); print('there', flush=True); sys.stdin.read()"
    victim = subprocess.Popen(
        [sys.executable, "-c", program, str(data / "processes")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    (data / "processes").mkdir(exist_ok=True)
    (data / "processes" / "n0.db").touch()
    try:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"there\n"
        kill = "/api/commands/kill"
        answer = client.post(kill, json={"who": "n0"})
        assert (answer.status_code, "needs the token" in answer.json()["error"]) == (401, True)
        answer = client.post(kill, json={"who": "n0"}, headers={"Authorization": "Bearer a-wrong-one"})
        assert (answer.status_code, "nothing was changed" in answer.json()["error"]) == (403, True)
        mine = {"Authorization": f"Bearer {TOKEN}"}
        for elsewhere in ("https://evil.example", "http://127.0.0.1:9", "null"):
            answer = client.post(kill, json={"who": "n0"}, headers={**mine, "Origin": elsewhere})
            assert (answer.status_code, "nothing was changed" in answer.json()["error"]) == (403, True)
        asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        before = client.request("OPTIONS", kill, headers=asked)
        assert not [name for name in before.headers if name.startswith("access-control")], "browsers ask first, in vain"
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert client.post(kill, content=b"who=n0", headers=form).status_code == 401, "a form has no token"
        assert client.get(kill, headers=mine).status_code == 405
        assert victim.poll() is None
        assert "use kill or restart" in client.post("/api/commands/maim", json={"who": "n0"}, headers=mine).text
        assert "no supervised process 'n9'" in client.post(kill, json={"who": "n9"}, headers=mine).text
        assert "invalid request" in client.post(kill, content=b"[]", headers=mine).text
        assert victim.poll() is None
        answer = client.post(kill, json={"who": "n0"}, headers=mine)
        assert answer.json()["said"].startswith(f"n0 (process {victim.pid}) was killed from the dashboard")
        assert victim.wait(600) == -9
        assert processes.find(data / "processes", "n0") is None
        assert [(one.who, one.what) for one in Timeline(data / "processes").added()] == [("n0", "killed")]
        again = client.post(kill, json={"who": "n0"}, headers=mine)
        assert "does not run on this machine now" in again.json()["error"]
    finally:
        victim.kill()
        victim.communicate()


def test_a_watcher_is_told_each_section_once_and_again_when_it_has_changed(run: tuple[Path, list[Event]]) -> None:
    async def play() -> None:
        watch = Watch(RunStatus(run[0]))
        changes = watch.changes()
        await watch.look()
        assert (await anext(changes)).startswith(b"retry:")
        told: list[bytes] = []
        while not told or not told[-1].startswith(b"event: look"):
            told.append(await anext(changes))
        names = [one.split(b"\n")[0].removeprefix(b"event: ").decode() for one in told]
        assert sorted(names) == sorted({*watch.document, "trouble", "look"})
        await watch.look()
        told = [await anext(changes)]
        while not told[-1].startswith(b"event: look"):
            told.append(await anext(changes))
        again = {one.split(b"\n")[0] for one in told}
        assert b"event: tree" not in again, "it has not changed"
        await changes.aclose()

    asyncio.run(play())


def test_bad_input_is_one_sentence(
    tmp_path: Path, run: tuple[Path, list[Event]], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, said in (
            (["dashboard", str(run[0]), "--port", port], f"port {port} is in use; choose another with --port"),
            (["dashboard", str(tmp_path)], "is not a run's folder"),
            (["dashboard", str(tmp_path / "none")], "there is no folder"),
            (["top", str(tmp_path)], "is not a run's folder"),
        ):
            with pytest.raises(SystemExit) as ended:
                main(arguments)
            assert ended.value.code == 2
            error = capsys.readouterr().err
            assert said in error
            assert error.count("\n") == 1


def test_prometheus_reads_the_same(run: tuple[Path, list[Event]], client: Client) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    made = sum(event.stream == "Shortage" for event in run[1])
    assert f'unerring_situations_total{{stream="Shortage"}} {made}\n' in answer.text
    assert 'unerring_timeline_total{what="started"} 1\n' in answer.text
    names = [line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "a name's samples stand together"


def test_the_terminal_is_enough_with_80_columns_and_24_lines(tmp_path: Path, run: tuple[Path, list[Event]]) -> None:
    many_nodes(tmp_path)
    Writer(tmp_path, "R0").seal(7)
    for number in range(9):
        timeline.note(tmp_path, f"R{number}/0", "died", "ended by SIGKILL " * 9)
    for data, wanted in ((run[0], "Standstill"), (tmp_path, "148 more")):
        console = Console(width=80, height=24)
        lines = console.render_lines(render_status(RunStatus(data).look(), 80, 24), pad=False)
        text = ["".join(part.text for part in line) for line in lines]
        assert len(text) <= 24
        assert max(map(len, text)) <= 80
        assert any(wanted in line for line in text), text
        assert any(line.startswith("failures and elections: ") for line in text)
        heads = [line for line in text if line.startswith(("process", "level", "stream"))]
        assert heads
        assert not any("…" in line for line in heads), "columns keep their names"
    assert sum("leads" in line for line in text if line.startswith("R")) == 12, "leaders come before sources"


def test_the_terminal_says_the_same(run: tuple[Path, list[Event]], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["top", str(run[0]), "--once"])
    text = capsys.readouterr().out
    assert f"{len(run[1]):,} situations" in text
    assert "factory" in text
    assert "failures and elections" in text
