"""A store in memory: for tests and trials, with an object store's manners."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from unerring.log.store.port import Store, tag_of

_MUTEX: Final = threading.Lock()
"""One for all stores in memory: of two threads one is first."""


class MemoryStore:
    """Named bytes in a dictionary of one process."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> bool:
        with _MUTEX:
            if name in self._held:
                return False
            self._held[name] = bytes(data)
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._held[name] = bytes(data)

    def replace_if(self, name: str, data: bytes, tag: str | None) -> str | None:
        if tag is None:
            return tag_of(data) if self.create(name, data) else None
        with _MUTEX:
            held = self._held.get(name)
            if held is None or tag_of(held) != tag:
                return None
            self._held[name] = bytes(data)
        return tag_of(data)

    def note(self, name: str, data: bytes) -> None:
        self._held[name] = bytes(data)

    def read(self, name: str) -> bytes | None:
        return self._held.get(name)

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        held = self._held.get(name)
        return None if held is None else (held, tag_of(held))

    def written_us(self, name: str) -> int | None:
        return time.time_ns() // 1000 if name in self._held else None

    def open(self, name: str) -> Any:
        import pyarrow as pa

        held = self._held.get(name)
        return None if held is None else pa.BufferReader(held)

    def names(self, folder: str, after: str = "") -> list[str]:
        prefix = f"{folder}/" if folder else ""
        inside = {name[len(prefix) :].split("/")[0] for name in list(self._held) if name.startswith(prefix)}
        return sorted(name for name in inside if name > after)

    def delete(self, name: str) -> None:
        self._held.pop(name, None)

    def locate(self, name: str) -> str:
        return f"memory:{name}"

    def within(self, folder: str) -> Store:
        return Within(self, folder)


class Within:
    """A folder of another store, as a store."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder.strip("/")

    def create(self, name: str, data: bytes) -> bool:
        return self._store.create(self._inside(name), data)

    def replace(self, name: str, data: bytes) -> None:
        self._store.replace(self._inside(name), data)

    def replace_if(self, name: str, data: bytes, tag: str | None) -> str | None:
        return self._store.replace_if(self._inside(name), data, tag)

    def note(self, name: str, data: bytes) -> None:
        self._store.note(self._inside(name), data)

    def read(self, name: str) -> bytes | None:
        return self._store.read(self._inside(name))

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        return self._store.read_tagged(self._inside(name))

    def written_us(self, name: str) -> int | None:
        return self._store.written_us(self._inside(name))

    def open(self, name: str) -> Any:
        return self._store.open(self._inside(name))

    def names(self, folder: str, after: str = "") -> list[str]:
        return self._store.names(self._inside(folder), after)

    def delete(self, name: str) -> None:
        self._store.delete(self._inside(name))

    def locate(self, name: str) -> str:
        return self._store.locate(self._inside(name))

    def within(self, folder: str) -> Store:
        return Within(self._store, self._inside(folder))

    def _inside(self, name: str) -> str:
        return "/".join(part for part in (self._folder, name) if part)
