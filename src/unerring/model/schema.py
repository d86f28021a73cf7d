"""Streams and their schemas: declared once as a typed Python class; Arrow, Spark, SQL and wire schemas derive from it.

@stream(key="machine")
class Reading:
    machine: str
    celsius: float
"""

from __future__ import annotations

import re
import types
import typing
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar, dataclass_transform

import msgspec

from unerring.model.errors import SchemaError
from unerring.model.events import Event
from unerring.model.secrecy import SECRET, note_secret
from unerring.model.stamps import SECOND_US, Stamp, to_duration_us, to_time_us

if typing.TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

RESERVED: Final = frozenset({"time", "ordinal", "stamp"})
"""Names that every event has besides its payload; a column may not take them."""

LATENESS_US_MAX: Final = 366 * 86_400 * SECOND_US
"""A year. What may come so late is better brought in as a file."""

ARRIVAL: Final = frozenset({"strict", "lateness_us", "idle_after_us"})
"""Fields of a schema that say when events are known to be all there, not what a rule makes of them: they may change
from run to run."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")


class ColumnType(StrEnum):
    """The types a payload column can have. Their Arrow types are the ones written to disk."""

    BOOL = "bool"
    INT = "int"  # 64 bit, signed; overflow is an error, never a wrap
    FLOAT = "float"  # 64 bit
    TEXT = "text"
    BYTES = "bytes"
    TIME = "time"  # microseconds since 1970, UTC


class Column(msgspec.Struct, frozen=True, order=True):
    """One column of a stream's payload."""

    name: str
    type: ColumnType
    nullable: bool = False


class StreamSchema(msgspec.Struct, frozen=True):
    """The description of a stream, which every part of the system uses."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns that partition the stream; empty: one partition."""
    strict: bool = False
    """Times strictly increase, so that an event at t is itself a watermark of t. Otherwise several events may carry one
    time, their ordinals tell them apart, and an event at t is a watermark of t - 1."""
    max_ahead_us: int | None = None
    """A stamp further ahead of the producer's clock than this is refused at the source, and goes to quarantine at a log
    that gets it all the same."""
    lateness_us: int = 0
    """How much a producer may publish out of order: its watermark is its newest time less this."""
    idle_after_us: int | None = None
    """A producer from which nothing came for so long does not hold the stream back any more; None: it does."""

    added: tuple[str, ...] = ()
    """The last columns, if they came when the stream had events already, which have NULL in them."""
    secret: tuple[str, ...] = ()
    """Columns that nobody is shown and that are encrypted in the log, by a key for each key of the stream. NULL once
    that was erased."""

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise SchemaError(f"stream name {self.name!r}: use letters, digits and _, starting with a letter")
        seen: dict[str, Column] = {}
        for column in self.columns:
            if not _NAME.match(column.name) or column.name in RESERVED:
                raise SchemaError(
                    f"stream {self.name}: column {column.name!r} is not allowed; use letters, digits and _, "
                    f"and none of {', '.join(sorted(RESERVED))}"
                )
            if column.name.lower() in seen:
                raise SchemaError(
                    f"stream {self.name}: column {column.name!r} is declared twice (names are not case-sensitive)"
                )
            seen[column.name.lower()] = column
        for name in self.key:
            if not any(column.name == name for column in self.columns):
                raise SchemaError(f"stream {self.name}: the key names {name!r}, which is not a column; {self._has()}")
            if self.column(name).nullable:
                raise SchemaError(f"stream {self.name}: key column {name!r} must not be nullable")
        if len(dict.fromkeys(self.key)) < len(self.key):
            raise SchemaError(f"stream {self.name}: the key ({', '.join(self.key)}) names a column twice")
        self._check_added()
        self._check_secret()
        if self.max_ahead_us is not None and self.max_ahead_us < 0:
            raise SchemaError(f"stream {self.name}: max_ahead is {self.max_ahead_us} us; it must not be negative")
        if not 0 <= self.lateness_us <= LATENESS_US_MAX:
            raise SchemaError(
                f"stream {self.name}: lateness is {self.lateness_us} us; it must be between 0 and {LATENESS_US_MAX}"
            )
        if self.idle_after_us is not None and self.idle_after_us <= 0:
            raise SchemaError(
                f"stream {self.name}: idle_after is {self.idle_after_us} us; it must be above 0, or None for never"
            )

    def _check_added(self) -> None:
        last = self.columns[len(self.columns) - len(self.added) :]
        if self.added and tuple(column.name for column in last) != self.added:
            raise SchemaError(
                f"stream {self.name}: the added columns are {', '.join(self.added)}, but the last ones are "
                f"{', '.join(column.name for column in last)}; added columns come last, in the order in which they came"
            )
        for column in last if self.added else ():
            if not column.nullable:
                raise SchemaError(
                    f"stream {self.name}: added column {column.name!r} must be nullable: events from before have none"
                )

    def _check_secret(self) -> None:
        for name in self.secret:
            if name in self.key:
                raise SchemaError(
                    f"stream {self.name}: key column {name!r} cannot be secret: the key says where an event belongs, "
                    "and is shown; use a number or a keyed hash as the key"
                )
            if not self.column(name).nullable:
                raise SchemaError(
                    f"stream {self.name}: secret column {name!r} must be nullable (`{name}: ... | None`): it is NULL "
                    "once it was erased"
                )
        if self.secret:
            note_secret(self.name, self.secret, self.key, tuple(column.name for column in self.columns))

    def lasting(self) -> dict[str, Any]:
        """What a rule's results may depend on: not how events arrive or who may see them, nor later columns,
        unless it reads them, which it says itself."""
        fields = {name: value for name, value in msgspec.to_builtins(self).items() if name not in ARRIVAL}
        fields["columns"] = fields["columns"][: len(self.columns) - len(self.added)]
        del fields["added"], fields["secret"]
        return fields

    def column(self, name: str) -> Column:
        """The column of that name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"stream {self.name} has no column {name!r}; {self._has()}")

    def _has(self) -> str:
        return "it has " + (", ".join(column.name for column in self.columns) or "none")

    def arrow(self) -> pa.Schema:
        """The payload as an Arrow schema."""
        import pyarrow as pa

        arrow_types = {
            ColumnType.BOOL: pa.bool_(),
            ColumnType.INT: pa.int64(),
            ColumnType.FLOAT: pa.float64(),
            ColumnType.TEXT: pa.string(),
            ColumnType.BYTES: pa.binary(),
            ColumnType.TIME: pa.timestamp("us", tz="UTC"),
        }
        return pa.schema([pa.field(c.name, arrow_types[c.type], c.nullable) for c in self.columns])


_PYTHON_TYPES: Final[dict[object, ColumnType]] = {
    bool: ColumnType.BOOL,
    int: ColumnType.INT,
    float: ColumnType.FLOAT,
    str: ColumnType.TEXT,
    bytes: ColumnType.BYTES,
    datetime: ColumnType.TIME,
}


@dataclass_transform(frozen_default=True)
def stream(
    *,
    key: str | tuple[str, ...] = (),
    name: str | None = None,
    strict: bool = False,
    ordinals: bool | None = None,
    max_ahead: timedelta | int | str | None = None,
    lateness: timedelta | int | str = 0,
    idle_after: timedelta | int | str | None = None,
    added: str | tuple[str, ...] = (),
    secret: str | tuple[str, ...] = (),
) -> Callable[[type[T]], type[T]]:
    """Declare a stream: the decorated class becomes a frozen, typed record, and `schema_of(cls)` its schema.

    - `key`: the columns that partition it.
    - `name`: the stream's, by default the class's.
    - `strict`: whether times strictly increase. Otherwise several events may have one time, in the producer's order.
    - `ordinals`: deprecated; True is the default now, and False is `strict=True`.
    - `max_ahead`: how far a stamp may lie ahead of the producer's clock; beyond that it is refused at the source.
    - `lateness`: how much each producer may publish out of order, such as "30s". Later events go to quarantine.
    - `idle_after`: after how long a producer that is silent no longer holds the stream back; by default never.
    - `added`: columns that came when the stream had events already. They come last, and may be None.
    - `secret`: columns that nobody is shown, and that are encrypted in the log. They may be None.

    Durations are a timedelta, microseconds, or a text such as "500ms", "30s" or "2h".
    """

    if ordinals is not None:
        warnings.warn(
            "@stream(ordinals=True) is the default now: leave it out; write @stream(strict=True) for ordinals=False",
            DeprecationWarning,
            stacklevel=2,
        )
        strict = strict or not ordinals

    def declare(cls: type[T]) -> type[T]:
        columns, fields = _columns(cls)
        schema = StreamSchema(
            name=name or cls.__name__,
            columns=columns,
            key=(key,) if isinstance(key, str) else tuple(key),
            strict=strict,
            max_ahead_us=None if max_ahead is None else to_duration_us(max_ahead),
            lateness_us=to_duration_us(lateness),
            idle_after_us=None if idle_after is None else to_duration_us(idle_after),
            added=(added,) if isinstance(added, str) else tuple(added),
            secret=(secret,) if isinstance(secret, str) else tuple(secret),
        )
        own = {column.name for column in columns}
        # The class's methods and properties stay; what Python keeps about the undecorated class goes.
        kept = {word: what for word, what in vars(cls).items() if word not in own and not word.startswith("__")}
        record = msgspec.defstruct(
            cls.__name__,
            fields,
            frozen=True,
            eq=True,
            module=cls.__module__,
            namespace={**kept, "__doc__": cls.__doc__, **({"__repr__": _repr_shown} if schema.secret else {})},
        )
        record.__stream__ = schema  # type: ignore[attr-defined]
        for column in columns:
            setattr(record, column.name, _ColumnAttribute(schema, column.name, getattr(record, column.name)))
        return typing.cast("type[T]", record)

    return declare


def _repr_shown(record: Any) -> str:
    """A record's text without the values of secret columns."""
    schema: StreamSchema = type(record).__stream__
    values = {column.name: getattr(record, column.name) for column in schema.columns}
    texts = (f"{name}={SECRET if name in schema.secret else repr(value)}" for name, value in values.items())
    return f"{type(record).__name__}({', '.join(texts)})"


Reference = Callable[[StreamSchema, str], Any]
_references: list[Reference] = []


def refer_with(reference: Reference) -> None:
    """Say what `Reading.celsius` is when it stands in a rule. Package `rules` does so; the model knows no rules."""
    _references[:] = [reference]


class _ColumnAttribute:
    """On an event the column's value; on the class a reference to the column."""

    __slots__ = ("_member", "_name", "_schema")

    def __init__(self, schema: StreamSchema, name: str, member: Any) -> None:
        self._schema = schema
        self._name = name
        self._member = member

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is not None:
            return self._member.__get__(instance, owner)
        return _references[0](self._schema, self._name) if _references else self


def schema_of(declared: object) -> StreamSchema:
    """The schema of a declared stream class, of one of its events, or the schema itself."""
    if isinstance(declared, StreamSchema):
        return declared
    schema = getattr(declared, "__stream__", None)
    if not isinstance(schema, StreamSchema):
        raise SchemaError(f"{declared!r} is not a stream; declare its class with @stream(key=...)")
    return schema


def event_of(record: object, time: datetime | int, ordinal: int = 0) -> Event:
    """An event: a record of a declared stream, with a time."""
    schema = schema_of(record)
    payload = {column.name: getattr(record, column.name) for column in schema.columns}
    for name, value in payload.items():
        if isinstance(value, datetime):
            payload[name] = to_time_us(value)
    return Event(schema.name, Stamp(to_time_us(time), ordinal), tuple(payload[name] for name in schema.key), payload)


def _columns(cls: type) -> tuple[tuple[Column, ...], list[tuple[str, Any] | tuple[str, Any, Any]]]:
    columns: list[Column] = []
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for column_name, hint in typing.get_type_hints(cls).items():
        inner, nullable = _unwrap_optional(hint)
        column_type = _PYTHON_TYPES.get(inner)
        if column_type is None:
            raise SchemaError(
                f"stream {cls.__name__}: column {column_name!r} has type {hint!r}; use bool, int, float, str, bytes or "
                "datetime, each also with '| None'"
            )
        columns.append(Column(column_name, column_type, nullable))
        if hasattr(cls, column_name):
            fields.append((column_name, hint, getattr(cls, column_name)))
        elif fields and len(fields[-1]) == 3:
            raise SchemaError(
                f"stream {cls.__name__}: column {column_name!r} has no default but follows one that has; put it first"
            )
        else:
            fields.append((column_name, hint))
    return tuple(columns), fields


def _unwrap_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) == 1 and len(typing.get_args(hint)) == 2:
            return inner[0], True
    return hint, False
