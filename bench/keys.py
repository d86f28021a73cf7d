"""What many keys cost: W1 with ten million keys that have an open match, on one core, without Spark.

`W1.bytes_per_key` is what the process grows by: arrays, tables of keys, and room for more. `due.….cpu_ratio` is the
processor time of an interval of few events (its rows, the number of keys, the state's changes) with so many keys, over
the same with a hundredth of them. `spill.speed_ratio` is the speed with the state in files, and a quarter of it in
memory at the end of each step, over that with the state in memory; in steps of a million rows, as a task takes them
of a backlog. `spill.intervals…` is the same in steps of a quarter of that, and `spill.cold…` where all of it is read
from the disk again in each step. `forms…`: what it costs to take some keys' state and put it back.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from unerring.matching import Column, Columns, Kernel, Numbers, Texts, code_folder
from unerring.model import stream
from unerring.pipeline import FileRoom
from unerring.rules import Plan, last, rule, step, time_of, workloads as rules

KEYS, FEW_KEYS = 10_000_000, 100_000
TEXT_KEYS = 1_000_000
CHANGED = 1000
"""Keys that an interval of few events touches."""
STEP = 1_000_000
ROUNDS = 5
FORM_KEYS, FORM_ROWS = 2_000_000, 250_000
TYPES = ("A", "B", "C", "D")
A, ANY = 0, -1


@stream(key="name", name="Named")
class Named:
    """As the workloads' events, with a key that is a text."""

    name: str
    type: str
    v: float


_a, _b = step("a", Named, Named.type == "A"), step("b", Named, Named.type == "B")
NAMED = (
    rule("ByName")
    .pattern(_a.then(_b).within(seconds=10))
    .select("recent")
    .emit(began=time_of(last(_a)), a_v=last(_a).v, b_v=last(_b).v)
)
"""W1 on them."""


class Fed:
    """A kernel, and events for it: sixteen each microsecond, so that all matches stay open."""

    def __init__(self, plan: Plan, keys: int) -> None:
        self.kernel = Kernel(plan, compile_after=0, cache=code_folder())
        self.random = np.random.default_rng(7)
        self.keys = self.random.permutation(keys) * 7919 + 10**12
        """Too large to be rows of an array themselves, as a number from elsewhere is."""
        self.feed(self.keys[:CHANGED], A)

    def columns(self, keys: Any, code: int) -> Columns:
        count = len(keys)
        codes = self.random.integers(0, 4, count) if code == ANY else np.full(count, code)
        times = self.kernel.through + 1 + np.arange(count) // 16 if self.kernel.through > 0 else 1 + np.arange(count)
        columns: dict[str, Column] = {
            "key": Numbers(keys),
            "type": Texts(codes.astype(np.int8), TYPES),
            "v": Numbers(np.ones(count)),
        }
        return Columns(times, columns)

    def feed(self, keys: Any, code: int) -> None:
        batch = self.columns(keys, code)
        self.kernel.feed_columns(batch, int(batch.time[-1]))

    def fill(self) -> None:
        for first in range(0, len(self.keys), STEP // 4):
            self.feed(self.keys[first : first + STEP // 4], A)

    def drawn(self, count: int, code: int = ANY) -> Columns:
        return self.columns(self.random.choice(self.keys, count), code)


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    scale = 100 if quick else 1
    keys, few = KEYS // scale, FEW_KEYS // min(scale, 10)
    with tempfile.TemporaryDirectory(prefix="unerring-keys-") as name:
        fed = yield from _bytes(keys)
        yield from _due(fed, few)
        yield from _spilled(fed, STEP // scale, Path(name))
        del fed
        yield from _text_bytes(TEXT_KEYS // scale)
        yield from _deadlines(keys // 5, few)
        for form, seconds in _forms().costs(Path(name), FORM_KEYS // scale, FORM_ROWS // scale).items():
            yield _figure(f"forms.{form}.us_per_row", seconds * 1e6 / (FORM_ROWS // scale), "µs")


def _bytes(keys: int) -> Iterator[dict[str, Any]]:
    fed = Fed(rules.W1.plan, keys)
    before, began = _resident(), time.process_time()
    fed.fill()
    filled_s = time.process_time() - began
    if fed.kernel.keys != keys:
        raise AssertionError(f"{fed.kernel.keys} keys are open, not {keys}")
    yield _figure("W1.keys", keys, "keys")
    yield _figure("W1.bytes_per_key", (_resident() - before) / keys, "bytes", 64)
    yield _figure("W1.fill_ns_per_event", filled_s / keys * 1e9, "ns")
    began = time.process_time()
    whole = fed.kernel.snapshot()
    yield _figure("W1.whole_state_s", time.process_time() - began, "s")
    yield _figure("W1.whole_state_bytes_per_key", len(whole) / keys, "bytes")
    return fed


def _due(fed: Fed, few: int) -> Iterator[dict[str, Any]]:
    other = Fed(rules.W1.plan, few)
    other.fill()
    many_s, few_s = _intervals_s(fed, other)
    yield _figure("due.W1.interval_ms", many_s * 1e3, "ms")
    yield _figure("due.W1.cpu_ratio", many_s / few_s, "x", 2)


def _deadlines(keys: int, few: int) -> Iterator[dict[str, Any]]:
    """W3: absences become due as time goes on."""
    many, other = Fed(rules.W3.plan, keys), Fed(rules.W3.plan, few)
    for fed in (many, other):
        fed.fill()
    many_s, few_s = _intervals_s(many, other)
    yield _figure("due.W3.keys", keys, "keys")
    yield _figure("due.W3.cpu_ratio", many_s / few_s, "x", 2)


def _intervals_s(*feds: Fed) -> tuple[float, ...]:
    """The processor time of an interval of few events, of each; the least of some, taken in turn."""
    best = [float("inf")] * len(feds)
    for fed in feds:
        fed.kernel.mark()
    for _ in range(4 * ROUNDS):
        for number, fed in enumerate(feds):
            batch = fed.drawn(CHANGED, A)
            began = time.process_time()
            fed.kernel.feed_columns(batch, int(batch.time[-1]))
            _ = fed.kernel.keys, fed.kernel.delta()
            best[number] = min(best[number], time.process_time() - began)
    return tuple(best)


def _nothing() -> None:
    """Nothing is to be done."""


def _spilled(fed: Fed, step: int, folder: Path) -> Iterator[dict[str, Any]]:
    """All in one kernel: first in memory, then moved to files."""
    in_memory = [_steps_s(fed, rows) for rows in (step, step // 4)]
    yield _figure("spill.memory.events_per_s", step / in_memory[0][0], "events/s")
    room = FileRoom(folder, 1)
    fed.kernel.move(room)
    limit_bytes = fed.kernel.state_bytes // 4

    def hold() -> None:
        room.release(limit_bytes)

    def drop() -> None:
        room.release()
        for mapping in list(room._maps):
            mapping.flush()
            os.posix_fadvise(mapping.file.number, 0, 0, os.POSIX_FADV_DONTNEED)

    cases = (
        ("speed_ratio", step, in_memory[0], (hold, _nothing), 0.25),
        ("intervals.speed_ratio", step // 4, in_memory[1], (hold, _nothing), None),
        ("cold.speed_ratio", step, in_memory[0], (_nothing, drop), None),
    )
    for name, rows, (wall_s, cpu_s), done, goal in cases:
        wall, cpu = _steps_s(fed, rows, *done)
        yield _figure(f"spill.{name}", wall_s / wall, "x", goal, most=False)
        yield _figure(f"spill.{name.replace('speed', 'cpu')}", cpu_s / cpu, "x")
    yield _figure("spill.state_mib", fed.kernel.state_bytes / 2**20, "MiB")


def _steps_s(
    fed: Fed, rows: int, after: Callable[[], None] = _nothing, between: Callable[[], None] = _nothing
) -> tuple[float, float]:
    """The time of a step and what is done after it, by the wall clock and by the processor's: the least of some. What
    is done between steps is no part of it."""
    best = float("inf"), float("inf")
    for _ in range(ROUNDS):
        batch = fed.drawn(rows)
        fed.kernel.mark()
        between()
        began = time.perf_counter(), time.process_time()
        fed.kernel.feed_columns(batch, int(batch.time[-1]))
        after()
        best = min(best[0], time.perf_counter() - began[0]), min(best[1], time.process_time() - began[1])
    return best


def _text_bytes(keys: int) -> Iterator[dict[str, Any]]:
    """Keys that are texts of 16 letters, each with an open match."""
    kernel = Kernel(NAMED.plan, compile_after=0, cache=code_folder())
    before = 0
    for first in range(0, keys, CHANGED):
        names = tuple(f"key-{number:012d}" for number in range(first, first + CHANGED))
        columns: dict[str, Column] = {
            "name": Texts(np.arange(CHANGED), names),
            "type": Texts(np.zeros(CHANGED, np.int8), TYPES),
            "v": Numbers(np.ones(CHANGED)),
        }
        through_us = 1 + first // CHANGED
        kernel.feed_columns(Columns(np.full(CHANGED, through_us), columns), through_us)
        before = before or _resident()
    yield _figure("text_keys.bytes_per_key", (_resident() - before) / keys, "bytes")


def _resident() -> int:
    """The memory of this process, without what the allocator has back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _forms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_spill_forms", Path(__file__).parent / "spill_forms.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("bench/spill_forms.py cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _figure(name: str, value: float, unit: str, goal: float | None = None, *, most: bool = True) -> dict[str, Any]:
    met = None if goal is None else value <= goal if most else value >= goal
    said = None if goal is None else f"{'≤' if most else '≥'} {goal:g}"
    return {"bench": "keys", "figure": name, "value": value, "unit": unit, "goal": said, "met": met}
