"""PostgreSQL: rows and position in one transaction.

Each sink has a row in `unerring_sinks`, beside the table. A transaction locks that row, compares the position with the
one that the driver believes in, copies the rows and moves the position: a driver that was overtaken finds another
position, and one whose answer was lost finds the new one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from unerring.model import (
    SECOND_US,
    TIME_MAX,
    CallerError,
    ColumnType,
    ConfigError,
    NetworkError,
    SchemaError,
    Stamp,
    StreamSchema,
    WorldError,
    require,
)
from unerring.sinks.csv import decoded, encoded, plain
from unerring.sinks.port import Overtaken, last_stamp
from unerring.sinks.record import SinkRecord
from unerring.sinks.refusals import gone, other_column, somebody_elses
from unerring.sinks.words import in_short

if TYPE_CHECKING:
    import pyarrow as pa

POSITIONS: Final = "unerring_sinks"
_CONNECT_S: Final = 10
_SETTINGS: Final = {
    "statement_timeout": 120_000,
    "lock_timeout": 30_000,
    # A driver that sleeps in the middle of a transaction loses it, and with it the lock that others need.
    "idle_in_transaction_session_timeout": 60_000,
}
_NO_LOGIN: Final = re.compile(
    r"authentication failed|not permitted to log in|role .* does not exist|no pg_hba.conf entry"
)
"""libpq gives no code for why it could not connect. A server that speaks another language is waited for."""
_FIRST_US: Final = -210_866_803_200 * SECOND_US
"""The first moment that PostgreSQL knows."""
_TYPES: Final = {
    ColumnType.BOOL: "boolean",
    ColumnType.INT: "bigint",
    ColumnType.FLOAT: "double precision",
    ColumnType.TEXT: "text",
    ColumnType.BYTES: "bytea",
    ColumnType.TIME: "timestamp with time zone",
}


class PostgresTarget:
    """One table of a database."""

    def __init__(self, url: str, schema: StreamSchema, record: SinkRecord) -> None:
        self._schema = schema
        self._record = record
        dsn, table, self._positions = _split(url)
        self._table = table
        self._columns = {"time": _TYPES[ColumnType.TIME], "ordinal": _TYPES[ColumnType.INT]} | {
            column.name: _TYPES[column.type] for column in schema.columns
        }
        with self._told():
            self._connection = _connect(dsn)
        try:
            with self._told(), self._connection.transaction():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def position(self) -> Stamp | None:
        with self._told():
            return self._position()

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        data = encoded(chunk)
        names = ", ".join(map(plain, self._columns))
        with self._told(), self._connection.transaction():
            at = self._position("FOR UPDATE")
            if at != after:
                raise Overtaken(f"{self._record.to} is at {at and tuple(at)}, not at {after and tuple(after)}")
            with self._connection.cursor().copy(f"COPY {self._table} ({names}) FROM STDIN (FORMAT csv)") as copy:
                copy.write(data)
            self._move(last_stamp(chunk))

    def read(self, from_us: int, through_us: int) -> pa.Table:
        fields = ", ".join(_read_as(plain(name), kind) for name, kind in self._columns.items())
        select = (
            f"SELECT {fields} FROM {self._table} WHERE time > {_moment(from_us)} AND time <= {_moment(through_us)} "
            "ORDER BY time, ordinal"
        )
        with self._told(), self._connection.cursor().copy(f"COPY ({select}) TO STDOUT (FORMAT csv)") as copy:
            return decoded(b"".join(bytes(part) for part in copy), self._schema)

    def rewind(self, to: Stamp) -> None:
        """What is after the stamp is deleted, in the transaction that moves the position."""
        with self._told(), self._connection.transaction():
            self._position("FOR UPDATE")
            self._execute(f"DELETE FROM {self._table} WHERE (time, ordinal) > ({_moment(to.time)}, %s)", to.ordinal)
            self._move(to)

    def close(self) -> None:
        self._connection.close()

    def _prepare(self) -> None:
        """The table and the sink's position are there afterwards, and fit."""
        # Two drivers that begin at once would both make the tables.
        self._execute("SELECT pg_advisory_xact_lock(hashtext(%s))", POSITIONS)
        if not self._there(self._positions):
            self._execute(
                f"CREATE TABLE {self._positions} (sink text PRIMARY KEY, stream text NOT NULL, time bigint, "
                "ordinal bigint, moved timestamp with time zone NOT NULL DEFAULT now())"
            )
        # Locked: a driver that writes now would come between the look at the position and the look at the rows.
        at = self._position("FOR UPDATE")
        if self._there(self._table):
            self._check_columns()
            if at is None and self._execute(f"SELECT EXISTS (SELECT FROM {self._table})").fetchone()[0]:
                raise somebody_elses(self._record)
        elif at is not None:
            raise gone(self._record, at)
        else:
            nullable = {column.name for column in self._schema.columns if column.nullable}
            columns = ", ".join(
                f"{plain(name)} {kind}{'' if name in nullable else ' NOT NULL'}" for name, kind in self._columns.items()
            )
            self._execute(f"CREATE TABLE {self._table} ({columns}, PRIMARY KEY (time, ordinal))")
        self._execute(
            f"INSERT INTO {self._positions} (sink, stream) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            self._record.id,
            self._record.stream,
        )

    def _there(self, table: str) -> bool:
        return self._execute("SELECT to_regclass(%s)", table).fetchone()[0] is not None

    def _check_columns(self) -> None:
        """Ours are there, of our types; others may be, if they need no value."""
        found = self._execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '' "
            "FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            self._table,
        ).fetchall()
        kinds = {name: kind for name, kind, _ in found}
        for name, kind in self._columns.items():
            if kinds.get(name) != kind:
                raise other_column(self._record, name, kind, kinds.get(name))
        for name, _, needed in found:
            if needed and name not in self._columns:
                raise SchemaError(
                    f"sink {self._record.name}: {self._record.to} has a column {name!r} that must have a value, and "
                    f"{self._schema.name} has none for it; give it a default, or deliver into another table"
                )

    def _position(self, locked: str = "") -> Stamp | None:
        found = self._execute(
            f"SELECT time, ordinal FROM {self._positions} WHERE sink = %s {locked}", self._record.id
        ).fetchone()
        return None if found is None or found[0] is None else Stamp(*found)

    def _move(self, to: Stamp) -> None:
        moved = f"UPDATE {self._positions} SET time = %s, ordinal = %s, moved = now() WHERE sink = %s"
        self._execute(moved, to.time, to.ordinal, self._record.id)

    def _execute(self, statement: str, *values: Any) -> Any:
        return self._connection.execute(statement, values or None)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the driver as ours: what time may heal, and what it will not."""
        require("psycopg")
        import psycopg
        from psycopg import errors

        name, to = self._record.name, self._record.to
        try:
            yield
        except errors.UniqueViolation as error:
            raise CallerError(
                f"sink {name}: {to} has a row with a stamp of ours ({in_short(error)}): somebody else "
                "writes there; remove their rows, or deliver into another table"
            ) from None
        except errors.InsufficientPrivilege as error:
            raise ConfigError(
                f"sink {name} may not do what it has to in {to} ({in_short(error)}); let its user create tables there, "
                f"or read and write the table and {POSITIONS}"
            ) from None
        except (errors.UndefinedTable, errors.UndefinedColumn) as error:
            raise WorldError(f"sink {name}: {to} was changed meanwhile ({in_short(error)})") from None
        except (errors.DataError, errors.IntegrityError) as error:
            raise CallerError(
                f"sink {name}: {to} refuses a row ({in_short(error)}); correct the table, or deliver into another one"
            ) from None
        except psycopg.Error as error:
            if _NO_LOGIN.search(str(error)):
                raise ConfigError(f"sink {name} may not connect to {to} ({in_short(error)}); let it in") from None
            raise NetworkError(f"{to} does not answer as it should ({in_short(error)})") from None


def _connect(dsn: str) -> Any:
    import psycopg

    connection = psycopg.connect(dsn, autocommit=True, connect_timeout=_CONNECT_S, application_name="unerring")
    for name, value in _SETTINGS.items():
        connection.execute(f"SET {name} = {value}")
    return connection


def _split(url: str) -> tuple[str, str, str]:
    """What libpq connects to, and the names of the table and of the positions beside it."""
    parts = urlsplit(url)
    database, _, table = parts.path.strip("/").partition("/")
    schema, _, name = unquote(table).rpartition(".")
    if not database or not name or "/" in name:
        raise ConfigError(f"{url.partition('?')[0]!r} names no table; write postgresql://USER@HOST/DATABASE/TABLE")
    before = f"{plain(schema)}." if schema else ""
    return urlunsplit(parts._replace(path=f"/{database}")), before + plain(name), before + plain(POSITIONS)


def _moment(time_us: int) -> str:
    """A time in SQL, exact to the microsecond: numbers there are doubles when they are multiplied."""
    if not _FIRST_US <= time_us < TIME_MAX:
        return "timestamptz 'infinity'" if time_us > 0 else "timestamptz '-infinity'"
    seconds, rest = divmod(time_us, SECOND_US)
    return f"(timestamptz 'epoch' + {seconds} * interval '1 second' + {rest} * interval '1 microsecond')"


def _read_as(name: str, kind: str) -> str:
    if kind == _TYPES[ColumnType.TIME]:
        return f"(extract(epoch from {name}) * {SECOND_US})::bigint"
    return f"encode({name}, 'hex')" if kind == _TYPES[ColumnType.BYTES] else name
