"""A sealed stream cut into chunks: what there is after a stamp, whole times, whatever the segments are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unerring.log import Chain
from unerring.model import Stamp
from unerring.sinks.port import ORDINAL_MAX, as_chunk

if TYPE_CHECKING:
    import pyarrow as pa


def start_of(chain: Chain, after: Stamp | None) -> int:
    """From where a chain is read to find what is after a stamp, which may lie inside a time."""
    if after is None:
        return chain.base.from_us
    return max(after.time - (after.ordinal < ORDINAL_MAX), chain.base.from_us)


def chunks(chain: Chain, after: Stamp | None, rows_max: int, from_us: int | None = None) -> Iterator[pa.Table]:
    """What the chain is known to hold after a stamp, in chunks of about so many rows. None ends inside a time, so one
    is larger where a single time has more. Segments are read one by one; a small one does not make a small chunk.
    `from_us`: where whoever has read before goes on."""
    import pyarrow as pa

    names = [column.name for column in chain.schema.columns]
    from_us = start_of(chain, after) if from_us is None else from_us
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
