"""What one shard of a rule makes of a stream, before anybody can number it.

Outputs of one time are numbered in the order (deciding event's rank and ordinal, key, index) over all keys. A shard has
some of the keys, so it sends each output with that position, in columns beside its own. Whoever receives all
shards puts whole times together and numbers them: the stamps are those that one process would have given.

The ordinals of what travels count a shard's own outputs of a time. They tell duplicates and gaps, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from unerring.matching.outputs import Output, number
from unerring.matching.pieces import COLUMNS_MIN, Piece
from unerring.model import Column, ColumnType, Event, StreamSchema

if TYPE_CHECKING:
    from unerring.matching.kernel import OutputColumns
    from unerring.matching.kernel.columns import Array


class Unnumbered:
    """One output stream of a rule that has shards. `keys`: the types of the rule's key."""

    def __init__(self, schema: StreamSchema, keys: Sequence[ColumnType]) -> None:
        self.schema = schema
        prefix = "at"
        while any(column.name.lower().startswith(prefix) for column in schema.columns):
            prefix += "_"
        self._places = (f"{prefix}_rank", f"{prefix}_ordinal", f"{prefix}_index")
        self._keys = tuple(f"{prefix}_key{place}" for place in range(len(keys)))
        beside = (
            *(Column(name, ColumnType.INT) for name in self._places),
            *(Column(name, kind, nullable=True) for name, kind in zip(self._keys, keys, strict=True)),
        )
        self.sent: StreamSchema = msgspec.structs.replace(schema, columns=(*schema.columns, *beside), added=())
        """What travels."""

    def placed(self, found: list[Output] | OutputColumns) -> Piece:
        """A shard's outputs of whole times, in order, each with its position."""
        if isinstance(found, list) or len(found) < COLUMNS_MIN:
            outputs = found if isinstance(found, list) else found.outputs()
            return number(map(self._with_position, outputs), {self.schema.name: self.sent})
        from unerring.matching.chunks import Chunk
        from unerring.matching.kernel import OutputColumns
        from unerring.matching.kernel.columns import Numbers

        beside = zip((*self._places, *self._keys), (found.rank, found.ordinal, found.index, *found.keys), strict=True)
        columns = {**found.columns, **{name: Numbers(values) for name, values in beside}}
        place = (found.time, found.rank, found.ordinal, found.keys, found.index)
        return Chunk.numbered(OutputColumns(found.stream, *place, columns), self.sent)

    def replaced(self, events: Sequence[Event]) -> list[Event]:
        """Events of the stream, whole times of it, in the form in which a shard sends: each keeps its place."""
        keys = (None,) * len(self._keys)
        outputs = [Output(e.stream, e.stamp.time, 0, e.stamp.ordinal, keys, 0, e.payload) for e in events]
        return list(self.placed(outputs))

    def _with_position(self, output: Output) -> Output:
        place = (output.rank, output.ordinal, output.index)
        beside = zip((*self._places, *self._keys), (*place, *output.key), strict=True)
        return msgspec.structs.replace(output, payload={**output.payload, **dict(beside)})

    def numbered(self, pieces: Sequence[Piece]) -> Piece:
        """All that all shards made at some times, as events of the stream."""
        if all(isinstance(piece, list | tuple) for piece in pieces):
            return number(map(self._output, chain.from_iterable(pieces)), {self.schema.name: self.schema})
        import numpy as np

        from unerring.matching.chunks import Chunk
        from unerring.matching.kernel import OutputColumns

        batch = Chunk.joined(self.sent, pieces).batch
        rank, ordinal, index = (np.asarray(batch.columns[name].values) for name in self._places)
        keys = tuple(_key_values(batch.columns[name]) for name in self._keys)
        columns = {column.name: batch.columns[column.name] for column in self.schema.columns}
        outputs = OutputColumns(self.schema.name, batch.time, rank, ordinal, keys, index, columns)
        return Chunk.numbered(outputs, self.schema)

    def _output(self, event: Event) -> Output:
        payload = dict(event.payload)
        rank, ordinal, index = (payload.pop(name) or 0 for name in self._places)  # a column may be NULL in a message
        key = tuple(payload.pop(name) for name in self._keys)
        return Output(event.stream, event.stamp.time, rank, ordinal, key, index, payload)


def _key_values(column: Any) -> Array:
    """A key column as an output has it: NULL as None, and one NaN."""
    import numpy as np

    from unerring.matching.kernel.columns import Numbers
    from unerring.matching.kernel.outputs import values_of

    if isinstance(column, Numbers) and column.null is None:
        return column.values
    values = np.empty(len(column.codes if not isinstance(column, Numbers) else column.values), object)
    values[:] = list(_one_nan(values_of(column)))
    return values


def _one_nan(values: list[Any]) -> Iterator[Any]:
    return (math.nan if value != value else value for value in values)
