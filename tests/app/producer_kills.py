"""Publisher processes and two log writers of one stream, killed with kill -9, and what must come of it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from tests.ports import free_ports
from unerring.app import ledgers
from unerring.audit import check_intake
from unerring.log import EventLog, Quarantine, declared_losses
from unerring.model import TIME_MAX

PUBLISH = """
import random, sys
from unerring import ProducerConfig, Publisher, SqliteStorage, stream
port, number, count, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

@stream(key="machine", lateness="5s")
class Gauge:
    machine: str
    bar: float

draw = random.Random(number)
times = [1_000_000_000 + step * 50_000 - draw.randrange(5_000_000) for step in range(count)]
storage = SqliteStorage(f"{folder}/publisher-{number}.db")
config = ProducerConfig(durable=True)
with Publisher(f"tcp://127.0.0.1:{port}", Gauge, name=f"gauge-{number}", storage=storage, config=config) as out:
    print("open", flush=True)
    sys.stdin.readline()
    for at in range(out._inner.last, count):
        out.publish(Gauge(f"m{number}", float(at)), at=times[at])
    out.end()
    print("done", flush=True)
    sys.stdin.readline()
"""
WRITE = """
import sys, threading
from pathlib import Path
from unerring import Start, stream, schema_of
from unerring.app.feeds import Feeds
from unerring.log import EventLog
folder, scratch, urls = sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(",")

@stream(key="machine", lateness="5s")
class Gauge:
    machine: str
    bar: float

scratch.mkdir(exist_ok=True)
feeds = Feeds(EventLog(folder), {"Gauge": urls}, {"Gauge": schema_of(Gauge)}, 2, scratch, start=Start.EARLIEST)
feeds.start()
while feeds.error is None:
    threading.Event().wait(0.2)
raise feeds.error
"""


def play(folder: Path, publishers: int, events: int, kills: int, seed: int) -> None:
    """Publish, kill, and check that the ledger of every producer balances."""
    random = Random(seed)
    ports = free_ports(publishers)
    urls = ",".join(f"tcp://127.0.0.1:{port}" for port in ports)
    log = EventLog(folder / "log")

    def publisher(number: int) -> subprocess.Popen[str]:
        arguments = [str(ports[number]), str(number), str(events), str(folder)]
        return _start(PUBLISH, arguments)

    def writer(number: int) -> subprocess.Popen[str]:
        return _start(WRITE, [str(folder / "log"), str(folder / f"writer-{number}"), urls])

    running = {f"p{number}": publisher(number) for number in range(publishers)}
    try:
        for process in running.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
        running |= {f"w{number}": writer(number) for number in range(2)}
        # Everybody must be known before anything is sealed: whoever joins later may be late.
        for number in range(2):
            _until(lambda: len(ledgers.read(folder / f"writer-{number}").accounts) == publishers)  # noqa: B023
        for number in range(publishers):
            _go(running[f"p{number}"])
        _until(lambda: log.declaration("Gauge") is not None and log.chain("Gauge").refresh() > 0)
        for _ in range(kills):
            name = random.choice(sorted(running))
            _end(running[name])
            running[name] = publisher(int(name[1:])) if name[0] == "p" else writer(int(name[1:]))
            if name[0] == "p":
                _go(running[name])
            threading.Event().wait(random.random() / 5)
        chain = log.chain("Gauge")
        _until(lambda: chain.refresh() >= TIME_MAX)
    finally:
        for process in running.values():
            _end(process)
    _check(log, publishers, events)


def _check(log: EventLog, publishers: int, events: int) -> None:
    chain = log.chain("Gauge")
    rows = chain.read(chain.base.from_us, chain.refresh()).to_pylist()
    places = [(row["time"], row["_producer"], row["_epoch"], row["_sequence"]) for row in rows]
    assert places == sorted(places)
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in rows:
        taken.setdefault((row["_producer"], row["_epoch"]), []).append((row["_sequence"], row["_sequence"]))
    bad = Quarantine(chain.store, "Gauge").events()
    accounts, violations = check_intake(
        "Gauge", taken, [(*event.id, event.reason.value) for event in bad], declared=declared_losses(bad)
    )
    assert violations == []
    assert [(event.reason, event.detail) for event in bad] == []
    assert sorted(account.in_stream for account in accounts) == [events] * publishers
    values = sorted((row["machine"], row["bar"]) for row in rows)
    assert values == sorted((f"m{number}", float(at)) for number in range(publishers) for at in range(events))
    assert msgspec.json.encode(chain.taken().above) == b"{}"


def _start(program: str, arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with suppress(BrokenPipeError):
        process.communicate()


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _until(condition: object) -> None:
    end_s = time.monotonic() + 500
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end_s, "never came true"
        threading.Event().wait(0.05)
