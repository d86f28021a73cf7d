"""Small engines for scenarios: every output depends on all inputs before it, or all of its key, in their order.

One input lost, repeated, changed or out of place changes almost every output after it. It also fires deadlines, so that
watermark without events matters, and gives several outputs at one time, so that ordinals matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from unerring.correlation import Batch, Fed, HandOver, Produced, Queue, committed
from unerring.matching import RANK_DEADLINE, Chunk, Merge, Output, Piece, Row, Unnumbered, number
from unerring.model import TIME_MAX, TIME_MIN, Event, Stamp, StreamSchema

_PRIME = 2_147_483_647
_QUIET = 25
"""A deadline fires when nothing came for so long."""
_KEY_QUIET = 80


class _State(msgspec.Struct, array_like=True):
    mixed: int = 7
    deadline: int = TIME_MAX
    through: int = TIME_MIN


class Mixing:
    """The rules of one node: one stream for each name in `outputs`. With `schemas` some answers are columns; with
    `keyed` they have a key."""

    def __init__(self, outputs: Sequence[str], schemas: Sequence[StreamSchema] = (), keyed: bool = False) -> None:
        self.outputs = tuple(outputs)
        self._schemas = {schema.name: schema for schema in schemas}
        self._keyed = keyed
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
        self.state.mixed = _mixed(self.state.mixed, value)

    def _give(self, time: int, made: dict[str, list[Event]]) -> None:
        for place, stream in enumerate(self.outputs):
            for _ in range(_HOW_MANY[(self.state.mixed >> (3 * place)) % len(_HOW_MANY)]):
                events = made[stream]
                ordinal = events[-1].stamp.ordinal + 1 if events and events[-1].stamp.time == time else 0
                payload = payload_of(self.state.mixed % 1000, self._keyed)
                events.append(Event(stream, Stamp(time, ordinal), tuple(payload.values())[1:], payload))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=_State)


_HOW_MANY = (0, 0, 1, 1, 1, 2, 0, 1)
_HOW_MANY_A_KEY = (0, 0, 1, 0, 1, 2, 0, 1)
KEYS = 7


def payload_of(value: int, keyed: bool) -> dict[str, int]:
    """An event's values; in a tree that has shards, a key of few different ones."""
    return {"v": value, "k": value % KEYS} if keyed else {"v": value}


class KeyedMixing:
    """The same with a state for each key. A shard has some of the keys, and numbers nothing: `shard` is the form in
    which it sends what it makes of each stream."""

    quiet = _KEY_QUIET
    """After so long without an event of a key it gives outputs for that."""

    def __init__(
        self, schemas: Sequence[StreamSchema], columns: bool = False, shard: Mapping[str, Unnumbered] | None = None
    ) -> None:
        self._schemas = {schema.name: schema for schema in schemas}
        self._columns = columns
        self._shard = shard or {}
        self.keys: dict[int, _State] = {}

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        found: list[Output] = []
        for row in rows:
            event, key = row.event, row.event.payload["k"]
            time, ordinal = event.stamp
            state = self.keys.setdefault(key, self._begin())
            self._fire(key, state, time - 1, found)
            self._take(state, time, time * 31 + row.rank * 7 + ordinal * 3 + (event.payload["v"] or 0))
            self._give(key, state, (time, row.rank, ordinal), found)
            state.deadline = time + self.quiet
        for key in sorted(self.keys):
            self._fire(key, self.keys[key], through, found)
        return Fed({stream: self._formed(stream, found) for stream in self._schemas})

    def _begin(self) -> _State:
        return _State()

    def _take(self, state: Any, time: int, value: int) -> None:
        state.mixed = _mixed(state.mixed, value)

    def _fire(self, key: int, state: _State, until: int, found: list[Output]) -> None:
        if state.deadline <= until and state.deadline < TIME_MAX:
            state.mixed = _mixed(state.mixed, state.deadline)
            self._give(key, state, (state.deadline, RANK_DEADLINE, 0), found)
            state.deadline = TIME_MAX

    def _give(self, key: int, state: _State, place: tuple[int, int, int], found: list[Output]) -> None:
        for turn, stream in enumerate(self._schemas):
            for index in range(_HOW_MANY_A_KEY[(state.mixed >> (3 * turn)) % len(_HOW_MANY_A_KEY)]):
                payload = payload_of((state.mixed >> 3 * index) % 1000, True)
                found.append(Output(stream, *place, (key,), index, payload))

    def _formed(self, stream: str, found: list[Output]) -> Piece:
        own = [output for output in found if output.stream == stream]
        schema = self._schemas[stream]
        if self._shard:
            schema, events = self._shard[stream].sent, list(self._shard[stream].placed(own))
        else:
            events = number(own, self._schemas)
        return formed(events, schema if self._columns and len(found) % 3 else None)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(sorted(self.keys.items()))

    def restore(self, state: bytes) -> None:
        self.keys = dict(msgspec.msgpack.decode(state, type=list[tuple[int, _State]]))


def _mixed(before: int, value: int) -> int:
    return (before * 48_271 + value) % _PRIME


class _Recalled(_State, array_like=True):
    total: int = 0
    window: list[tuple[int, int]] = []

    def recall(self, time: int, value: int, oldest: int, salt: int) -> None:
        """One more input; those up to `oldest` count no more. A deadline looks as far back as its event does."""
        while self.window and self.window[0][0] <= oldest:
            self.total -= self.window.pop(0)[1]
        self.window.append((time, value * value % _PRIME))
        self.total += self.window[-1][1]
        self.mixed = _mixed((salt + self.total) % _PRIME, value)


class Recalling(Mixing):
    """Its outputs depend on the inputs of a while, so that its state can be made of the log from `LOOKS_BACK` before;
    and on `salt`: two of them are two versions of a rule."""

    LOOKS_BACK: Final = 400

    def __init__(
        self, outputs: Sequence[str], schemas: Sequence[StreamSchema] = (), salt: int = 7, keyed: bool = False
    ) -> None:
        super().__init__(outputs, schemas, keyed)
        self.salt = salt
        self.state = _Recalled()

    def _take(self, time: int, value: int) -> None:
        self.state.recall(time, value, time - self.LOOKS_BACK + _QUIET, self.salt)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=_Recalled)

    state: _Recalled


class KeyedRecalling(KeyedMixing):
    """The same with a state for each key."""

    def __init__(
        self,
        schemas: Sequence[StreamSchema],
        columns: bool = False,
        shard: Mapping[str, Unnumbered] | None = None,
        salt: int = 7,
    ) -> None:
        super().__init__(schemas, columns, shard)
        self.salt = salt

    def _begin(self) -> _State:
        return _Recalled()

    def _take(self, state: Any, time: int, value: int) -> None:
        state.recall(time, value, time - Recalling.LOOKS_BACK + self.quiet, self.salt)

    def restore(self, state: bytes) -> None:
        self.keys = dict(msgspec.msgpack.decode(state, type=list[tuple[int, _Recalled]]))


def formed(events: list[Event], schema: StreamSchema | None) -> Piece:
    """Events as columns, if a schema is given: what a machine does must not depend on it."""
    return events if schema is None else Chunk.of_events(schema, events)


def after(log: list[Event], last: Stamp) -> list[Event]:
    """The events of a log, which is in the order of stamps, behind one."""
    return log[bisect_right(log, last, key=lambda event: event.stamp) :]


class Reading:
    """An asynchronous engine of one node with one output `v`: it reads a log, and produces events when it is asked to.

    Without a checkpoint it reads the log from the start after a restart, and repeats what it has produced before; its
    replica's filter drops that. With one it goes on where its replica asks it to.
    """

    def __init__(self, inputs: Sequence[tuple[StreamSchema, int]], goes_on: bool = False, keyed: bool = False) -> None:
        self._inputs = tuple(inputs)
        self._keyed = keyed
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
        mixing = Mixing(("v",), keyed=self._keyed)
        made = mixing.feed([row for row in rows if row.event.stamp.time <= reached], reached).outputs["v"]
        queue = Queue("v", events=made, watermark=reached)
        batch: Batch = queue.batch(min(self._produced, queue.count), queue.count)
        self._produced = queue.count
        return Produced((batch,))
