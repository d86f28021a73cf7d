"""Bringing files in: put in order within a stated lateness, sealed, and never twice.

Which rows are late, and in which order the others come, follows from the file alone. So a file that was brought in half
way (a crash, a full disk) goes on exactly where it stopped: each segment says how many of the file's ordered events
the chain has by then. A file that is all in adds nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.chain import Chain
from unerring.log.eventlog import BUCKETS, EventLog
from unerring.log.files import header_of, read_blocks
from unerring.log.quarantine import BadEvent, Quarantine, Reason
from unerring.log.segments import Footer, with_origin
from unerring.log.times import Times, check_first
from unerring.model import (
    TIME_MAX,
    TIME_MIN,
    CallerError,
    ConfigError,
    ProcessConfig,
    StreamSchema,
    check,
    protect_json,
    verified_json,
)

if TYPE_CHECKING:
    import pyarrow as pa

INGESTED: Final = "ingested"
FILE: Final = "file-"
"""The prefix of the name of a producer that is a file; the file's digest follows."""


class IngestConfig(ProcessConfig, frozen=True):
    """How much a file may be out of order, and the bounds of ingesting it."""

    lateness_us: int = 0
    """A row this much before the latest row above it in the file still finds its place."""
    rows_per_segment: int = 1_000_000
    rows_held_max: int = 20_000_000
    """Rows within the lateness are held in memory; more than this is refused with a sentence."""

    def __post_init__(self) -> None:
        check(self, "lateness_us", 0, 2**60)
        check(self, "rows_per_segment", 1, 1 << 24)
        check(self, "rows_held_max", self.rows_per_segment, 1 << 30)


class Ingested(msgspec.Struct, frozen=True):
    """The outcome of bringing a file in."""

    stream: str
    rows: int
    """Rows of the file."""
    added: int
    quarantined: dict[str, int]
    through_us: int
    already: bool
    """It had been brought in before: nothing was added."""
    waiting: int = 0
    """Rows that are taken in, and will be in the stream when its watermark has passed them."""

    @property
    def share(self) -> float:
        """The share of the file's rows that are in quarantine."""
        return sum(self.quarantined.values()) / self.rows if self.rows else 0.0


class Begun(msgspec.Struct, frozen=True):
    """Written when a file's way into a stream begins."""

    from_us: int
    columns: tuple[str, ...] = ()
    """The file's own, where its rows do not name them."""
    times: Times | None = None


def begun_of(chain: Chain, digest: str) -> Begun | None:
    """How a file was read, by the digest that stands for it."""
    marker = _marker(chain, digest, "begun")
    data = chain.store.read(marker)
    return None if data is None else verified_json(data, Begun, chain.store.locate(marker))


def ingest(
    log: EventLog,
    path: Path,
    schema: StreamSchema,
    times: Times,
    config: IngestConfig | None = None,
    *,
    end: bool = False,
    buckets: int = BUCKETS,
    show: Callable[[int], None] = lambda rows: None,
) -> Ingested:
    """Bring a file into a stream. `end`: the stream is complete with it. `show` is called with the rows read so far."""
    if not path.is_file():
        raise CallerError(f"{path} is not a file; give a CSV, JSON-lines or Parquet file")
    check_first(path, times)
    chain = log.create(schema, buckets)
    work = _Ingest(chain, _digest(path), config or IngestConfig())
    done = work.done()
    if done is None:
        work.begin(header_of(path), times)
        for block in read_blocks(path, chain.schema, times):
            work.take(block.table, block.bad)
            show(work.rows)
        done = work.finish()
    while end and chain.refresh() < TIME_MAX:  # again after another writer's segment
        chain.seal(TIME_MAX, with_origin(_no_rows(chain.schema), chain.schema))
    return msgspec.structs.replace(done, through_us=chain.through_us)


class _Ingest:
    """One file on its way into one chain."""

    def __init__(self, chain: Chain, digest: str, config: IngestConfig) -> None:
        self.chain = chain
        self.digest = digest
        self.config = config
        self.quarantine = Quarantine(chain.store, chain.folder)
        self.rows = 0
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self._newest_us = TIME_MIN
        self._last_us = TIME_MIN
        self._passed = 0  # ordered events handled so far, wherever they went
        self._skip = 0  # ordered events that the chain already has from an earlier try
        self._added = 0
        self._ready: list[pa.Table] = []
        self._ready_rows = 0
        self._ready_us = TIME_MIN
        self._counts: dict[str, int] = {}

    def done(self) -> Ingested | None:
        data, where = self.chain.store.read(self._marker("done")), self.chain.store.locate(self._marker("done"))
        if data is None:
            return None
        return msgspec.structs.replace(verified_json(data, Ingested, where), added=0, already=True)

    def begin(self, columns: tuple[str, ...], times: Times) -> None:
        """Find how much an earlier try brought in; it cannot lie before where the chain ended when that try began."""
        fresh = Begun(self.chain.refresh(), columns, times)
        if not self.chain.store.create(self._marker("begun"), protect_json(fresh)):
            begun = begun_of(self.chain, self.digest) or Begun(self.chain.base.from_us)
            start = max(begun.from_us, self.chain.base.from_us)
            for span in self.chain.spans(start, TIME_MAX):
                self._learn(self.chain.footer(span))
        self._added = 0

    def take(self, table: pa.Table, bad: list[Any]) -> None:
        """The next rows of the file."""
        import numpy as np
        import pyarrow as pa

        self.rows += len(table) + len(bad)
        self._refuse([BadEvent(self.digest, 0, row.row, row.reason, row.detail, row.raw) for row in bad])
        if not len(table):
            return
        moments = table.column("time").to_numpy()
        newest = np.maximum.accumulate(np.concatenate([[self._newest_us], moments]))
        late = moments < newest[:-1] - self.config.lateness_us
        if late.any():
            self._refuse(self._late(table.filter(pa.array(late)), "more than the lateness behind the rows before it"))
            table = table.filter(pa.array(~late))
        self._newest_us = int(newest[-1])
        self._held.append(table)
        self._held_rows += len(table)
        if self._held_rows + self._ready_rows >= self.config.rows_per_segment:
            self._release(self._newest_us - self.config.lateness_us - 1)
        if self._held_rows > self.config.rows_held_max:
            raise ConfigError(
                f"more than {self.config.rows_held_max} rows lie within the lateness of {self.config.lateness_us} us; "
                "use a smaller lateness, or sort the file first"
            )

    def finish(self) -> Ingested:
        """The file has ended: everything held is in its place now."""
        self._release(self._newest_us)
        self._seal(done=True)
        result = Ingested(self.chain.name, self.rows, self._added, self._counts, self.chain.through_us, already=False)
        self.chain.store.create(self._marker("done"), protect_json(result))
        return result

    def _release(self, through_us: int) -> None:
        """Everything up to this time is known: order it, and seal whole segments of it."""
        import numpy as np
        import pyarrow as pa

        if self._held:
            table = pa.concat_tables(self._held)
            order = np.lexsort((table.column("_sequence").to_numpy(), table.column("time").to_numpy()))
            table = table.take(pa.array(order))
            known = int(np.searchsorted(table.column("time").to_numpy(), through_us, side="right"))
            self._held = [table.slice(known)] if known < len(table) else []
            self._held_rows = len(table) - known
            ready = self._ordinals(table.slice(0, known))
            self._ready.append(ready)
            self._ready_rows += len(ready)
            self._ready_us = max(self._ready_us, through_us)
        if self._ready_rows >= self.config.rows_per_segment:
            self._seal(done=False)

    def _ordinals(self, table: pa.Table) -> pa.Table:
        """Number the events of one time, or keep the first of them where the stream allows one only."""
        import numpy as np
        import pyarrow as pa

        moments = table.column("time").to_numpy()
        first = np.ones(len(table), dtype=bool)
        first[1:] = moments[1:] != moments[:-1]
        if self.chain.schema.strict:
            # `through` never lies inside a time, so equal times always meet in one release.
            self._refuse(
                self._late(table.filter(pa.array(~first)), "another event has this time", Reason.NOT_INCREASING)
            )
            table = table.filter(pa.array(first))
            return table.append_column("ordinal", pa.array(np.zeros(len(table), dtype=np.int64)))
        starts = np.maximum.accumulate(np.where(first, np.arange(len(table)), 0))
        return table.append_column("ordinal", pa.array(np.arange(len(table)) - starts))

    def _seal(self, done: bool) -> None:
        """Put what is ready into the chain, a segment at a time."""
        import pyarrow as pa

        table = pa.concat_tables(self._ready) if self._ready else None
        self._ready, self._ready_rows = [], 0
        while table is not None:
            table = self._still_ahead(table)
            if self._ready_us <= self.chain.through_us:
                return
            part = self._first_part(table)
            last = len(part) == len(table)
            through_us = self._ready_us if last else int(part.column("time")[-1].as_py())
            position = (self.digest, self._passed + len(part), done and last)
            sealed = self.chain.seal(through_us, self._with_origin(part), ingest=position)
            if not sealed.won:
                self._learn(sealed.footer)
                continue
            self._added += len(part)
            self._passed += len(part)
            table = table.slice(len(part))
            if last:
                return

    def _still_ahead(self, table: pa.Table) -> pa.Table:
        """Without what the chain already has of this file, and without what it has passed by, which is late."""
        import numpy as np

        seen_us = self.chain.through_us
        self.chain.refresh()
        for span in self.chain.spans(seen_us, TIME_MAX):
            self._learn(self.chain.footer(span))
        skipped = min(max(self._skip - self._passed, 0), len(table))
        table = table.slice(skipped)
        behind = int(np.searchsorted(table.column("time").to_numpy(), self.chain.through_us, side="right"))
        self._refuse(self._late(table.slice(0, behind), f"the stream has already reached {self.chain.through_us}"))
        self._passed += skipped + behind
        return table.slice(behind)

    def _first_part(self, table: pa.Table) -> pa.Table:
        """A segment's worth that ends between two times."""
        import numpy as np

        if len(table) <= self.config.rows_per_segment:
            return table
        moments = table.column("time").to_numpy()
        return table.slice(0, int(np.searchsorted(moments, moments[self.config.rows_per_segment - 1], side="right")))

    def _learn(self, footer: Footer) -> None:
        for file, count, _ in footer.ingests:
            if file == self.digest:
                self._skip = max(self._skip, count)

    def _with_origin(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        count = len(table)
        table = table.append_column("_producer", pa.array([self.digest] * count, pa.string()))
        table = table.append_column("_epoch", pa.array([0] * count, pa.int64()))
        return with_origin(table, self.chain.schema)

    def _late(self, table: pa.Table, why: str, reason: Reason = Reason.LATE) -> list[BadEvent]:
        return [
            BadEvent(self.digest, 0, row["_sequence"], reason, f"time {row['time']}: {why}", msgspec.json.encode(row))
            for row in table.to_pylist()
        ]

    def _refuse(self, bad: list[BadEvent]) -> None:
        self.quarantine.add(bad)
        for event in bad:
            self._counts[event.reason.value] = self._counts.get(event.reason.value, 0) + 1

    def _marker(self, what: str) -> str:
        return _marker(self.chain, self.digest, what)


def _marker(chain: Chain, digest: str, what: str) -> str:
    return f"{chain.folder}/{INGESTED}/{digest.removeprefix(FILE)}.{what}.json"


def _no_rows(schema: StreamSchema) -> pa.Table:
    import pyarrow as pa

    return pa.schema([pa.field("time", pa.int64()), pa.field("ordinal", pa.int64()), *schema.arrow()]).empty_table()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return FILE + hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
