"""Whether what comes in as an event is one of its stream: a rule that is fed another raises, or counts nonsense."""

from __future__ import annotations

from typing import Any, Final

from unerring.model import ColumnType, Event, StreamSchema

_TYPES: Final[dict[ColumnType, tuple[type, ...]]] = {
    ColumnType.BOOL: (bool,),
    ColumnType.INT: (int, bool),
    ColumnType.FLOAT: (float, int, bool),
    ColumnType.TEXT: (str,),
    ColumnType.BYTES: (bytes,),
    ColumnType.TIME: (int,),
}
_INT_MAX: Final = (1 << 63) - 1
_SHAPES_MAX: Final = 1_000


class Shapes:
    """The names and types that payloads of one stream have; those that were found right are remembered."""

    def __init__(self, schema: StreamSchema) -> None:
        self.schema = schema
        self._columns = {column.name: _TYPES[column.type] for column in schema.columns}
        self._integers = tuple(column.name for column in schema.columns if int in _TYPES[column.type])
        self._right: dict[tuple[Any, ...], bool] = {}

    def fits(self, event: Event) -> bool:
        payload = event.payload
        shape = (*payload, *map(type, payload.values()))
        if shape not in self._right:
            if not self._judge(payload):
                return False
            if len(self._right) < _SHAPES_MAX:
                self._right[shape] = True
        for name in self._integers:
            value = payload[name]
            if value is not None and not -_INT_MAX - 1 <= value <= _INT_MAX and type(value) is int:
                return False
        return True

    def _judge(self, payload: dict[str, Any]) -> bool:
        """All columns, none besides, each with its type or NULL."""
        if payload.keys() != self._columns.keys():
            return False
        return all(value is None or type(value) in self._columns[name] for name, value in payload.items())
