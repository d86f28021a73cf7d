"""Drivers of a sink that are killed at random moments: a process that has everything loaded forks them one by one.

`python -m tests.sinks.killed URL FOLDER NAME KILLS SEED` seals some situations, forks a driver, kills it with SIGKILL
at a random moment, and so on; the last driver may finish. Now and then two drivers work at once, and only one of them
is killed. It prints how many it killed, and how many of those in the middle of their work.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from random import Random

from tests.sinks.world import SCHEMA, add, rows
from unerring.log import EventLog, LocalStore
from unerring.sinks import Delivery, DeliveryConfig, SinkRecord, address_of, open_target, register

ROWS = 80
ROWS_OF_KAFKA = 20
"""The mock cluster keeps 5 MiB of a partition, some 15 000 situations, and lets the oldest go: on a slow machine, where
many tries are no kills, there would be more of them."""
CONFIG = DeliveryConfig(rows_max=16, look_s=0.001, pause_s_min=0.005, pause_s_max=0.05)
TRIES_PER_KILL = 6


def driver(url: str, folder: Path, record: SinkRecord) -> int:
    """The process number of a driver that has begun to deliver what is sealed."""
    pid = os.fork()
    if pid:
        return pid
    try:
        address = address_of(url)
        chain = EventLog(folder / "log").chain(SCHEMA.name)
        work = Delivery(chain, record, lambda: open_target(address, SCHEMA, record, LocalStore(folder)), CONFIG)
        work.run(threading.Event(), follow=False)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def ended(pid: int, within_s: float | None) -> bool:
    """Whether a driver ended by itself within so long."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)


def reap(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a driver failed with {code}")


LOADED = {
    "postgresql": ["psycopg", "pyarrow.csv"],
    "delta": ["deltalake"],
    "kafka": ["confluent_kafka", "unerring.runtime.kafka"],
    "iceberg": ["pyiceberg.catalog.rest", "pyiceberg.io.pyarrow"],
    "webhook": ["httpx"],
}
"""What drivers need is imported once, before the first is forked."""


def main(url: str, folder: Path, name: str, kills: int, seed: int) -> dict[str, float]:
    kind = address_of(url).kind
    for module in [f"unerring.sinks.{kind}", *LOADED[kind]]:
        importlib.import_module(module)
    random = Random(seed)
    chain = EventLog(folder / "log").create(SCHEMA, buckets=2)
    record = register(LocalStore(folder), name, SCHEMA.name, str(address_of(url)))
    count = ROWS_OF_KAFKA if kind == "kafka" else ROWS
    add(chain, rows(count, seed=seed), count)
    began = time.monotonic()
    reap(driver(url, folder, record))
    whole_s = time.monotonic() - began
    killed = tries = pairs = 0
    while killed < kills and tries < TRIES_PER_KILL * kills:
        tries += 1
        add(chain, rows(count, chain.through_us + 3, seed=seed + tries), count)
        pids = [driver(url, folder, record)]
        if random.random() < 0.3 and kind != "kafka":  # the mock cluster does not fence
            pids.append(driver(url, folder, record))
            pairs += 1
        if not ended(pids[0], random.uniform(0, 1.2 * whole_s)):
            os.kill(pids[0], signal.SIGKILL)
            killed += 1
        for pid in pids:
            reap(pid)
    reap(driver(url, folder, record))
    return {"killed": killed, "tries": tries, "pairs": pairs, "whole_s": whole_s}


if __name__ == "__main__":
    url, folder, name, kills, seed = sys.argv[1:]
    print(json.dumps(main(url, Path(folder), name, int(kills), int(seed))))
