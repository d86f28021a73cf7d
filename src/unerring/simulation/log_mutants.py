"""Logs that are broken on purpose, one for each rule that keeps readers from losing, repeating or mixing events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from unerring.log import (
    ABSENT,
    COMPACTED,
    PARTS,
    SEGMENTS,
    Chain,
    Compactor,
    Conflict,
    Entry,
    ObjectStore,
    PartRows,
    Store,
    segment_name,
    with_origin,
    write_part,
)
from unerring.model import TIME_MIN
from unerring.simulation.faulty_bucket import faulty_store
from unerring.simulation.log_programs import Programs, States

_REUSED: Final = "0" * 16


class _Renaming(ObjectStore):
    """Puts an object in its place, whatever is there, as a rename does."""

    def create(self, name: str, data: bytes) -> bool:
        self.replace(name, data)
        return True


class _Believing(ObjectStore):
    """Takes the answer "exists" for the word of another writer, though it may be the echo of its own first try."""

    def create(self, name: str, data: bytes) -> bool:
        token, path = self._fresh_token(), self._path(name)

        def put() -> bool:
            try:
                self._client.put(path, data, token, ABSENT)
            except Conflict:
                return False
            return True

        return self._persist("write", name, put)


class _Hasty(Compactor):
    """Deletes what it merged before an index names the merged object."""

    def commit(self, entries: Sequence[Entry]) -> bool:
        for entry in entries:
            for span in self.chain.spans(entry.from_us, entry.through_us) if entry.name else ():
                name = f"{COMPACTED}/{span.name}" if span.name else f"{SEGMENTS}/{segment_name(span.from_us)}"
                self.chain.store.delete(f"{self.chain.folder}/{name}")
        return super().commit(entries)


class _Mixing(States):
    """Puts what changed on the newest whole state, whether it began there or not."""

    def trail(self, pairs: list[Any], through_us: int) -> list[tuple[int, int]] | None:
        whole = [pair for pair in pairs if pair[1] == TIME_MIN and pair[0] <= through_us]
        change = [pair for pair in pairs if pair[0] == through_us and pair[1] != TIME_MIN]
        return [*change[:1], *([max(whole)] if whole else [])]


def _write_again(
    store: Store, folder: str, schema: Any, table: Any, bucket: int, from_us: int, through_us: int, attempt: str
) -> Any:
    """Every attempt at a part writes to the same name: a retry takes the place of what a segment already names."""
    part = write_part(store, folder, schema, table, bucket, from_us, through_us, attempt)
    data = store.read(f"{folder}/{PARTS}/{part.name}") or b""
    name = f"{part.name[:19]}-{part.name[:19]}-{bucket}-{_REUSED}.parquet"
    store.replace(f"{folder}/{PARTS}/{name}", data)
    return type(part)(name, *(getattr(part, field) for field in part.__struct_fields__[1:]))


def _seal_stale(chain: Chain, outputs: Any, through_us: int, rule: str) -> int:
    """A driver that was overtaken seals what it had numbered, as if nobody had been there."""
    while chain.refresh() < through_us:
        if isinstance(outputs, PartRows):
            chain.seal_parts(through_us, outputs.parts, outputs.ordinals, rule=rule)
        else:
            chain.seal(through_us, with_origin(outputs, chain.schema), rule=rule)
    return 0


def _stores(kind: type[ObjectStore]) -> Callable[..., ObjectStore]:
    def open_store(bucket: Any, seed: int) -> ObjectStore:
        whole = faulty_store(bucket, seed)
        return kind(whole._client, "memory://simulated", "", whole._patience, whole._pause, whole._fresh_token)

    return open_store


def _programs(**broken: Any) -> type[Programs]:
    return type("BrokenPrograms", (Programs,), broken)


def log_mutants() -> dict[str, dict[str, Any]]:
    """What each mutant puts in the place of what is right."""
    return {
        "rename instead of create": {"store": staticmethod(_stores(_Renaming))},
        "exists means lost": {"store": staticmethod(_stores(_Believing))},
        "delete before the index names the new one": {"programs": _programs(compactor=_Hasty)},
        "a part that is reused by a retry": {"programs": _programs(write_part=staticmethod(_write_again))},
        "a delta on the wrong base": {"programs": _programs(states=_Mixing)},
        "numbering by a stale driver": {"programs": _programs(seal_interval=staticmethod(_seal_stale))},
    }
