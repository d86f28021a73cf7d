"""What a step of a level's state costs: a million open keys, of which one in a hundred changes in each step.

`state.delta_ratio` is the bytes of a step over those of a full write; `state.cpu_ratio` the processor time of both, the
noting of what changed included. `state.written_ratio` counts the whole state that is written after 96 deltas too. Each
is the worst of three rules, one for each kind of kernel.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from unerring.matching import Column, Columns, Kernel, Numbers, Texts
from unerring.pipeline import DELTAS_MAX
from unerring.rules import Plan, workloads as rules

KEYS = 1_000_000
CHANGING = 100
"""One key in so many. An event each microsecond: all of it is within the rules' times."""
STEPS = 5
GOAL = 0.03


def measure(plan: Plan, keys: int, first: str) -> dict[str, float]:
    """One rule: `first` is the type of event that opens a match."""
    kernel = Kernel(plan, compile_after=1)
    random = np.random.default_rng(7)
    _feed(kernel, np.arange(keys), 0, first)
    whole, whole_s = _timed(kernel.snapshot)
    kernel.mark()
    if kernel.keys != keys:
        raise AssertionError(f"{plan.name}: {kernel.keys} keys are open, not {keys}")
    began = time.process_time()
    for _ in range(STEPS):
        _feed(kernel, np.sort(random.choice(keys, keys // CHANGING, replace=False)), kernel.through, first)
    fed_s = (time.process_time() - began) / STEPS
    sizes, times = [], []
    for _ in range(STEPS + 1):
        changed = np.sort(random.choice(keys, keys // CHANGING, replace=False))
        began = time.process_time()
        _feed(kernel, changed, kernel.through, first)
        delta, open_keys = kernel.delta(), kernel.keys  # a task reports how many there are
        times.append(time.process_time() - began)
        sizes.append(len(delta))
        if open_keys != keys:
            raise AssertionError(f"{plan.name}: {open_keys} keys are open, not {keys}")
    del sizes[0], times[0]  # it holds what the steps before it changed
    step_bytes, step_s = max(sizes), min(times)
    return {
        "bytes": len(whole),
        "step_bytes": step_bytes,
        "delta_ratio": step_bytes / len(whole),
        "written_ratio": (DELTAS_MAX * step_bytes + len(whole)) / (DELTAS_MAX + 1) / len(whole),
        "whole_s": whole_s,
        "step_s": step_s,
        "feed_s": fed_s,
        "cpu_ratio": step_s / whole_s,
    }


def _feed(kernel: Kernel, keys: Any, after_us: int, kind: str) -> None:
    times = after_us + 1 + np.arange(len(keys))
    types = Texts(np.zeros(len(keys), np.int8), (kind,))
    columns: dict[str, Column] = {
        "key": Numbers(keys.astype(np.int64)),
        "type": types,
        "v": Numbers(np.zeros(len(keys))),
    }
    kernel.feed_columns(Columns(times, columns), after_us + len(keys))


def _timed(work: Any) -> tuple[Any, float]:
    began = time.process_time()
    return work(), time.process_time() - began


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    found = {
        rule.plan.name: measure(rule.plan, 20_000 if quick else KEYS, "A") for rule in (rules.W1, rules.W2, rules.W3)
    }
    for name, goal in (("delta_ratio", GOAL), ("written_ratio", GOAL), ("cpu_ratio", None)):
        value = max(one[name] for one in found.values())
        yield _figure(f"state.{name}", value, "x", goal)
    for rule, one in found.items():
        for name, unit in (("bytes", "bytes"), ("step_bytes", "bytes"), ("whole_s", "s"), ("step_s", "s")):
            yield _figure(f"state.{rule}.{name}", one[name], unit, None)


def _figure(name: str, value: float, unit: str, goal: float | None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    return {"bench": "state", "figure": name, "value": value, "unit": unit, "goal": goal, "met": met}
