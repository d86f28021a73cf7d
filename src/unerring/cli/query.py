"""`unerring query`: SQL with MATCH_RECOGNIZE on CSV, JSON-lines and Parquet files."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from unerring.model import CallerError


class Engine(StrEnum):
    """What looks for the matches."""

    backtrack = "backtrack"
    oracle = "oracle"
    kernel = "kernel"
    spark = "spark"


def command(
    sql: Annotated[str, typer.Argument(help="The statement; - reads it from standard input.")],
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="A table: a .csv, .jsonl or .parquet file. Repeatable."),
    ] = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMNS", help='Its columns, such as "t=id bigint, v double, at timestamp". Repeatable.'
        ),
    ] = None,
    engine: Annotated[Engine, typer.Option(help="What looks for the matches.")] = Engine.backtrack,
    steps_max: Annotated[int, typer.Option(min=1, help="Give up on a match after so many attempts.")] = 10_000_000,
) -> None:
    """Run SQL with MATCH_RECOGNIZE on files and print the rows as JSON lines.

    Each row is one JSON object with its keys in the order of SELECT. A mistake ends with one sentence that names the
    line and column, and exit code 2.
    """
    from unerring.rules.sql.batch import BatchEngine
    from unerring.runtime.duckdb_tables import DuckTables

    if engine not in (Engine.backtrack, Engine.oracle):
        raise CallerError(f"engine {engine} does not run queries on files yet; use backtrack or oracle")
    schemas = {name: _columns(name, text) for name, text in map(_assignment, schema or [])}
    tables = DuckTables(BatchEngine(engine.value), steps_max)
    added: list[str] = []
    for name, file in map(_assignment, table or []):
        if name.lower() in added:
            raise CallerError(f"table {name} is given twice")
        added.append(name.lower())
        tables.add(name, Path(file), schemas.pop(name, ()))
    if schemas:
        raise CallerError(f"--schema {next(iter(schemas))}=...: there is no --table of that name")
    encoder = msgspec.json.Encoder(decimal_format="number")
    write = sys.stdout.buffer.write
    for row in tables.query(sys.stdin.read() if sql == "-" else sql):
        write(encoder.encode(row) + b"\n")
    sys.stdout.flush()


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name.strip()) or not value.strip():
        raise CallerError(f"{text!r} is no NAME=VALUE; write --table t=events.csv, --schema 't=id bigint, v double'")
    return name.strip(), value.strip()


def _columns(name: str, text: str) -> list[tuple[str, str]]:
    """`id bigint, price decimal(10, 2)` as pairs of a name and a type."""
    columns: list[tuple[str, str]] = []
    for part in re.split(r",(?![^(]*\))", text):
        found = re.fullmatch(r'\s*("[^"]+"|\w+)\s+([A-Za-z_][\w ]*(?:\([\d, ]+\))?(?:\[\])?)\s*', part)
        if found is None:
            raise CallerError(
                f"--schema {name}: {part.strip()!r} is no column; write a name and a type, such as id bigint"
            )
        columns.append((found.group(1).strip('"'), found.group(2).strip()))
    return columns
