"""The driver's part: what all buckets gave for an interval becomes numbered events.

Outputs of one time and stream are numbered in the order (deciding event's rank and ordinal, key, index). Since an
interval holds whole times and all buckets, the numbers do not depend on where a micro-batch ended or who computed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unerring.model import InvariantBreach, invariant

if TYPE_CHECKING:
    import pyarrow as pa

ORDER = ("_rank", "_ordinal", "_index")
"""Columns of staged outputs besides `time`, the key (`_key0`…) and the payload."""


def numbered(parts: list[pa.Table]) -> pa.Table:
    """Staged outputs of one stream and interval, in order, with their ordinals."""
    import numpy as np
    import pyarrow as pa

    table = pa.concat_tables(parts).combine_chunks()
    table = table.take(pa.array(_order(table)))
    times = table.column("time").to_numpy()
    first = np.ones(len(table), dtype=bool)
    first[1:] = times[1:] != times[:-1]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(table)), 0))
    own = [name for name in table.column_names if not name.startswith("_")]
    return table.select(own).append_column("ordinal", pa.array(np.arange(len(table)) - starts))


def _order(table: pa.Table) -> Any:
    """Row numbers in output order; keys are only looked at where positions tie, as deadlines may."""
    import numpy as np

    times = table.column("time").to_numpy()
    order = np.argsort(times, kind="stable")  # buckets come sorted already, and this sort takes such runs as they are
    if not (np.diff(times[order]) == 0).any():
        return order
    columns = [times, *(table.column(name).to_numpy() for name in ("_rank", "_ordinal"))]
    order = np.lexsort(columns[::-1])
    ties = np.ones(max(len(table) - 1, 0), dtype=bool)
    for column in columns:
        ordered = column[order]
        ties &= ordered[1:] == ordered[:-1]
    if not ties.any():
        return order
    keys: list[Any] = []
    for name in table.column_names:
        if name.startswith("_key"):
            keys += _key_ranks(table.column(name).combine_chunks())
    return np.lexsort([table.column("_index").to_numpy(), *keys[::-1], *columns[::-1]])


def _key_ranks(column: Any) -> list[Any]:
    """Sortable columns for one key column: NULL first, then values, NaN last."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    null = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        nan = np.isnan(values) & ~null
        return [np.where(null, 0, np.where(nan, 2, 1)), np.where(null | nan, 0.0, values)]
    filled = np.where(null, 0, 1)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        coded = column.dictionary_encode()
        words = coded.dictionary.to_pylist()
        places = np.zeros(len(words) + 1, np.int64)
        places[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
        return [filled, places[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]]
    numbers = column.cast(pa.int64()) if not pa.types.is_boolean(column.type) else column.cast(pa.int8())
    return [filled, pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)]


def check_whole(answers: list[tuple[int, int, int]], buckets: int, batch: int) -> tuple[int, int]:
    """The interval of a micro-batch, which every bucket must have answered exactly once."""
    intervals = {(from_us, through_us) for _, from_us, through_us in answers}
    answered = sorted(bucket for bucket, _, _ in answers)
    if len(intervals) != 1 or answered != list(range(buckets)):
        raise InvariantBreach(f"batch {batch}: buckets {answered} answered for intervals {sorted(intervals)}")
    [(from_us, through_us)] = intervals
    invariant(from_us < through_us, "a micro-batch covers time")
    return from_us, through_us
