"""Committed positions: up to which stamp a reader has finished with a stream."""

from __future__ import annotations

from typing import Final

import msgspec

from unerring.log.store import Store
from unerring.model import BEFORE_ALL, ConfigError, LogError, Stamp, protect_json, verified_json

POSITIONS: Final = "positions"
_REMEDY: Final = "restore it, or remove it to begin again"


class _Held(msgspec.Struct, frozen=True, array_like=True):
    """What a position's object holds. Earlier releases did not write its name."""

    time: int
    ordinal: int
    name: str = ""


class Positions:
    """The positions of one stream's readers. Each reader's name belongs to one process at a time."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self.folder = f"{folder}/{POSITIONS}"

    def get(self, reader: str) -> Stamp:
        """Where a reader goes on: everything up to this stamp is done."""
        name = f"{self.folder}/{_checked(reader)}.json"
        data = self.store.read(name)
        if data is None:
            return BEFORE_ALL
        where = self.store.locate(name)
        held = verified_json(data, _Held, where, _REMEDY)
        if held.name not in ("", name):
            raise LogError(f"{where} is {held.name}: it was swapped; {_REMEDY}")
        return Stamp(held.time, held.ordinal)

    def commit(self, reader: str, stamp: Stamp) -> None:
        """Durable once this returns."""
        name = f"{self.folder}/{_checked(reader)}.json"
        self.store.replace(name, protect_json(_Held(*stamp, name)))

    def forget(self, reader: str) -> None:
        """Nothing is kept for this reader any more."""
        self.store.delete(f"{self.folder}/{_checked(reader)}.json")

    def all(self) -> dict[str, Stamp]:
        """Every reader and its position."""
        readers = [name.removesuffix(".json") for name in self.store.names(self.folder)]
        return {reader: self.get(reader) for reader in readers}


def _checked(reader: str) -> str:
    if not reader or not all(c.isalnum() or c in "-_" for c in reader):
        raise ConfigError(f"reader name {reader!r}: use letters, digits, - and _")
    return reader
