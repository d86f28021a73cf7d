"""The membership record on a run's store, behind the port of stable storage, for keepers on several hosts.

All records are one object, which is replaced only if nobody has changed it since this keeper read it. Who loses the
race, or cannot tell whether it won, fails as a broken disk does: the next keeper begins with what the store holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from unerring.log import store_at
from unerring.model import DiskError, Persist, protect, verified

FOLDER: Final = "membership"


class _Held(msgspec.Struct, frozen=True):
    """The number rises with every write: no two states of the object are alike."""

    number: int
    records: dict[str, bytes]


class StoreStorage:
    """The records of one cluster, by its name, on the store at an address."""

    def __init__(self, address: str, name: str) -> None:
        self._store = store_at(address)
        self._name = f"{FOLDER}/{name}"
        self._held = _Held(0, {})
        self._tag: str | None = None

    def load(self, prefix: str = "", without: str = "") -> Mapping[str, bytes]:
        tagged = self._store.read_tagged(self._name)
        if tagged is not None:
            raw = verified(tagged[0], self._store.locate(self._name), "restore it from a copy")
            self._held, self._tag = msgspec.msgpack.decode(raw, type=_Held), tagged[1]
        keys = [key for key in sorted(self._held.records) if key.startswith(prefix)]
        return {key: self._held.records[key] for key in keys if not (without and key.endswith(without))}

    def write(self, batch: Iterable[Persist]) -> None:
        records = dict(self._held.records)
        for persist in batch:
            for key in persist.deletes:
                records.pop(key, None)
            records |= persist.puts
        held = _Held(self._held.number + 1, records)
        tag = self._store.replace_if(self._name, protect(msgspec.msgpack.encode(held)), self._tag)
        if tag is None:
            raise DiskError(
                f"another keeper has changed {self._store.locate(self._name)}; this one starts over from it"
            )
        self._held, self._tag = held, tag

    def close(self) -> None:
        """Nothing is held open between two requests."""
