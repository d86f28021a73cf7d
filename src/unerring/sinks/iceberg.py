"""Iceberg: each chunk is one commit, which sets the position as a property of the table.

A commit is made on the snapshot in which the position was read, and the catalogue refuses it if there is a newer one.
pyiceberg would then try again on the newer one, with the rows that another driver has just brought; so the table is
told `commit.retry.num-retries=0`, and whoever was refused looks at the position first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from unerring.model import (
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

_RETRIES: Final = "commit.retry.num-retries"
_MADE_WITH: Final = {
    _RETRIES: "0",
    # A sink commits often. Otherwise each commit would leave a manifest, which every later one and every reader opens,
    # and a metadata file, for ever.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
_TIMEOUT_S: Final = (10, 60)
"""To connect to the catalogue, and to hear of it again: pyiceberg itself would wait for ever."""
_TYPES: Final = {
    ColumnType.BOOL: "boolean",
    ColumnType.INT: "long",
    ColumnType.FLOAT: "double",
    ColumnType.TEXT: "string",
    ColumnType.BYTES: "binary",
    ColumnType.TIME: "timestamptz",
}


class IcebergTarget:
    """One table of a catalogue that pyiceberg is configured with. Its positions are times, as Delta's are."""

    def __init__(self, where: str, schema: StreamSchema, record: SinkRecord) -> None:
        self._schema = schema
        self._record = record
        self._property = f"unerring.{record.id}"
        catalogue, _, self._name = where.partition(".")
        if "." not in self._name:
            raise ConfigError(f"iceberg:{where} names no table; write iceberg:CATALOG.NAMESPACE.TABLE")
        with self._told():
            self._catalogue = _catalogue(catalogue)
            self._table = self._opened()
            self._check()
            self._forget_history()

    def position(self) -> Stamp | None:
        told = self._table.properties.get(self._property)
        return None if told is None else Stamp(int(told), ORDINAL_MAX)

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        at = self.position()
        if (at and at.time) != (after and after.time):
            raise Overtaken(f"{self._record.to} is at {at and at.time}, not at {after and after.time}")
        to = {self._property: str(last_stamp(chunk).time)}
        with self._told(), self._table.transaction() as transaction:
            transaction.append(chunk, snapshot_properties=to)
            transaction.set_properties(to)
        self._forget_history()

    def read(self, from_us: int, through_us: int) -> pa.Table:
        from pyiceberg.expressions import And, GreaterThan, LessThanOrEqual

        with self._told():
            self._table.refresh()
            rows = self._table.scan(
                row_filter=And(GreaterThan("time", from_us), LessThanOrEqual("time", through_us))
            ).to_arrow()
        return rows.cast(target_schema(self._schema)).sort_by([("time", "ascending"), ("ordinal", "ascending")])

    def rewind(self, to: Stamp) -> None:
        """What is after that time is deleted in the commit that moves the position. Older snapshots have it still."""
        from pyiceberg.expressions import GreaterThan

        with self._told(), self._table.transaction() as transaction:
            transaction.delete(GreaterThan("time", to.time))
            transaction.set_properties({self._property: str(to.time)})

    def close(self) -> None:
        self._catalogue.close()

    def _opened(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        with contextlib.suppress(NoSuchTableError):
            return self._catalogue.load_table(self._name)
        self._catalogue.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        return self._catalogue.create_table_if_not_exists(
            self._name, target_schema(self._schema), properties=_MADE_WITH
        )

    def _forget_history(self) -> None:
        """Only the newest snapshots count for a commit, and pyiceberg copies all that it holds a dozen times in each.
        The catalogue keeps the others."""
        held = self._table.metadata
        heads = {head.snapshot_id for head in held.refs.values()}
        newest = [snapshot for snapshot in held.snapshots if snapshot.snapshot_id in heads]
        self._table.metadata = held.model_copy(update={"snapshots": newest, "snapshot_log": []})

    def _check(self) -> None:
        """The table has our columns, no rows but ours, and does not let a refused commit be tried again."""
        there = {field.name: str(field.field_type) for field in self._table.schema().fields}
        wanted = {"time": _TYPES[ColumnType.TIME], "ordinal": _TYPES[ColumnType.INT]} | {
            column.name: _TYPES[column.type] for column in self._schema.columns
        }
        for name, kind in wanted.items():
            if there.get(name) != kind:
                raise other_column(self._record, name, kind, there.get(name))
        if len(there) > len(wanted):
            raise other_columns(self._record, sorted(set(there) - set(wanted)))
        self._check_rows()
        if self._table.properties.get(_RETRIES) != "0":
            with self._table.transaction() as transaction:
                transaction.set_properties({_RETRIES: "0"})

    def _check_rows(self) -> None:
        """A commit of ours has been made on what was checked, so that after it there is nothing to check: that would
        open every manifest."""
        from pyiceberg.expressions import AlwaysTrue, GreaterThan

        at = self.position()
        newest = self._table.current_snapshot()
        if at is not None and newest is not None and newest.summary.get(self._property) == str(at.time):
            return
        newer = AlwaysTrue() if at is None else GreaterThan("time", at.time)
        if any(task.file.record_count for task in self._table.scan(row_filter=newer, limit=1).plan_files()):
            if at is None:
                raise somebody_elses(self._record)
            times = self._table.scan(row_filter=newer, selected_fields=("time",)).to_arrow().column("time")
            if len(times):
                raise ahead(self._record, max(time.value for time in times), at)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the library as ours. After each of them the driver opens the table again."""
        require("pyiceberg")
        from pyiceberg import exceptions
        from requests import RequestException

        name, to = self._record.name, self._record.to
        try:
            yield
        except exceptions.CommitFailedException as error:
            raise Overtaken(f"{to} was changed by somebody else meanwhile ({in_short(error)})") from None
        except (exceptions.ForbiddenError, exceptions.UnauthorizedError, exceptions.OAuthError) as error:
            raise ConfigError(f"sink {name} may not use {to} ({in_short(error)}); give it the right") from None
        except (exceptions.RESTError, exceptions.NoSuchTableError, RequestException, OSError) as error:
            if is_refused(error):
                raise ConfigError(f"sink {name} may not write to {to} ({in_short(error)}); give it the right") from None
            raise NetworkError(f"{to} does not answer as it should ({in_short(error)})") from None
        except ValueError as error:
            raise SchemaError(f"sink {name}: {to} has another schema now ({in_short(error)})") from None


def _catalogue(name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    try:
        catalogue = load_catalog(name)
    except ValueError as error:
        raise ConfigError(
            f"pyiceberg knows no catalogue {name!r} ({in_short(error)}); describe it in .pyiceberg.yaml, or set "
            f"PYICEBERG_CATALOG__{name.upper()}__URI"
        ) from None
    session = getattr(catalogue, "_session", None)
    if session is not None:
        session.request = partial(session.request, timeout=_TIMEOUT_S)
    return catalogue
