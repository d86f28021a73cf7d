"""What two rules find in the same time: what only one of them has, row by row. Stamps' ordinals do not count: they
change for all situations of a time when one of them comes or goes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.audit.comparison import comparable_rows, event_at
from unerring.model import Event, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLES_MAX: Final = 5


class Difference(msgspec.Struct):
    """Differences of two stretches add up."""

    before: int = 0
    after: int = 0
    gone: int = 0
    come: int = 0
    gone_samples: list[Event] = []
    come_samples: list[Event] = []

    def add(self, other: Difference) -> None:
        self.before += other.before
        self.after += other.after
        self.gone += other.gone
        self.come += other.come
        self.gone_samples = _first([*self.gone_samples, *other.gone_samples])
        self.come_samples = _first([*self.come_samples, *other.come_samples])


def difference(schema: StreamSchema, before: pa.Table, after: pa.Table) -> Difference:
    """Rows of one stretch of time, in stamp order."""
    names = [column.name for column in schema.columns]
    ours, theirs = ([(row[0], *row[2:]) for row in comparable_rows(table, names)] for table in (before, after))
    gone, come = _only(ours, theirs), _only(theirs, ours)
    return Difference(
        len(before),
        len(after),
        len(gone),
        len(come),
        [event_at(before, row, schema) for row in gone[:SAMPLES_MAX]],
        [event_at(after, row, schema) for row in come[:SAMPLES_MAX]],
    )


def _only(rows: list[tuple[object, ...]], others: list[tuple[object, ...]]) -> list[int]:
    """The places of rows that the others have not, or not so often."""
    left = Counter(others)
    places: list[int] = []
    for place, row in enumerate(rows):
        if left[row] > 0:
            left[row] -= 1
        else:
            places.append(place)
    return places


def _first(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.stamp)[:SAMPLES_MAX]
