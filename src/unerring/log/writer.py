"""The writer that a reliable channel feeds: holds events until size or age asks for a segment, then seals.

Any number of writers may be fed the same stream at the same time. Whoever seals first extends the chain; the others
read what it covers, drop that, and go on. A producer's events are acknowledged once they are in the chain, whoever put
them there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unerring.log.eventlog import BUCKETS, EventLog
from unerring.log.quarantine import BadEvent, Quarantine, Reason
from unerring.log.resets import Mark, Resets
from unerring.log.rows import columns_of, row_type
from unerring.log.segments import Footer, with_origin
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, CallerError, ProcessConfig, Stamp, StreamSchema, check

if TYPE_CHECKING:
    import pyarrow as pa


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

    def __post_init__(self) -> None:
        check(self, "rows_per_segment", 1, 1 << 24)
        check(self, "age_us_max", 1_000, 3_600_000_000)
        check(self, "rows_held_max", self.rows_per_segment, 1 << 25)
        check(self, "event_bytes_max", 64, 1 << 30)


class _Held(msgspec.Struct, frozen=True, gc=False):
    stamp: Stamp
    row: Any
    producer: str
    mark: Mark


class LogWriter:
    """Writes one stream of an event log. `now` is monotonic microseconds, given by the caller."""

    def __init__(
        self, log: EventLog, schema: StreamSchema, config: WriterConfig | None = None, buckets: int = BUCKETS
    ) -> None:
        self.chain = log.create(schema, buckets)
        self.schema = self.chain.schema
        self.quarantine = Quarantine(log.store, self.chain.folder)
        self.config = config or WriterConfig()
        self._row = row_type(self.schema)
        self._held: list[_Held] = []
        self._bad: list[BadEvent] = []
        self._watermark_us = TIME_MIN
        self._last = BEFORE_ALL
        self._since_us: int | None = None
        self._waiting_us: int | None = None
        """Since when events of the last time have waited for the watermark that makes it whole."""
        self._taken: dict[str, Mark] = {}
        self.repeated = 0
        """Events that came again after they were in the chain: counted, nothing else."""
        self.quarantined = 0
        self._catch_up()

    @property
    def full(self) -> bool:
        """Held as much as allowed: seal before feeding more. All of a time that is not over is held, however much."""
        if len(self._held) + len(self._bad) < self.config.rows_held_max:
            return False
        return not self._held or bool(self._bad) or self._held[0].stamp.time <= self._complete_us

    def append(self, producer: str, mark: Mark, stamp: Stamp, payload: dict[str, Any], now: int) -> None:
        """Take an event, in its producer's order. A bad event goes to quarantine; a repeated one is ignored."""
        if self.full:
            raise CallerError(
                f"stream {self.schema.name}: the writer holds {len(self._held)} events, which is its limit; seal first"
            )
        if mark <= self._taken.get(producer, (-1, -1)):
            self.repeated += 1
            return
        if (
            stamp.time < self._last.time
            or (self.schema.strict and stamp.time == self._last.time)
            or stamp.time <= self.chain.through_us
        ):
            newest = max(self._last.time, self.chain.through_us)
            detail = f"{tuple(stamp)} after {newest}"
            self._refuse(producer, mark, Reason.NOT_INCREASING, detail, _raw(payload), now, stamp.time)
            return
        try:
            row = msgspec.convert(payload, self._row)
            size = len(_raw(payload))
        except msgspec.ValidationError as error:
            self._refuse(producer, mark, Reason.SCHEMA, str(error), _raw(payload), now, stamp.time)
            return
        if size > self.config.event_bytes_max:
            self._refuse(producer, mark, Reason.TOO_LARGE, f"{size} bytes", _raw(payload), now, stamp.time)
            return
        if stamp <= self._last:  # Another producer's event has this time too: they are numbered as they came.
            stamp = Stamp(stamp.time, self._last.ordinal + 1)
        self._taken[producer] = mark
        self._last = stamp
        self._held.append(_Held(stamp, row, producer, mark))
        self._age(now)

    def undecodable(self, producer: str, mark: Mark, raw: bytes, detail: str, now: int) -> None:
        """Put bytes that could not be decoded into quarantine."""
        if mark <= self._taken.get(producer, (-1, -1)):
            self.repeated += 1
            return
        self._refuse(producer, mark, Reason.UNDECODABLE, detail, raw, now)

    def lost(self, producer: str, mark: Mark, detail: str, now: int) -> None:
        """Record events that the channel declared lost, up to the mark; the stream continues."""
        if mark > self._taken.get(producer, (-1, -1)):
            self._refuse(producer, mark, Reason.LOST, detail, b"", now)

    def advance(self, time_us: int, now: int) -> None:
        """Take a watermark: the stream will send nothing at or before this time."""
        if time_us > max(self._watermark_us, self.chain.through_us):
            self._watermark_us = time_us
            self._age(now if self._waiting_us is None else self._waiting_us)

    def end(self, now: int) -> None:
        """End the stream: its producer is gone for good."""
        self.advance(TIME_MAX, now)

    def due_us(self) -> int | None:
        """When `seal` should be called next, by age; None while nothing is held."""
        return None if self._since_us is None else self._since_us + self.config.age_us_max

    def due(self, now: int) -> bool:
        """Whether it is time to seal, by size or age."""
        due = self.due_us()
        return len(self._held) >= self.config.rows_per_segment or (due is not None and now >= due)

    def seal(self) -> dict[str, Mark]:
        """Seal what can be sealed; return for each producer the mark up to which everything is durable now."""
        self.quarantine.add(self._bad)
        self._bad = []
        while True:
            complete = self._complete_us
            if complete <= self.chain.through_us:
                break
            ready = [held for held in self._held if held.stamp.time <= complete]
            rest = self._held[len(ready) :]
            sealed = self.chain.seal(complete, self._table(ready), producers=self._marks(rest))
            if sealed.won:
                self._held = rest
            if not sealed.won or self.chain.through_us > sealed.footer.through_us:
                # The chain may have learned of more than the one segment that was in the way.
                self._yield_to(self.chain.last() or sealed.footer)
        self._waiting_us = self._since_us if self._held else None
        self._since_us = None
        return self._marks(self._held)

    @property
    def _complete_us(self) -> int:
        """Up to where nothing more will come."""
        return max(self._watermark_us, self._last.time if self.schema.strict else self._last.time - 1)

    def _yield_to(self, winner: Footer) -> None:
        """Another writer extended the chain: what it took is done; what it passed by can no longer be placed."""
        for producer, mark in winner.producers.items():
            self._taken[producer] = max(mark, self._taken.get(producer, (-1, -1)))
        kept: list[_Held] = []
        for held in self._held:
            if held.mark <= winner.producers.get(held.producer, (-1, -1)):
                continue
            if held.stamp.time <= winner.through_us:
                raw, detail = _raw(msgspec.structs.asdict(held.row)), f"{tuple(held.stamp)} after {winner.through_us}"
                reason, time_us = Reason.NOT_INCREASING, held.stamp.time
                self._bad.append(BadEvent(held.producer, *held.mark, reason, detail, raw, time_us))
                self.quarantined += 1
            else:
                kept.append(held)
        self._held = kept
        self.quarantine.add(self._bad)
        self._bad = []

    def _catch_up(self) -> None:
        self.chain.refresh()
        self._taken = Resets(self.chain.store, self.chain.folder).without(self.chain.producers())

    def _marks(self, held: list[_Held]) -> dict[str, Mark]:
        """Up to where each producer's events are out of our hands: just before its first event still held."""
        marks = dict(self._taken)
        waiting: dict[str, Mark] = {}
        for event in held:
            waiting.setdefault(event.producer, event.mark)
        for producer, (epoch, sequence) in waiting.items():
            marks[producer] = (epoch, sequence - 1)
        return marks

    def _refuse(
        self, producer: str, mark: Mark, reason: Reason, detail: str, raw: bytes, now: int, time_us: int | None = None
    ) -> None:
        self._bad.append(BadEvent(producer, *mark, reason, detail, raw, time_us))
        self._taken[producer] = mark
        self.quarantined += 1
        self._age(now)

    def _age(self, now: int) -> None:
        if self._since_us is None:
            self._since_us = now

    def _table(self, held: list[_Held]) -> pa.Table:
        import pyarrow as pa

        columns: dict[str, pa.Array] = {
            "time": pa.array([event.stamp.time for event in held], pa.int64()),
            "ordinal": pa.array([event.stamp.ordinal for event in held], pa.int64()),
            **columns_of([event.row for event in held], self.schema),
            "_producer": pa.array([event.producer for event in held], pa.string()),
            "_epoch": pa.array([event.mark[0] for event in held], pa.int64()),
            "_sequence": pa.array([event.mark[1] for event in held], pa.int64()),
        }
        return with_origin(pa.table(columns), self.schema)


def _raw(payload: dict[str, Any]) -> bytes:
    """A payload as bytes for quarantine, and to know its size."""
    return msgspec.msgpack.encode(payload, enc_hook=repr)
