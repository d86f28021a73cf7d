"""The writer that producers feed: holds events until size or age asks for a segment, then seals up to the watermark.

Any number of writers may be fed the same stream at the same time, each by any number of producers. Whoever seals first
extends the chain; the others read what it took, drop that, and go on. A producer's events are acknowledged once they
are in the chain, whoever put them there. An event that comes after the chain has passed its time is late: it goes to
quarantine, and since the chain says so, every writer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from unerring.log.eventlog import BUCKETS, EventLog
from unerring.log.lanes import ProducerState
from unerring.log.merging import Cut, Merge, Rows
from unerring.log.payloads import Payloads, raw_of
from unerring.log.producers import Mark, Taken
from unerring.log.quarantine import BadEvent, Quarantine, Reason
from unerring.log.resets import Resets
from unerring.log.segments import stating, with_origin
from unerring.log.sweeping import wall_us
from unerring.model import TIME_MAX, CallerError, ProcessConfig, Stamp, StreamSchema, check

if TYPE_CHECKING:
    import pyarrow as pa

_FLUSH_ROWS: Final = 16_384
"""So many payloads are made columns at once."""
_TRIES: Final = 8
"""So many shorter segments are tried where the whole one would say too much."""


class WriterConfig(ProcessConfig, frozen=True):
    """When a segment is sealed, and the bounds of the writer."""

    rows_per_segment: int = 250_000
    """Seal when this many are held."""
    age_us_max: int = 100_000
    """Seal what has been held this long, however little it is."""
    rows_held_max: int = 1_000_000
    """The writer is `full` then: stop feeding it until it sealed. Feeding it all the same is refused."""
    event_bytes_max: int = 1 << 20
    """A larger event goes to quarantine."""
    runs_max: int = 65_536
    """How many runs of events out of their producer's order a segment says that were taken. A writer that would have to
    say more seals less far, or nothing: it holds what it has, and stops taking when it is full."""
    producers_max: int = 16_384
    """How many producers a stream may ever have; the events of further ones are not taken."""

    def __post_init__(self) -> None:
        check(self, "rows_per_segment", 1, 1 << 24)
        check(self, "age_us_max", 1_000, 3_600_000_000)
        check(self, "rows_held_max", self.rows_per_segment, 1 << 25)
        check(self, "event_bytes_max", 64, 1 << 30)
        check(self, "runs_max", 0, 1 << 24)
        check(self, "producers_max", 1, 1 << 20)


class _Frames(NamedTuple):
    """Consecutive events of one producer."""

    code: int
    epoch: int
    first: int
    times: Sequence[int]
    ordinals: Sequence[int] | None
    payloads: Sequence[bytes]


class Counts(NamedTuple):
    """What a writer has counted."""

    repeated: int
    quarantined: int
    late: int
    producers: int


class LogWriter:
    """Writes one stream of an event log. `now` is monotonic microseconds, given by the caller; `wall` is the clock that
    event times are compared with where the stream says how far ahead they may be."""

    kind_of_merge: ClassVar[type[Merge]] = Merge

    def __init__(
        self,
        log: EventLog,
        schema: StreamSchema,
        config: WriterConfig | None = None,
        buckets: int = BUCKETS,
        now: int = 0,
        wall: Callable[[], int] = wall_us,
    ) -> None:
        self.chain = log.create(schema, buckets)
        self.schema = self.chain.schema
        self.quarantine = Quarantine(log.store, self.chain.folder)
        self.config = config or WriterConfig()
        self.merge = self.kind_of_merge(self.schema)
        self._wall = wall
        self._payloads = Payloads(self.schema, self.config.event_bytes_max)
        self._waiting: list[_Frames] = []
        self._waiting_rows = 0
        self._bad: list[BadEvent] = []
        self._since_us: int | None = None
        self._held_since_us: int | None = None
        """Since when events have waited for the watermark that lets them go."""
        self._now = now
        self._repeated = 0
        self._quarantined = 0
        self._late = 0
        self.blocked = ""
        """Why nothing can be sealed, though there is something to seal."""
        self._known_us = self.chain.refresh()
        """Up to where it is known what the chain has taken."""
        self.merge.begin(Resets(self.chain.store, self.chain.folder).without(self.chain.taken()), now)

    # --- what comes ---

    @property
    def held(self) -> int:
        """How many events are not sealed yet."""
        return self.merge.rows + self._waiting_rows + len(self._bad)

    @property
    def full(self) -> bool:
        """Held as much as allowed: seal before feeding more. What the watermark does not let go is held, however much:
        to stop feeding would not help, since the watermark rises with what comes."""
        if self.held < self.config.rows_held_max:
            return False
        self._flush()
        return bool(self._bad or self.blocked) or self.merge.releases(self._now)

    def admits(self, producer: str) -> bool:
        """Whether events of this producer are taken: a stream has a bound on how many it may ever have."""
        return producer in self.merge.lanes.codes or len(self.merge.lanes) < self.config.producers_max

    def join(self, producer: str, now: int) -> None:
        """A producer is there and may publish at any time: the stream waits for it from now on."""
        if self.admits(producer):
            self.merge.meet(producer, now)

    def append(self, producer: str, mark: Mark, stamp: Stamp, payload: dict[str, Any], now: int) -> None:
        """Take an event, in its producer's order. A bad event goes to quarantine; a repeated one is ignored."""
        self.take(producer, *mark, (stamp.time,), (raw_of(payload),), (stamp.ordinal,), now)

    def take(
        self,
        producer: str,
        epoch: int,
        first: int,
        times: Sequence[int],
        payloads: Sequence[bytes],
        ordinals: Sequence[int] | None,
        now: int,
    ) -> None:
        """Take consecutive events, in their producer's order, from a sequence on. The sequences given are kept."""
        self._check_room(producer)
        self._now = now
        code = self.merge.hear(producer, now)
        if epoch > (known := self.merge.lanes.epochs[code]):
            if known >= 0:
                self._flush()  # what it said before it began again stands before
            if epoch > self.merge.lanes.epochs[code]:  # still: another writer may have been further
                self.merge.lanes.succeed(code, epoch)
        self._waiting.append(_Frames(code, epoch, first, times, ordinals, payloads))
        self._waiting_rows += len(payloads)
        self._age(now)
        if self._waiting_rows >= _FLUSH_ROWS:
            self._flush()

    def undecodable(
        self, producer: str, mark: Mark, raw: bytes, detail: str, now: int, reason: Reason = Reason.UNDECODABLE
    ) -> None:
        """Put bytes that are not an event into quarantine."""
        self._flush()
        if not self.merge.note(producer, mark, now):
            self._repeated += 1
            return
        self._refuse([BadEvent(producer, *mark, reason, detail, raw)], now)

    def lost(self, producer: str, mark: Mark, detail: str, now: int, first: int | None = None) -> None:
        """Record events that the channel declared lost, up to the mark, from a sequence of its epoch on; the stream
        continues. What another writer has of them is not lost: it may have acknowledged them for both."""
        self._flush()
        self.chain.refresh()
        self._expire()
        begin = mark if first is None else (mark[0], first)
        missing = self.merge.missing(producer, begin, mark)
        self.merge.note(producer, mark, now)
        bad = [
            BadEvent(producer, *last, Reason.LOST, detail, b"", None, start[1] if start[0] == last[0] else 0)
            for start, last in missing
        ]
        self._refuse(bad, now)

    def advance(self, time_us: int, now: int, producer: str | None = None) -> None:
        """Take a watermark: nothing follows at or before this time, from one producer or (None) from any. One that is
        further ahead than the stream allows is not believed."""
        self._now = now
        ahead_us = self.schema.max_ahead_us
        if producer is not None and (
            not self.admits(producer)
            or (ahead_us is not None and time_us < TIME_MAX and time_us > self._wall() + ahead_us)
        ):
            return
        if self.merge.declare(producer, time_us, now) and time_us > self.chain.through_us:
            self._age(now if self._held_since_us is None else self._held_since_us)

    def end(self, now: int, producer: str | None = None) -> None:
        """A producer is gone for good: the stream ends when all that were heard of have ended, or (None) at once."""
        self.advance(TIME_MAX, now, producer)

    def _check_room(self, producer: str) -> None:
        if self.full:
            raise CallerError(
                f"stream {self.schema.name}: the writer holds {self.held} events, which is its limit; "
                f"{self.blocked or 'seal first'}"
            )
        if not self.admits(producer):
            raise CallerError(
                f"stream {self.schema.name} has {len(self.merge.lanes)} producers, which is the limit; events of "
                f"{producer} are not taken: raise WriterConfig.producers_max"
            )

    def _flush(self) -> None:
        """Make columns of what came since the last time."""
        if not self._waiting:
            return
        frames, self._waiting, self._waiting_rows = self._waiting, [], 0
        payloads = [payload for part in frames for payload in part.payloads]
        columns, bad = self._payloads.read(payloads)
        self._enter(frames, payloads, columns, bad, self._now)

    def _enter(
        self,
        frames: Sequence[_Frames],
        payloads: Sequence[bytes],
        columns: pa.Table,
        bad: Sequence[tuple[int, Reason, str]],
        now: int,
    ) -> None:
        """Let the rows of frames into the merge. `columns` are of those that are not bad."""
        import numpy as np
        import pyarrow as pa

        self._now = now
        rows = _rows_of(frames, columns)
        good = np.ones(len(payloads), bool)
        good[[at for at, _, _ in bad]] = False
        if self.schema.max_ahead_us is not None:
            limit_us = self._wall() + self.schema.max_ahead_us
            ahead = np.flatnonzero(good & (rows.times > limit_us))
            if len(ahead):
                columns = columns.filter(pa.array((rows.times <= limit_us)[good]))
                good[ahead] = False
                bad = [*bad, *((int(at), Reason.AHEAD, self._ahead_by(int(rows.times[at]))) for at in ahead)]
        refused: dict[tuple[str, Mark], BadEvent] = {}
        for at, reason, detail in sorted(bad):
            name = self.merge.lanes.names[int(rows.codes[at])]
            mark = int(rows.epochs[at]), int(rows.sequences[at])
            if (name, mark) not in refused and self.merge.is_new(name, mark):
                refused[name, mark] = BadEvent(name, *mark, reason, detail, payloads[at], int(rows.times[at]))
            else:
                self._repeated += 1
        self._repeated += self.merge.take(rows.with_columns(good, columns))
        for name, mark in refused:
            self.merge.note(name, mark, now)
        self._refuse(list(refused.values()), now)
        self._expire()
        self._age(now)

    # --- what goes ---

    def due_us(self) -> int | None:
        """When `seal` should be called next, by age; None while nothing is held."""
        return None if self._since_us is None else self._since_us + self.config.age_us_max

    def due(self, now: int) -> bool:
        """Whether it is time to seal, by size or age, or since somebody is no longer waited for."""
        self._now = now
        due = self.due_us()
        if self.held >= self.config.rows_per_segment or (due is not None and now >= due):
            return True
        return self.schema.idle_after_us is not None and self.merge.releases(now)

    def seal(self) -> dict[str, Mark]:
        """Seal what can be sealed; return for each producer the mark up to which everything is durable now."""
        self._flush()
        self._expire()
        self._put_away()
        while (through_us := self.merge.watermark_us(self._now)) > self.chain.through_us:
            found = self._largest_cut(through_us)
            if found is None:
                break
            through_us, cut, taken = found
            sealed = self.chain.seal(through_us, self._table(cut.ready), **stating(taken))
            if sealed.won:
                self.merge.drop(cut)
                self._known_us = sealed.footer.through_us
            self._expire()
            self._put_away()
        self._held_since_us = self._since_us if self.merge.rows else None
        self._since_us = None
        return dict(self.merge.taken().marks)

    def _largest_cut(self, through_us: int) -> tuple[int, Cut, Taken] | None:
        """The longest segment up to a time whose footer says no more than it may. What was taken is never forgotten: if
        there is none, nothing is sealed."""
        self.blocked = ""
        ends = [through_us]
        while ends:
            through_us = ends.pop(0)
            cut = self.merge.cut(through_us)
            taken = self.merge.taken(cut.rest)
            if taken.runs <= self.config.runs_max:
                return through_us, cut, taken
            if not self.blocked and cut.ready is not None:
                times = cut.ready.times
                shorter = {int(times[len(times) * part // _TRIES]) for part in range(_TRIES)}
                ends = sorted(shorter - {through_us}, reverse=True)
            self.blocked = (
                f"{taken.runs} runs of events out of their producers' order are more than a segment says "
                f"(runs_max={self.config.runs_max}); raise it, or lower the lateness of the stream"
            )
        return None

    def _expire(self) -> None:
        if self.chain.through_us > self._known_us:
            # Others extended the chain, perhaps by more than the one segment that was in the way: what they took is
            # done, and only the rest can be late.
            self.merge.yield_to(self.chain.taken(), self._now)
            self._known_us = self.chain.through_us
        expired = self.merge.expire(self._known_us)
        self._refuse_late(expired.late)
        self._refuse_late(expired.disordered, own=True)

    def _put_away(self) -> None:
        self.quarantine.add(self._bad)
        self._bad = []

    def _refuse_late(self, rows: Rows | None, own: bool = False) -> None:
        """`own`: behind the producer's own newest time, which without lateness is not a question of when it came."""
        if rows is None:
            return
        reason = Reason.NOT_INCREASING if own and not self.schema.lateness_us else Reason.LATE
        payloads = rows.columns.to_pylist()
        bad: list[BadEvent] = []
        for at, (code, time_us) in enumerate(zip(rows.codes.tolist(), rows.times.tolist(), strict=True)):
            newest_us = int(self.merge.lanes.newest[code]) if own else self.chain.through_us
            detail = f"time {time_us}: " + (
                f"its producer has already reached {newest_us}"
                if own
                else f"the stream has already reached {newest_us}"
            )
            mark = int(rows.epochs[at]), int(rows.sequences[at])
            name = self.merge.lanes.names[code]
            bad.append(BadEvent(name, *mark, reason, detail, raw_of(payloads[at]), time_us))
        self._late += len(bad) if reason is Reason.LATE else 0
        self._refuse(bad, self._now)

    def _refuse(self, bad: Sequence[BadEvent], now: int) -> None:
        self._bad += bad
        self._quarantined += len(bad)
        if bad:
            self._age(now)

    def _ahead_by(self, time_us: int) -> str:
        limit_us = self.schema.max_ahead_us or 0
        return f"time {time_us} is {(time_us - self._wall()) / 1e6:g} s ahead (max_ahead is {limit_us / 1e6:g} s)"

    def _age(self, now: int) -> None:
        if self._since_us is None:
            self._since_us = now

    def _table(self, rows: Rows | None) -> pa.Table:
        import pyarrow as pa

        if rows is None:
            return with_origin(pa.table({"time": pa.array([], pa.int64())}), self.schema)
        columns: dict[str, Any] = {
            "time": pa.array(rows.times, pa.int64()),
            "ordinal": pa.array(rows.ordinals, pa.int64()) if rows.ordinals is not None else _zeros(len(rows)),
            **{name: rows.columns.column(name) for name in rows.columns.column_names},
            "_producer": pa.array(self.merge.lanes.names).take(pa.array(rows.codes)),
            "_epoch": pa.array(rows.epochs, pa.int64()),
            "_sequence": pa.array(rows.sequences, pa.int64()),
        }
        return with_origin(pa.table(columns), self.schema)

    # --- what can be seen ---

    @property
    def counts(self) -> Counts:
        """As they were when columns were last made of what came: may be asked from another thread."""
        return Counts(self._repeated, self._quarantined, self._late, len(self.merge.lanes))

    @property
    def repeated(self) -> int:
        """Events that came again after they were in the chain: counted, nothing else."""
        self._flush()
        return self._repeated

    @property
    def quarantined(self) -> int:
        """Bad events so far."""
        self._flush()
        return self._quarantined

    @property
    def late(self) -> int:
        """Those of them that came after the chain had passed their time, or later than the lateness allows."""
        self._flush()
        return self._late

    def awaited(self, now: int) -> ProducerState | None:
        """The producer for whom all wait, if events wait."""
        return self.merge.awaited(now) if self.merge.rows else None


def _zeros(count: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    return pa.array(np.zeros(count, np.int64))


def _rows_of(frames: Sequence[_Frames], columns: pa.Table) -> Rows:
    """The numbers of all events of frames; `columns` may be of fewer."""
    import numpy as np

    counts = [len(part.payloads) for part in frames]
    ends = np.cumsum(counts)
    codes, epochs, firsts = (np.repeat([part[at] for part in frames], counts) for at in range(3))
    sequences = firsts + np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    times = np.concatenate([np.asarray(part.times, np.int64) for part in frames])
    ordinals = None
    if any(part.ordinals for part in frames):
        ordinals = np.concatenate([np.asarray(part.ordinals or [0] * len(part.payloads), np.int64) for part in frames])
    return Rows(codes, epochs, sequences, times, ordinals, columns)
