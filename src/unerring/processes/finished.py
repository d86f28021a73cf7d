"""What a node keeps in memory of the instances that have ended: their outlines, as bytes, and an index.

A million of them are normal, and few are asked for. So an outline is decoded when somebody asks for it, and an index
leads from a declared attribute's value to the instances that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from unerring.processes.messages import Outline, Status

Equal = tuple[str, Any]
"""A field or an attribute, and the value that it must have."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Outline)
_LITERALS: Final = (str, int, float, bool)
"""Types of values that a condition can name; others are not indexed."""


class Finished:
    """Outlines by instance, in the order in which they ended."""

    __slots__ = ("_by", "_kept", "_names", "_replicas_of", "counts")

    def __init__(self, attributes: Iterable[str] = (), replicas_of: Callable[[str], str] = lambda instance: "") -> None:
        self._names = tuple(attributes)
        self._replicas_of = replicas_of
        self.counts: dict[tuple[str, str, str], int] = {}
        """By replicas, process and status; see tally.py."""
        self._kept: dict[str, bytes] = {}
        self._by: dict[Equal, dict[str, None]] = {}
        """Instances that have a value: of an attribute, of the parent, and of a status that is rare."""

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, instance: object) -> bool:
        return instance in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __getitem__(self, instance: str) -> Outline:
        return _DECODER.decode(self._kept[instance])

    def get(self, instance: str) -> Outline | None:
        data = self._kept.get(instance)
        return None if data is None else _DECODER.decode(data)

    def load(self, records: dict[str, bytes]) -> None:
        """After a restart: the outlines that were on disk."""
        ends = sorted((_DECODER.decode(data).ended_us, instance) for instance, data in records.items())
        for _, instance in ends:  # decoded again: a million of them at once would be most of the memory
            self._kept[instance] = records[instance]
            self._index(instance, self[instance])

    def add(self, instance: str, outline: Outline) -> None:
        self._kept[instance] = _ENCODER.encode(outline)
        self._index(instance, outline)

    def remove_oldest(self) -> str:
        oldest = next(iter(self._kept))
        outline = self[oldest]
        self._count(oldest, outline, -1)
        for equal in self._values(outline):
            instances = self._by[equal]
            del instances[oldest]
            if not instances:
                del self._by[equal]
        del self._kept[oldest]
        return oldest

    def having(self, equal: Sequence[Equal]) -> list[str]:
        """Instances among which are all that have all these values: of the value that the fewest have, where the index
        knows one. What is asked of them has to be looked at anyway."""
        lists: list[dict[str, Any]] = []
        for name, value in equal:
            if name == "instance":
                return [value] if value in self._kept else []
            if name in self._names or name == "parent" or (name == "status" and value != Status.COMPLETED):
                lists.append(self._by.get((name, value), {}))
        return list(min(lists, key=len, default=self._kept))

    def _count(self, instance: str, outline: Outline, by: int) -> None:
        key = (self._replicas_of(instance), outline.process, str(outline.status))
        self.counts[key] = self.counts.get(key, 0) + by
        if not self.counts[key]:
            del self.counts[key]

    def _index(self, instance: str, outline: Outline) -> None:
        self._count(instance, outline, 1)
        for equal in self._values(outline):
            self._by.setdefault(equal, {})[instance] = None

    def _values(self, outline: Outline) -> list[Equal]:
        values = [(name, outline.variables.get(name)) for name in self._names]
        known: list[Equal] = [(name, value) for name, value in values if isinstance(value, _LITERALS)]
        if outline.status != Status.COMPLETED:
            known.append(("status", str(outline.status)))
        if outline.parent:
            known.append(("parent", outline.parent))
        return known
