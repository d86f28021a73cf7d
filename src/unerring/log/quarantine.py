"""Bad events: kept with their raw bytes and the reason, counted, never dropped silently, never in the stream's way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.log.encryption import decrypt_bytes, encrypt_bytes, is_encrypted
from unerring.log.store import Store
from unerring.model import SECRET, Key, LogError, key_in, protect_json, secret_columns, verified_json

if TYPE_CHECKING:
    import pyarrow as pa

QUARANTINE: Final = "quarantine"
_RETURNING: Final = ".returning"
_RETURNED: Final = ".returned"


ERASED: Final = "its bytes were erased with its key"


class Reason(StrEnum):
    """Why an event is not in its stream."""

    UNDECODABLE = "undecodable"
    SCHEMA = "schema"
    NOT_INCREASING = "not increasing"
    TOO_LARGE = "too large"
    LATE = "late"
    AHEAD = "ahead"
    """Its time was further ahead of the clock than the stream allows."""
    LOST = "lost"
    """It never came: the channel declared it lost, from this sequence on, as the detail says."""
    RULE = "rule"
    """A rule could not digest it. Its id is then the event's: stream, time and ordinal."""
    PROCESS = "process"
    """A situation with which no process could be started. Its id is then the situation's, as with a rule."""


_TELLING: Final = frozenset({Reason.UNDECODABLE, Reason.SCHEMA, Reason.RULE, Reason.PROCESS})
"""Reasons whose details may repeat a value."""

EventId = tuple[str, int, int]
"""Producer, epoch and sequence."""


class Returning(msgspec.Struct, frozen=True):
    """Events on their way back into their stream, of which nothing was in it up to `from_us`."""

    from_us: int
    ids: tuple[EventId, ...]


class BadEvent(msgspec.Struct, frozen=True, order=True):
    """One bad event. `(producer, epoch, sequence)` is its id: two writers may both report it, it counts once.

    For a file the producer is the file's digest, and the sequence the row's number in it.
    """

    producer: str
    epoch: int
    sequence: int
    reason: Reason
    detail: str
    raw: bytes
    time_us: int | None = None
    """Its event time, where that is known and does not stand in the bytes."""
    first: int | None = None
    """Of a loss: the first of the numbers up to `sequence` that were declared lost with it, where that is known."""

    @property
    def id(self) -> EventId:
        return self.producer, self.epoch, self.sequence


class Quarantine:
    """The bad events of one stream, as small Parquet files that never change. Those that were brought back into the
    stream stay in their files; records beside them name those."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self.stream = folder
        self.folder = f"{folder}/{QUARANTINE}"

    def add(self, bad: list[BadEvent]) -> None:
        """Durable once this returns. Adding the same again changes nothing: the file is named by what is in it."""
        if bad:
            self.put(encode_bad(bad, self.stream))

    def put(self, data: bytes) -> None:
        """The same, of events that somebody encoded."""
        self.store.create(f"{self.folder}/{_name_of(data)}", data)

    def events(self) -> list[BadEvent]:
        """All bad events that are not back in the stream, each once, in the order of their ids."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        events: dict[tuple[str, int, int], BadEvent] = {}
        for name in self._names(".parquet"):
            data = self.store.read(f"{self.folder}/{name}")
            if data is None:
                continue
            if name != _name_of(data):
                where = self.store.locate(f"{self.folder}/{name}")
                raise LogError(f"{where} is damaged: its bytes do not match its name; restore it from a copy")
            for row in pq.read_table(pa.BufferReader(data), schema=_schema()).to_pylist():
                event = BadEvent(**{**row, "reason": Reason(row["reason"])})
                known = events.setdefault(event.id, event)
                if event.first is not None and (known.first is None or event.first < known.first):
                    events[event.id] = event  # two writers lost it, one of them more than the other
        for key in self.returned():
            events.pop(key, None)
        return [events[key] for key in sorted(events)]

    def returned(self) -> set[EventId]:
        """The ids of events that are back in the stream."""
        return {key for name in self._names(_RETURNED) for key in self._record(name).ids}

    def unfinished(self) -> dict[str, Returning]:
        """Ways back that were begun and not finished, by their token: some of their events may be in the stream."""
        done = {name.removesuffix(_RETURNED) for name in self._names(_RETURNED)}
        begun = {name.removesuffix(_RETURNING): name for name in self._names(_RETURNING)}
        return {token: self._record(name) for token, name in begun.items() if token not in done}

    def begin_return(self, returning: Returning) -> str:
        """Kept before any of them is put into the stream; the token is for `finish_return`."""
        data = protect_json(returning)
        token = hashlib.blake2b(data, digest_size=16).hexdigest()
        self.store.create(f"{self.folder}/{token}{_RETURNING}", data)
        return token

    def finish_return(self, token: str, returning: Returning) -> None:
        """These are in the stream now."""
        self.store.replace(f"{self.folder}/{token}{_RETURNED}", protect_json(returning))

    def _names(self, kind: str) -> list[str]:
        return [name for name in self.store.names(self.folder) if name.endswith(kind)]

    def _record(self, name: str) -> Returning:
        where = f"{self.folder}/{name}"
        data = self.store.read(where)
        if data is None:
            raise LogError(f"{self.store.locate(where)} has disappeared; restore it from a copy")
        return verified_json(data, Returning, self.store.locate(where))

    def counts(self) -> dict[str, int]:
        """How many there are for each reason."""
        counted: dict[str, int] = {}
        for event in self.events():
            counted[event.reason.value] = counted.get(event.reason.value, 0) + 1
        return counted


def encode_bad(bad: list[BadEvent], stream: str) -> bytes:
    """The bytes of a file of bad events of a stream; what may hold secret values is encrypted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = [_veiled(event, stream) for event in sorted(bad, key=_id)]
    table = pa.Table.from_pylist([msgspec.structs.asdict(event) for event in kept], schema=_schema())
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4")
    return bytes(sink.getvalue().to_pybytes())


def _secret_of(event: BadEvent, stream: str) -> str | None:
    """The stream whose secret values an event's bytes may hold: this one, or the one that a rule read it from."""
    return next((name for name in (stream, event.producer) if secret_columns(name)), None)


def _veiled(event: BadEvent, stream: str) -> BadEvent:
    """With its bytes encrypted, and with them what was said of its values. By its key's data key, if they tell it."""
    name = _secret_of(event, stream)
    if name is None or not event.raw or is_encrypted(event.raw):
        return event
    told = event.reason in _TELLING
    inside = msgspec.msgpack.encode((event.detail if told else "", event.raw))
    raw = encrypt_bytes(inside, name, _key_of(event.raw, name), QUARANTINE)
    return msgspec.structs.replace(event, raw=raw, detail=SECRET if told else event.detail)


def _key_of(raw: bytes, stream: str) -> Key:
    try:
        record = msgspec.json.decode(raw) if raw.lstrip()[:1] == b"{" else msgspec.msgpack.decode(raw)
    except (ValueError, RecursionError):
        return ()
    if isinstance(record, dict) and isinstance(record.get("payload"), dict):  # a whole event
        record = record["payload"]
    return key_in(stream, record)


def unveiled(event: BadEvent, stream: str, where: str) -> BadEvent:
    """The event as it was put into quarantine; without bytes, if its key's data key was erased."""
    name = _secret_of(event, stream)
    if name is None or not is_encrypted(event.raw):
        return event
    inside = decrypt_bytes(event.raw, name, QUARANTINE, where)
    if inside is None:
        return msgspec.structs.replace(event, raw=b"", detail=ERASED)
    detail, raw = msgspec.msgpack.decode(inside, type=tuple[str, bytes])
    return msgspec.structs.replace(event, raw=raw, detail=detail or event.detail)


def _id(event: BadEvent) -> EventId:
    return event.id


def declared_losses(bad: Iterable[BadEvent]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """By producer and epoch: the numbers that were declared lost together, first and last."""
    declared: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for event in bad:
        if event.reason is Reason.LOST and event.first is not None:
            declared.setdefault((event.producer, event.epoch), []).append((event.first, event.sequence))
    return declared


def share_text(count: int, total: int) -> str:
    """A share in percent."""
    return f"{100 * count / max(total, 1):.3g} %"


def _name_of(data: bytes) -> str:
    """A file is named by the digest of its bytes."""
    return f"{hashlib.blake2b(data, digest_size=16).hexdigest()}.parquet"


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("producer", pa.string(), nullable=False),
            pa.field("epoch", pa.int64(), nullable=False),
            pa.field("sequence", pa.int64(), nullable=False),
            pa.field("reason", pa.string(), nullable=False),
            pa.field("detail", pa.string(), nullable=False),
            pa.field("raw", pa.binary(), nullable=False),
            pa.field("time_us", pa.int64()),
            pa.field("first", pa.int64()),
        ]
    )
