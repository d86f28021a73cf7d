"""A stream's chain: segments that follow each other without a gap, extended by whoever seals first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.buckets import Spread
from unerring.log.parts import Parts, encode_parts, segment_columns
from unerring.log.positions import Positions
from unerring.log.respread import rows_of
from unerring.log.segments import (
    Footer,
    Part,
    Segment,
    arrow_schema,
    encode_segment,
    segment_name,
    segment_start,
)
from unerring.log.store import Store
from unerring.model import TIME_MIN, LogError, StreamSchema, invariant, protect_json, verified_json

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.log.parts import Ordinals

SEGMENTS: Final = "segments"
BASE: Final = "base.json"
REACHED: Final = "reached.json"
_FOOTERS_MAX: Final = 4096


class Base(msgspec.Struct, frozen=True):
    """Where a chain begins since retention removed what was before."""

    from_us: int
    producers: dict[str, tuple[int, int]] = {}
    digest: str = ""
    """The digest of the last segment that was removed; the first one names it as the one before it."""


class Reached(msgspec.Struct, frozen=True):
    """How far a chain was once sealed, kept outside of it: a chain that ends before was rolled back."""

    through_us: int
    digest: str


class Span(msgspec.Struct, frozen=True, order=True):
    """The interval `(from, through]` of one segment."""

    from_us: int
    through_us: int


class Sealed(msgspec.Struct, frozen=True):
    """How a sealing ended: `won` is False when there is another segment than the one that was to be sealed."""

    footer: Footer
    won: bool


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
        """`known`: segments that somebody else already found, so that nothing need be listed. `buckets`, `ranges`: how
        new segments are bucketed, and what a bucket is that is read; segments say themselves how they were."""
        self.store = store
        self.folder = folder
        self.schema = schema
        self.buckets = buckets
        self.spread = Spread(buckets, ranges)
        self._parts = Parts(store, folder, schema)
        self._spans: list[Span] = known or []
        self._footers: dict[int, Footer] = {}
        self._whole = known is None
        if known is None:
            promised = self._promised()
            self._learn()
            self._check_end(*promised)
        else:
            self.base = Base(known[0].from_us if known else TIME_MIN)

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def through_us(self) -> int:
        """Up to where the chain was contiguous when last looked at."""
        return self._spans[-1].through_us if self._spans else self.base.from_us

    def refresh(self) -> int:
        """Walk on along new segments; up to where the chain is contiguous now."""
        while True:
            footer = self._footer(self.through_us)
            if footer is not None:
                self._spans.append(Span(footer.from_us, footer.through_us))
            elif self._read_base().from_us > self.through_us:  # retention removed what followed, and more than we knew
                self._learn()
            else:
                return self.through_us

    def check_reached(self, time_us: int, who: str) -> None:
        """The chain goes at least to a time up to which somebody has seen it; a sentence if it was rolled back."""
        if time_us > self.through_us and time_us > self.refresh():
            raise LogError(
                f"{self._where(self.through_us)} is missing, and so is what followed it: the chain of stream "
                f"{self.name} ends at {self.through_us}, but {who} says that it reached {time_us}; restore them from "
                "a copy"
            )

    def last(self) -> Footer | None:
        """The footer of the newest segment known."""
        return self.footer(self._spans[-1]) if self._spans else None

    def producers(self) -> dict[str, tuple[int, int]]:
        """For each producer: the epoch and sequence up to which this chain has taken its events."""
        last = self.last()
        return dict(last.producers if last else self.base.producers)

    def spans(self, from_us: int, through_us: int) -> list[Span]:
        """The segments that hold something of `(from, through]`, in order."""
        if from_us < self.base.from_us:
            raise LogError(
                f"{self.store.locate(self.folder)}: events up to {self.base.from_us} were removed by retention, but "
                f"those after {from_us} were requested; start at or after {self.base.from_us}"
            )
        first = _bisect(self._spans, from_us)
        spans: list[Span] = []
        for span in self._spans[first:]:
            if span.from_us >= through_us:
                break
            spans.append(span)
        return spans

    def footer(self, span: Span) -> Footer:
        """The footer of a known segment."""
        footer = self._footer(span.from_us)
        if footer is None:
            raise LogError(f"{self._where(span.from_us)} has disappeared; restore it from a copy")
        if footer.through_us != span.through_us:
            raise LogError(self._gap(footer.through_us, span.through_us))
        return footer

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
        texts = tuple(name for name in names if coded and _is_text(wanted.field(name).type))
        spans = [span for span in self.spans(from_us, through_us) if not self._known_empty(span)]
        parts = [self._read_span(span, from_us, through_us, bucket, names, texts) for span in spans]
        parts = [part for part in parts if len(part)]
        if not parts:
            return pa.schema([wanted.field(name) for name in names]).empty_table()
        return pa.concat_tables(parts)

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
        stated.setdefault("producers", self.producers())
        last = self.last()
        before = last.digest if last else self.base.digest
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
        name = f"{self.folder}/{SEGMENTS}/{segment_name(from_us)}"
        won = self._create(name, data)
        if self._read_base().from_us > from_us:
            # Retention removed this name while the caller slept: others were here long ago, and nobody reads it again.
            self.store.delete(name)
            self._learn()
            return Sealed(self._skipped(from_us), won=False)
        if won:
            self._remember(footer)
            self.store.note(f"{self.folder}/{REACHED}", protect_json(Reached(footer.through_us, footer.digest)))
        else:
            theirs = self._footer(from_us)
            if theirs is None:
                raise LogError(
                    f"{self._where(from_us)} was sealed by another writer and has disappeared; restore it from a copy"
                )
            footer = theirs
        self._spans.append(Span(footer.from_us, footer.through_us))
        return Sealed(footer, won)

    def _create(self, name: str, data: bytes) -> bool:
        """Whether the segment of this name is ours. The store may answer "exists" for our own segment, if its client
        tried again after a lost reply; so the content decides."""
        return self.store.create(name, data) or self.store.read(name) == data

    def cut(self, base: Base) -> int:
        """Remove the segments that end at or before `base`, which becomes the beginning; how many went."""
        gone = [span for span in self._spans if span.through_us <= base.from_us]
        if not gone:
            return 0
        invariant(gone[-1].through_us == base.from_us, "retention cuts between two segments")
        base = msgspec.structs.replace(base, digest=self.footer(gone[-1]).digest)
        self.store.replace(f"{self.folder}/{BASE}", protect_json(base))
        for span in gone:
            self.store.delete(f"{self.folder}/{SEGMENTS}/{segment_name(span.from_us)}")
            self._footers.pop(span.from_us, None)
        self.base = base
        self._spans = self._spans[len(gone) :]
        return len(gone)

    def _skipped(self, from_us: int) -> Footer:
        """A footer for all that others sealed after a time, as if it were one segment; some of it was removed since."""
        return Footer(self.name, from_us, self.through_us, rows=0, groups=(), producers=self.producers())

    def _read_base(self) -> Base:
        name = f"{self.folder}/{BASE}"
        data = self.store.read(name)
        return Base(TIME_MIN) if data is None else verified_json(data, Base, self.store.locate(name))

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
        if reached is not None and reached.through_us > self.base.from_us:
            span = self._spans[_bisect(self._spans, reached.through_us - 1)]
            if (span.through_us, self.footer(span).digest) != (reached.through_us, reached.digest):
                raise LogError(self._not_the_one(span.from_us, f"{REACHED} names another one that was sealed there"))

    def _learn(self) -> None:
        """The base, and the chain from there on; both again if retention cut it meanwhile."""
        self._whole = True
        while True:
            self.base = self._read_base()
            self._spans = []
            try:
                self._list()
            except LogError:
                if self._read_base() == self.base:
                    raise
            else:
                return

    def _list(self) -> None:
        """Learn the chain from its names: each segment ends where the next one starts, and says so when it is read."""
        starts: list[int] = []
        for name in self.store.names(f"{self.folder}/{SEGMENTS}"):
            start = segment_start(name)
            if start is None:
                where = self.store.locate(f"{self.folder}/{SEGMENTS}/{name}")
                raise LogError(f"{where} is not a segment's name; move it out of the log folder and start again")
            if start >= self.base.from_us:
                starts.append(start)
        if not starts:
            return
        if starts[0] != self.base.from_us:
            raise LogError(self._gap(self.base.from_us, starts[0]))
        self._spans = [Span(a, b) for a, b in pairwise(starts)]
        for span in self._spans[-1:]:
            self.footer(span)
        newest = self._footer(starts[-1])
        if newest is None:
            raise LogError(f"{self._where(starts[-1])} has disappeared; restore it from a copy")
        self._spans.append(Span(newest.from_us, newest.through_us))

    def check(self) -> None:
        """Read every footer: a gap anywhere is found now, and not when the segment is read."""
        for span in self._spans:
            self._parts.check(self.footer(span))

    def lying(self, span: Span, columns: list[str]) -> list[pa.Table]:
        """A segment's rows as they lie, bucket by bucket, in no other order than they were written in."""
        with self._opened(span) as segment:
            return [self._rows(segment, bucket, columns) for bucket in range(segment.footer.buckets)]

    def _footer(self, from_us: int) -> Footer | None:
        """The footer of the segment that starts there, if there is one, checked against the one before it."""
        known = self._footers.get(from_us)
        if known is None:
            known = self._load(from_us)
            if known is not None:
                self._check_link(known)
                self._remember(known)
        return known

    def _load(self, from_us: int) -> Footer | None:
        name = f"{self.folder}/{SEGMENTS}/{segment_name(from_us)}"
        source = self.store.open(name)
        if source is None:
            return None
        with source:
            segment = Segment(source, self.store.locate(name))
            self._check(segment, from_us)
        return segment.footer

    def _check_link(self, footer: Footer) -> None:
        """A segment names the digest of the one before it, so that neither can be taken for another of its name."""
        at = _bisect(self._spans, footer.from_us)
        if at:
            before_us = self._spans[at - 1].from_us
            before = self._footers.get(before_us) or self._load(before_us)
            if before is None:
                raise LogError(f"{self._where(before_us)} has disappeared; restore it from a copy")
            if before.through_us != footer.from_us:
                raise LogError(self._gap(before.through_us, footer.from_us))
            self._remember(before)
            digest = before.digest
        elif self._whole:
            digest = self.base.digest
        else:
            return
        if footer.protected and footer.before != digest:
            raise LogError(self._not_the_one(footer.from_us, "it does not follow the segment before it"))

    def _known_empty(self, span: Span) -> bool:
        """Many segments are empty: they only record that time has passed. These are not opened twice."""
        footer = self._footers.get(span.from_us)
        return footer is not None and footer.through_us == span.through_us and not footer.rows

    def _check(self, segment: Segment, from_us: int, coded: tuple[str, ...] = ()) -> None:
        import pyarrow as pa

        footer, where = segment.footer, self._where(from_us)
        if footer.stream != self.name or footer.from_us != from_us or footer.through_us <= from_us:
            raise LogError(
                f"{where} says it is ({footer.from_us}, {footer.through_us}] of stream {footer.stream!r}; it does not "
                "belong here: it was renamed or copied from elsewhere. Move it away and restore the right one"
            )
        wanted = segment_columns(footer, self.schema)
        if coded and not footer.parts:
            wanted = pa.schema([_coded(field) if field.name in coded else field for field in wanted])
        actual = segment.schema()
        if not actual.equals(wanted):
            raise LogError(f"{where} has other columns than stream {self.name}: {_drift(actual, wanted)}")

    def _read_span(
        self, span: Span, from_us: int, through_us: int, bucket: int | None, names: list[str], coded: tuple[str, ...]
    ) -> pa.Table:
        import numpy as np

        with self._opened(span, coded) as segment:
            self._check_link(segment.footer)
            self._remember(segment.footer)
            read = partial(self._rows, segment, coded=coded)
            table = rows_of(read, segment.footer.spread, self.spread, bucket, names, self.schema)
        if from_us <= span.from_us and span.through_us <= through_us:
            return table
        times = table.column("time").to_numpy()
        low, high = np.searchsorted(times, [from_us, through_us], side="right").tolist()
        return table.slice(low, high - low)

    @contextmanager
    def _opened(self, span: Span, coded: tuple[str, ...] = ()) -> Iterator[Segment]:
        where = self._where(span.from_us)
        source = self.store.open(f"{self.folder}/{SEGMENTS}/{segment_name(span.from_us)}")
        if source is None:
            raise LogError(f"{where} has disappeared; restore it from a copy")
        with source:
            segment = Segment(source, where, coded)
            self._check(segment, span.from_us, coded)
            if segment.footer.through_us != span.through_us:
                raise LogError(self._gap(segment.footer.through_us, span.through_us))
            yield segment

    def _rows(self, segment: Segment, bucket: int | None, names: list[str], coded: tuple[str, ...] = ()) -> pa.Table:
        return self._parts.rows(segment, bucket, names, coded) if segment.footer.parts else segment.rows(bucket, names)

    def _remember(self, footer: Footer) -> None:
        if footer.from_us in self._footers:
            return
        if len(self._footers) >= _FOOTERS_MAX:
            self._footers.pop(next(iter(self._footers)))
        self._footers[footer.from_us] = footer

    def _where(self, from_us: int) -> str:
        return self.store.locate(f"{self.folder}/{SEGMENTS}/{segment_name(from_us)}")

    def _not_the_one(self, from_us: int, why: str) -> str:
        return (
            f"{self._where(from_us)} is not the segment that was sealed there ({why}): one of them was swapped or "
            "rolled back; restore both from a copy"
        )

    def _gap(self, end_us: int, next_us: int) -> str:
        return (
            f"{self.store.locate(self.folder)}: the chain of stream {self.name} ends at {end_us} and continues at "
            f"{next_us}; {segment_name(end_us)} is missing or not the right one: restore it from a copy"
        )


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _coded(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return field.with_type(pa.dictionary(pa.int32(), field.type))


def _bisect(spans: list[Span], from_us: int) -> int:
    """The first segment that reaches past `from_us`."""
    low, high = 0, len(spans)
    while low < high:
        middle = (low + high) // 2
        if spans[middle].through_us <= from_us:
            low = middle + 1
        else:
            high = middle
    return low


def _drift(actual: pa.Schema, wanted: pa.Schema) -> str:
    for field in wanted:
        index = actual.get_field_index(field.name)
        if index < 0:
            return f"column {field.name!r} is missing; declare a new stream for a new schema"
        if not actual.field(index).equals(field):
            return f"column {field.name!r} is {actual.field(index).type}, not {field.type}; declare a new stream for it"
    extra = [name for name in actual.names if name not in wanted.names]
    return f"column {extra[0] if extra else actual.names!r} is not declared; declare a new stream for a new schema"
