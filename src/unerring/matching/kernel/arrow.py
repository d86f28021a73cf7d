"""A kernel's columns from and to Arrow's. Numbers are not copied where Arrow has them in one piece."""

from __future__ import annotations

from typing import Any

import numpy as np

from unerring.matching.kernel.columns import Column, Numbers, Texts
from unerring.model import ColumnType


def from_arrow(column: Any, kind: ColumnType) -> Column:
    """A column of a table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind in (ColumnType.TEXT, ColumnType.BYTES):
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        coded = coded.unify_dictionaries().combine_chunks()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.chunk(0) if coded.num_chunks else pa.array([], coded.type)
        codes = coded.indices.fill_null(-1) if coded.indices.null_count else coded.indices
        return Texts(codes.to_numpy().astype(np.int32, copy=False), tuple(coded.dictionary.to_pylist()))
    if kind is ColumnType.TIME:
        column = column.cast(pa.int64())
    null = column.is_null().to_numpy() if column.null_count else None
    if null is not None:
        column = pc.fill_null(column, False if kind is ColumnType.BOOL else 0)
    return Numbers(column.to_numpy(), null)


def to_arrow(column: Column, kind: Any) -> Any:
    """An array of an Arrow type."""
    import pyarrow as pa

    if isinstance(column, Texts):
        codes = pa.array(column.codes, pa.int32(), mask=column.codes < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array(column.values, kind)).cast(kind)
    if column.values.dtype == object:
        return values_to_arrow(column.values, kind)
    return pa.array(column.values, mask=column.null).cast(kind)


def values_to_arrow(values: Any, kind: Any) -> Any:
    """An array of values, objects among them, as one of an Arrow type."""
    import pyarrow as pa

    if values.dtype == object:
        return pa.array(values.tolist(), pa.int64() if pa.types.is_timestamp(kind) else kind).cast(kind)
    return pa.array(values).cast(kind)
