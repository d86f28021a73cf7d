"""One stretch of a delivered stream beside the same stretch of the perfect one: what differs, and where.

Both come as Arrow tables, so that a stretch of a million situations that is right costs one comparison of columns; only
the few rows around a difference are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.audit.strong_reliability import DUPLICATION, FALSE_NEGATIVE, FALSE_ORDERING, FALSE_POSITIVE
from unerring.model import ColumnType, Event, Stamp, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

WITNESSES_MAX: Final = 5
"""Findings that are kept for each promise; all are counted."""
_ROWS_AT_ONCE: Final = 5_000


class Finding(msgspec.Struct, frozen=True):
    """One situation that is wrong, with what stands against it."""

    promise: str
    delivered: Event | None
    perfect: Event | None
    detail: str = ""

    @property
    def event(self) -> Event | None:
        return self.delivered if self.delivered is not None else self.perfect


class Stretch(msgspec.Struct):
    """The comparison of one stretch. Stretches add up."""

    delivered: int = 0
    perfect: int = 0
    counts: dict[str, int] = {}
    findings: list[Finding] = []
    bins_delivered: list[int] = []
    bins_perfect: list[int] = []
    bins_wrong: list[int] = []
    erased: int = 0
    """Delivered situations that are not compared, since what they are made of was erased."""

    def add(self, other: Stretch) -> None:
        self.delivered += other.delivered
        self.perfect += other.perfect
        self.erased += other.erased
        for finding in other.findings:
            if sum(known.promise == finding.promise for known in self.findings) < WITNESSES_MAX:
                self.findings.append(finding)
        for promise, count in other.counts.items():
            self.counts[promise] = self.counts.get(promise, 0) + count
        self.bins_delivered = _summed(self.bins_delivered, other.bins_delivered)
        self.bins_perfect = _summed(self.bins_perfect, other.bins_perfect)
        self.bins_wrong = _summed(self.bins_wrong, other.bins_wrong)


def compare(
    schema: StreamSchema, delivered: Sequence[pa.Table], perfect: pa.Table, from_us: int, through_us: int
) -> tuple[Stretch, list[int]]:
    """`delivered`: the rows of `(from, through]` in the order in which they lie there, one table for each sequence that
    must be in order (a bucket). `perfect`: the same stretch, in stamp order. Also the times of all that is wrong."""
    findings = _Findings(schema)
    parts: list[pa.Table] = []
    for part in delivered:
        _check_order(findings, part)
        parts.append(_check_place(findings, part, from_us, through_us))
    merged = _in_stamp_order(parts)
    for ours, theirs in _chunks(merged, perfect):
        if not _same(ours, theirs):
            _compare_rows(findings, ours, theirs)
    stretch = Stretch(sum(len(part) for part in delivered), len(perfect), findings.counts, findings.findings)
    return stretch, findings.times


def missing(schema: StreamSchema, perfect: pa.Table, promise: str, detail: str) -> tuple[Stretch, list[int]]:
    """Situations of the perfect run where nothing was delivered at all."""
    findings = _Findings(schema)
    for row in range(min(len(perfect), WITNESSES_MAX)):
        findings.add(promise, None, event_at(perfect, row, schema), detail)
    times: list[int] = perfect.column("time").to_pylist()
    counts = {promise: len(perfect)} if len(perfect) else {}
    return Stretch(0, len(perfect), counts, findings.findings), times


def event_at(table: pa.Table, row: int, schema: StreamSchema) -> Event:
    """One row as an event."""
    values: dict[str, Any] = {}
    for column in schema.columns:
        cell = table.column(column.name)[row]
        values[column.name] = cell.value if column.type is ColumnType.TIME else cell.as_py()
    stamp = Stamp(table.column("time")[row].as_py(), table.column("ordinal")[row].as_py())
    return Event(schema.name, stamp, tuple(values[name] for name in schema.key), values)


class _Findings:
    def __init__(self, schema: StreamSchema) -> None:
        self.schema = schema
        self.counts: dict[str, int] = {}
        self.findings: list[Finding] = []
        self.times: list[int] = []

    def add(self, promise: str, delivered: Event | None, perfect: Event | None, detail: str = "") -> None:
        self.counts[promise] = self.counts.get(promise, 0) + 1
        if self.counts[promise] <= WITNESSES_MAX:
            self.findings.append(Finding(promise, delivered, perfect, detail))
        event = delivered if delivered is not None else perfect
        if event is not None:
            self.times.append(event.stamp.time)


def _check_order(findings: _Findings, part: pa.Table) -> None:
    """Where a row has a smaller stamp than the one before it. Equal ones are duplicates, which are found elsewhere."""
    import numpy as np

    time, ordinal = _stamps(part)
    falls = (time[1:] < time[:-1]) | ((time[1:] == time[:-1]) & (ordinal[1:] < ordinal[:-1]))
    for row in np.flatnonzero(falls).tolist():
        before, event = event_at(part, row, findings.schema), event_at(part, row + 1, findings.schema)
        findings.add(FALSE_ORDERING, event, None, f"it comes after {tuple(before.stamp)}, which is later")


def _check_place(findings: _Findings, part: pa.Table, from_us: int, through_us: int) -> pa.Table:
    """Rows that are in a segment to whose interval they do not belong: who reads by time does not find them."""
    import numpy as np
    import pyarrow as pa

    time, _ = _stamps(part)
    astray = (time <= from_us) | (time > through_us)
    if not astray.any():
        return part
    for row in np.flatnonzero(astray).tolist():
        detail = f"it lies in the segment of ({from_us}, {through_us}], where its time does not belong"
        findings.add(FALSE_POSITIVE, event_at(part, row, findings.schema), None, detail)
    return part.filter(pa.array(~astray))


def _in_stamp_order(parts: list[pa.Table]) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    table = pa.concat_tables(parts).combine_chunks()
    time, ordinal = _stamps(table)
    order = np.lexsort((ordinal, time))
    return table if (np.diff(order) == 1).all() else table.take(pa.array(order))


def _chunks(ours: pa.Table, theirs: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Both tables cut at the same times, about so many rows at once."""
    import numpy as np

    own, their = _stamps(ours)[0], _stamps(theirs)[0]
    longer = own if len(own) >= len(their) else their
    edges = np.unique(longer[_ROWS_AT_ONCE::_ROWS_AT_ONCE])
    first, other = 0, 0
    for edge in [*edges.tolist(), None]:
        last = len(own) if edge is None else int(np.searchsorted(own, edge, side="right"))
        end = len(their) if edge is None else int(np.searchsorted(their, edge, side="right"))
        yield ours.slice(first, last - first), theirs.slice(other, end - other)
        first, other = last, end


def _same(ours: pa.Table, theirs: pa.Table) -> bool:
    """Bit for bit: a NaN is itself, and −0.0 is not 0.0."""
    return len(ours) == len(theirs) and all(
        _bits(ours.column(name)).equals(_bits(theirs.column(name))) for name in theirs.column_names
    )


def _bits(column: Any) -> Any:
    import pyarrow as pa

    whole = column.combine_chunks()
    return whole.view(pa.int64()) if pa.types.is_float64(whole.type) else whole


def _compare_rows(findings: _Findings, ours: pa.Table, theirs: pa.Table) -> None:
    schema = findings.schema
    wanted = {row[:2]: (at, row) for at, row in enumerate(comparable_rows(theirs, theirs.column_names))}
    seen: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for at, row in enumerate(comparable_rows(ours, theirs.column_names)):
        stamp = row[:2]
        if seen.get(stamp) == row:
            findings.add(DUPLICATION, event_at(ours, at, schema), None, "the same situation is there twice")
            continue
        seen.setdefault(stamp, row)
        right = wanted.get(stamp)
        if right is None:
            findings.add(FALSE_POSITIVE, event_at(ours, at, schema), None, "the perfect run has nothing at that stamp")
        elif right[1] != row:
            other = event_at(theirs, right[0], schema)
            findings.add(FALSE_POSITIVE, event_at(ours, at, schema), other, "the perfect run has another one there")
    for stamp, (at, _) in wanted.items():
        if stamp not in seen:
            findings.add(FALSE_NEGATIVE, None, event_at(theirs, at, schema), "it was left out")


def comparable_rows(table: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    """Rows as tuples that are equal where the rows are, bit for bit; stamp first."""
    import pyarrow as pa

    columns = []
    for name in ["time", "ordinal", *(name for name in names if name not in ("time", "ordinal"))]:
        column = _bits(table.column(name))
        columns.append((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())
    return list(zip(*columns, strict=True))


def _stamps(table: pa.Table) -> tuple[Any, Any]:
    return table.column("time").to_numpy(), table.column("ordinal").to_numpy()


def _summed(one: list[int], other: list[int]) -> list[int]:
    if not one or not other:
        return one or other
    return [a + b for a, b in zip(one, other, strict=True)]
