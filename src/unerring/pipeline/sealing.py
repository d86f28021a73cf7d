"""The driver's part: what all buckets gave for an interval becomes numbered events, sealed once.

Outputs of one time and stream are numbered in the order (deciding event's rank and ordinal, key, index). Since an
interval holds whole times and all buckets, the numbers do not depend on where a micro-batch ended or who computed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unerring.log import Chain, Sealed, with_origin
from unerring.model import InvariantBreach, RuleError, invariant

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
    there = np.where(null, 0, 1)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        coded = column.dictionary_encode()
        words = coded.dictionary.to_pylist()
        places = np.zeros(len(words) + 1, np.int64)
        places[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
        return [there, places[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]]
    numbers = column.cast(pa.int64()) if not pa.types.is_boolean(column.type) else column.cast(pa.int8())
    return [there, pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)]


def seal_interval(chain: Chain, table: pa.Table | None, through_us: int, rule: str) -> int:
    """Extend an output chain through the interval's end; how many events that added.

    Another driver may have been faster, with other batch boundaries. What it sealed is what we have, since outputs
    follow from the inputs alone; the rest is ours to seal. Nothing is sealed twice: segments are named by their start.
    """
    import numpy as np

    added = 0
    while chain.refresh() < through_us:
        before_us = chain.through_us
        rest = table
        if table is not None:
            rest = table.slice(int(np.searchsorted(table.column("time").to_numpy(), before_us, side="right")))
        rows = with_origin(rest, chain.schema) if rest is not None else chain.read(through_us, through_us)
        sealed: Sealed = chain.seal(through_us, rows, rule=rule)
        if sealed.won:
            added += len(rows)
        elif sealed.footer.through_us == through_us:
            agree_on(chain, before_us, through_us, rest)
    return added


def agree_on(chain: Chain, from_us: int, through_us: int, table: pa.Table | None) -> None:
    """Another driver sealed this interval while this one computed it: both must have found the same."""
    import numpy as np

    from_us = max(from_us, chain.base.from_us)
    if from_us >= through_us:
        return
    ours = chain.read(through_us, through_us) if table is None else with_origin(table, chain.schema)
    first = int(np.searchsorted(ours.column("time").to_numpy(), from_us, side="right"))
    _compare(chain, from_us, through_us, ours.slice(first))


def _compare(chain: Chain, from_us: int, through_us: int, ours: pa.Table) -> None:
    """Two drivers computed one interval: a difference means that the rule is not a function of its inputs."""
    theirs = chain.read(from_us, through_us)
    if not theirs.select(["time", "ordinal"]).equals(ours.select(["time", "ordinal"])):
        raise RuleError(
            f"stream {chain.name}: another run sealed ({from_us}, {through_us}] with other outputs than this one has; "
            "the rule is not deterministic (a clock, randomness, an operator with hidden state)"
        )


def check_whole(found: list[tuple[int, int, int]], buckets: int, batch: int) -> tuple[int, int]:
    """The interval of a micro-batch, which every bucket must have answered exactly once."""
    intervals = {(from_us, through_us) for _, from_us, through_us in found}
    answered = sorted(bucket for bucket, _, _ in found)
    if len(intervals) != 1 or answered != list(range(buckets)):
        raise InvariantBreach(f"batch {batch}: buckets {answered} answered for intervals {sorted(intervals)}")
    [(from_us, through_us)] = intervals
    invariant(from_us < through_us, "a micro-batch covers time")
    return from_us, through_us
