"""The programs around a log, as processes run them: writers, drivers that seal outputs, compactors, retention,
rescaling, readers.

Each is a function that runs until its work is done or it is killed, and is started again then. They hold nothing but
what they read from the store, which is what a process has after it was killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from unerring.log import (
    Chain,
    CompactionConfig,
    Compactor,
    EventLog,
    LogWriter,
    PartRows,
    Positions,
    Store,
    WriterConfig,
    cut,
    seal_interval,
    write_part,
)
from unerring.model import BEFORE_ALL, TIME_MIN, LogError, Stamp, schema_of, stream

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS: Final = 2
PRODUCER: Final = "producer"
STATES: Final = "states"
RULE: Final = "even"
COMPACTION: Final = CompactionConfig(
    rows_max=24, fan=2, segments_min=2, segments_max=4, newest_kept=1, period_us=1 << 60
)


@stream(key="machine", name="Source")
class Source:
    machine: str
    number: int


@stream(key="machine", name="Found")
class Found:
    machine: str
    number: int


SOURCE: Final = schema_of(Source)
FOUND: Final = schema_of(Found)


class Row(msgspec.Struct, frozen=True, order=True):
    """An event as a reader sees it."""

    time: int
    ordinal: int
    machine: str
    number: int


@dataclass
class Truth:
    """What is in both streams, once everything is sealed."""

    source: list[Row]
    found: list[Row]
    end_us: int

    @staticmethod
    def draw(random: Random, events: int) -> Truth:
        """Events of a producer, several at one time, and what the rule finds in them."""
        rows: list[Row] = []
        time_us, ordinal = 0, 0
        for number in range(events):
            later_us = random.choice((0, 0, 1, 3, 10)) if rows else 1
            time_us, ordinal = (time_us + later_us, 0) if later_us else (time_us, ordinal + 1)
            rows.append(Row(time_us, ordinal, f"m{random.randrange(5)}", number))
        return Truth(rows, found_in(rows, {}), time_us + 1)

    def of(self, name: str) -> list[Row]:
        return self.source if name == SOURCE.name else self.found


def found_in(rows: list[Row], counts: dict[str, int]) -> list[Row]:
    """What the rule finds: two of three events, each with how many were found of its machine so far. `counts` is the
    state before, and is the one after. Ordinals follow the order of what decided them."""
    found: list[Row] = []
    for row in rows:
        if row.number % 3 != 1:
            counts[row.machine] = counts.get(row.machine, 0) + 1
            same = bool(found) and found[-1].time == row.time
            found.append(Row(row.time, found[-1].ordinal + 1 if same else 0, row.machine, counts[row.machine]))
    return found


def rows_of(table: pa.Table) -> list[Row]:
    columns = (table.column(name).to_pylist() for name in Row.__struct_fields__)
    return [Row(*values) for values in zip(*columns, strict=True)]


@dataclass
class Seen:
    """What one life of a reader saw: from where it went on, and the rows in the order in which they came."""

    reader: str
    stream: str
    after: Stamp
    rows: list[Row] = field(default_factory=list)


class States:
    """A driver's states on the store: whole ones, and what changed between two times; each created once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep(self, from_us: int, through_us: int, before: dict[str, int], counts: dict[str, int], whole: bool) -> None:
        """The state at a time: all of it, or what differs from an earlier one."""
        changed = {machine: count for machine, count in counts.items() if before.get(machine) != count}
        # The first one follows from nothing, and is as good as a whole one.
        begins_us = TIME_MIN if whole else from_us
        name = f"{STATES}/{through_us - TIME_MIN:019d}-{begins_us - TIME_MIN:019d}"
        self._store.create(name, msgspec.json.encode(counts if whole else changed))

    def newest(self, at_most_us: int) -> tuple[int, dict[str, int]]:
        """The latest time, at or before the given one, with a state that can be put together, and that state."""
        pairs = [tuple(int(part) + TIME_MIN for part in name.split("-")) for name in self._store.names(STATES)]
        for through_us in sorted({end_us for end_us, _ in pairs if end_us <= at_most_us}, reverse=True):
            trail = self.trail(pairs, through_us)
            if trail is not None:
                return through_us, self._merged(trail)
        return TIME_MIN, {}

    def trail(self, pairs: list[Any], through_us: int) -> list[tuple[int, int]] | None:
        """A whole state and the changes after it, each from where the one before ends; newest first."""
        trail: list[tuple[int, int]] = []
        while through_us > TIME_MIN:
            begins = [begin_us for end_us, begin_us in pairs if end_us == through_us]
            if not begins:
                return None
            trail.append((through_us, min(begins)))
            through_us = min(begins)
        return trail

    def _merged(self, trail: list[tuple[int, int]]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for through_us, begins_us in reversed(trail):
            name = f"{STATES}/{through_us - TIME_MIN:019d}-{begins_us - TIME_MIN:019d}"
            counts.update(msgspec.json.decode(self._store.read(name) or b"", type=dict[str, int]))
        return counts


@dataclass
class Programs:
    """The bodies of all programs, on a store, with their randomness and the clock of the run."""

    truth: Truth
    random: Random
    now_us: Callable[[], int]
    write_part: ClassVar[Callable[..., Any]] = staticmethod(write_part)
    seal_interval: ClassVar[Callable[..., int]] = staticmethod(seal_interval)
    compactor: ClassVar[type[Compactor]] = Compactor
    states: ClassVar[type[States]] = States

    def prepare(self, store: Store, readers: dict[str, str]) -> None:
        """Both streams, and the readers that retention must respect."""
        log = EventLog(store)
        for schema in (SOURCE, FOUND):
            log.create(schema, BUCKETS)
        for reader, name in readers.items():
            Positions(store, name).commit(reader, BEFORE_ALL)

    def chain(self, store: Store, name: str) -> Chain:
        chain = EventLog(store).chain(name)
        chain.indexes.clock_s = lambda: self.now_us() / 1e6
        chain.refresh_index()
        return chain

    def write(self, store: Store) -> None:
        """A writer that is fed the producer's events from where the chain has them."""
        config = WriterConfig(rows_per_segment=8)
        writer = LogWriter(EventLog(store), SOURCE, config, BUCKETS)
        writer.chain.indexes.clock_s = lambda: self.now_us() / 1e6
        _, taken = writer.chain.producers().get(PRODUCER, (1, -1))
        for row in self.truth.source[taken + 1 :]:
            payload = {"machine": row.machine, "number": row.number}
            writer.append(PRODUCER, (1, row.number), Stamp(row.time, row.ordinal), payload, 0)
            if self.random.random() < 0.3:
                writer.seal()
        writer.advance(self.truth.end_us, 0)
        writer.seal()

    def drive(self, store: Store) -> None:
        """A driver: from the newest state on it computes what follows from the source, in intervals of its own."""
        source, found = self.chain(store, SOURCE.name), self.chain(store, FOUND.name)
        states = self.states(store)
        from_us, counts = states.newest(found.refresh())
        while from_us < source.base.from_us:
            # The listing lagged: retention cuts nothing that the newest state does not have.
            source.refresh_index()
            from_us, counts = states.newest(found.refresh())
        while from_us < self.truth.end_us:
            ready_us = source.refresh()
            if ready_us <= from_us:
                continue
            through_us = self._end_in(from_us, ready_us)
            before = dict(counts)
            try:
                rows = rows_of(source.read(from_us, through_us))
            except LogError:
                if source.base.from_us <= from_us:
                    raise
                self.drive(store)  # it slept, others went on, and retention followed them
                return
            outputs = found_in(rows, counts)
            self._seal(found, outputs, from_us, through_us)
            states.keep(from_us, through_us, before, counts, whole=self.random.random() < 0.3)
            from_us = through_us

    def _seal(self, found: Chain, outputs: list[Row], from_us: int, through_us: int) -> None:
        if self.random.random() < 0.5:
            self.seal_interval(found, _table(outputs), through_us, RULE)
            return
        parts, times, ordinals = [], [], []
        for bucket in range(found.buckets):
            rows = [row for row in outputs if found.spread.of((row.machine,)) == bucket]
            if rows:
                table, attempt = _table(rows).drop_columns(["ordinal"]), f"{self.random.getrandbits(64):016x}"
                place = (found.store, found.folder, FOUND)
                parts.append(self.write_part(*place, table, bucket, from_us, through_us, attempt))
                times.append(_column([row.time for row in rows]))
                ordinals.append(_nonzero([row.ordinal for row in rows]))
        self.seal_interval(found, PartRows(parts, times, ordinals), through_us, RULE)

    def compact(self, store: Store) -> None:
        """A compactor of both streams, which never ends."""
        compactors = [
            self.compactor(self.chain(store, schema.name), COMPACTION, self.now_us) for schema in (SOURCE, FOUND)
        ]
        while True:
            compactor = self.random.choice(compactors)
            compactor.step(everything=self.random.random() < 0.2)

    def rescale(self, store: Store) -> None:
        """Changes the number of buckets of both streams, again and again."""
        while True:
            for schema in (SOURCE, FOUND):
                EventLog(store).respread(schema.name, self.random.randint(1, 4))
            for _ in range(self.random.randint(5, 30)):
                store.read("nothing")  # lets time pass

    def retain(self, store: Store) -> None:
        """Retention, which never ends: what the drivers have used and all readers have passed may go."""
        source, found = self.chain(store, SOURCE.name), self.chain(store, FOUND.name)
        while True:
            used_us, _ = self.states(store).newest(found.refresh())
            for chain in (source, found):
                chain.refresh()
                cut(chain, min(used_us, self._end_in(0, self.truth.end_us)), self.now_us)

    def read(self, store: Store, reader: str, name: str, seen: list[Seen]) -> None:
        """A reader that follows a stream, and notes now and then how far it came."""
        positions, chain = Positions(store, name), self.chain(store, name)
        at = positions.get(reader)
        mine = Seen(reader, name, at)
        seen.append(mine)
        while at.time < self.truth.end_us:
            through_us = chain.refresh()
            if through_us <= at.time:
                continue
            through_us = self._end_in(at.time, through_us)
            mine.rows += self._rows(chain, at.time, through_us)
            at = Stamp(through_us, 0)
            if self.random.random() < 0.5:
                positions.commit(reader, at)
        positions.commit(reader, at)

    def _rows(self, chain: Chain, from_us: int, through_us: int) -> list[Row]:
        """Everything at once, or bucket by bucket, as tasks read it."""
        if self.random.random() < 0.7:
            return rows_of(chain.read(from_us, through_us))
        buckets = range(chain.buckets)
        return sorted(row for bucket in buckets for row in rows_of(chain.read(from_us, through_us, bucket)))

    def _end_in(self, from_us: int, through_us: int) -> int:
        """Some time after the one and up to the other: cuts of time mean nothing to the log."""
        return self.random.randint(max(from_us, 0) + 1, through_us) if through_us > max(from_us, 0) else through_us

    def everything(self, chain: Chain) -> Seen:
        """What is left of a stream, for one who comes at the end."""
        from_us = chain.base.from_us
        return Seen("the last one", chain.name, Stamp(from_us, 0), rows_of(chain.read(from_us, chain.refresh())))


def _table(rows: list[Row]) -> pa.Table:
    import pyarrow as pa

    kinds = {"time": pa.int64(), "ordinal": pa.int64(), "machine": pa.string(), "number": pa.int64()}
    return pa.table({name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in kinds.items()})


def _column(values: list[int]) -> Any:
    import numpy as np

    return np.array(values, np.int64)


def _nonzero(ordinals: list[int]) -> Any:
    numbered = [(row, ordinal) for row, ordinal in enumerate(ordinals) if ordinal]
    return (_column([row for row, _ in numbered]), _column([ordinal for _, ordinal in numbered])) if numbered else None
