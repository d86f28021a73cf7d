"""What a time on the command line means."""

from __future__ import annotations

from unerring.model import CallerError


def time_us(option: str, text: str) -> int:
    """Microseconds, or ISO 8601 with an offset."""
    from unerring.log import time_of

    try:
        return int(text) if text.lstrip("-").isdigit() else time_of(text, 1.0)
    except ValueError:
        raise CallerError(
            f"{option} {text!r} is not a time; write microseconds, or ISO 8601 such as 2026-03-01T08:00:00Z"
        ) from None
