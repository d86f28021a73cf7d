"""The event log of one application: a folder of streams, each with its declaration, its chain and its quarantine."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from unerring.log.buckets import BUCKETS_MAX, Spread
from unerring.log.chain import Chain
from unerring.log.encryption import ring_of
from unerring.log.growth import DECLARATION, Declaration, Version, fitted, read_declaration
from unerring.log.index import Span
from unerring.log.keys import VARIABLE
from unerring.log.store import Store, store_at
from unerring.model import (
    ARRIVAL,
    CallerError,
    ConfigError,
    LogError,
    SchemaError,
    StreamSchema,
    protect_json,
    verified_json,
)

BUCKETS: Final = 4
"""Enough for eight cores with two streams' tasks each; more buckets cost a state store each, even when idle."""
_LINK: Final = "link.json"


class EventLog:
    """An event log: streams by name, in one store."""

    def __init__(self, store: Store | str | os.PathLike[str]) -> None:
        self.store: Store = store_at(store) if isinstance(store, str | os.PathLike) else store

    def streams(self) -> list[str]:
        """The names of all streams that were ever created here."""
        return [name for name in self.store.names("") if self.declaration(name) is not None]

    def link(self, name: str, other: EventLog) -> None:
        """Let a stream of another log stand in this one, to be read."""
        self.store.create(f"{name}/{_LINK}", protect_json(other.store.locate("")))

    def _linked(self, name: str) -> EventLog | None:
        """The log in which a stream is that only stands in this one."""
        data = self.store.read(f"{name}/{_LINK}")
        return None if data is None else EventLog(verified_json(data, str, self.store.locate(f"{name}/{_LINK}")))

    def declaration(self, name: str) -> Declaration | None:
        """How a stream was declared when it was created."""
        own = self._own(name)
        other = self._linked(name) if own is None else None
        return own if other is None else other.declaration(name)

    def _own(self, name: str) -> Declaration | None:
        return read_declaration(self.store, name)

    def create(self, schema: StreamSchema, buckets: int = BUCKETS, spread: Spread | None = None) -> Chain:
        """The chain of a stream; declares the stream if it is new. `spread`: how new segments are bucketed, if not as
        the stream is declared."""
        if not 1 <= buckets <= BUCKETS_MAX:
            raise ConfigError(f"stream {schema.name}: {buckets} buckets; choose between 1 and {BUCKETS_MAX}")
        known = self.declaration(schema.name)
        if known is None:
            made = Declaration(schema, buckets, ranges=True, ring=_ring(schema))
            self.store.create(f"{schema.name}/{DECLARATION}", protect_json(made))
            known = self.declaration(schema.name)
        if known is None:
            raise LogError(f"{self.store.locate(schema.name)} was created and has disappeared; check the disk")
        if _of_events(known.schema) != _of_events(schema):
            known = self._fit(known, schema)
        _check_ring(known, self.store.locate(""))
        # When events are all there is a writer's affair, and may change: the chain says itself what is complete.
        declared = msgspec.structs.replace(known.schema, **{name: getattr(schema, name) for name in sorted(ARRIVAL)})
        return self._chain(msgspec.structs.replace(known, schema=declared), spread=spread)

    def _fit(self, known: Declaration, schema: StreamSchema) -> Declaration:
        """Let a stream have the columns that a program declares, if it can grow to them."""
        while True:
            tagged = self.store.read_tagged(f"{schema.name}/{DECLARATION}")
            known = self.declaration(schema.name) or known
            try:
                grown = fitted(known.schema, schema, known.versions)
            except SchemaError as error:
                raise SchemaError(
                    f"stream {schema.name} in {self.store.locate(schema.name)} was declared with other columns or "
                    f"another key ({_sketch(known.schema)}) than now ({_sketch(schema)}): {error}; or give the new one "
                    "a new name"
                ) from None
            if _of_events(grown) == _of_events(known.schema):
                return known
            if tagged is None:
                raise LogError(f"stream {schema.name} is another log's, and can only be read here; let that one grow")
            version = Version(known.schema.columns, self._chain(known).through_us)
            ring = known.ring or _ring(grown)
            wanted = msgspec.structs.replace(known, schema=grown, versions=(*known.versions, version), ring=ring)
            if self.store.replace_if(f"{schema.name}/{DECLARATION}", protect_json(wanted), tagged[1]):
                return wanted

    def check_ring(self, name: str) -> None:
        """The ring that is named is that of an existing stream."""
        declared = self.declaration(name)
        if declared is not None:
            _check_ring(declared, self.store.locate(""))

    def veiled(self, name: str) -> Chain:
        """The chain of an existing stream whose secret columns are read as NULL, for whoever does not show them."""
        chain = self.chain(name)
        chain.objects.veiled = True
        return chain

    def chain(self, name: str) -> Chain:
        """The chain of an existing stream."""
        declared = self._own(name)
        if declared is None:
            other = self._linked(name)
            if other is not None:
                return other.chain(name)
            names = ", ".join(self.streams()) or "none"
            raise LogError(f"there is no stream {name!r} in {self.store.locate('')}; it has {names}")
        return self._chain(declared)

    def known_chain(self, name: str, known: list[Span], spread: Spread | None = None) -> Chain:
        """A chain as far as somebody else has found it, read with a spread of keys (by default the stream's own)."""
        declared = self._own(name)
        if declared is None:
            other = self._linked(name)
            if other is not None:
                return other.known_chain(name, known, spread)
            raise LogError(f"{self.store.locate(name)} has disappeared; restore it from a copy")
        return self._chain(declared, known, spread)

    def respread(self, name: str, buckets: int) -> None:
        """Let new segments of a stream have so many buckets, by ranges. Those that are there stay as they are."""
        while True:
            tagged = self.store.read_tagged(f"{name}/{DECLARATION}")
            known = self.declaration(name)
            if tagged is None or known is None:
                raise LogError(f"{self.store.locate(name)} has disappeared; restore it from a copy")
            wanted = msgspec.structs.replace(known, buckets=buckets, ranges=True)
            if wanted == known or self.store.replace_if(f"{name}/{DECLARATION}", protect_json(wanted), tagged[1]):
                return

    def _chain(self, declared: Declaration, known: list[Span] | None = None, spread: Spread | None = None) -> Chain:
        spread = spread or Spread(declared.buckets, declared.ranges)
        name = declared.schema.name
        return Chain(self.store, name, declared.schema, spread.buckets, known, ranges=spread.ranges)


def _of_events(schema: StreamSchema) -> tuple[object, ...]:
    """What events of a stream have to have."""
    return schema.columns, schema.key, schema.secret


def _ring(schema: StreamSchema) -> str:
    """The id of the ring that a stream is encrypted with, if it has secret columns."""
    return ring_of(schema).id if schema.secret else ""


def _check_ring(known: Declaration, where: str) -> None:
    """Nobody writes a stream with the keys of two rings."""
    if known.ring and known.ring != (ring := ring_of(known.schema)).id:
        raise CallerError(
            f"stream {known.schema.name} in {where} is encrypted with ring {known.ring}, and {ring.where} is ring "
            f"{ring.id}; name the ring of this run ({VARIABLE})"
        )


def _sketch(schema: StreamSchema) -> str:
    columns = ", ".join(f"{c.name}: {c.type.value}{'?' if c.nullable else ''}" for c in schema.columns)
    return f"{columns}; key {', '.join(schema.key) or 'none'}"
