"""How a stream's columns may change once it has events: new ones that may be NULL, and wider types.

A declaration keeps the columns that it had before, and up to where the chain went when they changed. A file has the
columns of one of these versions. Whoever reads it sees the columns of now: NULL where the file has none, and wider
values where it has narrow ones. What else changes needs another stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.segments import Segment, file_columns
from unerring.log.store import Store
from unerring.model import Column, ColumnType, LogError, SchemaError, StreamSchema, verified_json

if TYPE_CHECKING:
    import pyarrow as pa

DECLARATION: Final = "stream.json"
_WIDER: Final = frozenset({(ColumnType.INT, ColumnType.FLOAT)})


class Version(msgspec.Struct, frozen=True):
    """The columns that a stream had once."""

    columns: tuple[Column, ...]
    through_us: int
    """Up to here the chain went when the next version came: no event before has the newer columns."""


class Declaration(msgspec.Struct, frozen=True):
    """A stream's columns and key, and how new segments are bucketed, which rescaling changes: a segment says itself how
    it is."""

    schema: StreamSchema
    buckets: int
    ranges: bool = False
    """Whether a bucket is a range of the key's hash. In streams of earlier releases it is the hash modulo `buckets`."""
    versions: tuple[Version, ...] = ()
    """Those before this one, oldest first."""
    ring: str = ""
    """The id of the ring whose keys encrypt its secret columns; empty if it has none."""

    def since_us(self, column: str) -> int | None:
        """After which time a column may have values; None: it was always there."""
        for version in reversed(self.versions):
            if all(known.name != column for known in version.columns):
                return version.through_us
        return None


def read_declaration(store: Store, folder: str) -> Declaration | None:
    """A stream's declaration, if it is one of this store."""
    data = store.read(f"{folder}/{DECLARATION}")
    if data is None:
        return None
    where = store.locate(f"{folder}/{DECLARATION}")
    try:
        return verified_json(data, Declaration, where)
    except SchemaError as error:
        raise LogError(f"{where} is damaged ({error}); restore it from a copy") from None


def fitted(known: StreamSchema, wanted: StreamSchema, versions: tuple[Version, ...]) -> StreamSchema:
    """The stream's schema once a program is there that declares it as `wanted`: grown, or as it is for a program that
    knows an earlier version. A sentence if neither fits."""
    if known.key != wanted.key:
        raise SchemaError(f"its key is ({', '.join(known.key)}) and cannot become ({', '.join(wanted.key)})")
    if any(version.columns == wanted.columns for version in versions):
        return known
    _check_secret(known, wanted)
    columns = list(known.columns)
    for at, (old, new) in enumerate(zip(known.columns, wanted.columns, strict=False)):
        if old != new:
            columns[at] = _widened(old, new, known.key)
    for new in wanted.columns[len(columns) :]:
        if new.name not in wanted.added:
            raise SchemaError(
                f"column {new.name!r} is new; if events before may have NULL in it, declare it last, as "
                f"`{new.name}: ... | None`, with @stream(added={new.name!r})"
            )
        columns.append(new)
    if len(wanted.columns) < len(known.columns):
        raise SchemaError(f"column {known.columns[len(wanted.columns)].name!r} is gone; columns stay")
    return msgspec.structs.replace(known, columns=tuple(columns), added=wanted.added, secret=wanted.secret)


def _check_secret(known: StreamSchema, wanted: StreamSchema) -> None:
    for column in known.columns:
        was, is_now = column.name in known.secret, column.name in wanted.secret
        if was != is_now:
            raise SchemaError(
                f"column {column.name!r} was {'secret' if was else 'not secret'} and cannot become "
                f"{'so' if is_now else 'shown'}: events are there; give it a column of its own"
            )


def _widened(old: Column, new: Column, key: tuple[str, ...]) -> Column:
    if old.name != new.name:
        raise SchemaError(f"column {old.name!r} is {new.name!r} now; columns keep their names and places")
    if old.name in key:
        raise SchemaError(f"key column {old.name!r} was {_sketch(old)} and cannot become {_sketch(new)}")
    if old.type is not new.type and (old.type, new.type) not in _WIDER:
        raise SchemaError(f"column {old.name!r} was {_sketch(old)} and cannot become {_sketch(new)}: values do not fit")
    if old.nullable and not new.nullable:
        raise SchemaError(f"column {old.name!r} may be NULL in events that are there, and cannot be required now")
    return new


def _sketch(column: Column) -> str:
    return f"{column.type.value}{'?' if column.nullable else ''}"


class Shapes:
    """Which columns the files of a stream may have."""

    def __init__(self, store: Store, folder: str, schema: StreamSchema) -> None:
        self._store = store
        self._folder = folder
        self._name = schema.name
        self._known: list[Any] = [file_columns(schema)]

    def allow(self, actual: pa.Schema) -> bool:
        """Whether these are a version's columns. A version that this program does not know yet is looked up."""
        actual = _plain(actual)
        if any(actual.equals(known) for known in self._known):
            return True
        declared = read_declaration(self._store, self._folder)
        if declared is not None:
            every = [declared.schema.columns, *(version.columns for version in declared.versions)]
            self._known += [file_columns(_version(declared.schema, columns)) for columns in every]
        return any(actual.equals(known) for known in self._known)


def rows_fitting(
    segment: Segment, which: int | range | None, names: list[str], schema: StreamSchema, coded: tuple[str, ...] = ()
) -> pa.Table:
    """The asked columns of a file that was written with an earlier (or later) version's columns."""
    import pyarrow as pa

    present = segment.schema().names
    table = segment.rows(which, list(dict.fromkeys(["time", *(name for name in names if name in present)])))
    wanted = file_columns(schema)
    fields: list[pa.Field] = []
    arrays: list[Any] = []
    for name in names:
        field = wanted.field(name)
        if name in coded:
            field = field.with_type(pa.dictionary(pa.int32(), field.type))
        fields.append(field)
        if name not in present:
            arrays.append(pa.nulls(len(table), field.type))
            continue
        try:
            arrays.append(table.column(name).cast(field.type))
        except pa.ArrowInvalid as error:
            raise LogError(
                f"stream {schema.name}: column {name!r} became {schema.column(name).type.value}, and an event from "
                f"before has a value that this cannot hold exactly ({str(error).splitlines()[0]}); give the new type a "
                "column of its own"
            ) from None
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _version(schema: StreamSchema, columns: tuple[Column, ...]) -> StreamSchema:
    """The stream with the columns that it had once; those that are secret were so from the beginning."""
    secret = tuple(column.name for column in columns if column.name in schema.secret)
    return StreamSchema(schema.name, columns, secret=secret)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The same without dictionary codes."""
    import pyarrow as pa

    return pa.schema(
        [field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema]
    )
