"""A partition: one bucket's keys of a level, with their state. It reads its rows from the log and runs the rules.

The same object runs in a streaming task, in a batch task and in a plain process; it knows nothing of Spark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.log import BadEvent, Chain, Quarantine, Reason, Span, decrypt_bytes, encrypt_bytes, is_encrypted
from unerring.model import TIME_MIN, UNDECODABLE, Key, LogError, RuleError, invariant, protect, verified
from unerring.pipeline.feeding import Feed, feed_of, key_table
from unerring.pipeline.level import Level, keys_of
from unerring.pipeline.spreading import Lane, columns_read, lanes_of, owners_of
from unerring.rules import Plan
from unerring.tracing import tracer

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.matching import Room
    from unerring.pipeline.shared import SharedLane

FORMAT: Final = 2
_OWNER: Final = "*states"
"""In the place of a stream, so that no key of one is erased with it. Streams begin with a letter."""
_STATE: Final = "state"
_REMEDY: Final = "restore it from a copy, or remove the run's states, and the level begins again with the log"


class PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """A partition's state as bytes. A whole one is canonical, since the matchers' snapshots are."""

    format: int
    version: str
    bucket: int
    buckets: int
    through_us: int
    trail: tuple[int, ...]
    """The times of the states that this one rests on: a whole one, then those that changed it. Empty: it is whole."""
    engines: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(len(engine) for engine in self.engines)


class Kept(msgspec.Struct, frozen=True):
    """The state that was kept of a partition where it stood last."""

    trail: tuple[int, ...]
    """The times of the states that the next one rests on, the whole one first."""
    whole_bytes: int
    delta_bytes: int
    """Of all that rest on the whole one."""


def read_state(data: bytes, level: Level, bucket: int, buckets: int, at_us: int, where: str) -> PartitionState:
    """A state that was kept at a time. `where`: for what is wrong with it."""
    content = verified(data, where, _REMEDY)
    if is_encrypted(content):
        content = decrypt_bytes(content, _OWNER, _STATE, where) or b""
    try:
        state = msgspec.msgpack.decode(content, type=PartitionState)
    except UNDECODABLE:
        raise LogError(f"{where} is a state in the form of another release; {_REMEDY}") from None
    if state.format != FORMAT:
        raise LogError(f"{where} is a state of format {state.format}, and this release reads {FORMAT}; {_REMEDY}")
    if (state.version, state.bucket, state.buckets) != (level.version, bucket, buckets):
        raise RuleError(
            f"{where} is a state of other rules or another number of buckets than level {level.label} has; "
            "start with a new --data folder, or let the new rules take over with `unerring upgrade`"
        )
    if state.through_us != at_us:
        raise LogError(f"{where} is the state at {state.through_us}, not at {at_us}: it was swapped; {_REMEDY}")
    return state


def trail_of(data: bytes, place: tuple[int, int, int], where: str) -> tuple[int, ...]:
    """The times of the states that one rests on, for who does not know its level. `place`: the time, bucket and number
    of buckets that its name says. Nothing of an encrypted one, or of one in the form of another release."""
    content = verified(data, where, _REMEDY)
    if is_encrypted(content):
        return ()
    try:
        state = msgspec.msgpack.decode(content, type=PartitionState)
    except UNDECODABLE:
        return ()
    if (state.through_us, state.bucket, state.buckets) != place:
        raise LogError(
            f"{where} is the state of partition {state.bucket} at {state.through_us}: it was swapped; {_REMEDY}"
        )
    return state.trail


class Partition:
    """The rules of a level over one bucket's keys."""

    def __init__(self, level: Level, bucket: int) -> None:
        self.level = level
        self.bucket = bucket
        self.through_us = TIME_MIN
        self.rows = 0
        """How many rows the last advance read."""
        self.kept: Kept | None = None
        """What `states` has kept of it last."""
        self._log = level.log
        self._feeds: tuple[Feed, ...] = tuple(feed_of(plan, dict(level.ranks)) for plan in level.plans)
        self._declared: dict[str, Chain] = {}
        self._columns = columns_read(level)
        self._lanes = lanes_of(level)
        self._empty: dict[Lane, pa.Table] = {}
        self._traces = tracer()
        self._coded = any(feed.coded for feed in self._feeds)
        self._shared = self._shared_lanes() if self._coded else []
        """The compiled rules that read one lane."""

    @property
    def keys(self) -> int:
        """How many keys have state."""
        return sum(feed.keys for feed in self._feeds)

    @property
    def state_bytes(self) -> int:
        """The size of the state of its compiled rules, in memory or in files."""
        return sum(feed.state_bytes for feed in self._feeds)

    @property
    def kept_bytes(self) -> int:
        """The size of what was kept of it last, on the store: all that it is restored from."""
        return 0 if self.kept is None else self.kept.whole_bytes + self.kept.delta_bytes

    def move(self, room: Room) -> None:
        """Have the state of its compiled rules in files."""
        for feed in self._feeds:
            feed.move(room)

    def _hold(self, coming_bytes: int = 0) -> None:
        """Keep within the memory that the level's state may have."""
        level = self.level
        if level.state_memory_bytes is not None:
            from unerring.pipeline.spilling import STATE_MEMORY

            STATE_MEMORY.hold(self, level.state_memory_bytes, level.spill_folder, coming_bytes)

    def begin(self, through_us: int) -> None:
        """Everything up to here is as if it had never been: where a query starts."""
        self.through_us = through_us

    def advance(self, through_us: int, spans: dict[str, list[Span]]) -> dict[str, pa.Table]:
        """Read and run `(through, through_us]`; the staged outputs by stream."""
        return self.run(through_us, self.read(self.through_us, through_us, spans, {}))

    def read(
        self,
        from_us: int,
        through_us: int,
        spans: dict[str, list[Span]],
        handed: Mapping[Lane, pa.Table | None],
    ) -> dict[Lane, pa.Table]:
        """This partition's rows of `(from, through]`. `handed`: those that others read for it; None: there are none.
        `spans`: where they are; of streams without any it looks itself."""
        chains: dict[str, Chain] = {}
        held: dict[Lane, pa.Table] = {}
        for lane in self._lanes:
            name, key = lane
            rows = handed.get(lane)
            if rows is None and lane in handed:
                rows = self._nothing(lane)
            elif rows is None:
                chain = chains.get(name) or chains.setdefault(name, self._chain(name, spans.get(name)))
                rows = self._rows(chain, key, from_us, through_us)
            held[lane] = rows
        return held

    def lanes_of(self, stream: str) -> list[Lane]:
        """Those of a stream."""
        return [lane for lane in self._lanes if lane[0] == stream]

    def own_rows(self, table: pa.Table, lane: Lane) -> pa.Table | None:
        """Of rows of a stream with all its columns, those that this partition would have read; None: there are none."""
        stream, key = lane
        own = self._owned(table, key)
        if not len(own):
            return None
        own = own.select(["time", "ordinal", *self._columns[stream]])
        return _coded(own) if self._coded else own

    def run(self, through_us: int, held: Mapping[Lane, pa.Table]) -> dict[str, pa.Table]:
        """Run the rules over the rows of `(through, through_us]`; the staged outputs by stream."""
        invariant(through_us > self.through_us, f"a partition only moves on: {self.through_us} to {through_us}")
        began_ns = 0 if self._traces is None else time.time_ns()
        outputs: dict[str, pa.Table] = {}
        fed_together: dict[int, dict[str, pa.Table]] = {}
        for shared in self._shared:
            fed_together.update(shared.feed(held[shared.lane], through_us))
        for place, (plan, feed) in enumerate(zip(self.level.plans, self._feeds, strict=True)):
            if place in fed_together:
                outputs.update(fed_together[place])
            else:
                outputs.update(feed.feed({lane[0]: held[lane] for lane in keys_of(plan).items()}, through_us))
            self._quarantine(plan.name, feed)
        self._hold()
        if self._traces is not None:
            self._trace(outputs, held, began_ns)
        self.through_us = through_us
        self.rows = sum(len(table) for table in held.values())
        return outputs

    def _trace(self, outputs: Mapping[str, pa.Table], held: Mapping[Lane, pa.Table], began_ns: int) -> None:
        traces = self._traces
        inputs = {lane[0]: table.column("time").to_numpy() for lane, table in held.items()}
        about = {"unerring.engine": "spark", "unerring.level": self.level.label, "unerring.partition": self.bucket}
        for stream, table in outputs.items():
            if traces is not None and len(table):
                traces.ran(stream, table.column("time").to_numpy(), inputs, began_ns, about)

    def _shared_lanes(self) -> list[SharedLane]:
        from unerring.pipeline.shared import shared_lanes

        return shared_lanes(self.level, self._feeds)

    def warm(self) -> None:
        """Have the rules compiled, so that they are quick from the first row on."""
        spans: dict[str, list[Span]] = {schema.name: [] for schema in self.level.inputs}
        held = self.read(self.through_us, self.through_us, spans, {})
        for plan, feed in zip(self.level.plans, self._feeds, strict=True):
            feed.warm({lane[0]: held[lane] for lane in keys_of(plan).items()})

    # --- state ---

    def state(self) -> PartitionState:
        """All of the state where the partition stands."""
        return self._state((), tuple(feed.snapshot() for feed in self._feeds))

    def snapshot(self) -> bytes:
        """The same as bytes, with a digest of all of it: the same bytes whoever computes it."""
        return encoded(self.state(), self.level)

    def delta(self, trail: tuple[int, ...]) -> PartitionState:
        """What changed since the last mark or delta, which was kept. `trail`: all that it rests on."""
        return self._state(trail, tuple(feed.delta() for feed in self._feeds))

    def mark(self) -> None:
        """From now on note what changes."""
        for feed in self._feeds:
            feed.mark()

    def restore(self, trails: Sequence[Sequence[PartitionState]], at_us: int) -> None:
        """Stand at `at_us`. A trail is a whole state and those that changed it, in order; there are several where the
        keys were spread over another number of partitions: of them, this one takes its own."""
        states = [state for trail in trails for state in trail]
        invariant(all(len(state.engines) == len(self._feeds) for state in states), "a state of these very rules")
        self._hold(coming_bytes=sum(state.size for state in states))
        alike = len(trails) == 1 and all(state.buckets == self.level.buckets for state in states)
        for number, (plan, feed) in enumerate(zip(self.level.plans, self._feeds, strict=True)):
            pieces = [[state.engines[number] for state in trail] for trail in trails]
            feed.restore_from(pieces, None if alike else partial(self._own_keys, plan))
        self.through_us = at_us

    def _own_keys(self, plan: Plan, keys: list[Key]) -> list[bool]:
        """Which keys of a rule belong to this partition."""
        spread = next(iter(keys_of(plan).values()))
        if not spread or not keys:
            return [self.bucket == 0] * len(keys)
        table = key_table(plan, keys)
        return [bool(owner == self.bucket) for owner in owners_of(table, tuple(table.column_names), self.level.spread)]

    def _state(self, trail: tuple[int, ...], engines: tuple[bytes, ...]) -> PartitionState:
        return PartitionState(
            FORMAT, self.level.version, self.bucket, self.level.buckets, self.through_us, trail, engines
        )

    def _chain(self, stream: str, known: list[Span] | None) -> Chain:
        """An input's chain. How a stream was declared is read once: it does not change."""
        declared = self._declared.get(stream)
        if declared is None:
            self._declared[stream] = declared = self.level.chain(stream, [])
        spread = self.level.spread
        return Chain(declared.store, declared.folder, declared.schema, spread.buckets, known, ranges=spread.ranges)

    def _rows(self, chain: Chain, key: tuple[str, ...], from_us: int, through_us: int) -> pa.Table:
        """This bucket's rows: from its row groups if they are bucketed by this key, else by hashing all."""
        columns = self._columns[chain.name]
        coded = self._coded
        if not key and self.bucket != 0:
            return chain.read(through_us, through_us, None, columns)
        if key and key == chain.schema.key:
            return chain.read(from_us, through_us, self.bucket, columns, coded=coded)
        return self._owned(chain.read(from_us, through_us, None, columns, coded=coded), key)

    def _nothing(self, lane: Lane) -> pa.Table:
        """No rows of a lane."""
        if lane not in self._empty:
            self._empty[lane] = self._rows(self._chain(lane[0], []), lane[1], self.through_us, self.through_us)
        return self._empty[lane]

    def _owned(self, table: pa.Table, key: tuple[str, ...]) -> pa.Table:
        """Those of all rows of a stream that belong to this partition."""
        import pyarrow as pa

        if not key:
            return table if self.bucket == 0 else table.slice(0, 0)
        return table.filter(pa.array(owners_of(table, key, self.level.spread) == self.bucket))

    def _quarantine(self, rule: str, feed: Feed) -> None:
        """Keep what a rule could not digest beside its output stream."""
        refused = feed.take_quarantined()
        if not refused:
            return
        bad = [
            BadEvent(
                event.stream, event.stamp.time, event.stamp.ordinal, Reason.RULE, reason, msgspec.json.encode(event)
            )
            for event, reason in refused
        ]
        Quarantine(self._log.store, rule).add(bad)


def _coded(table: pa.Table) -> pa.Table:
    """Texts as dictionary codes, as a chain gives them."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            codes = table.column(place).combine_chunks().dictionary_encode()
            table = table.set_column(place, field.with_type(codes.type), codes)
    return table


def encoded(state: PartitionState, level: Level) -> bytes:
    """A state as it is kept: encrypted as a whole, if it may hold secret values of whatever keys."""
    content = msgspec.msgpack.encode(state)
    secret = any(schema.secret for schema in (*level.inputs, *level.outputs))
    return protect(encrypt_bytes(content, _OWNER, (), _STATE) if secret else content)
