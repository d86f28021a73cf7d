"""Zenoh and NATS beside our channel over TCP, in one run: the same events of 200 bytes, each side a process of its own.

Three ways: events in batches of 500, as the application would put them together; a message an event, as fast as it
goes; and a message an event at a rate, for the latency. The sides take turns, and the best of the rounds counts.

They do not promise the same. Core NATS delivers at most once: what a subscriber cannot keep up with is dropped, and
what is published while it is away is gone. Zenoh, as it is set here, waits for a slow subscriber and repeats nothing
that a broken link lost. The channel numbers, keeps and repairs: every event once and in order, or an exact loss.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psutil

from unerring.model import CallerError

HERE = Path(__file__).parent
PYTHON = HERE / "services" / "bin" / "python"
NAMES = {"zenoh": "Zenoh", "nats": "NATS"}
WAYS = {"batches": "reliable", "singles": "singles", "paced": "paced"}
"""A peer's way, and the role of our channel that does the same."""
RATE = 5_000
Played = dict[str, float]
Play = Callable[..., Played]


def race(peer: str, quick: bool, play: Play, service: Callable[[str], AbstractContextManager[str]]) -> Iterator[Any]:
    """Every figure of the race. `play`: one publisher and its subscribers; `service`: a server's URL while it runs."""
    if peer not in NAMES:
        raise CallerError(f"there is no peer {peer!r} to race against; there are {', '.join(NAMES)}")
    if not PYTHON.exists():
        raise CallerError(f"{NAMES[peer]} is not installed; run `make peers` (it has an environment of its own)")
    counts = {"batches": 1_000_000, "singles": 100_000, "paced": 25_000}
    rounds = 1 if quick else 3
    for subscribers in (1, 3):
        sides: dict[tuple[str, str], list[Played]] = {}
        with service(peer) if peer == "nats" else nullcontext(f"zenoh://127.0.0.1:{_free_port()}") as url:
            options = {
                "url": url.split("://")[1].partition("/")[0],
                "rate": RATE,
                "command": (str(PYTHON), str(HERE / "services_peer.py")),
            }
            for _ in range(rounds):
                for way, role in WAYS.items():
                    count = counts[way] // (20 if quick else 1)
                    ours = play(role, count, subscribers, rate=RATE)
                    with Server() as server:
                        theirs = play(f"{peer}-{way}", count, subscribers, **options)
                    sides.setdefault((way, "ours"), []).append(ours)
                    sides.setdefault((way, "theirs"), []).append({**theirs, "server_us": 1e6 * server.cpu_s / count})
        yield from figures(peer, subscribers, sides)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """What a server took of the processor meanwhile, if there is one: no other process below this one stays."""

    def __enter__(self) -> Server:
        self.cpu_s = 0.0
        self._before_s = {process: sum(process.cpu_times()[:2]) for process in psutil.Process().children()}
        return self

    def __exit__(self, *error: object) -> None:
        for process, before_s in self._before_s.items():
            if process.is_running():
                self.cpu_s += sum(process.cpu_times()[:2]) - before_s


def figures(peer: str, subscribers: int, sides: dict[tuple[str, str], list[Played]]) -> Iterator[dict[str, Any]]:
    which = f"1to{subscribers}"
    for way in ("batches", "singles"):
        ours, theirs = sides[way, "ours"], sides[way, "theirs"]
        rate, their_rate = (max(played["rate"] for played in side) for side in (ours, theirs))
        cpu_us, their_cpu_us = (min(_cpu_us(played, subscribers) for played in side) for side in (ours, theirs))
        yield _figure(f"{peer}.{way}_ratio.{which}", rate / their_rate, "ratio")
        yield _figure(f"{peer}.{way}_ratio.cpu.{which}", their_cpu_us / cpu_us, "ratio")
        yield _figure(f"{peer}.{way}_rate.{which}", their_rate, "messages/s")
        yield _figure(f"ours.{way}_rate.{which}", rate, "messages/s")
        yield _figure(f"{peer}.{way}_cpu.{which}", their_cpu_us, "µs/event")
        yield _figure(f"ours.{way}_cpu.{which}", cpu_us, "µs/event")
        yield _figure(f"{peer}.{way}_lost.{which}", 1 - min(played.get("share", 1.0) for played in theirs), "ratio")
    for name, side in ((peer, sides["paced", "theirs"]), ("ours", sides["paced", "ours"])):
        for percentile in ("p50_ms", "p99_ms"):
            yield _figure(f"{name}.{percentile}.{which}", min(played[percentile] for played in side), "ms")


def _cpu_us(played: Played, subscribers: int) -> float:
    return played["publisher_us"] + subscribers * played["consumer_us"] + played.get("server_us", 0.0)


def _figure(name: str, value: float, unit: str) -> dict[str, Any]:
    return {"bench": "channels", "figure": name, "value": value, "unit": unit, "goal": None, "met": None}
