"""The files of a chain: opened by the span that they hold, and checked before anything in them is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from unerring.log.encryption import decrypted
from unerring.log.growth import Shapes, rows_fitting
from unerring.log.index import COMPACTED, Gone, Span
from unerring.log.parts import Parts, segment_columns
from unerring.log.segments import Segment, arrow_schema, segment_name
from unerring.log.store import Store
from unerring.model import LogError, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENTS: Final = "segments"


class Objects:
    """Opens segments, compacted objects and parts of one stream."""

    def __init__(self, store: Store, folder: str, schema: StreamSchema) -> None:
        self.store = store
        self.folder = folder
        self.schema = schema
        self.veiled = False
        """Whether secret columns are read as NULL, for whoever does not show them anyhow."""
        self.parts = Parts(store, folder, schema)
        self._shapes = Shapes(store, folder, schema)

    def name_of(self, span: Span) -> str:
        """The name of the object that holds a span."""
        if span.name:
            return f"{self.folder}/{COMPACTED}/{span.name}"
        return f"{self.folder}/{SEGMENTS}/{segment_name(span.from_us)}"

    def where(self, span: Span) -> str:
        return self.store.locate(self.name_of(span))

    def open(self, span: Span, coded: tuple[str, ...] = ()) -> AbstractContextManager[Segment]:
        """The object of a span, as far as its own bytes say; whether it ends where the span does is not looked at."""
        source = self.store.open(self.name_of(span))
        if source is None:
            raise Gone(f"{self.where(span)} has disappeared; restore it from a copy")
        return self._opened(source, span, coded)

    def following(self, from_us: int) -> AbstractContextManager[Segment] | None:
        """The segment that starts there, if there is one."""
        span = Span(from_us, from_us)
        source = self.store.open(self.name_of(span))
        return None if source is None else self._opened(source, span, ())

    @contextmanager
    def _opened(self, source: Any, span: Span, coded: tuple[str, ...]) -> Iterator[Segment]:
        with source:
            segment = Segment(source, self.where(span), coded)
            self._check(segment, span, coded)
            yield segment

    def rows(self, segment: Segment, bucket: int | None, names: list[str], coded: tuple[str, ...] = ()) -> pa.Table:
        """The asked columns of one bucket's rows in stamp order (or of all, bucket after bucket)."""
        if not self.schema.secret:
            return self.lying(segment, bucket, names, coded)

        def read(some: list[str]) -> pa.Table:
            return self.lying(segment, bucket, some, tuple(name for name in coded if name in some))

        return decrypted(read, names, self.schema, coded, self.veiled, segment.where)

    def lying(self, segment: Segment, bucket: int | None, names: list[str], coded: tuple[str, ...] = ()) -> pa.Table:
        """The same, of columns as they lie in the file: secret ones encrypted, under names of their own."""
        if segment.footer.parts:
            return self.parts.rows(segment, bucket, names, coded)
        if not segment.fits:
            return rows_fitting(segment, bucket, names, self.schema, coded)
        return segment.rows(bucket, names)

    def size(self, span: Span) -> int:
        """How many bytes an object has, with its parts; 0 if it is gone."""
        source = self.store.open(self.name_of(span))
        if source is None:
            return 0
        with source:
            return Segment(source, self.where(span)).size

    def _check(self, segment: Segment, span: Span, coded: tuple[str, ...]) -> None:
        import pyarrow as pa

        footer, where = segment.footer, self.where(span)
        if footer.stream != self.schema.name or footer.from_us != span.from_us or footer.through_us <= span.from_us:
            raise LogError(
                f"{where} says it is ({footer.from_us}, {footer.through_us}] of stream {footer.stream!r}; it does not "
                "belong here: it was renamed or copied from elsewhere. Move it away and restore the right one"
            )
        wanted = segment_columns(footer, self.schema)
        if coded and not footer.parts:  # of a secret column there is nothing to code
            wanted = pa.schema([_coded(field) if field.name in coded else field for field in wanted])
        actual = segment.schema()
        segment.fits = actual.equals(wanted)
        if not segment.fits and (footer.parts or not self._shapes.allow(actual)):
            raise LogError(f"{where} has other columns than stream {self.schema.name}: {_drift(actual, wanted)}")


def text_columns(names: list[str], schema: StreamSchema) -> tuple[str, ...]:
    """Those of some columns that can be read as dictionary codes."""
    import pyarrow as pa

    columns = arrow_schema(schema)
    kinds = {name: columns.field(name).type for name in names}
    return tuple(name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_binary(kind))


def _coded(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return field.with_type(pa.dictionary(pa.int32(), field.type))


def _drift(actual: Any, wanted: Any) -> str:
    for field in wanted:
        index = actual.get_field_index(field.name)
        if index < 0:
            return f"column {field.name!r} is missing; declare a new stream for a new schema"
        if not actual.field(index).equals(field):
            return f"column {field.name!r} is {actual.field(index).type}, not {field.type}; declare a new stream for it"
    extra = [name for name in actual.names if name not in wanted.names]
    return f"column {extra[0] if extra else actual.names!r} is not declared; declare a new stream for a new schema"
