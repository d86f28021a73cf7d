"""Which engine runs a plan: the kernel where it compiles, the interpreter where not, with the same results."""

from __future__ import annotations

import os
from pathlib import Path

from unerring.pipeline.feeding import Feed, RowFeed
from unerring.rules import Plan


def feed_of(plan: Plan, ranks: dict[str, int]) -> Feed:
    """A fresh engine for a plan, with its columns in and out."""
    from unerring.matching.kernel import KernelEngine, why_interpreted

    if why_interpreted(plan) is None:
        from unerring.pipeline.columns import ColumnFeed

        return ColumnFeed(KernelEngine(plan, cache=machine_code()), ranks)
    from unerring.matching.interpreter import Interpreter

    return RowFeed(Interpreter(plan), ranks)


def machine_code() -> Path:
    """Where this machine keeps compiled rules, so that not every worker process compiles them again."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unerring" / "kernels"
