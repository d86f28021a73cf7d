"""Out of quarantine: what a bad event's bytes say, and back into its stream once it is right.

A corrected event goes to its stream's end, at its own time if the stream has not reached that yet. It keeps its id, so
that bringing it back twice puts it there once: a record of what is on its way is durable before the stream is touched,
and whoever tries again looks for those ids behind the end that the stream had then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import msgspec

from unerring.log.chain import Chain
from unerring.log.encryption import is_encrypted
from unerring.log.eventlog import EventLog
from unerring.log.ingest import FILE, Begun, begun_of
from unerring.log.quarantine import QUARANTINE, BadEvent, EventId, Quarantine, Reason, Returning, unveiled
from unerring.log.rows import columns_of, row_type, time_of
from unerring.log.segments import with_origin
from unerring.log.times import Times, needs_zone, zoned
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ColumnType, SchemaError, StreamSchema, to_time_us

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_SEGMENT: Final = 1_000_000
STAYS: Final = {
    Reason.LOST: "it never came, so there are no bytes",
    Reason.RULE: "it is in its stream; a rule could do nothing with it",
    Reason.PROCESS: "it is in its stream; no process could be started with it",
}
"""Reasons with which nothing can be brought back."""


class Held(msgspec.Struct, frozen=True):
    """A bad event as people see it and correct it: one line of JSON."""

    stream: str
    producer: str
    epoch: int
    sequence: int
    reason: Reason
    detail: str
    row: dict[str, Any] | None
    """Its time (microseconds, or as it stood in the file) and columns, as far as they can be made out."""
    raw: bytes

    @property
    def id(self) -> EventId:
        return self.producer, self.epoch, self.sequence


class Stayed(msgspec.Struct, frozen=True):
    """An event that could not be brought back, and why."""

    producer: str
    epoch: int
    sequence: int
    reason: Reason
    detail: str


class Returned(msgspec.Struct, frozen=True):
    """The outcome of bringing events back."""

    stream: str
    brought: int
    already: int
    """Back in the stream since an earlier time."""
    stayed: tuple[Stayed, ...]


class _Ready(msgspec.Struct, frozen=True):
    time_us: int
    id: EventId
    row: Any


# --- what is there


def held(log: EventLog, name: str, *, secrets: bool = False) -> list[Held]:
    """The bad events of a stream (or of a rule, by its name), decoded as far as that is possible. Where they may hold
    secret values, only with `secrets`."""
    chain = None if log.declaration(name) is None else log.chain(name)
    files: dict[str, Begun | None] = {}
    events: list[Held] = []
    for kept in Quarantine(log.store, name).events():
        bad, row = kept, None
        if is_encrypted(kept.raw):
            hidden = msgspec.structs.replace(kept, raw=b"")
            bad = unveiled(kept, name, log.store.locate(f"{name}/{QUARANTINE}")) if secrets else hidden
        if chain is not None and bad.raw and bad.reason not in STAYS:
            if bad.producer.startswith(FILE) and bad.producer not in files:
                files[bad.producer] = begun_of(chain, bad.producer)
            row = _row_of(bad, chain.schema, files.get(bad.producer))
        events.append(Held(name, bad.producer, bad.epoch, bad.sequence, bad.reason, bad.detail, row, bad.raw))
    return events


def _row_of(bad: BadEvent, schema: StreamSchema, file: Begun | None) -> dict[str, Any] | None:
    """Time and columns; None where the bytes do not say."""
    try:
        decoded = _decoded(bad, file)
    except (ValueError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    row = {column.name: decoded.get(column.name) for column in schema.columns if column.name in decoded}
    times = file.times if file is not None else None
    if bad.time_us is not None:
        moment: object = bad.time_us
    elif "_sequence" in decoded or times is None:  # as ingest writes a row that it could read
        moment = decoded.get("time")
    else:
        moment = _moment(decoded.get(times.column), times)
    return {"time": moment, **row}


def _decoded(bad: BadEvent, file: Begun | None) -> object:
    if bad.raw.lstrip()[:1] == b"{":
        return msgspec.json.decode(bad.raw)
    if file is None:
        return msgspec.msgpack.decode(bad.raw)
    import csv
    import io

    fields = next(csv.reader(io.StringIO(bad.raw.decode("utf-8", "replace"))), [])
    return dict(zip(file.columns, fields, strict=False)) if file.columns else None


def _moment(value: object, times: Times) -> object:
    """The time in microseconds if it can be understood, else as it is."""
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        value = int(value)
    try:
        return time_of(zoned(value, times), times.unit_us) if isinstance(value, int | str) else value
    except (ValueError, SchemaError, OverflowError):
        return value


# --- back into the stream


def bring_back(chain: Chain, wanted: Iterable[Held], *, zone: str | None = None, restamp: bool = False) -> Returned:
    """Put corrected events at the end of their stream, each once. What is still bad stays where it is, with its reason.

    `zone`: of times without one. `restamp`: an event whose time has passed gets the first time after the stream's end.
    """
    quarantine = Quarantine(chain.store, chain.folder)
    chain.refresh()
    _settle(chain, quarantine)
    back, quarantined = quarantine.returned(), {bad.id: bad for bad in quarantine.events()}
    ready: list[_Ready] = []
    stayed: list[Stayed] = []
    already = 0
    make = _Maker(chain.schema, zone)
    for one in {one.id: one for one in wanted}.values():
        bad = quarantined.get(one.id)
        if one.id in back:
            already += 1
        elif bad is None:
            raise CallerError(
                f"{one.producer}, {one.epoch}, {one.sequence} is not in the quarantine of stream {chain.name}; use "
                "lines from `unerring quarantine show --json`, and leave their ids unchanged"
            )
        else:
            made = make.event(one, bad)
            (ready if isinstance(made, _Ready) else stayed).append(made)  # type: ignore[arg-type]
    put, late = _put(chain, quarantine, ready, restamp) if ready else (0, [])
    return Returned(chain.name, put, already, (*stayed, *late))


class _Maker:
    """Makes events of what people corrected."""

    def __init__(self, schema: StreamSchema, zone: str | None) -> None:
        self._schema = schema
        self._kind = row_type(schema)
        self._zone = None if zone is None else ZoneInfo(zone)

    def event(self, one: Held, bad: BadEvent) -> _Ready | Stayed:
        if bad.reason in STAYS:
            return Stayed(*one.id, bad.reason, STAYS[bad.reason])
        if one.row is None:
            return Stayed(*one.id, bad.reason, "its bytes cannot be read; write its time and columns into `row`")
        try:
            time_us = self._time(one.row.get("time"))
            payload = {name: value for name, value in one.row.items() if name != "time"}
            return _Ready(time_us, one.id, self._payload(payload))
        except (SchemaError, ValueError, OverflowError) as error:
            return Stayed(*one.id, Reason.SCHEMA, str(error))

    def _time(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise SchemaError(f"invalid time {value!r}; write microseconds, or ISO 8601 such as 2026-03-01T08:00:00Z")
        if isinstance(value, str) and not value.lstrip("-").isdigit():
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is None and self._zone is None:
                raise SchemaError(needs_zone("time", value))
            value = to_time_us((moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).astimezone(UTC))
        if not TIME_MIN < int(value) < TIME_MAX:
            raise SchemaError(f"time {value} is out of range")
        return int(value)

    def _payload(self, given: dict[str, Any]) -> Any:
        """Texts of a CSV file become what their columns hold, and nothing at all is NULL."""
        unknown = [name for name in given if all(column.name != name for column in self._schema.columns)]
        if unknown:
            raise SchemaError(f"stream {self._schema.name} has no column {unknown[0]!r}")
        for column in self._schema.columns:
            if column.nullable and given.get(column.name) == "":
                given[column.name] = None
            elif column.type is ColumnType.TIME and str(given.get(column.name)).lstrip("-").isdigit():
                given[column.name] = int(given[column.name])
        return msgspec.convert(given, self._kind, strict=False)


def _settle(chain: Chain, quarantine: Quarantine) -> None:
    """Somebody's way back may have ended between the stream and the record: what is in the stream is back."""
    for token, begun in quarantine.unfinished().items():
        present = _present(chain, set(begun.ids), begun.from_us)
        if present:
            quarantine.finish_return(token, Returning(begun.from_us, tuple(sorted(present))))


def _put(chain: Chain, quarantine: Quarantine, ready: list[_Ready], restamp: bool) -> tuple[int, list[Stayed]]:
    """Seal them behind the stream's end. Whoever else extends the stream meanwhile may have brought some of them."""
    ids = {event.id for event in ready}
    from_us = chain.through_us
    begun = Returning(from_us, tuple(sorted(ids)))
    token = quarantine.begin_return(begun)
    late: list[Stayed] = []
    put = 0
    seen_us = from_us
    while ready:
        chain.refresh()
        others = _present(chain, {event.id for event in ready}, seen_us)
        seen_us = chain.through_us
        ready = [event for event in ready if event.id not in others]
        ready, refused = _placed(ready, seen_us, restamp, chain.schema.strict)
        late += refused
        if not ready:
            break
        part = _first_part(ready)
        if chain.seal(part[-1].time_us, _table(part, chain.schema)).won:
            seen_us = chain.through_us
            ready = ready[len(part) :]
            put += len(part)
    present = _present(chain, ids, from_us)
    quarantine.finish_return(token, Returning(from_us, tuple(sorted(present))))
    return put, late


def _placed(ready: Sequence[_Ready], through_us: int, restamp: bool, strict: bool) -> tuple[list[_Ready], list[Stayed]]:
    """The events in the order of time behind the stream's end, and those for which there is no place."""
    placed: list[_Ready] = []
    refused: list[Stayed] = []
    last_us = through_us
    for event in sorted(ready, key=lambda event: (event.time_us, event.id)):
        first_us = last_us + 1 if strict or not placed else last_us
        if event.time_us >= first_us:
            placed.append(event)
        elif restamp and first_us < TIME_MAX:
            placed.append(msgspec.structs.replace(event, time_us=first_us))
        else:
            reason = Reason.LATE if event.time_us <= through_us else Reason.NOT_INCREASING
            refused.append(Stayed(*event.id, reason, _no_place(event.time_us, through_us)))
            continue
        last_us = placed[-1].time_us
    return placed, refused


def _no_place(time_us: int, through_us: int) -> str:
    if through_us == TIME_MAX:
        return f"time {time_us}: the stream has ended"
    if time_us > through_us:
        return f"time {time_us}: another event has this time, and the stream is strict; --restamp gives it a later one"
    return f"time {time_us}: the stream has already reached {through_us}; --restamp gives it a time after that"


def _first_part(ready: Sequence[_Ready]) -> Sequence[_Ready]:
    """A segment's worth that ends between two times."""
    end = min(ROWS_PER_SEGMENT, len(ready))
    while end < len(ready) and ready[end].time_us == ready[end - 1].time_us:
        end += 1
    return ready[:end]


def _present(chain: Chain, ids: set[EventId], from_us: int) -> set[EventId]:
    """Which of these events are in the stream after a time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    producers = pa.array(sorted({producer for producer, _, _ in ids}), pa.string())
    present: set[EventId] = set()
    for span in chain.spans(max(from_us, chain.base.from_us), TIME_MAX):
        table = chain.read(span.from_us, span.through_us, columns=["_producer", "_epoch", "_sequence"])
        table = table.filter(pc.is_in(table.column("_producer"), producers))
        origins = (table.column(name).to_pylist() for name in ("_producer", "_epoch", "_sequence"))
        present.update(ids.intersection(zip(*origins, strict=True)))
    return present


def _table(events: Sequence[_Ready], schema: StreamSchema) -> pa.Table:
    import pyarrow as pa

    ordinals: list[int] = []
    for at, event in enumerate(events):
        tie = at > 0 and events[at - 1].time_us == event.time_us
        ordinals.append(ordinals[-1] + 1 if tie else 0)
    columns: dict[str, pa.Array] = {
        "time": pa.array([event.time_us for event in events], pa.int64()),
        "ordinal": pa.array(ordinals, pa.int64()),
        **columns_of([event.row for event in events], schema),
        "_producer": pa.array([event.id[0] for event in events], pa.string()),
        "_epoch": pa.array([event.id[1] for event in events], pa.int64()),
        "_sequence": pa.array([event.id[2] for event in events], pa.int64()),
    }
    return with_origin(pa.table(columns), schema)
