"""What a target holds beside the perfect run: what is missing, double, false, or out of order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from unerring.audit import COMPLETENESS, Stretch, compare, missing
from unerring.log import Chain
from unerring.sinks.port import Target, as_rows

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE: Final = 200_000


Counted = Callable[[Stretch, list[Any], list[Any], list[int]], Stretch]
"""Adds to a stretch what is drawn of it: of the times that are there, those that should be, and those of errors."""
Knowable = Callable[[list[Any]], tuple[list[Any], int]]


def judge_target(
    target: Target,
    perfect: Chain,
    from_us: int,
    through_us: int,
    counted: Counted = lambda stretch, ours, theirs, wrong: stretch,
    knowable: Knowable = lambda tables: (list(tables), 0),
) -> Stretch:
    """The rows of `(from, through]`. What the perfect run has after the sink's position is still to come; what the
    target has there is false. `knowable`: rows without those that nobody can recompute, and how many these are."""
    at, schema = target.position(), perfect.schema
    reached_us = from_us if at is None else min(max(at.time, from_us), through_us)
    total = Stretch(counts={}, findings=[])

    def judge(start_us: int, end_us: int, wanted: pa.Table) -> None:
        [rows], erased = knowable([_one_nan(as_rows(target.read(start_us, end_us), schema))])
        [wanted], _ = knowable([wanted])
        stretch, wrong = compare(schema, [rows], wanted, start_us, end_us)
        stretch.erased = erased
        total.add(counted(stretch, [_times(rows)], [_times(wanted)], wrong))

    for start_us, end_us in _stretches(perfect, from_us, reached_us):
        judge(start_us, end_us, _perfect(perfect, start_us, end_us))
    if reached_us < through_us:
        judge(reached_us, through_us, _perfect(perfect, reached_us, reached_us))
        for start_us, end_us in _stretches(perfect, reached_us, through_us):
            [rest], _ = knowable([_perfect(perfect, start_us, end_us)])
            stretch, wrong = missing(schema, rest, COMPLETENESS, "the target does not have it yet")
            total.add(counted(stretch, [], [_times(rest)], wrong))
    return total


def _times(rows: pa.Table) -> Any:
    return rows.column("time").to_numpy()


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
