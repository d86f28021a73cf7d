"""Stamps: event time in whole microseconds and a tie-breaker. Never a wall clock of a correlating node."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from unerring.model.errors import SchemaError

SECOND_US: Final = 1_000_000
MILLISECOND_US: Final = 1_000

TIME_MIN: Final = -(2**62)
"""A time before every event time."""
TIME_MAX: Final = 2**62
"""A time after every event time: the end of a finished input."""

ORDINAL_MAX: Final = 1 << 62
"""An ordinal after every event of a time."""


class Stamp(NamedTuple):
    """When an event happened: `(time, ordinal)`, ordered as a tuple."""

    time: Annotated[int, Meta(ge=TIME_MIN, le=TIME_MAX)]
    ordinal: Annotated[int, Meta(ge=0, le=ORDINAL_MAX)] = 0


BEFORE_ALL: Final = Stamp(TIME_MIN, 0)
"""The stamp that precedes every event of a stream."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_time_us(moment: datetime | int) -> int:
    """Event time of a moment. A moment without a time zone is refused: it would mean another instant elsewhere."""
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise SchemaError(f"{moment!r} has no time zone; use datetime(..., tzinfo=UTC) or microseconds as an int")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_datetime(time_us: int) -> datetime:
    """The moment of an event time, in UTC."""
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        raise SchemaError(f"event time {time_us} us is outside the years 1 to 9999 that a datetime can hold") from None


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)")
_UNITS_US: Final = {
    "us": 1,
    "ms": MILLISECOND_US,
    "s": SECOND_US,
    "m": 60 * SECOND_US,
    "h": 3_600 * SECOND_US,
    "d": 86_400 * SECOND_US,
}


def to_duration_us(duration: timedelta | int | str) -> int:
    """A length of time in microseconds. A plain int is taken as microseconds already; a text is like 500ms or 30s."""
    if isinstance(duration, int):
        return duration
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    match = _DURATION.fullmatch(duration.strip())
    if match is None:
        raise SchemaError(f"{duration!r} is not a duration; write a number and us, ms, s, m, h or d, such as 10s")
    return round(float(match[1]) * _UNITS_US[match[2]])
