"""A partition: one bucket's keys of a level, with their state. It reads its rows from the log and runs the rules.

The same object runs in a streaming task, in a batch task and in a plain process; it knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.log import BadEvent, Chain, Quarantine, Reason, Span
from unerring.model import TIME_MIN, LogError, RuleError, invariant, protect, verified
from unerring.pipeline.feeding import Feed, feed_of
from unerring.pipeline.level import Level
from unerring.pipeline.spreading import Lane, columns_read, keys_of, owners_of, shuffled_lanes

if TYPE_CHECKING:
    import pyarrow as pa

_OLD: Final = b"\x94"
_REMEDY: Final = (
    "restore it from a copy, or remove the level's checkpoint, and it continues from a savepoint or the log"
)


class PartitionState(msgspec.Struct, frozen=True, array_like=True):
    """A partition's state as bytes: canonical, since the engines' snapshots are."""

    version: str
    bucket: int
    through_us: int
    engines: tuple[bytes, ...]


class Partition:
    """The rules of a level over one bucket's keys."""

    def __init__(self, level: Level, bucket: int) -> None:
        self.level = level
        self.bucket = bucket
        self.through_us = TIME_MIN
        self.rows = 0
        """How many rows the last advance read."""
        self._log = level.log
        self._feeds: tuple[Feed, ...] = tuple(feed_of(plan, dict(level.ranks)) for plan in level.plans)
        self._columns = columns_read(level)
        self._shuffled = shuffled_lanes(level)
        self._coded = any(feed.coded for feed in self._feeds)

    @property
    def keys(self) -> int:
        """How many keys have state."""
        return sum(feed.keys for feed in self._feeds)

    def begin(self, through_us: int) -> None:
        """Everything up to here is as if it had never been: where a query starts."""
        self.through_us = through_us

    def advance(
        self, through_us: int, spans: dict[str, list[Span]], handed: Mapping[Lane, pa.Table] | None = None
    ) -> dict[str, pa.Table]:
        """Run `(through, through_us]`; the staged outputs by stream. `handed`: rows that others read for it; without
        them it reads all itself."""
        invariant(through_us > self.through_us, f"a partition only moves on: {self.through_us} to {through_us}")
        chains = {schema.name: self.level.chain(schema.name, spans[schema.name]) for schema in self.level.inputs}
        held: dict[Lane, pa.Table] = dict(handed or {})
        if handed is not None:
            for lane in self._shuffled:
                held.setdefault(lane, self._nothing(chains[lane[0]]))
        outputs: dict[str, pa.Table] = {}
        for plan, feed in zip(self.level.plans, self._feeds, strict=True):
            tables: dict[str, pa.Table] = {}
            for name, key in keys_of(plan).items():
                if (name, key) not in held:
                    held[name, key] = self._rows(chains[name], key, through_us)
                tables[name] = held[name, key]
            outputs.update(feed.feed(tables, through_us))
            self._quarantine(plan.name, feed)
        self.through_us = through_us
        self.rows = sum(len(table) for table in held.values())
        return outputs

    def snapshot(self) -> bytes:
        """The state where the partition stands, with a digest of all of it: the same bytes whoever computes it."""
        engines = tuple(feed.snapshot() for feed in self._feeds)
        state = PartitionState(self.level.division, self.bucket, self.through_us, engines)
        return protect(msgspec.msgpack.encode(state))

    def restore(self, state: bytes, at_us: int, where: str) -> None:
        """Stand at `at_us`, by a state that was kept then. `where` it was kept: for what is wrong with it."""
        # An older release kept the array itself.
        data = state if state[:1] == _OLD else verified(state, where, _REMEDY)
        held = msgspec.msgpack.decode(data, type=PartitionState)
        if (held.version, held.bucket) != (self.level.division, self.bucket):
            raise RuleError(
                f"{where} is a state of other rules or another number of buckets than level {self.level.number} has; "
                "start with a new --data folder, or let the new rules take over with --take-over"
            )
        if held.through_us != at_us:
            raise LogError(f"{where} is the state at {held.through_us}, not at {at_us}: it was swapped; {_REMEDY}")
        for feed, engine in zip(self._feeds, held.engines, strict=True):
            feed.restore(engine)
        self.through_us = held.through_us

    def _nothing(self, chain: Chain) -> pa.Table:
        return chain.read(self.through_us, self.through_us, None, self._columns[chain.name])

    def _rows(self, chain: Chain, key: tuple[str, ...], through_us: int) -> pa.Table:
        """This bucket's rows: from its row groups if they are bucketed by this key, else by hashing all."""
        import pyarrow as pa

        columns = self._columns[chain.name]
        coded = self._coded
        if not key and self.bucket != 0:
            return self._nothing(chain)
        if key and key == chain.schema.key:
            return chain.read(self.through_us, through_us, self.bucket, columns, coded=coded)
        table = chain.read(self.through_us, through_us, None, columns, coded=coded)
        if not key:
            return table
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
