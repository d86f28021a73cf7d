"""`unerring.Client`: the same from a program in the run's folder and over HTTP; lists by attributes, and batches."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.dashboard.running import TOKEN
from tests.dashboard.serving import serving
from unerring import Client, Embedded, InstanceFailed, Process
from unerring.cli import main
from unerring.model import CallerError, NetworkError, ProcessError
from unerring.runtime.process_control import control_of
from unerring.runtime.where import where


class Job(msgspec.Struct):
    machine: str = ""
    count: int = 0
    approved: bool = False


job = Process("job", state=Job, attributes=["machine", "count"])


@job.action(writes="count")
async def prepare(count: int) -> int:
    return count + 1


@job.query
def ready(count: int) -> bool:
    return count > 0


job.flow(prepare, job.receive("approval", writes="approved"))


class Running:
    """A node with its control socket, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.up = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ending: asyncio.Event | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()))

    async def run(self) -> None:
        self.loop, self.ending = asyncio.get_running_loop(), asyncio.Event()
        async with Embedded([job], self.folder / "embedded.db") as engine:
            control = control_of(engine, self.folder / "embedded.sock")
            await control.open()
            self.up.set()
            await self.ending.wait()
            await control.close()

    def __enter__(self) -> Running:
        self.thread.start()
        assert self.up.wait(600)
        return self

    def __exit__(self, *error: object) -> None:
        if self.loop is not None and self.ending is not None:
            self.loop.call_soon_threadsafe(self.ending.set)
        self.thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    data = tmp_path / "run"
    (data / "processes").mkdir(parents=True)
    (data / "log").mkdir()
    with Running(data / "processes"):
        yield data


Open = Callable[[Path], Any]


@pytest.fixture(params=["folder", "http"])
def client(request: pytest.FixtureRequest, folder: Path) -> Iterator[Client]:
    if request.param == "folder":
        with Client(folder / "processes") as found:
            yield found
    else:
        with serving(folder) as url, Client(url, TOKEN) as found:
            yield found


def test_a_program_outside_starts_signals_asks_and_waits(client: Client) -> None:
    client.start("job", "a", machine="press-1")
    client.start("job", "a", machine="press-1")
    with pytest.raises(ProcessError, match="started before with another process or other input"):
        client.start("job", "a", machine="press-2")
    with pytest.raises(NetworkError, match="still running after 0"):
        client.wait("a", within_s=0)
    assert client.query("a", "ready") in (True, False)
    client.signal("a", "approval", True, id="m1")
    assert client.result("a") == {"machine": "press-1", "count": 1, "approved": True}
    assert client.history("a")["status"] == "completed"
    client.start("job", "b", machine="press-1")
    client.cancel("b")
    with pytest.raises(InstanceFailed, match="cancelled"):
        client.result("b")
    client.start("job", "c", machine="press-2")
    client.hold("c", "a holiday")
    assert client.wait("c")["status"] == "held"
    client.resume("c")
    assert client.show("c")["instance"] == "c"
    with pytest.raises(ProcessError, match="no instance 'nobody'"):
        client.show("nobody")
    with pytest.raises(ProcessError, match="receives nothing on channel"):
        client.signal("c", "nothing")
    names = [one["instance"] for one in client.list("machine = 'press-1' and status <> 'cancelled'")]
    assert names == ["a"]
    assert client.list("instance = 'c'")[0]["attributes"]["machine"] == "press-2"
    with pytest.raises((CallerError, ProcessError), match="no process declares an attribute 'machin'"):
        client.list("machin = 'press-1'")


def test_many_are_listed_page_by_page(client: Client, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        client.start("job", f"j{number}", machine=f"press-{number % 2}")
    client.signal("j1", "approval", True)
    client.result("j1")
    assert [one["instance"] for one in client.list()] == ["j0", "j2", "j3", "j4", "j1"]  # those first that go on
    first = client.page(limit=2)
    assert [one["instance"] for one in first["rows"]] == ["j0", "j2"]
    rest = client.page(limit=3, after=first["after"])
    assert ([one["instance"] for one in rest["rows"]], rest["after"]) == (["j3", "j4", "j1"], "")
    assert len(client.list("machine = 'press-0'", limit=1)) == 1
    with pytest.raises((CallerError, ProcessError), match="it can have 1 to"):
        client.page(limit=0)
    counts = client.counts()
    assert (counts["instances"], counts["open"]) == (5, 4)
    assert counts["by_process"] == {"job": {"running": 4, "completed": 1}}

    def listed(*more: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main(["process", "list", "--json", *more, "--data", str(folder / "processes")])
        assert not ended.value.code
        return capsys.readouterr()

    told = listed("--limit", "2", "--process", "job")
    assert [json.loads(line)["instance"] for line in told.out.splitlines()] == ["j0", "j2"]
    assert "there are more" in told.err
    assert json.loads(listed("--status", "completed").out)["instance"] == "j1"


def test_what_changes_something_over_http_needs_the_token(folder: Path) -> None:
    with serving(folder) as url:
        with Client(url) as nobody:
            assert nobody.list() == []
            with pytest.raises(CallerError, match="needs the token"):
                nobody.start("job", "a")
        with Client(url, "a wrong one") as other, pytest.raises(CallerError, match="wrong token"):
            other.start("job", "a")
        head = {"authorization": f"Bearer {TOKEN}"}
        for body, why in (
            (b"{", "send a JSON object"),
            (b'{"instance": 7}', "cannot be asked for so"),
            (b'{"colour": "red"}', "cannot be asked for so"),
        ):
            refused = httpx.post(f"{url}api/processes/cancel", content=body, headers=head)
            assert (refused.status_code, why in refused.json()["error"]) == (400, True)
        strange = httpx.post(f"{url}api/processes/explode", content=b"{}", headers=head)
        assert (strange.status_code, "a node cannot 'explode'" in strange.json()["error"]) == (400, True)
    with Client(url, TOKEN) as away, pytest.raises(NetworkError, match="does not answer"):
        away.show("a")


def test_batches_say_first_whom_they_mean(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = folder / "processes"
    with Client(nodes) as client:
        for number in range(6):
            client.start("job", f"j{number}", machine=f"press-{number % 2}")

        def batch(*more: str) -> tuple[int, list[str]]:
            with pytest.raises(SystemExit) as ended:
                main(["process", "batch", *more, "--data", str(nodes)])
            return int(ended.value.code or 0), capsys.readouterr().out.splitlines()

        mine = ("--where", "machine = 'press-0'")
        assert batch("cancel", *mine, "--dry-run") == (0, ["j0", "j2", "j4"])
        assert client.list("status = 'cancelled'") == []
        code, lines = batch("cancel", *mine, "--json")
        assert (code, [json.loads(line)["done"] for line in lines]) == (0, [True] * 3)
        for name in ("j0", "j2", "j4"):
            assert client.wait(name)["status"] == "cancelled"
        signal = ("signal", "--where", "process = 'job'", "--channel", "approval", "--payload", "true")
        assert batch(*signal)[0] != 0  # without an id a repetition would be another message
        assert batch(*signal, "--id", "m")[0] == 0
        assert batch(*signal, "--id", "m")[0] == 0  # nobody is left, or everybody has it
        assert client.result("j1")["approved"] is True
        assert batch("explode", *mine)[0] != 0


def test_a_program_does_the_same_to_many(client: Client) -> None:
    for number in range(7):
        client.start("job", f"j{number}", machine=f"press-{number % 2}")
    told: list[dict[str, Any]] = []
    mine = "machine = 'press-1'"
    rows = client.batch("cancel", mine, dry_run=True, limit=2, each=told.append)
    assert rows == told == [{"instance": f"j{number}", "done": False, "why": ""} for number in (1, 3, 5)]
    assert client.list("status = 'cancelled'") == []
    assert [row["done"] for row in client.batch("cancel", mine, limit=2)] == [True] * 3
    for number in (1, 3, 5):
        assert client.wait(f"j{number}")["status"] == "cancelled"
    assert client.batch("cancel", mine) == [], "nobody is left"
    assert len(client.batch("hold", "process = 'job'", why="a holiday")) == 4
    assert client.wait("j0")["reason"] == "a holiday"
    assert len(client.batch("resume", "status = 'held'", process="job")) == 4
    assert client.batch("resume", "machine = 'press-0'", process="another") == []
    (moved,) = client.batch("move", "instance = 'j0'")
    assert (moved["done"], "is of version" in moved["why"]) == (False, True)
    assert len(client.batch("signal", "process = 'job'", channel="approval", payload=True, id="m")) == 4
    assert client.result("j0")["approved"] is True
    for more, why in (
        ({"what": "explode", "where": mine}, "a batch cannot 'explode'"),
        ({"what": "signal", "where": mine}, "needs a channel and an id"),
        ({"what": "cancel", "where": " "}, "needs a condition"),
        ({"what": "cancel", "where": mine, "limit": 0}, "it can have 1 to"),
        ({"what": "cancel", "where": mine, "colour": "red"}, "cannot be asked for so"),
    ):
        with pytest.raises((CallerError, ProcessError), match=why):
            client.batch(**more)  # type: ignore[arg-type]


def test_a_batch_over_http_needs_the_token(folder: Path) -> None:
    with serving(folder) as url, Client(url, TOKEN) as client, Client(url) as nobody:
        client.start("job", "a", machine="press-1")
        for dry_run in (True, False):
            with pytest.raises(CallerError, match="needs the token"):
                nobody.batch("cancel", "process = 'job'", dry_run=dry_run)
        assert client.show("a")["status"] == "running"


def test_conditions_on_instances() -> None:
    row = {"machine": "press-1", "count": 7, "status": "failed", "reason": None, "ok": True}

    def holds(text: str) -> bool:
        return where(text, ("machine", "count", "ok"))(row.get)

    for text in (
        *(
            "",
            "machine = 'press-1'",
            "count > 6 and count <= 7",
            "not status = 'completed'",
            "status in ('a', 'failed')",
        ),
        *("machine like 'press-%'", "machine like 'press-_'", "reason is null", "ok = true", "count <> -1"),
        *("(status = 'x' or count = 7) and machine <> 'y'", "machine is not null", "count < 7.5"),
    ):
        assert holds(text), text
    for text in (
        "machine > 7",
        "reason = 'x'",
        "reason <> 'x'",
        "machine like 'press'",
        "count in (1, 2)",
        "ok = false",
    ):
        assert not holds(text), text
    for text, why in (
        ("machine =", "is not a condition"),
        ("mach = 'x'", "no process declares an attribute 'mach'"),
        ('machine = "press-1"', "single quotes"),
        ("count + 1 = 8", "cannot compare"),
        ("exists (select 1)", "cannot have"),
        ("1; drop table x", "is not a condition"),
        ("(" * 200 + "count = 1" + ")" * 200, "nested|not a condition"),
        ("x" * 20_000, "characters"),
    ):
        with pytest.raises(CallerError, match=why):
            holds(text)


def test_an_attribute_must_be_a_variable() -> None:
    with pytest.raises(ProcessError, match="attribute 'colour' is no variable"):
        Process("p", state=Job, attributes=["colour"])
