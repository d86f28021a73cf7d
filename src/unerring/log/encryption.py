"""Secret columns between rows and files: encrypted where a file is written, decrypted where its rows are asked for.

A file has a binary column `_encrypted_NAME` in the place of a secret column. A cell is the id of the ring's key and the
value, encrypted by AES-SIV (RFC 5297) with the data key of the row's key; column and time are authenticated with it.
The mode needs no nonce: the same row gives the same bytes, whoever writes it, and nothing else ever does. What it shows
is that two values are equal, in one column, of one key, at one time. NULL stays NULL.

Whoever moves rows between files (compaction, a change of buckets) moves the cells as they are, and needs no key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.keys import ID_BYTES, Keys, the_ring
from unerring.model import UNDECODABLE, ColumnType, Key, LogError, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX: Final = "_encrypted_"
"""Before a column's name. A stream's own columns begin with a letter."""
_BLOB: Final = b"unerring encrypted 1\n"
_PATH: Final = struct.Struct(">I")


def ring_of(schema: StreamSchema) -> Keys:
    """The keys of a stream that has secret columns."""
    return the_ring(f"stream {schema.name} has secret columns ({', '.join(schema.secret)})")


def file_schema(columns: pa.Schema, schema: StreamSchema) -> pa.Schema:
    """The columns that a file has for those of a stream."""
    import pyarrow as pa

    for name in schema.secret:
        at = columns.get_field_index(name)
        if at >= 0:
            columns = columns.set(at, pa.field(PREFIX + name, pa.binary()))
    return columns


def encrypted(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """Rows as a file has them. A value whose data key was erased is not kept."""
    if not schema.secret:
        return table
    import pyarrow as pa

    ring = ring_of(schema)
    keys, times = row_keys(table, schema), table.column("time").to_pylist()
    for name in schema.secret:
        at = table.schema.get_field_index(name)
        values = _plain(table.column(at), schema.column(name).type)
        cells = [
            None if value is None else _cell(ring, schema.name, name, key, time, value)
            for key, time, value in zip(keys, times, values, strict=True)
        ]
        table = table.set_column(at, pa.field(PREFIX + name, pa.binary()), pa.array(cells, pa.binary()))
    return table


def decrypted(
    read: Callable[[list[str]], pa.Table],
    names: list[str],
    schema: StreamSchema,
    coded: tuple[str, ...],
    veiled: bool,
    where: str,
) -> pa.Table:
    """The asked columns of rows that `read` gives as they lie in a file. `veiled`: NULL for what is secret, without a
    key. `where`: the file, for an error."""
    hidden = [name for name in names if name in schema.secret]
    if not hidden:
        return read(names)
    import pyarrow as pa

    lying = [PREFIX + name if name in hidden else name for name in names]
    more = [] if veiled else [name for name in ("time", *schema.key) if name not in names]
    table = read([*lying, *more])
    ring = None if veiled else ring_of(schema)
    wanted = schema.arrow()
    for name in hidden:
        at = table.schema.get_field_index(PREFIX + name)
        kind = wanted.field(name).type
        if ring is None:
            values = pa.nulls(len(table), kind)
        else:
            values = _values(ring, table, name, schema, kind, where)
        values = values.dictionary_encode() if name in coded else values
        table = table.set_column(at, pa.field(name, values.type), values)
    return table.select(names)


def erased_rows(table: pa.Table, schema: StreamSchema, columns: list[str]) -> list[bool]:
    """Of which rows, as they lie in a file, a value of some secret columns was erased."""
    ring = ring_of(schema)
    keys = row_keys(table, schema)
    gone = {key: ring.is_erased(schema.name, key) for key in dict.fromkeys(keys)}
    cells = [table.column(PREFIX + name).is_valid().to_pylist() for name in columns]
    return [gone[key] and any(there) for key, *there in zip(keys, *cells, strict=True)]


def _values(ring: Keys, table: pa.Table, name: str, schema: StreamSchema, kind: Any, where: str) -> pa.Array:
    import pyarrow as pa

    cells = table.column(PREFIX + name).to_pylist()
    found = [
        None if cell is None else _value(ring, schema.name, name, key, time, cell, where)
        for key, time, cell in zip(row_keys(table, schema), table.column("time").to_pylist(), cells, strict=True)
    ]
    if schema.column(name).type is ColumnType.TIME:
        return pa.array(found, pa.int64()).cast(kind)
    try:
        return pa.array(found, kind)
    except pa.ArrowInvalid:
        raise LogError(
            f"stream {schema.name}: secret column {name!r} became {schema.column(name).type.value}, and an event from "
            "before has a value that this cannot hold exactly; give the new type a column of its own"
        ) from None


def _cell(ring: Keys, stream: str, column: str, key: Key, time: int, value: Any) -> bytes:
    cipher = ring.cipher(ring.newest, stream, key)
    if cipher is None:
        return ring.newest
    return ring.newest + cipher.encrypt(msgspec.msgpack.encode(value), place_of(column, time))


def place_of(column: str, time: int) -> list[bytes]:
    """What is authenticated with a value: a cell is good in its own place alone."""
    return [column.encode(), time.to_bytes(8, signed=True)]


def _value(ring: Keys, stream: str, column: str, key: Key, time: int, cell: bytes, where: str) -> Any:
    from cryptography.exceptions import InvalidTag

    cipher = ring.cipher(cell[:ID_BYTES], stream, key) if len(cell) > ID_BYTES else None
    if cipher is None:
        return None
    try:
        data = cipher.decrypt(cell[ID_BYTES:], place_of(column, time))
    except InvalidTag:
        raise LogError(
            f"{where}: the value of secret column {column!r} at {time} is not what was encrypted there: it was changed "
            "or moved, or the ring was; restore it from a copy"
        ) from None
    return msgspec.msgpack.decode(data)


def row_keys(table: pa.Table, schema: StreamSchema, names: tuple[str, ...] | None = None) -> list[Key]:
    """The key of each row (or its values of other columns), with a TIME as microseconds."""
    names = schema.key if names is None else names
    if not names:
        return [()] * len(table)
    columns = [_plain(table.column(name), schema.column(name).type) for name in names]
    return list(zip(*columns, strict=True))


def _plain(column: Any, kind: ColumnType) -> list[Any]:
    import pyarrow as pa

    values: list[Any] = (column.cast(pa.int64()) if kind is ColumnType.TIME else column).to_pylist()
    return values


# --- bytes that are no rows ---


def encrypt_bytes(data: bytes, stream: str, key: Key, what: str) -> bytes:
    """Bytes that hold secret values of one key of a stream, or with the key () of any."""
    ring = the_ring(f"the {what} of stream {stream} may hold secret values")
    cipher = ring.cipher(ring.newest, stream, key)
    named = msgspec.msgpack.encode(key)
    head = _BLOB + ring.newest + _PATH.pack(len(named)) + named
    return head if cipher is None else head + cipher.encrypt(data, [what.encode()])


def is_encrypted(data: bytes) -> bool:
    return data.startswith(_BLOB)


def decrypt_bytes(data: bytes, stream: str, what: str, where: str) -> bytes | None:
    """What was encrypted; None: its data key was erased."""
    from cryptography.exceptions import InvalidTag

    ring = the_ring(f"{where} may hold secret values")
    at = len(_BLOB) + ID_BYTES
    try:
        end = at + _PATH.size + _PATH.unpack_from(data, at)[0]
        key = msgspec.msgpack.decode(data[at + _PATH.size : end], type=tuple[Any, ...])
        if not all(isinstance(value, bool | int | float | str | bytes) for value in key):
            raise msgspec.DecodeError("no key")
        cipher = ring.cipher(data[len(_BLOB) : at], stream, key) if len(data) > end else None
        return None if cipher is None else cipher.decrypt(data[end:], [what.encode()])
    except (InvalidTag, struct.error, *UNDECODABLE):
        raise LogError(f"{where} is damaged: it is not what was encrypted there; restore it from a copy") from None
