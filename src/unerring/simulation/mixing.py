"""A small engine for scenarios: every output depends on all inputs before it, in their order.

One input lost, repeated, changed or out of place changes almost every output after it. It also fires deadlines, so that
watermark without events matters, and gives several outputs at one time, so that ordinals matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from unerring.correlation import Batch, Fed, HandOver, Produced, Queue, committed
from unerring.matching import Chunk, Merge, Piece, Row
from unerring.model import TIME_MAX, TIME_MIN, Event, Stamp, StreamSchema

_PRIME = 2_147_483_647
_QUIET = 25
"""A deadline fires when nothing came for so long."""


class _State(msgspec.Struct, array_like=True):
    mixed: int = 7
    deadline: int = TIME_MAX
    through: int = TIME_MIN


class Mixing:
    """The rules of one node: one stream for each name in `outputs`. With `schemas` some answers are columns."""

    def __init__(self, outputs: Sequence[str], schemas: Sequence[StreamSchema] = ()) -> None:
        self.outputs = tuple(outputs)
        self._schemas = {schema.name: schema for schema in schemas}
        self.state = _State()

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        made: dict[str, list[Event]] = {stream: [] for stream in self.outputs}
        for row in rows:
            time = row.event.stamp.time
            self._fire(time - 1, made)
            self._take(time, time * 31 + row.rank * 7 + row.event.stamp.ordinal * 3 + (row.event.payload["v"] or 0))
            self._give(time, made)
            self.state.deadline = time + _QUIET
        self._fire(through, made)
        self.state.through = through
        columns = self._schemas if self.state.mixed % 3 else {}
        return Fed({stream: formed(events, columns.get(stream)) for stream, events in made.items()})

    def _fire(self, until: int, made: dict[str, list[Event]]) -> None:
        deadline = self.state.deadline
        if deadline <= until and deadline < TIME_MAX:
            self._mix(deadline)
            self._give(deadline, made)
            self.state.deadline = TIME_MAX

    def _take(self, time: int, value: int) -> None:
        self._mix(value)

    def _mix(self, value: int) -> None:
        self.state.mixed = (self.state.mixed * 48_271 + value) % _PRIME

    def _give(self, time: int, made: dict[str, list[Event]]) -> None:
        for number, stream in enumerate(self.outputs):
            for _ in range(_HOW_MANY[(self.state.mixed >> (3 * number)) % len(_HOW_MANY)]):
                events = made[stream]
                ordinal = events[-1].stamp.ordinal + 1 if events and events[-1].stamp.time == time else 0
                events.append(Event(stream, Stamp(time, ordinal), (), {"v": self.state.mixed % 1000}))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=_State)


_HOW_MANY = (0, 0, 1, 1, 1, 2, 0, 1)


class _Recalled(_State, array_like=True):
    total: int = 0
    window: list[tuple[int, int]] = []


class Recalling(Mixing):
    """Its outputs depend on the inputs of a while, so that its state can be made of the log from `LOOKS_BACK` before;
    and on `salt`: two of them are two versions of a rule."""

    LOOKS_BACK: Final = 400

    def __init__(self, outputs: Sequence[str], schemas: Sequence[StreamSchema] = (), salt: int = 7) -> None:
        super().__init__(outputs, schemas)
        self.salt = salt
        self.state = _Recalled()

    def _take(self, time: int, value: int) -> None:
        state, oldest = self.state, time - self.LOOKS_BACK + _QUIET  # a deadline looks as far back as its event does
        while state.window and state.window[0][0] <= oldest:
            state.total -= state.window.pop(0)[1]
        state.window.append((time, value * value % _PRIME))
        state.total += state.window[-1][1]
        state.mixed = (self.salt + state.total) % _PRIME
        self._mix(value)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=_Recalled)

    state: _Recalled


def formed(events: list[Event], schema: StreamSchema | None) -> Piece:
    """Events as columns, if a schema is given: what a machine does must not depend on it."""
    return events if schema is None else Chunk.of_events(schema, events)


class Reading:
    """An asynchronous engine of one node with one output `v`: it reads a log, and produces events when it is asked to.

    Without a checkpoint it reads the log from the start after a restart, and repeats what it has produced before; its
    replica's filter drops that. With one it goes on where its replica asks it to.
    """

    def __init__(self, inputs: Sequence[tuple[StreamSchema, int]], goes_on: bool = False) -> None:
        self._inputs = tuple(inputs)
        self._goes_on = goes_on
        self.begun = False
        self._produced = 0

    def begin(self, hand_over: HandOver) -> None:
        """Its replica (re)starts, or lacks something: produce it again."""
        self.begun = True
        self._produced = hand_over.counts["v"] if self._goes_on else 0

    def read(self, records: Mapping[str, bytes], through: Mapping[str, int]) -> Produced | None:
        """All that the log decides by now and was not produced yet, in stamp order."""
        merge = Merge(self._inputs, rows_max=1 << 62)
        reached = min(through.values())
        for schema, _ in self._inputs:
            for event in committed(records, schema.name):
                if event.stamp.time <= reached:
                    merge.push(event)
            merge.advance(schema.name, reached)
        if reached == TIME_MIN:
            return None
        rows, _ = merge.release()
        made = Mixing(("v",)).feed([row for row in rows if row.event.stamp.time <= reached], reached).outputs["v"]
        queue = Queue("v", events=made, watermark=reached)
        batch: Batch = queue.batch(min(self._produced, queue.count), queue.count)
        self._produced = queue.count
        return Produced((batch,))
