"""Reads a segment that was written with another spread of keys than the reader has: by filter, and only where it must.

Ranges that nest need one bucket of the file; what was spread by the hash modulo the number of buckets needs all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from unerring.log.buckets import Spread
from unerring.model import StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

    Read = Callable[[int | None, list[str]], pa.Table]
    """Some columns of one bucket of a segment as it was written, or of all of it."""


def rows_of(
    read: Read, written: Spread, wanted: Spread, bucket: int | None, columns: list[str], schema: StreamSchema
) -> pa.Table:
    """The rows of one bucket of the wanted spread (or all), in stamp order."""
    import pyarrow as pa

    if bucket is None:
        return in_stamp_order(read(None, columns), written.buckets)
    held = written.holding(bucket, wanted)
    if written == wanted:
        return read(bucket, columns)
    names = [*columns, *(name for name in schema.key if name not in columns)]
    table = pa.concat_tables([read(number, names) for number in held])
    owners = wanted.of_columns([table.column(name) for name in schema.key], len(table))
    return in_stamp_order(table.filter(pa.array(owners == bucket)).select(columns), len(held))


def in_stamp_order(table: pa.Table, runs: int) -> pa.Table:
    """Rows of several buckets, each of them in order, as one."""
    import numpy as np
    import pyarrow as pa

    if runs < 2 or not len(table):
        return table
    times = table.column("time").to_numpy()
    order = np.argsort(times, kind="stable")  # it takes sorted runs as they are
    if (times[order[1:]] == times[order[:-1]]).any():
        order = np.lexsort((table.column("ordinal").to_numpy(), times))
    return table.take(pa.array(order))
