"""Files of events, block by block: CSV, JSON lines and Parquet. Rows that do not fit come out with their raw bytes.

A block is converted as a whole. Only when that fails is it halved until the bad rows stand alone, so that clean
files cost nothing extra and one bad row costs a few conversions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.quarantine import Reason
from unerring.log.rows import columns_of, row_type, time_of
from unerring.log.times import Times, needs_zone, without_zone, zoned
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ColumnType, SchemaError, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES: Final = 8 << 20
BLOCK_ROWS: Final = 1 << 18


class BadRow(msgspec.Struct, frozen=True):
    """A row of a file of which no event can be made."""

    row: int
    reason: Reason
    detail: str
    raw: bytes


class Block(msgspec.Struct, frozen=True):
    """Some rows of a file, in its order: columns `time`, the payload's, and `_sequence`, the row's number."""

    table: Any
    bad: list[BadRow]


def read_blocks(path: Path, schema: StreamSchema, times: Times) -> Iterator[Block]:
    """The file's rows; its kind is known by its name: .csv, .jsonl / .ndjson / .json, .parquet."""
    readers: dict[str, Callable[[Path, StreamSchema, Times], Iterator[Block]]] = {
        ".csv": _read_csv,
        ".jsonl": _read_json,
        ".ndjson": _read_json,
        ".json": _read_json,
        ".parquet": _read_parquet,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise CallerError(f"{path}: files named *{path.suffix} are not supported; use one of {', '.join(readers)}")
    try:
        yield from reader(path, schema, times)
    except OSError as error:
        raise CallerError(f"{path} cannot be read: {error.strerror or error}") from error


def guess_schema(path: Path, name: str, key: tuple[str, ...], times: Times) -> StreamSchema:
    """A stream declared after a file's own columns. Several events may carry one time: a file does not say."""
    import pyarrow as pa

    from unerring.model import Column

    sample = _sample(path)
    columns: list[Column] = []
    for field in sample:
        if field.name == times.column:
            continue
        kind = _column_type(field.type)
        if kind is None:
            raise SchemaError(f"{path}: column {field.name!r} has type {field.type}, which no stream column can hold")
        columns.append(Column(field.name, kind, nullable=field.name not in key and not pa.types.is_null(field.type)))
    if times.column not in sample.names:
        raise SchemaError(f"{path} has no column {times.column!r}; it has {', '.join(sample.names)}")
    return StreamSchema(name=name, columns=tuple(columns), key=key)


def _sample(path: Path) -> pa.Schema:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet as pq

    try:
        if path.suffix.lower() == ".parquet":
            return pq.read_schema(path)
        with path.open("rb") as file:
            head = file.read(1 << 20)
        if b"\n" in head and os.path.getsize(path) > len(head):
            head = head[: head.rindex(b"\n") + 1]
        reader = pa.csv.read_csv if path.suffix.lower() == ".csv" else pa.json.read_json
        schema: pa.Schema = reader(pa.BufferReader(head)).schema
        return schema
    except (pa.ArrowInvalid, OSError) as error:
        raise CallerError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def _column_type(arrow: Any) -> ColumnType | None:
    import pyarrow as pa

    kinds: list[tuple[Callable[[Any], bool], ColumnType]] = [
        (pa.types.is_boolean, ColumnType.BOOL),
        (pa.types.is_integer, ColumnType.INT),
        (pa.types.is_floating, ColumnType.FLOAT),
        (pa.types.is_timestamp, ColumnType.TIME),
        (pa.types.is_string, ColumnType.TEXT),
        (pa.types.is_large_string, ColumnType.TEXT),
        (pa.types.is_dictionary, ColumnType.TEXT),
        (pa.types.is_binary, ColumnType.BYTES),
        (pa.types.is_null, ColumnType.TEXT),
    ]
    return next((kind for fits, kind in kinds if fits(arrow)), None)


# --- CSV


def header_of(path: Path) -> tuple[str, ...]:
    """The names of a CSV file's columns; rows of other files name theirs themselves."""
    if path.suffix.lower() != ".csv":
        return ()
    with path.open("rb") as file:
        return tuple(_header(file.readline(BLOCK_BYTES)))


def _header(line: bytes) -> list[str]:
    import csv
    import io

    return next(csv.reader(io.StringIO(line.decode("utf-8-sig", "replace").rstrip("\r\n"))), [])


def _read_csv(path: Path, schema: StreamSchema, times: Times) -> Iterator[Block]:
    first = 0
    header: list[str] | None = None
    for block in _whole_records(path):
        records = block
        if header is None:
            line, _, records = block.partition(b"\n")
            header = _header(line)
            _require(path, schema, times, header)
        convert = _csv_converter(header, schema, times)
        table, bad, count = _convert_records(records, convert, schema, first)
        first += count
        yield Block(table, bad)


def _whole_records(path: Path) -> Iterator[bytes]:
    """Blocks that end between two records: at a line's end outside quotes."""
    rest = b""
    with path.open("rb") as file:
        while True:
            data = file.read(BLOCK_BYTES)
            block = rest + data
            if not data:
                if block:
                    yield block
                return
            cuts = _record_ends(block)
            if len(cuts) == 0:
                rest = block
                continue
            end = int(cuts[-1]) + 1
            rest = block[end:]
            yield block[:end]


def _record_ends(block: bytes) -> Any:
    """Where records end: newlines before which the number of quotes is even."""
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    quotes = np.flatnonzero(data == ord('"'))
    if len(quotes) == 0:
        return ends
    return ends[np.searchsorted(quotes, ends) % 2 == 0]


def _records(block: bytes) -> list[bytes]:
    start = 0
    records = []
    for end in [*_record_ends(block).tolist(), len(block) - 1]:
        record = block[start : end + 1]
        start = end + 1
        if record.strip():
            records.append(record)
    return records


def _csv_converter(header: list[str], schema: StreamSchema, times: Times) -> Callable[[bytes], pa.Table]:
    import pyarrow as pa
    import pyarrow.csv

    wanted = {field.name: field.type for field in schema.arrow()}
    wanted[times.column] = pa.string()
    texts = any(c.nullable and c.type is ColumnType.TEXT for c in schema.columns)

    def convert(records: bytes) -> pa.Table:
        return pa.csv.read_csv(
            pa.BufferReader(records),
            read_options=pa.csv.ReadOptions(column_names=header, use_threads=False),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=wanted,
                include_columns=list(wanted),
                null_values=[""],
                strings_can_be_null=texts,
                quoted_strings_can_be_null=False,
            ),
        )

    def typed(records: bytes) -> pa.Table:
        table = convert(records)
        return _typed(table, schema, times)

    return typed


def _convert_records(
    block: bytes, convert: Callable[[bytes], pa.Table], schema: StreamSchema, first: int
) -> tuple[pa.Table, list[BadRow], int]:
    import pyarrow as pa

    if not block.strip():
        return _empty(schema), [], 0
    try:
        table = convert(block)
    except (pa.ArrowInvalid, SchemaError):
        table = None
    if table is not None and not _has_nulls(table, schema):
        return _numbered(table, first, range(len(table))), [], len(table)
    records = _records(block)
    table, bad = _halve(
        len(records), lambda low, high: convert(b"".join(records[low:high])), lambda i: records[i], schema, first
    )
    return table, bad, len(records)


# --- JSON lines


def _read_json(path: Path, schema: StreamSchema, times: Times) -> Iterator[Block]:
    row = row_type(schema, **{times.column: int | str})
    decoder = msgspec.json.Decoder(row)
    unit_us = times.unit_us
    first = 0
    for block in _whole_lines(path):
        rows: list[Any] = []
        moments: list[int] = []
        numbers: list[int] = []
        bad: list[BadRow] = []
        lines = [line for line in block.split(b"\n") if line.strip()]
        for number, line in enumerate(lines, start=first):
            try:
                decoded = decoder.decode(line)
                moment = _within(time_of(zoned(getattr(decoded, times.column), times), unit_us))
            except msgspec.ValidationError as error:
                bad.append(BadRow(number, Reason.SCHEMA, str(error), line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:  # not an overflow: that is one of the time
                bad.append(BadRow(number, Reason.UNDECODABLE, str(error), line))
            except (ValueError, OverflowError, SchemaError) as error:
                bad.append(BadRow(number, Reason.SCHEMA, f"time {error}", line))
            else:
                rows.append(decoded)
                moments.append(moment)
                numbers.append(number)
        first += len(lines)
        yield Block(_table_of(rows, moments, numbers, schema), bad)


def _whole_lines(path: Path) -> Iterator[bytes]:
    rest = b""
    with path.open("rb") as file:
        while data := file.read(BLOCK_BYTES):
            head, newline, tail = data.rpartition(b"\n")
            if newline:
                yield rest + head
                rest = tail
            else:
                rest += data
    if rest.strip():
        yield rest


def _table_of(rows: list[Any], moments: list[int], numbers: list[int], schema: StreamSchema) -> pa.Table:
    import pyarrow as pa

    return pa.table(
        {
            "time": pa.array(moments, pa.int64()),
            **columns_of(rows, schema),
            "_sequence": pa.array(numbers, pa.int64()),
        }
    )


# --- Parquet


def _read_parquet(path: Path, schema: StreamSchema, times: Times) -> Iterator[Block]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise CallerError(f"{path} is not a complete Parquet file: {str(error).splitlines()[0]}") from None
    _require(path, schema, times, file.schema_arrow.names)
    wanted = list(dict.fromkeys([times.column, *(c.name for c in schema.columns)]))
    first = 0
    for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=wanted):
        block = block_of(pa.Table.from_batches([batch]), schema, times, first)
        first += batch.num_rows
        yield block


def json_of(table: pa.Table, row: int) -> bytes:
    """A row as JSON, for quarantine."""
    import pyarrow as pa

    values: dict[str, Any] = {}
    for name in table.column_names:
        cell = table.column(name)[row]
        try:
            values[name] = cell.as_py()
        except (ValueError, OverflowError):  # a time that no datetime can hold
            values[name] = cell.cast(pa.int64()).as_py()
    return msgspec.json.encode(values, enc_hook=repr)


def block_of(raw: pa.Table, schema: StreamSchema, times: Times, first: int) -> Block:
    """Rows of a table that holds at least the stream's columns, numbered from `first` on."""
    import pyarrow as pa

    def convert(low: int, high: int) -> pa.Table:
        return _typed(raw.slice(low, high - low), schema, times)

    def as_json(row: int) -> bytes:
        return json_of(raw, row)

    try:
        table = convert(0, len(raw))
    except (pa.ArrowInvalid, SchemaError):
        table = None
    if table is None or _has_nulls(table, schema):
        return Block(*_halve(len(raw), convert, as_json, schema, first))
    return Block(_numbered(table, first, range(len(table))), [])


# --- all kinds


def _require(path: Path, schema: StreamSchema, times: Times, columns: list[str]) -> None:
    for name in (times.column, *(column.name for column in schema.columns)):
        if name not in columns:
            raise SchemaError(
                f"{path} has no column {name!r}, which stream {schema.name} needs; it has {', '.join(columns)}"
            )


def _typed(table: pa.Table, schema: StreamSchema, times: Times) -> pa.Table:
    """The columns in the stream's types, with `time`; raises when a value does not fit."""
    import pyarrow as pa

    payload = [table.column(field.name).cast(field.type) for field in schema.arrow()]
    moments = _moments(table.column(times.column), times)
    names = ["time", *(c.name for c in schema.columns)]
    return pa.table([moments, *payload], names=names)


def _moments(column: pa.ChunkedArray, times: Times) -> pa.ChunkedArray:
    """Event times in microseconds; null where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        first = next((text.as_py() for text in column if text.is_valid), "")
        if first.lstrip("-").isdigit():
            column = column.cast(pa.int64())
        elif times.zone is not None and not first.endswith("Z") and "+" not in first[10:] and "-" not in first[10:]:
            column = column.cast(pa.timestamp("us"))
        elif times.zone is None and without_zone(first):
            raise SchemaError(needs_zone(times.column, first))
        else:
            column = column.cast(pa.timestamp("us", tz="UTC"))
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None:
            if times.zone is None:
                raise SchemaError(needs_zone(times.column, next((value.as_py() for value in column), "")))
            column = pc.assume_timezone(column, times.zone, ambiguous="earliest", nonexistent="earliest")
        column = pc.floor_temporal(column, unit="microsecond") if column.type.unit == "ns" else column
        return _in_range(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    unit_us = times.unit_us
    numbers = column.cast(pa.int64())
    if unit_us >= 1:
        return _in_range(pc.multiply_checked(numbers, int(unit_us)))
    return _in_range(_floored(numbers, round(1 / unit_us)))


def _floored(numbers: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    """Divided and rounded down, as times of every other kind are: Arrow rounds towards 0, which is up before 1970."""
    import pyarrow.compute as pc

    towards_zero = pc.divide(numbers, by)
    above = pc.greater(pc.multiply(towards_zero, by), numbers)
    return pc.subtract(towards_zero, above.cast("int64"))


def _in_range(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    bounds = pc.min_max(moments).as_py()
    if bounds["min"] is not None and not TIME_MIN < bounds["min"] <= bounds["max"] < TIME_MAX:
        raise SchemaError(
            f"times from {bounds['min']} to {bounds['max']} microseconds are out of range; check the time unit "
            "(--time-unit)"
        )
    return moments


def _within(moment: int) -> int:
    if not TIME_MIN < moment < TIME_MAX:
        raise SchemaError(f"{moment} microseconds is out of range; check the time unit (--time-unit)")
    return moment


def _has_nulls(table: pa.Table, schema: StreamSchema) -> bool:
    return any(table.column(name).null_count for name in _required(schema))


def _required(schema: StreamSchema) -> list[str]:
    return ["time", *(c.name for c in schema.columns if not c.nullable)]


def _numbered(table: pa.Table, first: int, kept: Any) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(first, first + len(kept)) if isinstance(kept, range) else np.asarray(kept) + first
    return table.append_column("_sequence", pa.array(numbers, pa.int64()))


def _empty(schema: StreamSchema) -> pa.Table:
    import pyarrow as pa

    fields = [pa.field("time", pa.int64()), *schema.arrow(), pa.field("_sequence", pa.int64())]
    return pa.schema(fields).empty_table()


def _halve(
    count: int,
    convert: Callable[[int, int], pa.Table],
    raw: Callable[[int], bytes],
    schema: StreamSchema,
    first: int,
) -> tuple[pa.Table, list[BadRow]]:
    """Convert what can be; the rows that cannot stand alone at the end."""
    import numpy as np
    import pyarrow as pa

    tables: list[pa.Table] = []
    bad: list[BadRow] = []
    pending = [(0, count)]
    while pending:
        low, high = pending.pop()
        try:
            table = convert(low, high)
            if len(table) != high - low:
                raise pa.ArrowInvalid(f"{len(table)} rows where {high - low} were expected")
        except (pa.ArrowInvalid, SchemaError) as error:
            if high - low == 1:
                bad.append(BadRow(first + low, Reason.SCHEMA, str(error).splitlines()[0], raw(low)))
            elif high > low:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
            continue
        fits = np.ones(high - low, dtype=bool)
        for name in _required(schema):
            if table.column(name).null_count:
                missing = table.column(name).is_null().to_numpy()
                rows = (low + np.flatnonzero(missing & fits)).tolist()
                bad += [BadRow(first + row, Reason.SCHEMA, f"{name} is missing", raw(row)) for row in rows]
                fits &= ~missing
        kept = np.flatnonzero(fits)
        tables.append(_numbered(table.take(pa.array(kept)), first + low, kept))
    return (pa.concat_tables(tables, promote_options="none") if tables else _empty(schema)), bad
