"""Delta Lake: each chunk is one commit, which carries the position as an application transaction.

A commit is made on the version of the table in which the position was read. Delta refuses it if somebody has committed
a transaction of the same application since then; it does not refuse a repeat by whoever loaded the table afterwards, so
the position is always looked up first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from unerring.log import store_options
from unerring.model import (
    TIME_MIN,
    CallerError,
    ColumnType,
    ConfigError,
    NetworkError,
    SchemaError,
    Stamp,
    StreamSchema,
    require,
)
from unerring.sinks.port import ORDINAL_MAX, Overtaken, last_stamp, target_schema
from unerring.sinks.record import SinkRecord
from unerring.sinks.refusals import ahead, other_column, other_columns, somebody_elses
from unerring.sinks.words import in_short, is_refused

if TYPE_CHECKING:
    import pyarrow as pa

_SLACK_US: Final = 1_000
"""Delta's statistics of a file are cut to milliseconds; what is asked of them is asked more widely."""
_PATIENCE: Final = {"timeout": "60s", "connect_timeout": "10s", "max_retries": "3", "retry_timeout": "60s"}
"""Of one request to an object store; the driver of the sink tries again by itself."""
_TYPES: Final = {
    ColumnType.BOOL: "boolean",
    ColumnType.INT: "long",
    ColumnType.FLOAT: "double",
    ColumnType.TEXT: "string",
    ColumnType.BYTES: "binary",
    ColumnType.TIME: "timestamp",
}


class DeltaTarget:
    """One table. Its positions are times: a chunk ends with the last event of one."""

    def __init__(self, where: str, schema: StreamSchema, record: SinkRecord) -> None:
        self._schema = schema
        self._record = record
        address, options = _place(where)
        with self._told():
            self._table = self._opened(address, options)
            self._time_us = self._looked_up()
            self._check()

    def position(self) -> Stamp | None:
        return None if self._time_us is None else Stamp(self._time_us, ORDINAL_MAX)

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        from deltalake import write_deltalake

        if self._time_us != (None if after is None else after.time):
            raise Overtaken(f"{self._record.to} is at {self._time_us}, not at {after and after.time}")
        to_us = last_stamp(chunk).time
        with self._told():
            write_deltalake(self._table, chunk, mode="append", commit_properties=self._moved(to_us))
        self._time_us = to_us

    def read(self, from_us: int, through_us: int) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        def moment(time_us: int) -> Any:
            return pa.scalar(time_us, pa.timestamp("us", tz="UTC"))

        time, low_us = pc.field("time"), max(from_us - _SLACK_US, TIME_MIN)
        with self._told():
            self._table.update_incremental()
            widely = (time > moment(low_us)) & (time <= moment(through_us))
            rows = self._table.to_pyarrow_dataset().to_table(filter=widely)
        rows = rows.filter(pc.greater(rows.column("time"), moment(from_us)))
        return rows.cast(target_schema(self._schema)).sort_by([("time", "ascending"), ("ordinal", "ascending")])

    def rewind(self, to: Stamp) -> None:
        """What is after that time is deleted in the commit that moves the position. Older versions of the table have
        it still, until they are vacuumed."""
        from deltalake import write_deltalake

        with self._told():
            # By its number, which no statistics are held against.
            self._table.delete(f"cast(time as bigint) > {to.time}", commit_properties=self._moved(to.time))
            if self._looked_up() != to.time:  # there was nothing to delete, and so no commit
                nothing = target_schema(self._schema).empty_table()
                write_deltalake(self._table, nothing, mode="append", commit_properties=self._moved(to.time))
        self._time_us = to.time

    def close(self) -> None:
        """Nothing is held open."""

    def _opened(self, address: str, options: dict[str, str]) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(address, storage_options=options)
        except TableNotFoundError:
            description = f"situations {self._schema.name}, delivered by unerring"
            return DeltaTable.create(
                address,
                target_schema(self._schema),
                mode="ignore",
                description=description,
                storage_options=options,
            )

    def _check(self) -> None:
        """The table has our columns, and no rows but ours."""
        there = {field.name: str(getattr(field.type, "type", field.type)) for field in self._table.schema().fields}
        wanted = {"time": _TYPES[ColumnType.TIME], "ordinal": _TYPES[ColumnType.INT]} | {
            column.name: _TYPES[column.type] for column in self._schema.columns
        }
        for name, kind in wanted.items():
            if there.get(name) != kind:
                raise other_column(self._record, name, kind, there.get(name))
        if len(there) > len(wanted):
            raise other_columns(self._record, sorted(set(there) - set(wanted)))
        at, newest_us = self.position(), self._newest_us()
        if newest_us is not None and at is None:
            raise somebody_elses(self._record)
        if newest_us is not None and at is not None and newest_us > at.time:
            raise ahead(self._record, newest_us, at)

    def _newest_us(self) -> int | None:
        """The newest time in the table, by its statistics; None: it has no rows."""
        import pyarrow as pa

        files = pa.table(self._table.get_add_actions(flatten=True))
        if not files.num_rows or sum(count or 0 for count in files.column("num_records").to_pylist()) == 0:
            return None
        times = files.column("max.time").cast(pa.int64()) if "max.time" in files.column_names else []
        return max((time.as_py() for time in times if time.is_valid), default=TIME_MIN)

    def _looked_up(self) -> int | None:
        """The position in the version that is loaded. After a commit of ours that is the commit's own."""
        version: int | None = self._table.transaction_version(self._record.id)
        return version

    def _moved(self, time_us: int) -> Any:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(app_transactions=[Transaction(self._record.id, time_us)])

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the library as ours. After each of them the driver opens the table again."""
        require("deltalake")
        from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError

        name, to = self._record.name, self._record.to
        try:
            yield
        except CommitFailedError as error:
            raise Overtaken(f"{to} was changed by somebody else meanwhile ({in_short(error)})") from None
        except SchemaMismatchError as error:
            raise SchemaError(f"sink {name}: {to} has another schema now ({in_short(error)})") from None
        except (DeltaError, OSError, ValueError) as error:
            if is_refused(error):
                raise ConfigError(f"sink {name} may not write to {to} ({in_short(error)}); give it the right") from None
            raise NetworkError(f"{to} does not answer as it should ({in_short(error)})") from None


def _place(where: str) -> tuple[str, dict[str, str]]:
    """The table's address as the library takes it, and what it must know of the store."""
    scheme = urlsplit(where).scheme if "://" in where else ""
    if scheme in ("", "file"):
        folder = Path(where.removeprefix("file://")).absolute()
        return str(folder), {}
    if scheme not in ("s3", "gs", "az"):
        raise CallerError(f"delta:{where}: there is no store {scheme}://; write a folder, s3://, gs:// or az://")
    known = store_options(scheme, urlsplit(where).netloc)
    options = {**_PATIENCE, "allow_http": str(known["client_options"]["allow_http"]).lower()}
    if scheme == "s3":
        options |= {f"aws_{name}": str(known[name]) for name in ("endpoint", "region") if name in known}
    return where, options
