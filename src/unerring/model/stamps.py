"""Stamps: event time in whole microseconds and a tie-breaker. Never a wall clock of a correlating node."""

from __future__ import annotations

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


class Stamp(NamedTuple):
    """When an event happened: `(time, ordinal)`, ordered as a tuple."""

    time: Annotated[int, Meta(ge=TIME_MIN, le=TIME_MAX)]
    ordinal: Annotated[int, Meta(ge=0, le=1 << 62)] = 0


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


def to_duration_us(duration: timedelta | int) -> int:
    """A length of time in microseconds; a plain int is taken as microseconds already."""
    return duration if isinstance(duration, int) else duration // timedelta(microseconds=1)
