"""The engine port, for both kinds of engine.

A synchronous engine is fed whole times in merge order and answers at once. An asynchronous one (Spark) reads the event
log on its own, and hands over its outputs in stamp order later, as `Produced` messages to its replica; its snapshot is
its own checkpoint. Both must be deterministic: the outputs are a function of the input streams alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from unerring.matching import (
    COLUMNS_MIN,
    Merged,
    Output,
    Piece,
    Row,
    Unnumbered,
    fed_together,
    matcher as rules,
    number,
)
from unerring.model import Event, Stamp, StreamSchema

if TYPE_CHECKING:
    from unerring.matching import OutputColumns


class Fed(msgspec.Struct, frozen=True):
    """An engine's answer: outputs in stamp order, by stream, and the events that it could not take."""

    outputs: Mapping[str, Piece]
    quarantined: list[rules.Quarantined] = []


class Engine(Protocol):
    """Fed and answers at once."""

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        """All input events up to time `through` that were not fed before, in merge order."""
        ...

    def snapshot(self) -> bytes:
        """The whole state; the same after any split of the same input into feeds."""
        ...

    def restore(self, state: bytes) -> None:
        """Continue from a snapshot of this or another replica."""
        ...


class HandOver(msgspec.Struct, frozen=True):
    """A replica's request to an asynchronous engine: hand over, from now on or again, what follows these stamps."""

    after: Mapping[str, Stamp]
    counts: Mapping[str, int]
    """How many events each stream has up to there: what follows is numbered on from it."""


class Hosting:
    """The rules of one node as one engine: each is fed the rows of its inputs, and makes its own streams."""

    def __init__(self, engines: Sequence[rules.Matcher], shard: Mapping[str, Unnumbered] | None = None) -> None:
        """`shard`: they have some of the keys only, and send what they make of each stream in this form."""
        self.engines = list(engines)
        self._shard = shard or {}
        self._schemas: dict[str, StreamSchema] = {}
        for engine in self.engines:
            self._schemas.update(rules.schemas_of(engine.plan))
        self._shared = fed_together(self.engines)

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        outputs: dict[str, Piece] = {}
        quarantined: list[rules.Quarantined] = []
        together = self._together(rows, through)
        found: list[Output] | OutputColumns
        for place, engine in enumerate(self.engines):
            if place in together:
                found = together[place]
            elif isinstance(rows, Merged) and (columns := _as_columns(engine, rows, through)) is not None:
                found = columns
            else:
                found = engine.feed(rows, through)
            if len(found):
                outputs |= self._placed(found) if self._shard else _numbered(found, self._schemas)
            quarantined += engine.take_quarantined()
        return Fed(outputs, quarantined)

    def _together(self, rows: Sequence[Row], through: int) -> dict[int, list[Output] | OutputColumns]:
        """What the compiled rules that read one stream find, by their place: they are fed together."""
        found: dict[int, list[Output] | OutputColumns] = {}
        for stream, places, shared in self._shared:
            if isinstance(rows, Merged):
                columns = shared.feed_merged(rows, stream, through)
                if columns is not None:
                    found.update({place: columns.get(at, []) for at, place in enumerate(places)})
                continue
            outputs = shared.feed_rows([row for row in rows if row.event.stream == stream], through)
            if outputs is not None:
                found.update({place: outputs.get(at, []) for at, place in enumerate(places)})
        return found

    def _placed(self, found: list[Output] | OutputColumns) -> dict[str, Piece]:
        if not isinstance(found, list):
            return {found.stream: self._shard[found.stream].placed(found)}
        by_stream: dict[str, list[Output]] = {}
        for output in found:
            by_stream.setdefault(output.stream, []).append(output)
        return {stream: self._shard[stream].placed(outputs) for stream, outputs in by_stream.items()}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode([engine.snapshot() for engine in self.engines])

    def restore(self, state: bytes) -> None:
        for engine, part in zip(self.engines, msgspec.msgpack.decode(state, type=list[bytes]), strict=True):
            engine.restore(part)


def _as_columns(engine: rules.Matcher, rows: Merged, through: int) -> OutputColumns | None:
    """What a compiled rule finds in columns. None: it must be fed objects."""
    from unerring.matching import Kernel

    return engine.feed_merged(rows, through) if isinstance(engine, Kernel) else None


def _numbered(found: list[Output] | OutputColumns, schemas: Mapping[str, StreamSchema]) -> dict[str, Piece]:
    """Outputs of whole times as events, by stream: columns if they are many."""
    if not isinstance(found, list) and len(found) >= COLUMNS_MIN:
        from unerring.matching import Chunk

        return {found.stream: Chunk.numbered(found, schemas[found.stream])}
    events: dict[str, list[Event]] = {}
    for event in number(found if isinstance(found, list) else found.outputs(), schemas):
        events.setdefault(event.stream, []).append(event)
    return dict(events)
