"""A limit of a service while masters die: how much of what is allowed is used, and that it is never more.

A service of its own behind the filter, three nodes, more instances than the limit lets through; every five seconds one
node is killed (kill -9) and comes back. The filter's journal says what began when.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unerring import IdempotencyFilter, Limits, SqliteStore
from unerring.app import read_flow
from unerring.audit import check_flow

NODES = ("n0", "n1", "n2")
KILL_EVERY_S = 5.0


def figures(
    quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., dict[str, Any]]
) -> Iterator[Any]:
    """All figures; `trio_of` starts three nodes, `figure` makes a figure."""
    rate, seconds = (10, 4.0) if quick else (20, 32.0)
    till = folder / "till.db"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "till").write_text(f"http://127.0.0.1:{port}")
    service = subprocess.Popen([sys.executable, __file__, str(till), str(rate), str(port)])
    try:
        while not _listens(port):
            time.sleep(0.02)
        with trio_of(folder / "limited", "usual", 2) as trio:
            trio.ask("n0", {"burst": "l", "count": 4 * rate, "process": "limited"})
            kills = _kill_in_turns(trio, rate, seconds, 1.5 if quick else KILL_EVERY_S)
    finally:
        service.kill()
        service.wait()
    lines = read_flow(str(till))
    began_us = sorted(line.began_us for line in lines if line.what == "do")
    used = [us for us in began_us if us - began_us[0] < seconds * 1e6]
    accuracy = len(used) / (rate * seconds)
    yield figure("limit.kills", kills, "kills")
    yield figure("limit.above", len(check_flow(lines)), "violations", 0.0)
    yield figure("limit.accuracy", accuracy, "ratio") | {"goal": "≥ 0.95", "met": accuracy >= 0.95}


def _kill_in_turns(trio: Any, rate: int, seconds: float, every_s: float) -> int:
    """More instances than the limit lets through are started all the time, and now and then a node is killed."""
    began_s, kills, second = time.monotonic(), 0, 0
    while (now_s := time.monotonic() - began_s) < seconds:
        if now_s >= (kills + 1) * every_s:
            name = NODES[kills % len(NODES)]
            trio.running[name].kill()
            trio.running.pop(name).wait()
            trio.start(name)
            kills += 1
        if now_s >= second:
            alive = NODES[(kills + 1) % len(NODES)]
            trio.ask(alive, {"burst": f"l{second}", "count": int(rate * 1.2), "process": "limited"})
            second += 1
        time.sleep(0.02)
    return kills


def _listens(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


async def _sell(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"1"})


if __name__ == "__main__":
    import uvicorn

    app: Any = IdempotencyFilter(_sell, SqliteStore(sys.argv[1]), limits=Limits(per_second=int(sys.argv[2])))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[3]), log_level="error", lifespan="off")
