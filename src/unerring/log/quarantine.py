"""Bad events: kept with their raw bytes and the reason, counted, never dropped silently, never in the stream's way."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.log.store import Store
from unerring.model import LogError

if TYPE_CHECKING:
    import pyarrow as pa

QUARANTINE: Final = "quarantine"


class Reason(StrEnum):
    """Why an event is not in its stream."""

    UNDECODABLE = "undecodable"
    SCHEMA = "schema"
    NOT_INCREASING = "not increasing"
    TOO_LARGE = "too large"
    LATE = "late"
    LOST = "lost"
    """It never came: the channel declared it lost, from this sequence on, as the detail says."""
    RULE = "rule"
    """A rule could not digest it. Its id is then the event's: stream, time and ordinal."""
    PROCESS = "process"
    """A situation with which no process could be started. Its id is then the situation's, as with a rule."""


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


class Quarantine:
    """The bad events of one stream, as small Parquet files that never change."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self.folder = f"{folder}/{QUARANTINE}"

    def add(self, bad: list[BadEvent]) -> None:
        """Durable once this returns. Adding the same again changes nothing: the file is named by what is in it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not bad:
            return
        table = pa.Table.from_pylist([msgspec.structs.asdict(event) for event in sorted(bad)], schema=_schema())
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="lz4")
        data = sink.getvalue().to_pybytes()
        self.store.create(f"{self.folder}/{hashlib.blake2b(data, digest_size=16).hexdigest()}.parquet", data)

    def events(self) -> list[BadEvent]:
        """All bad events, each once, in the order of their ids."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found: dict[tuple[str, int, int], BadEvent] = {}
        for name in self.store.names(self.folder):
            source = self.store.open(f"{self.folder}/{name}")
            if source is None:
                continue
            with source:
                try:
                    rows = pq.read_table(source, schema=_schema()).to_pylist()
                except (pa.ArrowInvalid, OSError) as error:
                    where = self.store.locate(f"{self.folder}/{name}")
                    raise LogError(
                        f"{where} is damaged ({str(error).splitlines()[0]}); restore it from a copy"
                    ) from None
            for row in rows:
                event = BadEvent(**{**row, "reason": Reason(row["reason"])})
                found.setdefault((event.producer, event.epoch, event.sequence), event)
        return [found[key] for key in sorted(found)]

    def counts(self) -> dict[str, int]:
        """How many there are for each reason."""
        counted: dict[str, int] = {}
        for event in self.events():
            counted[event.reason.value] = counted.get(event.reason.value, 0) + 1
        return counted


def share_text(count: int, total: int) -> str:
    """A share in percent."""
    return f"{100 * count / max(total, 1):.3g} %"


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
        ]
    )
