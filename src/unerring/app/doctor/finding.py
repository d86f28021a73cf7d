"""One thing that was looked at, and what to do about it."""

from __future__ import annotations

from typing import Final

import msgspec

WELL: Final = "well"
WARNING: Final = "warning"
"""It runs, and somebody should know."""
ERROR: Final = "error"
"""It does not run, or loses what it promises."""
LEVELS: Final = (ERROR, WARNING, WELL)


class Finding(msgspec.Struct, frozen=True):
    """What a check found: one sentence, with what to do unless all is well."""

    check: str
    level: str
    says: str


def well(check: str, says: str) -> Finding:
    return Finding(check, WELL, says)


def warning(check: str, says: str) -> Finding:
    return Finding(check, WARNING, says)


def error(check: str, says: str) -> Finding:
    return Finding(check, ERROR, says)
