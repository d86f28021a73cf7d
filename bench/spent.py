"""Where an instance on three nodes spends its time, while nothing else runs.

Each node writes down when it synced its disk, when its machine handled something, and when each message left, came and
was handled. All three have one clock, since they are on one machine. A moment of an instance counts as the first of
these that goes on anywhere: a commit, a machine at work, a message that waits in a node's queue, a message on a link.
What is left ends with a timer (`tick`), or with a turn of an event loop (`turn`).
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from unerring.model import Send
from unerring.runtime import MACHINE, RunningNode, SqliteStorage

KINDS = ("commit", "machine", "queue", "link", "tick", "turn")
Span = tuple[str, int, int]
"""What went on, from when to when, in nanoseconds."""


class Watch:
    """What one node did, and when."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.left: list[tuple[str, int]] = []
        """Messages to others, and when they left."""
        self.came: list[tuple[str, int, int]] = []
        """Messages of others, when they came, and when they were handled."""
        self._queued: dict[str, list[int]] = {}

    def storage(self, path: Path) -> Any:
        """A database whose commits are written down."""
        return _Storage(path, self.spans)

    def look_at(self, node: RunningNode) -> None:
        """From now on; the node is open."""
        driver, me = node.driver, node.node.me
        links = driver.links
        machine: Any = driver._driver.machine
        handle, timer = machine.handle, machine.timer
        offer = links._machines[MACHINE] if links is not None else None

        def at_work(kind: str, work: Callable[[], Any]) -> Any:
            began = time.monotonic_ns()
            effects = work()
            now = time.monotonic_ns()
            self.spans.append((kind, began, now))
            self.left += [
                (_digest(me, one.to, one.message), now)
                for one in effects
                if isinstance(one, Send) and one.to.endswith(f"/{MACHINE}") and one.to != me
            ]
            return effects

        def watched_handle(sender: str, message: Any, now: int) -> Any:
            queued = self._queued.get(key := _digest(sender, me, message)) if sender != me else None
            if queued:
                self.came.append((key, queued.pop(0), time.monotonic_ns()))
            return at_work("machine", lambda: handle(sender, message, now))

        def watched_offer(sender: str, message: Any) -> Any:
            self._queued.setdefault(_digest(sender, me, message), []).append(time.monotonic_ns())
            return offer(sender, message) if offer is not None else False

        machine.handle = watched_handle
        machine.timer = lambda name, now: at_work("timer", lambda: timer(name, now))
        if links is not None:
            links._machines[MACHINE] = watched_offer

    def told(self) -> dict[str, Any]:
        return {"spans": self.spans, "left": self.left, "came": self.came}


class _Storage:
    def __init__(self, path: Path, spans: list[Span]) -> None:
        self._inner, self._spans = SqliteStorage(path), spans

    def load(self, prefix: str = "", without: str = "") -> Mapping[str, bytes]:
        return self._inner.load(prefix, without)

    def write(self, batch: Any) -> None:
        began = time.monotonic_ns()
        self._inner.write(batch)
        self._spans.append(("commit", began, time.monotonic_ns()))


def _digest(sender: str, to: str, message: Any) -> str:
    content = f"{sender} {to} {type(message).__name__} ".encode() + msgspec.msgpack.encode(message)
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def figures(
    quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., dict[str, Any]]
) -> Iterator[Any]:
    """Instances of two steps, one at a time; means, so that the parts add up to the whole."""
    count = 3 if quick else 100
    with trio_of(folder / "spent", "watched", 2) as trio:
        trio.many("two", "warm", count, 1)
        runs: list[tuple[int, int]] = []
        for number in range(count):
            began = time.monotonic_ns()
            trio.run("two", f"s{number}")
            runs.append((began, time.monotonic_ns()))
        spans, syncs = _spans_of([trio.ask(name, {"watched": str(folder / name)}) for name in trio.ports])
    parts = [spent(spans, *run) for run in runs]
    yield figure("spent.one_at_a_time_ms", statistics.mean(end - began for began, end in runs) / 1e6, "ms")
    for kind in KINDS:
        yield figure(f"spent.{kind}_ms", statistics.mean(part[kind] for part in parts) / 1e6, "ms")
    within = [[stop - at for at, stop in syncs if began <= at < end] for began, end in runs]
    yield figure("spent.commits", statistics.mean(map(len, within)), "commits")
    yield figure("spent.each_commit_ms", statistics.mean(took for one in within for took in one) / 1e6, "ms")


def _spans_of(told: list[dict[str, Any]]) -> tuple[list[Span], list[tuple[int, int]]]:
    """Of all nodes together, with messages on links and in queues; and the commits."""
    nodes = [json.loads(Path(one["watched"]).read_text()) for one in told]
    spans: list[Span] = [tuple(span) for node in nodes for span in node["spans"]]
    syncs = [(began, end) for kind, began, end in spans if kind == "commit"]
    left: dict[str, list[int]] = {}
    for key, at in sorted(((key, at) for node in nodes for key, at in node["left"]), key=lambda one: one[1]):
        left.setdefault(key, []).append(at)
    for key, came, handled in (tuple(one) for node in nodes for one in node["came"]):
        spans.append(("queue", came, handled))
        before = bisect_right(left.get(key, []), came)
        if before:  # the last one of these that left before it came: messages are repeated
            spans.append(("link", left[key][before - 1], came))
    return sorted(spans, key=lambda span: span[1]), syncs


def spent(spans: list[Span], began: int, end: int) -> dict[str, int]:
    """The nanoseconds of a time by what went on."""
    near = [span for span in spans if span[1] < end and span[2] > began]
    found = dict.fromkeys(KINDS, 0)
    edges = sorted({began, end, *(at for _, *times in near for at in times if began < at < end)})
    for start, stop in pairwise(edges):
        on = {kind for kind, first, last in near if first <= start and last >= stop}
        on = {"machine" if kind == "timer" else kind for kind in on}
        kind = next((kind for kind in ("commit", "machine", "queue", "link") if kind in on), "")
        if not kind:
            kind = "tick" if any(what == "timer" and first == stop for what, first, _ in near) else "turn"
        found[kind] += stop - start
    return found
