"""Compiled rules in a running system: one thread compiles beside the streams, and machine code is kept in a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from unerring.rules.engine import Engine
from unerring.rules.plan import Plan


def cache_folder() -> Path:
    """Where machine code is kept: it can be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "unerring" / "kernel"


@cache
def _compiler() -> ThreadPoolExecutor:
    """One thread: two compilations at a time would take turns anyway."""
    return ThreadPoolExecutor(1, thread_name_prefix="unerring-compiler")


def submit(work: Callable[[], None]) -> object:
    """Do it beside the streams, after what was asked for earlier."""
    return _compiler().submit(work)


def compiled_engine(plan: Plan, folder: Path | None = None) -> Engine:
    """An engine for a plan that compiles: it answers at once, and faster as soon as the compiler is done."""
    from unerring.rules.kernel import KernelEngine

    return KernelEngine(plan, cache=folder or cache_folder(), submit=submit)
