"""Payloads into columns: many at once, checked against their stream by their types."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.quarantine import Reason
from unerring.log.rows import columns_of, row_type
from unerring.model import UNDECODABLE

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.model import StreamSchema

BadPayload = tuple[int, Reason, str]
"""Its place among the payloads, why it is none of the stream's, and the details."""

_MAPS: Final = frozenset(bytes((head,)) for head in (*range(0x80, 0x90), 0xDE, 0xDF))


class Payloads:
    """Reads the payloads of one stream: msgpack arrays in the order of its columns, or maps by their names."""

    def __init__(self, schema: StreamSchema, bytes_max: int) -> None:
        self._schema = schema
        self._bytes_max = bytes_max
        self._named = row_type(schema)
        row = msgspec.defstruct(
            f"{schema.name}Array",
            [
                (field.name, field.type, None) if field.name in schema.added else (field.name, field.type)
                for field in msgspec.structs.fields(self._named)
            ],
            array_like=True,
            forbid_unknown_fields=True,
            gc=False,
        )
        self._arrays = msgspec.msgpack.Decoder(list[row])  # type: ignore[valid-type]
        self._maps = msgspec.msgpack.Decoder(list[self._named])  # type: ignore[name-defined]

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, list[BadPayload]]:
        """The columns of those that fit, in their order, and the others."""
        import pyarrow as pa

        if max(map(len, payloads), default=0) <= self._bytes_max:
            try:
                # All are as the first one, or the careful way finds which are not.
                many = self._maps if payloads and _is_map(payloads[0]) else self._arrays
                rows = many.decode(_array_head(len(payloads)) + b"".join(payloads))
            except UNDECODABLE:
                pass
            else:
                return pa.table(columns_of(rows, self._schema)), []
        return self._read_carefully(payloads)

    def _read_carefully(self, payloads: Sequence[bytes]) -> tuple[pa.Table, list[BadPayload]]:
        """One at a time: some do not fit."""
        import pyarrow as pa

        rows: list[Any] = []
        bad: list[BadPayload] = []
        for at, payload in enumerate(payloads):
            try:
                rows.append(self._read_payload(payload))
            except msgspec.ValidationError as error:
                bad.append((at, Reason.SCHEMA, str(error)))
            except UNDECODABLE as error:
                bad.append((at, Reason.UNDECODABLE, str(error)))
            except _TooLarge as error:
                bad.append((at, Reason.TOO_LARGE, str(error)))
        return pa.table(columns_of(rows, self._schema)), bad

    def _read_payload(self, payload: bytes) -> Any:
        if len(payload) > self._bytes_max:
            raise _TooLarge(f"{len(payload)} bytes")
        record = msgspec.msgpack.decode(payload)
        names = [column.name for column in self._schema.columns]
        fewest = len(names) - len(self._schema.added)  # a publisher may not know the columns that came later
        if isinstance(record, list) and fewest <= len(record) <= len(names):
            record = dict(zip(names, record, strict=False))
        if not isinstance(record, dict):
            raise msgspec.DecodeError(f"{type(record).__name__} where a record was expected")
        return msgspec.convert(record, self._named)


class _TooLarge(Exception):
    """More bytes than an event may have."""


def raw_of(payload: dict[str, Any]) -> bytes:
    """A payload as bytes for quarantine, and to know its size."""
    return msgspec.msgpack.encode(payload, enc_hook=repr)


def _is_map(payload: bytes) -> bool:
    """Whether a msgpack value is a map, by its first byte."""
    return payload[:1] in _MAPS


def _array_head(count: int) -> bytes:
    return struct.pack(">BI", 0xDD, count)
