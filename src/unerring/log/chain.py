"""A stream's chain: segments that follow each other without a gap, extended by whoever seals first."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.segments import (
    Footer,
    arrow_schema,
    encode_segment,
    open_segment,
    read_rows,
    segment_name,
    segment_start,
)
from unerring.log.store import Store
from unerring.model import TIME_MIN, LogError, StreamSchema, invariant

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENTS: Final = "segments"
_BASE: Final = "base.json"
_FOOTERS_MAX: Final = 4096


class Base(msgspec.Struct, frozen=True):
    """Where a chain begins since retention removed what was before."""

    from_us: int
    producers: dict[str, tuple[int, int]] = {}


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
        self, store: Store, folder: str, schema: StreamSchema, buckets: int, known: list[Span] | None = None
    ) -> None:
        """`known`: segments that somebody else already found, so that nothing need be listed."""
        self.store = store
        self.folder = folder
        self.schema = schema
        self.buckets = buckets
        self._spans: list[Span] = known or []
        self._footers: dict[int, Footer] = {}
        if known is None:
            self.base = self._read_base()
            self._list()
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
            if footer is None:
                return self.through_us
            self._spans.append(Span(footer.from_us, footer.through_us))

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
                f"they are asked for from {from_us} on; start at or after {self.base.from_us}"
            )
        first = _bisect(self._spans, from_us)
        found: list[Span] = []
        for span in self._spans[first:]:
            if span.from_us >= through_us:
                break
            found.append(span)
        return found

    def footer(self, span: Span) -> Footer:
        """What a known segment says of itself."""
        footer = self._footer(span.from_us)
        if footer is None:
            raise LogError(f"{self._where(span.from_us)} was there and is gone; restore it from a copy")
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

    def seal(self, through_us: int, table: pa.Table, **said: Any) -> Sealed:
        """Extend the chain at its known end by `(end, through]`. `table` has a segment's columns, in stamp order.

        When another writer was first, its segment is what follows; nothing of ours is there then.
        """
        from_us = self.through_us
        invariant(through_us > from_us, f"a segment of {self.name} covers time: {from_us} to {through_us}")
        if len(table):
            first, last = table.column("time")[0].as_py(), table.column("time")[-1].as_py()
            invariant(
                from_us < first <= last <= through_us, f"a segment of {self.name} holds its own interval's events"
            )
        said.setdefault("producers", self.producers())
        draft = Footer(stream=self.name, from_us=from_us, through_us=through_us, rows=0, groups=(), **said)
        data, footer = encode_segment(table, self.schema, self.buckets, draft)
        won = self._create(f"{self.folder}/{SEGMENTS}/{segment_name(from_us)}", data)
        if won:
            self._remember(footer)
        else:
            found = self._footer(from_us)
            if found is None:
                raise LogError(
                    f"{self._where(from_us)} was sealed by another writer and is gone; restore it from a copy"
                )
            footer = found
        self._spans.append(Span(footer.from_us, footer.through_us))
        return Sealed(footer, won)

    def _create(self, name: str, data: bytes) -> bool:
        """Whether the segment of this name is ours. "It exists" may be said of our own, tried again by the store's
        client after a lost reply; so what is there tells."""
        return self.store.create(name, data) or self.store.read(name) == data

    def cut(self, base: Base) -> int:
        """Remove the segments that end at or before `base`, which becomes the beginning; how many went."""
        gone = [span for span in self._spans if span.through_us <= base.from_us]
        if not gone:
            return 0
        invariant(gone[-1].through_us == base.from_us, "retention cuts between two segments")
        self.store.replace(f"{self.folder}/{_BASE}", msgspec.json.encode(base))
        for span in gone:
            self.store.delete(f"{self.folder}/{SEGMENTS}/{segment_name(span.from_us)}")
            self._footers.pop(span.from_us, None)
        self.base = base
        self._spans = self._spans[len(gone) :]
        return len(gone)

    def _read_base(self) -> Base:
        data = self.store.read(f"{self.folder}/{_BASE}")
        return Base(TIME_MIN) if data is None else msgspec.json.decode(data, type=Base)

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
            raise LogError(f"{self._where(starts[-1])} was there and is gone; restore it from a copy")
        self._spans.append(Span(newest.from_us, newest.through_us))

    def check(self) -> None:
        """Read every footer: a gap anywhere is found now, and not when the segment is read."""
        for span in self._spans:
            self.footer(span)

    def _footer(self, from_us: int) -> Footer | None:
        known = self._footers.get(from_us)
        if known is not None:
            return known
        name = f"{self.folder}/{SEGMENTS}/{segment_name(from_us)}"
        source = self.store.open(name)
        if source is None:
            return None
        with source:
            file, footer = open_segment(source, self.store.locate(name))
            self._check(file, footer, from_us)
        self._remember(footer)
        return footer

    def _known_empty(self, span: Span) -> bool:
        """Many segments only say that time has passed; they are not opened twice to be told so."""
        footer = self._footers.get(span.from_us)
        return footer is not None and footer.through_us == span.through_us and not footer.rows

    def _check(self, file: Any, footer: Footer, from_us: int, coded: tuple[str, ...] = ()) -> None:
        import pyarrow as pa

        where = self._where(from_us)
        if footer.stream != self.name or footer.from_us != from_us or footer.through_us <= from_us:
            raise LogError(
                f"{where} says it is ({footer.from_us}, {footer.through_us}] of stream {footer.stream!r}; it does not "
                "belong here: it was renamed or copied from elsewhere. Move it away and restore the right one"
            )
        if footer.buckets != self.buckets:
            raise LogError(
                f"{where} has {footer.buckets} buckets, its stream {self.buckets}; restore the stream's own segment"
            )
        wanted = arrow_schema(self.schema)
        if coded:
            wanted = pa.schema([_coded(field) if field.name in coded else field for field in wanted])
        if not file.schema_arrow.remove_metadata().equals(wanted):
            raise LogError(f"{where} has other columns than stream {self.name}: {_drift(file.schema_arrow, wanted)}")

    def _read_span(
        self, span: Span, from_us: int, through_us: int, bucket: int | None, names: list[str], coded: tuple[str, ...]
    ) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        where = self._where(span.from_us)
        source = self.store.open(f"{self.folder}/{SEGMENTS}/{segment_name(span.from_us)}")
        if source is None:
            raise LogError(f"{where} was there and is gone; restore it from a copy")
        with source:
            file, footer = open_segment(source, where, coded)
            self._check(file, footer, span.from_us, coded)
            if footer.through_us != span.through_us:
                raise LogError(self._gap(footer.through_us, span.through_us))
            table = read_rows(file, footer, bucket, names, where)
        if bucket is None and self.buckets > 1:
            table = table.take(pa.array(np.lexsort((table.column("ordinal"), table.column("time")))))
        if from_us <= span.from_us and span.through_us <= through_us:
            return table
        times = table.column("time").to_numpy()
        low, high = np.searchsorted(times, [from_us, through_us], side="right").tolist()
        return table.slice(low, high - low)

    def _remember(self, footer: Footer) -> None:
        if len(self._footers) >= _FOOTERS_MAX:
            self._footers.pop(next(iter(self._footers)))
        self._footers[footer.from_us] = footer

    def _where(self, from_us: int) -> str:
        return self.store.locate(f"{self.folder}/{SEGMENTS}/{segment_name(from_us)}")

    def _gap(self, end_us: int, next_us: int) -> str:
        return (
            f"{self.store.locate(self.folder)}: the chain of stream {self.name} ends at {end_us} and goes on at "
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


def _drift(found: pa.Schema, wanted: pa.Schema) -> str:
    for field in wanted:
        index = found.get_field_index(field.name)
        if index < 0:
            return f"column {field.name!r} is missing; declare a new stream for a new schema"
        if not found.field(index).equals(field):
            return f"column {field.name!r} is {found.field(index).type}, not {field.type}; declare a new stream for it"
    extra = [name for name in found.names if name not in wanted.names]
    return f"column {extra[0] if extra else found.names!r} is not declared; declare a new stream for a new schema"
