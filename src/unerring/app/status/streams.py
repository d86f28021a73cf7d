"""The event log of a run: how many events each stream has, how far it is known, what is in quarantine, who has read."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from unerring.log import QUARANTINE, Chain, EventLog, Positions, Quarantine
from unerring.model import TIME_MAX, TIME_MIN, ColumnType

if TYPE_CHECKING:
    from unerring.app.application import App

RATE_OVER_US: Final = 5_000_000


class Counted:
    """One stream. What the index names is counted there; the footer of every other segment is read once."""

    def __init__(self, log: EventLog, name: str) -> None:
        self.chain: Chain = log.veiled(name)
        self.events = 0
        self.rule = ""
        self._counted_us = self.chain.base.from_us
        self._quarantine = Quarantine(log.store, name)
        self._positions = Positions(log.store, name)
        self._files: list[str] = []
        self._bad: dict[str, int] = {}

    def look(self) -> dict[str, Any]:
        through_us = self.chain.refresh()
        last = self.chain.last() if through_us > self._counted_us else None
        self.events += self.chain.count(self._counted_us, through_us)
        self.rule = last.rule if last else self.rule
        self._counted_us = through_us
        files = self.chain.store.names(f"{self.chain.folder}/{QUARANTINE}")
        if files != self._files:
            self._bad, self._files = self._quarantine.counts(), files
        columns = self.chain.schema.columns
        return {
            "kind": "situation" if self.rule else "primary",
            "events": self.events,
            "segments": self.chain.objects_held,
            "through_us": through_us if TIME_MIN < through_us < TIME_MAX else None,
            "complete": through_us == TIME_MAX,
            "quarantined": self._bad,
            "readers": {reader: list(stamp) for reader, stamp in self._positions.all().items()},
            "columns": [column.name for column in columns],
            "times": [c.name for c in columns if c.type is ColumnType.TIME and c.name not in self.chain.schema.secret],
            "key": list(self.chain.schema.key),
        }


class Streams:
    """All streams of a log; it may not be there yet."""

    def __init__(self, log: EventLog, app: App | None) -> None:
        self._log = log
        self._outputs = None if app is None else {schema.name for schema in app.outputs}
        self._order = [] if app is None else [schema.name for schema in (*app.streams, *app.outputs)]
        self.counted: dict[str, Counted] = {}
        self._documents: dict[str, dict[str, Any]] = {}
        self._seen: deque[tuple[int, int]] = deque()

    def look(self) -> dict[str, dict[str, Any]]:
        for name in self._log.streams() if not self.counted else self._log.store.names(""):
            if name not in self.counted and self._log.declaration(name) is not None:
                self.counted[name] = Counted(self._log, name)
        names = sorted(self.counted, key=lambda name: (*self._place(name), name))
        self._documents = {name: self.counted[name].look() for name in names}
        if self._outputs is not None:
            for name, stream in self._documents.items():
                stream["kind"] = "situation" if name in self._outputs else "primary"
        return self._documents

    def _place(self, name: str) -> tuple[int]:
        return (self._order.index(name) if name in self._order else len(self._order),)

    @property
    def situation_streams(self) -> list[str]:
        """The streams of situations, as of the last `look`."""
        return [name for name, stream in self._documents.items() if stream["kind"] == "situation"]

    def situations(self, now_us: int) -> dict[str, Any]:
        """Counts as of the last `look`. A rate needs two looks."""
        counts = {name: stream["events"] for name, stream in self._documents.items() if stream["kind"] == "situation"}
        total = sum(counts.values())
        self._seen.append((now_us, total))
        while len(self._seen) > 2 and self._seen[0][0] < now_us - RATE_OVER_US:
            self._seen.popleft()
        first_us, before = self._seen[0]
        rate = (total - before) * 1e6 / (now_us - first_us) if now_us > first_us else None
        return {"total": total, "by_stream": counts, "per_s": rate}
