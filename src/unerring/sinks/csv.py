"""Chunks as the CSV that PostgreSQL copies, and back: whole columns at a time, every value bit for bit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from unerring.model import ColumnType, StreamSchema
from unerring.sinks.port import target_schema

if TYPE_CHECKING:
    import pyarrow as pa


def encoded(chunk: pa.Table) -> memoryview:
    """Texts are quoted and nulls are not, so that an empty text is none. Bytes are hexadecimal."""
    import pyarrow as pa
    from pyarrow import csv

    for at, field in enumerate(chunk.schema):
        if pa.types.is_binary(field.type):
            texts = [None if value is None else f"\\x{value.hex()}" for value in chunk.column(at).to_pylist()]
            chunk = chunk.set_column(at, field.name, pa.array(texts, pa.string()))
    sink = pa.BufferOutputStream()
    csv.write_csv(chunk, sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
    return memoryview(sink.getvalue())


def decoded(data: bytes, schema: StreamSchema) -> pa.Table:
    """A chunk of what PostgreSQL wrote: times as microseconds, bytes as hexadecimal digits."""
    import pyarrow as pa
    from pyarrow import csv

    wanted = target_schema(schema)
    if not data:
        return wanted.empty_table()
    kinds = {"time": ColumnType.TIME, "ordinal": ColumnType.INT} | {one.name: one.type for one in schema.columns}
    spelled: dict[ColumnType, Any] = {ColumnType.TIME: pa.int64(), ColumnType.BYTES: pa.string()}
    convert = csv.ConvertOptions(
        column_types={name: spelled.get(kind, wanted.field(name).type) for name, kind in kinds.items()},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
        true_values=["t"],
        false_values=["f"],
    )
    # A line of one column that is null is an empty line; there are always two columns more.
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(column_names=list(kinds), block_size=max(1 << 20, len(data))),
        csv.ParseOptions(newlines_in_values=True),
        convert,
    )
    columns = []
    for name, kind in kinds.items():
        column = table.column(name)
        if kind is ColumnType.BYTES:
            values = [None if text is None else bytes.fromhex(text) for text in column.to_pylist()]
            column = pa.chunked_array([pa.array(values, pa.binary())])
        columns.append(column.cast(wanted.field(name).type))
    return pa.Table.from_arrays(columns, schema=wanted)


def plain(name: str) -> str:
    """A name as PostgreSQL's statements have it, whatever letters are in it."""
    if re.fullmatch(r"[^\0]{1,63}", name) is None:
        raise ValueError(f"{name!r} is not a name")
    return '"' + name.replace('"', '""') + '"'
