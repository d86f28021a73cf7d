"""A stream's chain: segments that follow each other without a gap, extended by whoever seals first.

Its past may be compacted: then the newest index names larger objects that hold the same rows, and what they replaced is
deleted a grace time later. A reader holds times, not names: whoever finds that an object is gone looks for a newer
index, and reads the same time from there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.buckets import Spread
from unerring.log.index import PAGE_ENTRIES, Base, Entry, Gone, Index, Indexes, Removed, Span
from unerring.log.objects import SEGMENTS, Objects, text_columns
from unerring.log.parts import MissingPart, encode_parts
from unerring.log.positions import Positions
from unerring.log.producers import Taken
from unerring.log.respread import rows_of
from unerring.log.segments import (
    Footer,
    Part,
    Segment,
    arrow_schema,
    encode_segment,
    segment_name,
    segment_start,
    stating,
)
from unerring.log.store import Store
from unerring.model import TIME_MIN, LogError, StreamSchema, invariant, protect_json, verified_json

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.log.parts import Ordinals

REACHED: Final = "reached.json"
_FOOTERS_MAX: Final = 4096
_UNCHECKED_S_MAX: Final = 10.0
"""A chain asks so often for a newer index, before it looks for new segments: where it ends, segments may have been
sealed, compacted and deleted while it slept, and one that is there may be what another sleeper left behind."""
_TAIL_STEP: Final = 256
"""After so many new segments, somebody may have compacted those before."""


class Reached(msgspec.Struct, frozen=True):
    """How far a chain was once sealed, kept outside of it: a chain that ends before was rolled back."""

    through_us: int
    digest: str
    index: int = 0
    """The newest index that was known then."""


class Sealed(msgspec.Struct, frozen=True):
    """How a sealing ended: `won` is False when there is another segment than the one that was to be sealed."""

    footer: Footer
    won: bool


class _Holed(Gone):
    """A listing had lagged; now it is known what it lacked."""


class Chain:
    """One stream's segments in a store. Safe to use from many processes at once; not from many threads."""

    def __init__(
        self,
        store: Store,
        folder: str,
        schema: StreamSchema,
        buckets: int,
        known: list[Span] | None = None,
        *,
        ranges: bool = True,
    ) -> None:
        """`known`: objects that somebody else already found, so that nothing need be listed. `buckets`, `ranges`: how
        new segments are bucketed, and what a bucket is that is read; segments say themselves how they were."""
        self.store = store
        self.folder = folder
        self.schema = schema
        self.buckets = buckets
        self.spread = Spread(buckets, ranges)
        self.indexes = Indexes(store, folder, schema.name)
        self.index = Index(schema.name)
        """The newest one known: up to its `through_us` the chain is what it says."""
        self.objects = Objects(store, folder, schema)
        self._starts = array("q")
        """Where the segments after the index start; each ends where the next one starts."""
        self._end_us = TIME_MIN
        self._known = known
        self._footers: dict[Span, Footer] = {}
        if known is None:
            reached, readers = self._promised()
            self._learn(reached.index if reached else 0)
            self._check_end(reached, readers)
        elif known:
            self.index = msgspec.structs.replace(self.index, base=Base(known[0].from_us))
            self._end_us = known[-1].through_us

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def base(self) -> Base:
        """Where the chain begins."""
        return self.index.base

    @property
    def through_us(self) -> int:
        """Up to where the chain was contiguous when last looked at."""
        return self._end_us

    # --- its end ---

    def refresh(self) -> int:
        """Walk on along new segments; up to where the chain is contiguous now."""
        if self._known is None and self.indexes.unchecked_s > _UNCHECKED_S_MAX:
            self._adopt_newer()
        while (footer := self._following()) is not None:
            self._append(footer)
            if self._known is None and len(self._starts) % _TAIL_STEP == 0:
                self._adopt_newer()
        return self.through_us

    def _following(self) -> Footer | None:
        """The footer of the segment after the last one known, if there is one."""
        footer = self._load(self._end_us)
        if footer is not None:
            self._check_link(footer)
            self._remember(footer, "")
        return footer

    def _append(self, footer: Footer) -> None:
        if self._known is not None:
            self._known.append(Span(footer.from_us, footer.through_us))
        else:
            self._starts.append(footer.from_us)
        self._end_us = footer.through_us

    def check_reached(self, time_us: int, who: str) -> None:
        """The chain goes at least to a time up to which somebody has seen it; a sentence if it was rolled back."""
        if (
            time_us > self.through_us
            and time_us > self.refresh()
            and not (self._adopt_newer() and time_us <= self.refresh())
        ):
            following = self.objects.where(Span(self.through_us, self.through_us))
            raise LogError(
                f"{following} is missing, and so is what followed it: the chain of stream "
                f"{self.name} ends at {self.through_us}, but {who} says that it reached {time_us}; restore them from "
                "a copy"
            )

    def last(self) -> Footer | None:
        """The footer of the newest object known."""
        if self.through_us == self.base.from_us:
            return None
        return self.footer(self.spans(self.through_us - 1, self.through_us)[-1])

    def producers(self) -> dict[str, tuple[int, int]]:
        """For each producer: the epoch and sequence up to which this chain has taken its events."""
        return dict(self.taken().marks)

    def taken(self) -> Taken:
        """All that this chain has taken of each producer."""
        last = self.last()
        return last.taken if last else self.base.taken

    # --- what it holds ---

    def spans(self, from_us: int, through_us: int) -> list[Span]:
        """The objects that hold something of `(from, through]`, in order."""
        if from_us < self.base.from_us:
            raise Removed(
                f"{self.store.locate(self.folder)}: events up to {self.base.from_us} were removed by retention, but "
                f"those after {from_us} were requested; start at or after {self.base.from_us}"
            )
        if self._known is not None:
            return [span for span in self._known if span.through_us > from_us and span.from_us < through_us]
        spans = [entry.span for entry in self.entries(from_us, through_us)]
        first = max(bisect_right(self._starts, from_us) - 1, 0)
        tail = (
            Span(self._starts[at], self._tail_end(at)) for at in range(first, bisect_left(self._starts, through_us))
        )
        spans.extend(span for span in tail if span.through_us > from_us)
        return spans

    def entries(self, from_us: int, through_us: int) -> list[Entry]:
        """What the index names of `(from, through]`."""
        if from_us >= self.index.through_us:
            return []
        return list(self.indexes.entries(self.index, from_us, through_us))

    def tail(self, first: int = 0, end: int | None = None) -> list[Span]:
        """The segments that the index does not name yet, or some of them, by their number."""
        numbers = range(first, len(self._starts) if end is None else end)
        return [Span(self._starts[at], self._tail_end(at)) for at in numbers]

    @property
    def tail_segments(self) -> int:
        """How many there are."""
        return len(self._starts)

    @property
    def objects_held(self) -> int:
        """How many objects hold the chain now. A page of the index has as many as fit into one."""
        return len(self.index.pages) * PAGE_ENTRIES + len(self.index.entries) + len(self._starts)

    def count(self, from_us: int, through_us: int) -> int:
        """How many events `(from, through]` has. Rows are read only where an object lies across an end."""
        from_us = max(from_us, self.base.from_us)
        counted, at_us = 0, from_us
        for page in self.index.pages:
            if page.from_us == at_us and page.through_us <= through_us:
                counted, at_us = counted + page.rows, page.through_us
        rows = {entry.span: entry.rows for entry in self.entries(at_us, through_us)}
        for span in self.spans(at_us, through_us):
            whole = from_us <= span.from_us and span.through_us <= through_us
            if whole and span not in rows:
                footer = self.footer(span)
                whole = footer.through_us == span.through_us  # else it was compacted just now
                rows[span] = footer.rows
            ends = max(span.from_us, from_us), min(span.through_us, through_us)
            counted += rows[span] if whole else len(self.read(*ends, columns=[]))
        return counted

    def footer(self, span: Span) -> Footer:
        """The footer of the object that holds a span now: since it was named, compaction may have replaced it."""
        while True:
            try:
                return self._footer(span)
            except Gone as gone:
                self._look_again(gone)
                span = self._holding(span)

    def read(
        self,
        from_us: int,
        through_us: int,
        bucket: int | None = None,
        columns: list[str] | None = None,
        *,
        coded: bool = False,
    ) -> pa.Table:
        """The events of `(from, through]`, of one bucket or all, in stamp order. `coded`: texts as dictionary codes."""
        import pyarrow as pa

        names = arrow_schema(self.schema).names if columns is None else ["time", "ordinal", *columns]
        wanted = arrow_schema(self.schema)
        texts = text_columns(names, self.schema) if coded else ()
        while True:
            try:
                spans = [span for span in self.spans(from_us, through_us) if not self._known_empty(span)]
                parts = [self._read_span(span, from_us, through_us, bucket, names, texts) for span in spans]
            except (Gone, MissingPart) as gone:
                self._look_again(gone)
            else:
                break
        parts = [part for part in parts if len(part)]
        if not parts:
            return pa.schema([wanted.field(name) for name in names]).empty_table()
        return pa.concat_tables(parts)

    def lying(self, span: Span, columns: list[str]) -> list[pa.Table]:
        """The rows of what holds a span, as they lie, bucket by bucket, in no other order than they were written in."""
        while True:
            try:
                with self.opened(span) as segment:
                    return [self.objects.rows(segment, bucket, columns) for bucket in range(segment.footer.buckets)]
            except (Gone, MissingPart) as gone:
                self._look_again(gone)
                span = self._holding(span)

    def check(self) -> int:
        """Read every footer: a gap anywhere is found now, and not when the segment is read. How many objects have no
        hash: an older release sealed them."""
        at_us, sealed, unhashed = self.base.from_us, self.base.digest, 0
        for span in self.spans(self.base.from_us, self.through_us):
            footer = self.footer(span)
            # A footer that is remembered may have been read without the one before it.
            if footer.from_us == at_us and footer.protected and footer.before != sealed:
                raise LogError(self._not_the_one(span, "it does not follow the segment before it"))
            at_us, sealed = footer.through_us, footer.sealed
            unhashed += not footer.hashed
            self.objects.parts.check(footer)
        return unhashed

    # --- extending it ---

    def seal(self, through_us: int, table: pa.Table, **stated: Any) -> Sealed:
        """Extend the chain at its known end by `(end, through]`. `table` has a segment's columns, in stamp order.

        When another writer was first, its segment is what follows; nothing of ours is there then.
        """
        if len(table):
            self._check_times(table.column("time")[0].as_py(), table.column("time")[-1].as_py(), through_us)
        return self._extend(through_us, lambda draft: encode_segment(table, self.schema, self.buckets, draft), stated)

    def seal_parts(
        self, through_us: int, parts: Sequence[Part], ordinals: Sequence[Ordinals] | None = None, **stated: Any
    ) -> Sealed:
        """Extend the chain by rows that tasks wrote before, with `write_part`. `ordinals` has an item for each part;
        without it all are 0. The segment that this creates is the commit: before, nobody sees the parts."""
        if not parts:
            return self.seal(through_us, arrow_schema(self.schema).empty_table(), **stated)
        numbered = [None] * len(parts) if ordinals is None else ordinals
        for part in parts:
            invariant(0 <= part.bucket < self.buckets, f"{part.name} is of a bucket of stream {self.name}")
            self._check_times(part.first_us, part.last_us, through_us)
        return self._extend(through_us, lambda draft: encode_parts(parts, numbered, self.buckets, draft), stated)

    def _check_times(self, first_us: int, last_us: int, through_us: int) -> None:
        invariant(
            self.through_us < first_us <= last_us <= through_us,
            f"a segment of {self.name} holds its own interval's events",
        )

    def _extend(
        self, through_us: int, encode: Callable[[Footer], tuple[bytes, Footer]], stated: dict[str, Any]
    ) -> Sealed:
        """Create the segment at the known end, or learn which one is there."""
        from_us = self.through_us
        invariant(through_us > from_us, f"a segment of {self.name} covers time: {from_us} to {through_us}")
        stated = stating(self.taken()) | stated
        last = self.last()
        before = last.sealed if last else self.base.digest
        draft = Footer(
            stream=self.name,
            from_us=from_us,
            through_us=through_us,
            rows=0,
            groups=(),
            before=before,
            ranges=self.spread.ranges,
            **stated,
        )
        data, footer = encode(draft)
        name = self.objects.name_of(Span(from_us, through_us))
        won = self._create(name, data)
        self._adopt_newer()
        if self.index.through_us > from_us:
            return self._overtaken(from_us, footer, name)
        if self.through_us > from_us:  # it was learned anew, with what is there now
            actual = self.footer(self.spans(from_us, from_us + 1)[0])
            return Sealed(actual, won and actual.digest == footer.digest)
        if won:
            self._remember(footer, "")
            self._append(footer)
            reached = Reached(footer.through_us, footer.digest, self.index.number)
            self.store.note(f"{self.folder}/{REACHED}", protect_json(reached))
            return Sealed(footer, won=True)
        theirs = self._following()
        if theirs is None:
            where = self.objects.where(Span(from_us, from_us))
            raise LogError(f"{where} was sealed by another writer and has disappeared; restore it from a copy")
        self._append(theirs)
        return Sealed(theirs, won=False)

    def _create(self, name: str, data: bytes) -> bool:
        """Whether the segment of this name is ours. The store may answer "exists" for our own segment, if its client
        tried again after a lost reply; so the content decides."""
        return self.store.create(name, data) or self.store.read(name) == data

    def _overtaken(self, from_us: int, footer: Footer, name: str) -> Sealed:
        """Others were here while the caller slept: the index has passed this name, which may have been deleted and
        made again by us. Nobody reads it, unless the index names just this segment."""
        entry = next(iter(self.entries(from_us, from_us + 1)), None) if from_us >= self.base.from_us else None
        if entry is not None and not entry.name and entry.from_us == from_us:
            return Sealed(self.footer(entry.span), won=entry.digest == footer.digest)
        self.store.delete(name)
        skipped = Footer(self.name, from_us, self.through_us, rows=0, groups=(), **stating(self.taken()))
        return Sealed(skipped, won=False)

    # --- learning what it is ---

    def adopt(self, index: Index) -> None:
        """Take a newer index for the chain's past."""
        self._known = None
        self.index = index
        self._footers = {span: footer for span, footer in self._footers.items() if span.from_us >= index.through_us}
        at = bisect_left(self._starts, index.through_us)
        if index.through_us == self._end_us or (at < len(self._starts) and self._starts[at] == index.through_us):
            self._starts = self._starts[at:]
        else:
            self._learn(index.number)

    def refresh_index(self) -> None:
        """Take the newest index."""
        self._adopt_newer()

    def commit(self, index: Index) -> bool:
        """Create an index that follows the one known; False if somebody else made another one first. The newest one
        is known afterwards, whosever it is."""
        created = self.indexes.create(self.indexes.paged(index))
        self._adopt_newer()
        return created

    def _adopt_newer(self) -> bool:
        newer = self.indexes.newer(self.index)
        if newer is None:
            return False
        self.adopt(newer)
        return True

    def _look_again(self, gone: LogError) -> None:
        """Something is not where it was: a newer index must say where. Without one it is lost, which is an error."""
        if self._known is not None:
            self._known = None
            self._learn()
        elif not isinstance(gone, _Holed):
            newest = self.indexes.newest(self.index.number)
            if newest.number == self.index.number:
                raise gone
            self.adopt(newest)

    def _holding(self, span: Span) -> Span:
        """What holds the beginning of a span now."""
        return next(iter(self.spans(span.from_us, span.from_us + 1)), span)

    def _promised(self) -> tuple[Reached | None, dict[str, int]]:
        """How far the chain must reach: what its writers noted, and where its readers are. Read before the chain is,
        which may grow meanwhile."""
        name = f"{self.folder}/{REACHED}"
        data = (self.store.read(name) or b"").strip(b"\0")  # nothing, or zeros: power was lost before it was written
        where, remedy = self.store.locate(name), "remove it: it is written again with the next segment"
        readers = Positions(self.store, self.folder).all()
        reached = verified_json(data, Reached, where, remedy) if data else None
        return reached, {reader: stamp.time for reader, stamp in readers.items()}

    def _check_end(self, reached: Reached | None, readers: dict[str, int]) -> None:
        """The newest segments are there, if somebody ever saw newer ones."""
        known = {f"reader {reader}": time_us for reader, time_us in readers.items()}
        if reached is not None:
            known[REACHED] = reached.through_us
        for who, time_us in known.items():
            self.check_reached(time_us, who)
        if reached is None or reached.through_us <= self.base.from_us:
            return
        [span] = self.spans(reached.through_us - 1, reached.through_us)
        inside = span.name and span.through_us > reached.through_us  # merged with what followed it
        if not inside and (span.through_us, self.footer(span).sealed) != (reached.through_us, reached.digest):
            raise LogError(self._not_the_one(span, f"{REACHED} names another one that was sealed there"))

    def _learn(self, at_least: int = 0) -> None:
        """The newest index, and the chain from there on; both again if somebody changed them meanwhile."""
        while True:
            self.index = self.indexes.newest(max(at_least, self.index.number))
            self._starts, self._end_us, self._footers = array("q"), self.index.through_us, {}
            try:
                self._list()
            except LogError:
                if self.indexes.newer(self.index) is None:
                    raise
            else:
                return

    def _list(self) -> None:
        """Learn the segments after the index from their names: each ends where the next one starts, and says so when
        it is read. What a listing may lack is found by its name."""
        from_us = self.index.through_us
        after = segment_name(from_us - 1) if from_us > TIME_MIN else ""
        starts: list[int] = []
        for name in self.store.names(f"{self.folder}/{SEGMENTS}", after):
            start = segment_start(name)
            if start is None:
                where = self.store.locate(f"{self.folder}/{SEGMENTS}/{name}")
                raise LogError(f"{where} is not a segment's name; move it out of the log folder and start again")
            starts.append(start)
        if len(starts) > 2 and starts[0] == self._end_us:
            self._starts.extend(starts[:-2])
            self._end_us = starts[-2]
        while (footer := self._following()) is not None:
            self._append(footer)
        if starts and starts[-1] >= self._end_us:
            raise LogError(self._gap(self._end_us, starts[bisect_left(starts, self._end_us)]))

    # --- reading objects ---

    def _tail_end(self, at: int) -> int:
        return self._starts[at + 1] if at + 1 < len(self._starts) else self._end_us

    def _footer(self, span: Span) -> Footer:
        """The footer of a known object, checked against the one before it."""
        known = self._footers.get(span)
        if known is None:
            with self.opened(span) as segment:
                known = segment.footer
        return known

    def _load(self, from_us: int) -> Footer | None:
        """The footer of the segment that starts there, if there is one."""
        opened = self.objects.following(from_us)
        if opened is None:
            return None
        with opened as segment:
            return segment.footer

    @contextmanager
    def opened(self, span: Span, coded: tuple[str, ...] = ()) -> Iterator[Segment]:
        """The object of a span, checked against what it follows; `Gone` if it is not there any more."""
        with self.objects.open(span, coded) as segment:
            if segment.footer.through_us != span.through_us:
                self._fill_hole(span, segment.footer.through_us)
            self._check_link(segment.footer)
            self._remember(segment.footer, span.name)
            yield segment

    def _fill_hole(self, span: Span, through_us: int) -> None:
        """A segment ends before the next one that was listed: a listing may lag, and those between have names."""
        if self._known is None and not span.name:
            found: list[int] = []
            while through_us < span.through_us and (footer := self._load(through_us)) is not None:
                found.append(through_us)
                through_us = footer.through_us
            if through_us == span.through_us:
                at = bisect_right(self._starts, span.from_us)
                self._starts = self._starts[:at] + array("q", found) + self._starts[at:]
                raise _Holed("the listing lagged")
        raise Gone(self._gap(through_us, span.through_us))

    def _check_link(self, footer: Footer) -> None:
        """A segment names the digest of the one before it, so that neither can be taken for another of its name. What
        the index names has the digest that it says."""
        if self._known is None and footer.from_us < self.index.through_us:
            [entry] = self.entries(footer.from_us, footer.from_us + 1)
            if (entry.from_us, entry.digest) != (footer.from_us, footer.digest):
                raise LogError(self._not_the_one(entry.span, "the index names another one"))
            return
        if footer.from_us == self.index.through_us:
            before: str | None = self.index.sealed if self._known is None else None
        else:
            before = self._before(footer.from_us).sealed
        if before is not None and footer.protected and footer.before != before:
            span = Span(footer.from_us, footer.through_us)
            raise LogError(self._not_the_one(span, "it does not follow the segment before it"))

    def _before(self, from_us: int) -> Footer:
        """The footer of what ends there; what it follows itself is not looked at, or that would go on for ever."""
        while True:
            span = self.spans(from_us - 1, from_us)[-1]
            known = self._footers.get(span)
            if known is not None:
                return known
            try:
                with self.objects.open(span) as segment:
                    if segment.footer.through_us != from_us:
                        self._fill_hole(span, segment.footer.through_us)
                    self._remember(segment.footer, span.name)
                    return segment.footer
            except _Holed:
                continue

    def _known_empty(self, span: Span) -> bool:
        """Many segments are empty: they only record that time has passed. These are not opened twice."""
        footer = self._footers.get(span)
        return footer is not None and not footer.rows

    def _read_span(
        self, span: Span, from_us: int, through_us: int, bucket: int | None, names: list[str], coded: tuple[str, ...]
    ) -> pa.Table:
        import numpy as np

        with self.opened(span, coded) as segment:
            read = partial(self.objects.rows, segment, coded=coded)
            table = rows_of(read, segment.footer.spread, self.spread, bucket, names, self.schema)
        if from_us <= span.from_us and span.through_us <= through_us:
            return table
        times = table.column("time").to_numpy()
        low, high = np.searchsorted(times, [from_us, through_us], side="right").tolist()
        return table.slice(low, high - low)

    def _remember(self, footer: Footer, name: str) -> None:
        if len(self._footers) >= _FOOTERS_MAX:
            self._footers.pop(next(iter(self._footers)))
        self._footers[Span(footer.from_us, footer.through_us, name)] = footer

    def _not_the_one(self, span: Span, why: str) -> str:
        return (
            f"{self.objects.where(span)} is not the segment that was sealed there ({why}): one of them was swapped or "
            "rolled back; restore both from a copy"
        )

    def _gap(self, end_us: int, next_us: int) -> str:
        return (
            f"{self.store.locate(self.folder)}: the chain of stream {self.name} ends at {end_us} and continues at "
            f"{next_us}; {segment_name(end_us)} is missing or not the right one: restore it from a copy"
        )
