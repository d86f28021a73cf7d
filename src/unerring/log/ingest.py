"""Bringing files in: put in order within a stated lateness, sealed, and never twice.

The files of one call are one sequence of rows, in the order in which they are named, so that the lateness holds across
their seams. Which rows are late, and in which order the others come, follows from the files alone. So a call that
stopped half way (a crash, a full disk) goes on exactly there: each segment says how many of its ordered events the
chain has by then. A file that is all in adds nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
"""The prefix of the name of a producer that is a file; the file's digest follows. A call has such a name, too."""

NAMED: Final = 10
"""How many files an error names."""


class IngestConfig(ProcessConfig, frozen=True):
    """How much files may be out of order, and the bounds of ingesting them."""

    lateness_us: int = 0
    """A row this much before the latest row above it, in its file or in one before it, still finds its place."""
    rows_per_segment: int = 1_000_000
    rows_held_max: int = 20_000_000
    """Rows within the lateness are held in memory; more than this is refused with a sentence."""

    def __post_init__(self) -> None:
        check(self, "lateness_us", 0, 2**60)
        check(self, "rows_per_segment", 1, 1 << 24)
        check(self, "rows_held_max", self.rows_per_segment, 1 << 30)


class Ingested(msgspec.Struct, frozen=True):
    """The outcome of bringing files in."""

    stream: str
    rows: int
    """Rows of the files."""
    added: int
    quarantined: dict[str, int]
    through_us: int
    already: bool
    """All had been brought in before: nothing was added."""
    waiting: int = 0
    """Rows that are taken in, and will be in the stream when its watermark has passed them."""
    files_already: int = 0
    """How many of the files had been brought in before."""

    @property
    def share(self) -> float:
        """The share of the rows that are in quarantine."""
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
    paths: Path | Sequence[Path],
    schema: StreamSchema,
    times: Times,
    config: IngestConfig | None = None,
    *,
    end: bool = False,
    buckets: int = BUCKETS,
    show: Callable[[int], None] = lambda rows: None,
) -> Ingested:
    """Bring files into a stream: the rows of all are put in order together, within the lateness, and sealed when the
    last file has ended. `end`: the stream is complete with them. `show` is called with the rows read so far."""
    given = [paths] if isinstance(paths, Path) else list(paths)
    for path in given:
        if not path.is_file():
            raise CallerError(f"{path} is not a file; give a CSV, JSON-lines or Parquet file")
        check_first(path, times)
    chain = log.create(schema, buckets)
    done: dict[str, Ingested] = {}
    files: dict[str, Path] = {}
    for path in given:
        digest = _digest(path)
        found = None if digest in files else _done(chain, digest)
        if found is not None:
            done[digest] = found
        else:
            files.setdefault(digest, path)
    if files:
        done |= _bring(chain, files, times, config or IngestConfig(), show)
    while end and chain.refresh() < TIME_MAX:  # again after another writer's segment
        chain.seal(TIME_MAX, with_origin(_no_rows(chain.schema), chain.schema))
    return _sum(chain, done.values())


def _bring(
    chain: Chain, files: dict[str, Path], times: Times, config: IngestConfig, show: Callable[[int], None]
) -> dict[str, Ingested]:
    """Bring in files that are not all in yet, by their digests."""
    if len(files) > 1:  # One that cannot be read at all must not stop the others half way.
        for path in files.values():
            next(read_blocks(path, chain.schema, times), None)
    call = _Call(chain, files, config)
    call.begin(times)
    for number, path in enumerate(files.values()):
        for block in read_blocks(path, chain.schema, times):
            call.take(number, block.table, block.bad)
            show(call.rows)
    return call.finish()


def _done(chain: Chain, digest: str) -> Ingested | None:
    """What came of a file that was brought in before, by itself or in a call with others."""
    marker = _marker(chain, digest, "done")
    data = chain.store.read(marker)
    if data is not None:
        return _again(verified_json(data, Ingested, chain.store.locate(marker)))
    for name in chain.store.names(_calls(chain, digest)):
        marker = _marker(chain, name.removesuffix(".json"), "done")
        data = chain.store.read(marker)
        if data is not None:
            return _again(verified_json(data, dict[str, Ingested], chain.store.locate(marker))[digest])
    return None


def _again(done: Ingested) -> Ingested:
    return msgspec.structs.replace(done, added=0, already=True)


def _sum(chain: Chain, files: Iterable[Ingested]) -> Ingested:
    """The outcome of a call, of those of its files."""
    every = list(files)
    counts: Counter[str] = Counter()
    for done in every:
        counts.update(done.quarantined)
    already = sum(done.already for done in every)
    return Ingested(
        chain.name,
        sum(done.rows for done in every),
        sum(done.added for done in every),
        dict(counts),
        chain.through_us,
        already == len(every),
        files_already=already,
    )


class _Call:
    """The files of one call on their way into one chain."""

    def __init__(self, chain: Chain, files: dict[str, Path], config: IngestConfig) -> None:
        self.chain = chain
        self.files = files
        self.digests = list(files)
        self.id = self.digests[0] if len(files) == 1 else FILE + _blake2b(b" ".join(map(str.encode, files))).hexdigest()
        self.config = config
        self.quarantine = Quarantine(chain.store, chain.folder)
        self._rows = [0] * len(files)
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self._newest_us = TIME_MIN
        self._passed = 0  # ordered events handled so far, wherever they went
        self._skip = 0  # ordered events that the chain already has from an earlier try
        self._added = [0] * len(files)
        self._ready: list[pa.Table] = []
        self._ready_rows = 0
        self._ready_us = TIME_MIN
        self._counts: dict[str, Counter[str]] = {digest: Counter() for digest in files}
        self._others: set[str] = set()  # calls that have none of these files

    @property
    def rows(self) -> int:
        return sum(self._rows)

    def begin(self, times: Times) -> None:
        """Find how much an earlier try brought in; it cannot lie before where the chain ended when that try began."""
        fresh_us, tries = self.chain.refresh(), []
        named = [str(path) for path in self.files.values()]
        for digest, path in self.files.items():
            fresh = Begun(fresh_us, header_of(path), times)
            if len(self.files) > 1:
                self.chain.store.create(self._of(digest, self.id), protect_json(named))
            if not self.chain.store.create(_marker(self.chain, digest, "begun"), protect_json(fresh)):
                tries.append((begun_of(self.chain, digest) or Begun(self.chain.base.from_us)).from_us)
        if tries:
            for span in self.chain.spans(max(min(tries), self.chain.base.from_us), TIME_MAX):
                self._learn(self.chain.footer(span))

    def take(self, number: int, table: pa.Table, bad: list[Any]) -> None:
        """The next rows of the files, which are of this one."""
        import numpy as np
        import pyarrow as pa

        self._rows[number] += len(table) + len(bad)
        self._refuse([BadEvent(self.digests[number], 0, row.row, row.reason, row.detail, row.raw) for row in bad])
        if not len(table):
            return
        table = table.append_column("_file", pa.array(np.full(len(table), number, dtype=np.int32)))
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
                "use a smaller lateness, or sort the rows first"
            )

    def finish(self) -> dict[str, Ingested]:
        """The last file has ended: everything held is in its place now."""
        self._release(self._newest_us)
        self._seal(done=True)
        done = {
            digest: Ingested(
                self.chain.name, rows, added, dict(self._counts[digest]), self.chain.through_us, already=False
            )
            for digest, rows, added in zip(self.digests, self._rows, self._added, strict=True)
        }
        told = done if len(done) > 1 else done[self.id]  # All of them in one step, or some would be late the next time.
        self.chain.store.create(_marker(self.chain, self.id, "done"), protect_json(told))
        return done

    def _release(self, through_us: int) -> None:
        """Everything up to this time is known: order it, and seal whole segments of it."""
        import numpy as np
        import pyarrow as pa

        if self._held:
            table = pa.concat_tables(self._held)
            order = np.lexsort([table.column(name).to_numpy() for name in ("_sequence", "_file", "time")])
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
            position = (self.id, self._passed + len(part), done and last)
            sealed = self.chain.seal(through_us, self._with_origin(part), ingest=position)
            if not sealed.won:
                self._learn(sealed.footer)
                continue
            self._count(part)
            self._passed += len(part)
            table = table.slice(len(part))
            if last:
                return

    def _still_ahead(self, table: pa.Table) -> pa.Table:
        """Without what the chain already has of these files, and without what it has passed by, which is late."""
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
        for call, count, _ in footer.ingests:
            if call == self.id:
                self._skip = max(self._skip, count)
            elif call not in self._others:
                self._check_other(call)
                self._others.add(call)

    def _check_other(self, call: str) -> None:
        """A file is brought in by one call only: what another one has of it is known as a number of rows in its own
        order."""
        for digest, path in self.files.items():
            if call == digest:
                raise CallerError(
                    f"{path} is in stream {self.chain.name} in part, and was the only file of that call: ingest it by "
                    "itself first"
                )
            where = self._of(digest, call)
            data = self.chain.store.read(where)
            if data is not None:
                named = verified_json(data, list[str], self.chain.store.locate(where))
                raise CallerError(
                    f"{path} is in stream {self.chain.name} in part, by a call that has not ended: ingest the same "
                    f"files in the same order first: {' '.join(named[:NAMED])}"
                    + (f" and {len(named) - NAMED} more" if len(named) > NAMED else "")
                )

    def _count(self, part: pa.Table) -> None:
        import numpy as np

        counts = np.bincount(part.column("_file").to_numpy(), minlength=len(self.files))
        self._added = [added + int(count) for added, count in zip(self._added, counts, strict=True)]

    def _with_origin(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = table.append_column("_producer", pc.take(pa.array(self.digests), table.column("_file")))
        table = table.append_column("_epoch", pa.array([0] * len(table), pa.int64()))
        return with_origin(table, self.chain.schema)

    def _of(self, digest: str, call: str) -> str:
        return f"{_calls(self.chain, digest)}/{call.removeprefix(FILE)}.json"

    def _late(self, table: pa.Table, why: str, reason: Reason = Reason.LATE) -> list[BadEvent]:
        late = []
        for row in table.to_pylist():
            digest = self.digests[row.pop("_file")]
            raw = msgspec.json.encode(row)
            late.append(BadEvent(digest, 0, row["_sequence"], reason, f"time {row['time']}: {why}", raw))
        return late

    def _refuse(self, bad: list[BadEvent]) -> None:
        self.quarantine.add(bad)
        for event in bad:
            self._counts[event.producer][event.reason.value] += 1


def _marker(chain: Chain, digest: str, what: str) -> str:
    return f"{chain.folder}/{INGESTED}/{digest.removeprefix(FILE)}.{what}.json"


def _calls(chain: Chain, digest: str) -> str:
    """The folder that names the calls in which a file came with others."""
    return f"{chain.folder}/{INGESTED}/{digest.removeprefix(FILE)}"


def _no_rows(schema: StreamSchema) -> pa.Table:
    import pyarrow as pa

    return pa.schema([pa.field("time", pa.int64()), pa.field("ordinal", pa.int64()), *schema.arrow()]).empty_table()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return FILE + hashlib.file_digest(file, _blake2b).hexdigest()


def _blake2b(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)
