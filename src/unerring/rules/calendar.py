"""Fields of a time and its truncation, in UTC, on whole microseconds: pure arithmetic on the proleptic calendar."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final

from unerring.model import SECOND_US, SchemaError, to_datetime, to_time_us

DAY_US: Final = 86_400 * SECOND_US

FIELDS: Final[dict[str, Callable[[datetime], int]]] = {
    "year": lambda moment: moment.year,
    "quarter": lambda moment: (moment.month + 2) // 3,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "day_of_week": lambda moment: moment.isoweekday(),
    "day_of_year": lambda moment: moment.timetuple().tm_yday,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
}
"""A week starts with Monday, day 1."""

_LENGTHS_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND_US,
    "minute": 60 * SECOND_US,
    "hour": 3600 * SECOND_US,
    "day": DAY_US,
}


def field_of(name: str, time_us: int) -> int | None:
    """One field of a time; NULL outside the years 1 to 9999."""
    try:
        return FIELDS[name](to_datetime(time_us))
    except SchemaError:
        return None


def truncated(unit: str, time_us: int) -> int | None:
    """The start of the unit that the time lies in; NULL for a unit that is none."""
    unit = unit.lower()
    if unit in _LENGTHS_US:
        return time_us - time_us % _LENGTHS_US[unit]
    try:
        day = to_datetime(time_us).date()
    except SchemaError:
        return None
    if unit == "week":
        return time_us - time_us % DAY_US - (day.isoweekday() - 1) * DAY_US
    starts = {
        "month": date(day.year, day.month, 1),
        "quarter": date(day.year, (day.month - 1) // 3 * 3 + 1, 1),
        "year": date(day.year, 1, 1),
    }
    start = starts.get(unit)
    return None if start is None else to_time_us(datetime(start.year, start.month, start.day, tzinfo=UTC))
