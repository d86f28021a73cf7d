"""How `unerring backup` and `unerring restore` show what they do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unerring.app import Backup


@contextlib.contextmanager
def copying(done: str) -> Iterator[Callable[[int, int], None]]:
    """Progress by objects and bytes."""
    from rich.console import Console

    with Console(stderr=True).status("looking") as status:
        yield lambda objects, size: status.update(f"{objects:,} objects, {size / 1e6:,.1f} MB {done}")


def sized(backup: Backup) -> str:
    return f"{len(backup.files):,} objects, {backup.size:,} bytes, of {len(backup.streams):,} streams"
