"""The driver's part: what all buckets gave for an interval becomes numbered events.

Outputs of one time and stream are numbered in the order (deciding event's rank and ordinal, key, index). Since an
interval holds whole times and all buckets, the numbers do not depend on where a micro-batch ended or who computed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unerring.model import InvariantBreach, invariant

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Ordinals = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None
    """Rows of a part, and their ordinals."""


def numbered(parts: list[pa.Table]) -> pa.Table:
    """Staged outputs of one stream and interval, in order, with their ordinals."""
    import pyarrow as pa

    table = pa.concat_tables(parts).combine_chunks()
    table = table.take(pa.array(output_order(table)))
    own = [name for name in table.column_names if not name.startswith("_")]
    return table.select(own).append_column("ordinal", pa.array(_counted(table.column("time").to_numpy())))


def ordinals_of(places: list[pa.Table]) -> list[Ordinals]:
    """For each part of an interval its rows whose ordinal is not 0, from the places of its rows in the output order
    (`time`, `_rank`, `_ordinal`; where that does not decide, `_key0`…, `_index`). Only rows that share a time are
    looked at."""
    import numpy as np
    import pyarrow as pa

    times = [place.column("time").to_numpy() for place in places]
    ordered = np.sort(np.concatenate(times), kind="stable")  # it takes sorted runs as they are
    shared = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(shared):
        return [None] * len(places)
    shared = np.unique(shared)
    chosen = [np.flatnonzero(shared[np.minimum(np.searchsorted(shared, t), len(shared) - 1)] == t) for t in times]
    rows = [place.take(pa.array(rows)) for place, rows in zip(places, chosen, strict=True)]
    table = pa.concat_tables(rows, promote_options="default").combine_chunks()
    order = output_order(table)
    ordinals = np.zeros(len(table), np.int64)
    ordinals[order] = _counted(table.column("time").to_numpy()[order])
    ends = np.cumsum([len(some) for some in chosen])[:-1]
    return [
        (some[numbers != 0], numbers[numbers != 0])
        for some, numbers in zip(chosen, np.split(ordinals, ends), strict=True)
    ]


def _counted(times: Any) -> Any:
    """The ordinals of rows that are in order: they count within a time."""
    import numpy as np

    first = np.ones(len(times), dtype=bool)
    first[1:] = times[1:] != times[:-1]
    starts = np.maximum.accumulate(np.where(first, np.arange(len(times)), 0))
    return np.arange(len(times)) - starts


def output_order(table: pa.Table) -> Any:
    """Row numbers in output order. Only rows that share a time are looked at more closely."""
    import numpy as np
    import pyarrow as pa

    times = table.column("time").to_numpy()
    rising = bool((times[1:] >= times[:-1]).all())
    # Partitions' outputs are sorted by time already, and this sort takes such runs as they are.
    order = np.arange(len(times)) if rising else np.argsort(times, kind="stable")
    ordered = times if rising else times[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        places = np.flatnonzero(np.append(same, False) | np.append(False, same))
        rows = order[places]
        order[places] = rows[_order_within_times(table.take(pa.array(rows)))]
    return order


def _order_within_times(table: pa.Table) -> Any:
    """Row numbers in output order; keys are only looked at where positions tie, as deadlines may."""
    import numpy as np

    columns = [table.column(name).to_numpy() for name in ("time", "_rank", "_ordinal")]
    order = np.lexsort(columns[::-1])
    ties = np.ones(max(len(table) - 1, 0), dtype=bool)
    for column in columns:
        ordered = column[order]
        ties &= ordered[1:] == ordered[:-1]
    if not ties.any() or "_index" not in table.column_names:
        return order
    keys: list[Any] = []
    for name in table.column_names:
        if name.startswith("_key"):
            keys += _key_ranks(table.column(name).combine_chunks())
    index = table.column("_index").fill_null(0).to_numpy()
    return np.lexsort([index, *keys[::-1], *columns[::-1]])


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
