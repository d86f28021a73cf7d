"""Statements over small tables written in the test, by either matcher."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from unerring.app.duckdb_tables import DuckTables
from unerring.matching.tables import TableMatcher, outputs_of
from unerring.model import ColumnType, Event, Stamp
from unerring.sql.dialect import RowPattern, parse_statement
from unerring.sql.names import columns_of
from unerring.sql.recognition import PARTITION, Recognition, compile_recognition
from unerring.sql.source import Source

Rows = list[dict[str, Any]]


def query(
    sql: str, matcher: TableMatcher = TableMatcher.INTERPRETER, steps_max: int = 1_000_000, **tables: Any
) -> Rows:
    """The rows of a statement over tables given as lists of dictionaries or as Arrow tables."""
    duck_tables = DuckTables(matcher, steps_max)
    for name, rows in tables.items():
        duck_tables.add_table(name, rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows))
    return list(duck_tables.query(sql))


def recognition_of(sql: str, **columns: ColumnType) -> Recognition:
    """The one MATCH_RECOGNIZE of a statement, over an input with these columns."""
    source = Source(sql)
    node = parse_statement(source).find(RowPattern)
    assert node is not None
    return compile_recognition(node, columns_of((name, kind, kind) for name, kind in columns.items()), source, "m")


def matched(recognition: Recognition, rows: Rows, matcher: TableMatcher, times: list[int]) -> list[dict[str, Any]]:
    """The output rows of one partition, without DuckDB; `times` in microseconds."""
    events = [
        Event("input", Stamp(time, number), (), {**row, PARTITION: 0})
        for number, (row, time) in enumerate(zip(rows, times, strict=True))
    ]
    return [payload for _, payload in outputs_of(recognition.batch_plan(), [(0, events)], recognition.place, matcher)]
