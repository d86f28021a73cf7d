"""The long tests of a folder, one by one: pytest collects them once, and this module is a plugin of it then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.model import UNDECODABLE, CallerError

if TYPE_CHECKING:
    import pytest

FIXED: Final = "fixed_seeds"
"""The mark of tests that search the same seeds each time: a night has fresh ones of the same, and leaves them out."""


class LongTest(msgspec.Struct, frozen=True):
    """One test that pytest would run."""

    file: str
    """The name of its file in the folder."""
    node: str
    """What comes after the file in its node id."""
    limit_s: float
    """What it may take by its own mark; 0: it has none."""
    fixed: bool


class _Collected(msgspec.Struct, frozen=True, tag=True):
    tests: tuple[LongTest, ...]


def collect(files: Sequence[Path]) -> tuple[LongTest, ...]:
    """All tests of some files. One that pytest cannot read has none."""
    plugin = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", __name__]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--continue-on-collection-errors", *plugin]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, errors="replace")
    for line in done.stdout.splitlines():
        try:
            return msgspec.json.decode(line, type=_Collected).tests
        except UNDECODABLE:
            continue  # pytest's own lines
    raise CallerError(f"pytest cannot collect the tests of {files[0].parent}: {(done.stdout + done.stderr)[-400:]}")


def pytest_collection_finish(session: pytest.Session) -> None:
    tests = []
    for item in session.items:
        mark = item.get_closest_marker("timeout")
        limit_s = float((*mark.args, mark.kwargs.get("timeout", 0))[0]) if mark is not None else 0.0
        node = item.nodeid.partition("::")[2]
        tests.append(LongTest(item.path.name, node, limit_s, item.get_closest_marker(FIXED) is not None))
    # On a line of its own: the terminal is in the middle of one.
    told = msgspec.json.encode(_Collected(tuple(tests))).decode()
    session.config.get_terminal_writer().write(os.linesep + told + os.linesep)
