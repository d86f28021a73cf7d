"""A webhook: each event is posted as JSON, at least once, with its stamp as `Idempotency-Key`.

A service has no transaction that we could join, so the position is kept on the run's store, after the answer. An event
whose answer was lost is posted again with the same key, and the receiver tells by it that it has it already.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from unerring.log import Store
from unerring.model import (
    CallerError,
    ConfigError,
    NetworkError,
    Stamp,
    StreamSchema,
    protect_json,
    verified_json,
)
from unerring.sinks.documents import documents, stamp_in
from unerring.sinks.port import Overtaken, as_rows
from unerring.sinks.record import SinkRecord, position_name
from unerring.sinks.words import in_short

if TYPE_CHECKING:
    import pyarrow as pa

KEY: Final = "Idempotency-Key"
BATCH: Final = "unerring-batch"
BATCH_MAX: Final = 10_000
MOVED_EVERY: Final = 50
"""The position is written after so many requests: a driver that is killed posts at most so many again."""
_TIMEOUT_S: Final = 30.0
_LATER: Final = frozenset({408, 409, 421, 423, 425, 429})
"""Answers of the 4xx kind that another try may change; 5xx are too, and the others are not."""


class _Kept(msgspec.Struct, frozen=True):
    time: int
    ordinal: int
    number: int
    """Rises with every change, so that no two states have the same bytes."""


class WebhookTarget:
    """One address. `?unerring-batch=100` posts up to so many events at once, as a JSON array."""

    def __init__(self, url: str, schema: StreamSchema, record: SinkRecord, store: Store) -> None:
        import httpx

        self._schema = schema
        self._record = record
        self._store = store
        self._name = position_name(record.name)
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._batch = _batch(given.pop(BATCH, "1"))
        self._url = urlunsplit(parts._replace(query=urlencode(given)))
        self._client = httpx.Client(timeout=_TIMEOUT_S)
        self._kept, self._tag = self._load()

    def position(self) -> Stamp | None:
        self._kept, self._tag = self._load()
        return self._at

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        """Post what is after the position, and move that with each event or batch that was taken."""
        if self._at != after:
            raise Overtaken(f"{self._record.to} is at {self._at}, not at {after}")
        waiting = documents(as_rows(chunk, self._schema), self._schema)
        taken, requests = self._at, 0
        try:
            while batch := list(islice(waiting, self._batch)):
                self._post(batch[-1][0], [document for _, document in batch])
                taken, requests = stamp_in(batch[-1][0]), requests + 1
                if requests % MOVED_EVERY == 0:
                    self._move(taken)
        finally:
            if taken is not None and taken != self._at:
                self._move(taken)

    def read(self, from_us: int, through_us: int) -> pa.Table:
        raise CallerError(
            f"sink {self._record.name}: {self._record.to} is a service, which cannot be read; hold its own records "
            "against the situations: each came with its stamp"
        )

    def rewind(self, to: Stamp) -> None:
        """What is after the stamp is posted again, with the keys that it had."""
        self._move(to)

    def close(self) -> None:
        self._client.close()

    @property
    def _at(self) -> Stamp | None:
        return None if self._kept is None else Stamp(self._kept.time, self._kept.ordinal)

    def _post(self, last: str, bodies: list[bytes]) -> None:
        """One request; done when the service has taken it."""
        import httpx

        content = b"[" + b",".join(bodies) + b"]" if self._batch > 1 else bodies[0]
        key = f"{self._schema.name}-{last}"
        headers = {KEY: key, "Content-Type": "application/json"}
        to = self._record.to
        try:
            answer = self._client.post(self._url, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise NetworkError(f"{to} does not answer ({in_short(error)})") from None
        if answer.is_success:
            return
        said = f"{to} answered {answer.status_code} to {key}"
        if answer.status_code >= 500 or answer.status_code in _LATER:
            raise NetworkError(said)
        raise CallerError(
            f"sink {self._record.name}: {said}, which another try does not change; correct the service or the address"
        )

    def _load(self) -> tuple[_Kept | None, str | None]:
        found = self._store.read_tagged(self._name)
        if found is None:
            return None, None
        where = self._store.locate(self._name)
        return verified_json(found[0], _Kept, where, "restore it from a copy"), found[1]

    def _move(self, to: Stamp) -> None:
        kept = _Kept(to.time, to.ordinal, self._kept.number + 1 if self._kept else 1)
        tag = self._store.replace_if(self._name, protect_json(kept), self._tag)
        if tag is None:
            raise Overtaken(f"another driver of sink {self._record.name} moved its position meanwhile")
        self._kept, self._tag = kept, tag


def _batch(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= BATCH_MAX:
        raise ConfigError(f"{BATCH}={text}: write a number of events from 1 to {BATCH_MAX}")
    return int(text)
