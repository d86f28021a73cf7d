"""Times as people write them."""

from __future__ import annotations

from unerring.model import TIME_MAX, TIME_MIN, to_datetime


def moment(time_us: int) -> str:
    """A time in UTC, with as many digits as it needs."""
    if time_us <= TIME_MIN or time_us >= TIME_MAX:
        return "the beginning" if time_us <= TIME_MIN else "the end"
    whole, _, rest = f"{to_datetime(time_us):%Y-%m-%d %H:%M:%S.%f}".partition(".")
    rest = rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole
