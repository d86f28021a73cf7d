"""What a target holds beside the perfect run: what is missing, double, false, or out of order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from unerring.audit import COMPLETENESS, Stretch, compare, missing
from unerring.log import Chain
from unerring.model import StreamSchema
from unerring.sinks.port import Target, as_rows

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE: Final = 200_000


def judge_target(target: Target, perfect: Chain, from_us: int, through_us: int) -> tuple[Stretch, list[int]]:
    """The rows of `(from, through]`, and the times of all that is wrong. What the perfect run has after the sink's
    position is still to come; what the target has there is false."""
    at, schema = target.position(), perfect.schema
    reached_us = from_us if at is None else min(max(at.time, from_us), through_us)
    total, wrong = Stretch(counts={}, findings=[]), []
    for start_us, end_us in _stretches(perfect, from_us, reached_us):
        stretch, times = _compare(target, schema, _perfect(perfect, start_us, end_us), start_us, end_us)
        total.add(stretch)
        wrong += times
    if reached_us < through_us:
        nothing = _perfect(perfect, reached_us, reached_us)
        stretch, times = _compare(target, schema, nothing, reached_us, through_us)
        total.add(stretch)
        wrong += times
        for start_us, end_us in _stretches(perfect, reached_us, through_us):
            rest = _perfect(perfect, start_us, end_us)
            stretch, times = missing(schema, rest, COMPLETENESS, f"the target has nothing after {reached_us}")
            total.add(stretch)
            wrong += times
    return total, wrong


def _compare(
    target: Target, schema: StreamSchema, wanted: pa.Table, start_us: int, end_us: int
) -> tuple[Stretch, list[int]]:
    rows = _one_nan(as_rows(target.read(start_us, end_us), schema))
    return compare(schema, [rows], wanted, start_us, end_us)


def _perfect(chain: Chain, from_us: int, through_us: int) -> pa.Table:
    return _one_nan(chain.read(from_us, through_us, columns=[column.name for column in chain.schema.columns]))


def _stretches(chain: Chain, from_us: int, through_us: int) -> Iterator[tuple[int, int]]:
    """The interval in pieces of about so many rows of the perfect run."""
    start_us, rows = max(from_us, chain.base.from_us), 0
    for span in chain.spans(start_us, through_us):
        end_us = min(span.through_us, through_us)
        rows += chain.count(max(span.from_us, start_us), end_us)
        if rows >= ROWS_AT_ONCE:
            yield start_us, end_us
            start_us, rows = end_us, 0
    if start_us < through_us:
        yield start_us, through_us


def _one_nan(rows: pa.Table) -> pa.Table:
    """The same rows with one kind of NaN: a target keeps that a value is none, not which bits said so."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nan: Any = pa.scalar(float("nan"), pa.float64())
    for at, field in enumerate(rows.schema):
        if pa.types.is_float64(field.type):
            column = rows.column(at)
            rows = rows.set_column(at, field, pc.if_else(pc.is_nan(column), nan, column))
    return rows
