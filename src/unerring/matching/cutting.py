"""Cutting a stream by the hash of a key: each part has the events of one range of hashes, with the stamps they have.

Who owns a key follows from the key alone, by the log's own spread: the same for events as objects and as columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Spread
from unerring.matching.pieces import Piece
from unerring.model import ColumnType, Key, StreamSchema

if TYPE_CHECKING:
    from unerring.matching.chunks import Chunk
    from unerring.matching.kernel.columns import Array, Column

_BLANK: Final[dict[ColumnType, Any]] = {ColumnType.TEXT: "", ColumnType.BYTES: b"", ColumnType.BOOL: False}
"""NULL in a key belongs to some part, whichever: the rule refuses the event there."""
_PLAIN: Final[dict[ColumnType, type]] = {
    ColumnType.INT: int,
    ColumnType.FLOAT: float,
    ColumnType.TIME: int,
    ColumnType.BOOL: bool,
}
"""A column of integers may be given a bool, one of floats an integer: as columns they are what the schema says."""


class Cutter:
    """Cuts pieces of one stream into `count` parts by the values of some columns."""

    def __init__(self, schema: StreamSchema, key: Sequence[str], count: int) -> None:
        self.count = count
        self._spread = Spread(count)
        self._key = tuple((name, schema.column(name).type) for name in key)
        self._texts: tuple[Any, ...] | None = None
        self._owners_of_texts: Array | None = None
        """The owners of the texts of the chunk seen last: many chunks share theirs."""

    def owner(self, payload: Mapping[str, Any]) -> int:
        """The part of an event."""
        return self._spread.of(tuple(_plain(payload[name], kind) for name, kind in self._key))

    def cut(self, piece: Piece) -> list[Piece]:
        """All parts of a piece, each in order."""
        if isinstance(piece, list | tuple):
            parts: list[Any] = [[] for _ in range(self.count)]
            for event in piece:
                parts[self.owner(event.payload)].append(event)
            return parts
        owners = self._owners(piece)
        return [_rows(piece, owners == number) for number in range(self.count)]

    def part(self, piece: Piece, number: int) -> Piece:
        """One part of a piece."""
        if isinstance(piece, list | tuple):
            return [event for event in piece if self.owner(event.payload) == number]
        return _rows(piece, self._owners(piece) == number)

    def _owners(self, chunk: Chunk) -> Array:
        columns = [(chunk.batch.columns[name], kind) for name, kind in self._key]
        if len(columns) == 1 and columns[0][1] in (ColumnType.TEXT, ColumnType.BYTES):
            return self._owners_by_text(*columns[0])
        return self._spread.of_columns([_arrow(column, kind) for column, kind in columns], len(chunk))

    def _owners_by_text(self, column: Any, kind: ColumnType) -> Array:
        import numpy as np

        if self._owners_of_texts is None or column.values is not self._texts:
            # The code of NULL is -1: its owner stands last.
            owners = [self._spread.of((text,)) for text in (*column.values, _BLANK[kind])]
            self._texts, self._owners_of_texts = column.values, np.array(owners, np.int64)
        owned: Array = self._owners_of_texts[column.codes]
        return owned


def owns(types: Sequence[ColumnType], number: int, count: int, keys: Sequence[Key]) -> list[bool]:
    """Which of a rule's keys belong to one of `count` parts."""
    spread = Spread(count)
    return [spread.of(tuple(_plain(v, kind) for v, kind in zip(key, types, strict=True))) == number for key in keys]


def _plain(value: Any, kind: ColumnType) -> Any:
    if value is None:
        return _BLANK.get(kind, _PLAIN.get(kind, int)(0))
    return _PLAIN[kind](value) if kind in _PLAIN else value


def _rows(chunk: Chunk, wanted: Array) -> Piece:
    import numpy as np

    from unerring.matching.chunks import Chunk

    rows = np.flatnonzero(wanted)
    if len(rows) == len(chunk):
        return chunk
    return Chunk(chunk.schema, chunk.batch.taken(rows, chunk.batch.columns)) if len(rows) else ()


def _arrow(column: Column, kind: ColumnType) -> Any:
    """A key column without NULL."""
    import numpy as np
    import pyarrow as pa

    from unerring.matching.kernel.columns import Texts

    if isinstance(column, Texts):
        codes = np.where(column.codes < 0, len(column.values), column.codes)
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([*column.values, _BLANK[kind]]))
    values = (
        column.values if column.null is None else np.where(column.null, np.zeros_like(column.values), column.values)
    )
    return pa.array(values)
