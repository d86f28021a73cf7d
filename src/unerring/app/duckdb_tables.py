"""Tables in files behind DuckDB: reads CSV, JSON lines and Parquet, and runs the SQL around MATCH_RECOGNIZE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from unerring.matching import TableMatcher, outputs_of
from unerring.model import CallerError, ColumnType, RuleError, require
from unerring.sql import PARTITION, Recognition, Rewriting, column_type, output_table, partitions_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

FORMATS: Final = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
_ARRIVAL: Final = "input_arrival"
"""The place of a row in its file or subquery: what orders rows that ORDER BY leaves equal."""


class DuckTables:
    """An in-memory DuckDB with named tables, each read from a file."""

    dialect = "duckdb"

    def __init__(self, matcher: TableMatcher = TableMatcher.INTERPRETER, steps_max: int | None = None) -> None:
        require("duckdb")
        import duckdb

        self._duckdb = duckdb
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect(":memory:")
        self._connection.execute("SET TimeZone = 'UTC'")
        # A name that is no table must not find a variable of this process.
        self._connection.execute("SET python_enable_replacements = false")
        self._matcher = matcher
        self._steps_max = steps_max
        self._source: Rewriting | None = None

    # --- tables ---

    def add(self, name: str, file: Path, schema: Sequence[tuple[str, str]] = ()) -> None:
        """Read a file as a table. `schema`: names and SQL types of its columns; found out where it is empty."""
        suffixes = [suffix.lower() for suffix in file.suffixes]
        if suffixes and suffixes[-1] in (".gz", ".zst"):
            suffixes.pop()
        kind = FORMATS.get(suffixes[-1] if suffixes else "")
        if kind is None:
            raise CallerError(f"{file}: the name must end in {', '.join(FORMATS)} (or one of these and .gz)")
        if not file.is_file():
            raise CallerError(f"table {name}: there is no file {file}")
        columns = ", ".join(f"{_quoted(column)}: {_text(declared)}" for column, declared in schema)
        options = ""
        if kind == "csv" and schema:
            options = self._csv_options(file, schema, columns)
        elif kind == "json":
            options = ", format = 'newline_delimited'" + (f", columns = {{{columns}}}" if schema else "")
        chosen = ", ".join(
            f"CAST({_quoted(column)} AS {declared}) AS {_quoted(column)}" if kind == "parquet" else _quoted(column)
            for column, declared in schema
        )
        self._run(
            f"CREATE TABLE {_quoted(name)} AS SELECT {chosen or '*'} FROM read_{kind}({_text(str(file))}{options})",
            f"table {name}, {file}",
        )

    def add_table(self, name: str, table: pa.Table) -> None:
        """A table that is in memory already."""
        self._connection.register(name, table)

    def table(self, name: str) -> pa.Table:
        """A table that was added."""
        table: pa.Table = self._table(f"SELECT * FROM {_quoted(name)}")
        return table

    def _csv_options(self, file: Path, schema: Sequence[tuple[str, str]], columns: str) -> str:
        """Match columns by name if the file has a head line, else by place."""
        sniffed = self._run(f"SELECT HasHeader, Columns FROM sniff_csv({_text(str(file))})", str(file)).fetchall()
        names = [column.lower() for column, _ in schema]
        has_head, listed = sniffed[0][0], [str(column["name"]) for column in sniffed[0][1]]
        head = [column.lower() for column in listed]
        if set(names) <= set(head):
            return f", header = true, types = {{{columns}}}"
        if has_head and set(names) & set(head):
            missing = ", ".join(column for column, _ in schema if column.lower() not in head)
            raise CallerError(f"{file} has no column {missing}; it has {', '.join(listed)}")
        return f", header = false, columns = {{{columns}}}"

    # --- statements ---

    def query(self, sql: str) -> Iterator[dict[str, Any]]:
        """The rows of a statement, each with its columns in the order of SELECT."""
        statement, _ = self.recognised(sql)
        cursor = self._run(statement.sql(self.dialect))
        names = [column[0] for column in cursor.description or ()]
        statement.check_names(names)
        while rows := self._translating_errors(lambda: cursor.fetchmany(10_000)):
            for row in rows:
                yield dict(zip(names, row, strict=True))

    def recognised(self, sql: str) -> tuple[Rewriting, list[Recognition]]:
        """Run every MATCH_RECOGNIZE of a statement; what is left of it is plain SQL over the tables they made."""
        # From here on only the tables that were added can be read: no file, no network.
        self._connection.execute("SET enable_external_access = false")
        self._source = Rewriting(sql)
        return self._source, self._source.recognise_all(self)

    def describe(self, query: str) -> list[tuple[str, ColumnType | None, str]]:
        relation = self._relation(query)
        types = self._table(f"SELECT * FROM ({query}) LIMIT 0").schema.types
        return [(name, column_type(kind), str(kind)) for name, kind in zip(relation.columns, types, strict=True)]

    def recognise(self, query: str, recognition: Recognition, table: str) -> None:
        columns = ", ".join(_quoted(column.name) for column in recognition.partition)
        partition = f"dense_rank() OVER (ORDER BY {columns}) - 1" if columns else "0"
        keys = [
            f"{_quoted(column.name)}{' DESC' * key.descending} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for column, key in recognition.order
        ]
        order = ", ".join([PARTITION, *keys, _ARRIVAL])
        ordered = self._table(
            f"SELECT *, {partition} AS {PARTITION} FROM (SELECT *, row_number() OVER () AS {_ARRIVAL} FROM ({query})) "
            f"ORDER BY {order}"
        )
        partitions = partitions_of(recognition, ordered)
        plan, place = recognition.batch_plan(), recognition.place
        outputs = outputs_of(plan, partitions, place, self._matcher, self._steps_max)
        self._connection.register(table, output_table(recognition, ordered, outputs))

    def _run(self, sql: str, what: str = "") -> Any:
        return self._translating_errors(lambda: self._connection.execute(sql), what)

    def _relation(self, sql: str) -> Any:
        return self._translating_errors(lambda: self._connection.sql(sql))

    def _table(self, sql: str) -> Any:
        """The whole result of a query, as an Arrow table."""
        return self._translating_errors(lambda: self._relation(sql).to_arrow_table())

    def _translating_errors(self, do: Callable[[], Any], what: str = "") -> Any:
        """DuckDB's answer; its errors become a RuleError with one sentence."""
        try:
            return do()
        except self._duckdb.Error as error:
            raise RuleError(self._sentence(str(error), what)) from None

    def _sentence(self, message: str, what: str) -> str:
        """DuckDB's message as one sentence that points into the statement as it was written."""
        complaint = re.split(r"Candidate functions:|\n\nLINE ", message)[0]
        lines = [line.strip() for line in complaint.splitlines() if line.strip()]
        text = " ".join(lines).removeprefix("Binder Error: ").removeprefix("Catalog Error: ")
        if what or self._source is None:
            return f"{what}: {text}" if what else text
        named = re.findall(r"""["']([^"']+)["']|name (\w+)""", lines[0])
        words = {(quoted or bare).lower() for quoted, bare in named}
        place = self._source.place_of(words)
        return f"{place}: {text}" if place else text


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
