"""How often a process of a run looks for circles among its objects."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Events and instances are many, and in no circles: looking for circles among them all the time would cost more
    than they do, and a node with a million of them would be silent meanwhile for long enough to be suspected."""
    gc.set_threshold(200_000, 50, 1000)
