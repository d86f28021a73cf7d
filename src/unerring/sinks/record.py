"""What a run's store remembers of a sink: its identity, so that positions in a target are never mistaken for another's.

The record is created if absent, so whoever brings a sink up first decides; a copy of the run has the same identity and
goes on where the run was.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Final

import msgspec

from unerring.log import EventLog, Positions, Store
from unerring.model import ConfigError, protect_json, verified_json

SINKS: Final = "sinks"


class SinkRecord(msgspec.Struct, frozen=True):
    """One sink of a run."""

    name: str
    stream: str
    to: str
    """The target's address, without its password."""
    token: str
    """Drawn once: another run's sink of the same name is another sink."""
    secrets: bool = False
    """Whether the target gets the values of secret columns, or NULL."""

    @property
    def id(self) -> str:
        """The name under which a target keeps this sink's position."""
        return f"{self.name}-{self.token}"

    @property
    def reader(self) -> str:
        """The name under which it holds retention back."""
        return f"sink-{self.name}"


def register(store: Store, name: str, stream: str, to: str, *, secrets: bool = False) -> SinkRecord:
    """The record of a sink, made now if there is none. A name stands for one stream and one target."""
    if not name or not all(c.isalnum() or c in "-_" for c in name):
        raise ConfigError(f"sink name {name!r}: use letters, digits, - and _")
    record = SinkRecord(name, stream, to, token_hex(4), secrets)
    if store.create(_name(name), protect_json(record)):
        return record
    kept = known(store, name)
    if kept is None:
        raise ConfigError(f"{store.locate(_name(name))} was removed while it was read; start again")
    if (kept.stream, kept.to) != (stream, to):
        raise ConfigError(
            f"sink {name} of this run delivers {kept.stream} to {kept.to}, not {stream} to {to}; give the new one "
            f"another name, or remove the old one with: unerring deliver RUN --forget {name}"
        )
    if kept.secrets != secrets:
        plain = "with the values of secret columns" if kept.secrets else "without the values of secret columns"
        raise ConfigError(
            f"sink {name} of this run delivers {plain}, and that is part of what it is; give the new one another name, "
            f"or remove the old one with: unerring deliver RUN --forget {name}"
        )
    return kept


def known(store: Store, name: str) -> SinkRecord | None:
    """The record of a sink, if the run has one of that name."""
    content = store.read(_name(name))
    where = store.locate(_name(name))
    return None if content is None else verified_json(content, SinkRecord, where, "restore it from a copy")


def forget(store: Store, log: EventLog, record: SinkRecord) -> None:
    """The run has no such sink any more, and nothing is kept for it. What it delivered stays in the target."""
    Positions(log.store, record.stream).forget(record.reader)
    store.delete(position_name(record.name))
    store.delete(_name(record.name))


def position_name(name: str) -> str:
    """Where a sink has its position whose target has none."""
    return f"{SINKS}/{name}.position.json"


def _name(name: str) -> str:
    return f"{SINKS}/{name}.json"
