"""A sealed stream cut into chunks: what there is after a stamp, whole times, whatever the segments are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unerring.log import Chain
from unerring.model import Stamp
from unerring.sinks.port import as_chunk

if TYPE_CHECKING:
    import pyarrow as pa


def chunks(chain: Chain, after: Stamp | None, rows_max: int) -> Iterator[pa.Table]:
    """What the chain is known to hold after a stamp, in chunks of about so many rows. None ends inside a time, so one
    is larger where a single time has more. Segments are read one by one; a small one does not make a small chunk."""
    import pyarrow as pa

    names = [column.name for column in chain.schema.columns]
    from_us = chain.base.from_us if after is None else max(after.time - 1, chain.base.from_us)
    held: list[pa.Table] = []
    for span in chain.spans(from_us, chain.through_us):
        rows = _after(chain.read(max(from_us, span.from_us), span.through_us, columns=names), after)
        if len(rows):
            held.append(rows)
        while sum(map(len, held)) >= rows_max:
            whole = pa.concat_tables(held)
            cut = _end_of_time(whole, rows_max)
            yield as_chunk(whole.slice(0, cut), chain.schema)
            held = [whole.slice(cut)] if cut < len(whole) else []
    if held:
        yield as_chunk(pa.concat_tables(held), chain.schema)


def _after(rows: pa.Table, after: Stamp | None) -> pa.Table:
    """A position may lie inside a time, whose ordinals it tells apart."""
    if after is None or not len(rows):
        return rows
    times, ordinals = rows.column("time").to_numpy(), rows.column("ordinal").to_numpy()
    past = (times < after.time) | ((times == after.time) & (ordinals <= after.ordinal))
    return rows.slice(int(past.sum()))


def _end_of_time(rows: pa.Table, count: int) -> int:
    import numpy as np

    times = rows.column("time").to_numpy()
    return int(np.searchsorted(times, times[count - 1], side="right"))
