"""The virtual disk of one node: atomic batches, slow syncs, and what a crash makes of a batch that was not synced."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.model import Entropy, Persist, check


class DiskSpec(msgspec.Struct, frozen=True):
    """How a disk behaves in good times."""

    sync_us: int = 500
    """The least time of a sync."""
    spread_us: int = 1_000
    """Up to this much more, uniformly."""
    survives: float = 0.5
    """The chance that a batch whose sync a crash cut short is there afterwards, whole. It is never there in part."""

    def __post_init__(self) -> None:
        check(self, "sync_us", 0, 3_600_000_000)
        check(self, "spread_us", 0, 3_600_000_000)
        check(self, "survives", 0.0, 1.0)


class Disk:
    """Synced records, and at most one batch on its way there."""

    __slots__ = ("_safe", "batch", "fails_next", "full", "records", "slower", "spec", "syncs")

    def __init__(self, spec: DiskSpec) -> None:
        self.spec = spec
        self.records: dict[str, bytes] = {}
        self.batch: list[Persist] = []
        """Written, its sync not yet returned."""
        self.slower = 1
        self.full = False
        self.fails_next = False
        self.syncs = 0
        self._safe: dict[str, bytes] | None = None
        """While the disk lies about its syncs: what it really holds."""

    def load(self) -> Mapping[str, bytes]:
        """All records in key order, as stable storage gives them to a machine that starts."""
        return dict(sorted(self.records.items()))

    def sync_us(self, entropy: Entropy) -> int:
        """How long the next sync takes."""
        return (self.spec.sync_us + int(self.spec.spread_us * entropy.random())) * self.slower

    def synced(self) -> str:
        """The sync returns: why it failed, or nothing and the batch is durable."""
        self.syncs += 1
        if self.full:
            return "the disk is full"
        if self.fails_next:
            self.fails_next = False
            return "a sync failed"
        self._apply()
        return ""

    def crash(self, entropy: Entropy) -> None:
        """Power goes: the unsynced batch survives whole or not at all; a lying disk forgets what it claimed."""
        if self._safe is not None:
            self.records = dict(self._safe)
            self.batch = []
        elif self.batch and not self.full and entropy.random() < self.spec.survives:
            self._apply()
        self.batch = []

    def lose(self) -> None:
        """The disk is gone, and an empty one is in its place."""
        self.records, self.batch = {}, []
        self.lie(self._safe is not None)

    def lie(self, lying: bool) -> None:
        """From now on syncs return without being done; telling the truth again makes everything durable."""
        self._safe = dict(self.records) if lying else None

    def calm(self) -> None:
        """All faults end."""
        self.slower = 1
        self.full = self.fails_next = False
        self._safe = None

    def _apply(self) -> None:
        records = self.records
        for persist in self.batch:
            for key in persist.deletes:
                records.pop(key, None)
            records.update(persist.puts)
        self.batch = []
