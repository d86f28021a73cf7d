"""Reads a file's time column: numbers of some unit, or texts with a zone or without one.

A file whose first time cannot be what it seems is refused before anything of it is brought in: a whole file in
quarantine, or in the year 1970, helps nobody.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import SECOND_US, UNDECODABLE, CallerError

if TYPE_CHECKING:
    import pyarrow as pa

UNITS_US: Final[dict[str, float]] = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}
_CLEARLY: Final = (
    (10**8, 10**11, "s", "seconds"),
    (10**11, 10**14, "ms", "milliseconds"),
    (10**17, 10**19, "ns", "nanoseconds"),
)
"""Numbers that lie between the years 1973 and 5138 in one unit, and in no other."""
_YEAR_US: Final = 31_556_952 * SECOND_US
_HEAD_BYTES: Final = 1 << 16


class Times(msgspec.Struct, frozen=True):
    """Where the event time stands in a row, and what its numbers and texts mean."""

    column: str
    unit: str | None = None
    """None: microseconds, unless they clearly are something else, which is then refused."""
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in UNITS_US:
            raise CallerError(f"time unit {self.unit!r} is not known; use one of {', '.join(UNITS_US)}")
        if self.zone is not None:
            from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

            try:
                ZoneInfo(self.zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise CallerError(
                    f"time zone {self.zone!r} is not known; name one such as UTC or Europe/Berlin"
                ) from None

    @property
    def unit_us(self) -> float:
        return UNITS_US[self.unit or "us"]


def zoned(value: int | str, times: Times) -> int | str:
    """A text without a zone, in the one that such texts are in; all else as it is."""
    if times.zone is None or isinstance(value, int):
        return value
    from zoneinfo import ZoneInfo

    moment = datetime.fromisoformat(value)
    return value if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(times.zone)).isoformat()


def without_zone(text: str) -> bool:
    """Whether it is a moment that says neither Z nor an offset."""
    try:
        return datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False


def needs_zone(column: str, value: object) -> str:
    return (
        f"time {str(value)!r} in column {column!r} has no time zone; give one with --zone, such as --zone UTC or "
        "--zone Europe/Berlin"
    )


def check_first(path: Path, times: Times) -> None:
    """A sentence if the file's first time has no zone, or a number is clearly not what it would be read as."""
    first = _first(path, times.column)
    if isinstance(first, str) and without_zone(first) and times.zone is None:
        raise CallerError(f"{path}: {needs_zone(times.column, first)}")
    if isinstance(first, str) and first.strip().lstrip("-").isdigit():
        first = int(first)
    if times.unit is None and isinstance(first, int) and not isinstance(first, bool):
        for low, high, unit, words in _CLEARLY:
            if low <= first < high:
                year = 1970 + first // _YEAR_US
                raise CallerError(
                    f"{path}: time {first} in column {times.column!r} would be in the year {year} as microseconds, and "
                    f"is clearly {words}; use --time-unit {unit}, or --time-unit us if that is what you mean"
                )


def _first(path: Path, column: str) -> Any:
    """The first value of a file's time column. What else may be wrong with the file, its readers say."""
    import csv
    import io

    import pyarrow as pa

    kind = path.suffix.lower()
    if kind == ".parquet":
        import pyarrow.parquet as pq

        try:
            batches = pq.ParquetFile(path).iter_batches(batch_size=1024, columns=[column])
            return next((_plain(value) for batch in batches for value in batch.column(0) if value.is_valid), None)
        except (pa.ArrowInvalid, OSError, IndexError):
            return None
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).decode("utf-8-sig", "replace")
    if kind == ".csv":
        row = next(csv.DictReader(io.StringIO(head)), {})
        return row.get(column)
    try:
        first = msgspec.json.decode(next((line for line in head.splitlines() if line.strip()), "null"))
    except UNDECODABLE:
        return None
    return first.get(column) if isinstance(first, dict) else None


def _plain(value: pa.Scalar) -> Any:
    import pyarrow as pa

    if pa.types.is_timestamp(value.type):
        return None if value.type.tz else value.cast(pa.string()).as_py()
    return value.as_py()
