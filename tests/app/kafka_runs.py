"""Kafka, log, situation, process, service: runs that are killed with everything that belongs to them but the broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import uvicorn

from tests.kafka import Sent, produce
from unerring import IdempotencyFilter
from unerring.log import EventLog, Quarantine
from unerring.runtime.services import SqliteStore

ROOT = Path(__file__).parents[2]
PATIENCE_S = 900.0
FIRST_MS = 1_772_352_000_000


class Notes:
    """A service that notes numbers down, behind the filter; what was undone is taken out again."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        key = dict(scope["headers"])[b"idempotency-key"].decode()
        body = (await receive()).get("body", b"")
        if scope["method"] == "DELETE":
            self.done.pop(key, None)
        else:
            self.done[key] = json.loads(body)["number"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})

    @contextmanager
    def serving(self, folder: Path) -> Iterator[str]:
        listener = socket.create_server(("127.0.0.1", 0))
        store = SqliteStore(folder / "notes.db")
        server = uvicorn.Server(uvicorn.Config(IdempotencyFilter(self, store), log_level="error", lifespan="off"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Line:
    """One topic and whatever makes something of it."""

    def __init__(
        self, folder: Path, brokers: str, topic: str, partitions: int, notes: str, hot_every: int = 10
    ) -> None:
        self.hot_every = hot_every
        self.data = folder / "run"
        self.brokers, self.topic, self.partitions = brokers, topic, partitions
        self.sent: list[Sent] = []
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "KILLED_TOPIC": f"kafka://{brokers}/{topic}?look_us=200000&settle_us=100000&time=at&unit=ms",
            "KILLED_NOTES": notes,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def send(self, count: int, random: Random) -> None:
        """More messages, a little out of order, and some that are none; each partition has its own."""
        messages = []
        for number in range(len(self.sent), len(self.sent) + count):
            at_ms = FIRST_MS + number * 20 - random.randrange(500)
            celsius = 90 if number % self.hot_every == 0 else 20
            body = {"at": at_ms, "machine": f"press-{number % 7}", "number": number, "celsius": celsius}
            value = b"poison" if number % 97 == 96 else json.dumps(body).encode()
            messages.append({"value": value, "partition": number % self.partitions})
        self.sent += produce(self.brokers, self.topic, messages)

    def send_last(self) -> None:
        """One message a partition that is so much later that all before it are let go. It waits for the next itself."""
        at_ms = FIRST_MS + 3_600_000
        body = json.dumps({"at": at_ms, "machine": "press-0", "number": -1, "celsius": 20}).encode()
        messages = [{"value": body, "partition": number} for number in range(self.partitions)]
        produce(self.brokers, self.topic, messages)

    def start(self) -> None:
        command = [sys.executable, "-m", "unerring", "run", "tests.app.kafka_app:app", "--engine", "live", "--f", "0"]
        with (self._folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--data", str(self.data)],
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """Everything that belongs to the run, at once."""
        assert self.process is not None
        mine = [self.process.pid, *self._left()]
        with contextlib.suppress(psutil.NoSuchProcess):
            mine += [one.pid for one in psutil.Process(self.process.pid).children(recursive=True)]
        for pid in dict.fromkeys(mine):
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        self.process.wait()

    def _left(self) -> list[int]:
        """Replicas and nodes of a run that was killed before: they name its folder."""
        return [
            one.pid
            for one in psutil.process_iter(["cmdline"])
            if any(str(self.data) in word for word in one.info["cmdline"] or ()) and one.pid != os.getpid()
        ]

    def until(self, condition: Callable[[], bool], why: str) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.output
            assert time.monotonic() < end_s, f"never: {why}\n{self.output}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)

    @property
    def output(self) -> str:
        return (self._folder / "output.txt").read_text()[-3000:]

    def rows(self, stream: str = "Reading") -> list[dict[str, Any]]:
        log = EventLog(self.data / "log")
        if log.declaration(stream) is None:
            return []
        chain = log.chain(stream)
        chain.refresh()
        table = chain.read(chain.base.from_us, chain.through_us)
        return list(table.to_pylist())

    def count(self) -> int:
        """How many events are in the log, without reading them: the service shares this interpreter."""
        log = EventLog(self.data / "log")
        if log.declaration("Reading") is None:
            return 0
        chain = log.chain("Reading")
        return chain.count(chain.base.from_us, chain.refresh())

    def bad(self) -> list[Any]:
        return Quarantine(EventLog(self.data / "log").store, "Reading").events()

    def check(self, notes: Notes) -> None:
        """Every offset is accounted for, once; so is every situation, and what was done about it."""
        taken = Counter((row["_producer"], row["_sequence"]) for row in self.rows())
        taken.update((event.producer, event.sequence) for event in self.bad())
        expected = {(f"{self.topic}/{partition}", offset): 1 for partition, offset in self.sent}
        assert taken == expected
        assert sum(event.reason.value == "undecodable" for event in self.bad()) == sum(
            number % 97 == 96 for number in range(len(self.sent))
        )
        late = {event.sequence for event in self.bad() if event.reason.value == "late"}
        assert not late, "the lateness was kept"
        hot = [number for number in range(0, len(self.sent), self.hot_every) if number % 97 != 96]
        assert sorted(row["number"] for row in self.rows("heat")) == hot
        assert sorted(notes.done.values()) == hot


def killed_again_and_again(line: Line, notes: Notes, kills: int, messages: int, random: Random) -> None:
    """The whole test: messages come, the run is killed at any moment, started again, and in the end lets all go."""
    for _ in range(kills):
        line.send(messages, random)
        before = line.count()
        line.start()
        goal = before + random.randrange(messages // 2)
        line.until(lambda goal=goal: line.count() >= goal, "some of it is sealed")
        line.send(messages, random)
        line.kill()
    line.start()
    line.send(messages, random)
    line.send_last()
    hot = sum(number % 97 != 96 for number in range(0, len(line.sent), line.hot_every))
    line.until(lambda: len(notes.done) >= hot, f"{hot} situations were acted on")
    line.until(lambda: line.count() + len(line.bad()) >= len(line.sent), "all of it is sealed")
    line.kill()
    line.check(notes)
