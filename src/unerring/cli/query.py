"""`unerring query`: SQL with MATCH_RECOGNIZE on CSV, JSON-lines and Parquet files."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from unerring.model import CallerError

if TYPE_CHECKING:
    from unerring.app import DuckTables


class Engine(StrEnum):
    """The matcher to use."""

    interpreter = "interpreter"
    kernel = "kernel"
    oracle = "oracle"
    spark = "spark"
    backtrack = "backtrack"
    """An old name of the interpreter."""


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
    engine: Annotated[Engine, typer.Option(help="The matcher, or spark.")] = Engine.interpreter,
    steps_max: Annotated[
        int | None,
        typer.Option(min=1, help="Give up on a row after this many attempts, instead of the matcher's own limit."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the plan of each MATCH_RECOGNIZE instead of rows.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --explain: print one JSON object for each plan.")
    ] = False,
) -> None:
    """Run SQL with MATCH_RECOGNIZE on files and print the rows as JSON lines.

    Each row is one JSON object with its keys in the order of SELECT. An error message names the line and column, and
    the exit code is 2. All engines give the same rows: interpreter (once called backtrack) starts at once and runs
    everything, kernel is the matcher of streams (compiled where it can be), oracle is the definition, and slow; with
    spark the statement runs on Spark.
    """
    from unerring.app import DuckTables
    from unerring.matching import TableMatcher

    text = _from_stdin() if sql == "-" else sql
    schemas = {name: _columns(name, columns) for name, columns in map(_assignment, schema or [])}
    by_name = engine in (Engine.kernel, Engine.oracle)
    tables = DuckTables(TableMatcher(engine.value) if by_name else TableMatcher.INTERPRETER, steps_max)
    added: list[str] = []
    for name, file in map(_assignment, table or []):
        if name.lower() in added:
            raise CallerError(f"table {name} is given twice")
        added.append(name.lower())  # names of tables do not depend on case
        tables.add(name, _path(file), schemas.pop(name, ()))
    if schemas:
        raise CallerError(f"--schema {next(iter(schemas))}=...: there is no --table of that name")
    if explain:
        _explain(tables, text, as_json)
        return
    encoder = msgspec.json.Encoder(decimal_format="number")
    write = sys.stdout.buffer.write
    rows = _on_spark(tables, added, text, steps_max) if engine is Engine.spark else tables.query(text)
    for row in rows:
        write(encoder.encode(row) + b"\n")
    sys.stdout.flush()


def _path(file: str) -> Path:
    """A file of this machine. The log, which knows addresses, is loaded for those alone: that takes longer than most
    statements."""
    if ":" not in file:
        return Path(file)
    from unerring.log import local_folder

    return local_folder(file)


def _from_stdin() -> str:
    from unerring.sql import SIZE_MAX

    data = sys.stdin.buffer.read(4 * SIZE_MAX + 1)  # more cannot be a statement
    # A byte that is no UTF-8 is kept as it is in an argument: who reads the statement says where it stands.
    return data.decode("utf-8", "surrogateescape")


def _on_spark(tables: DuckTables, names: list[str], text: str, steps_max: int | None) -> list[dict[str, Any]]:
    """The same statement on a Spark session of its own; Spark SQL runs what stands around MATCH_RECOGNIZE."""
    from unerring.pipeline import SparkConfig, SparkTables, spark_session

    with tempfile.TemporaryDirectory(prefix="unerring-") as folder:
        # A task a core: a table that fits into this process is not spread over the default 200.
        few = (("spark.sql.shuffle.partitions", str(os.cpu_count() or 1)),)
        with spark_session(SparkConfig(log=str(Path(folder) / "spark.log"), more=few), "unerring query") as spark:
            for name in names:
                spark.createDataFrame(tables.table(name)).createOrReplaceTempView(name)
            return SparkTables(spark, steps_max).rows(text)


def _explain(tables: DuckTables, text: str, as_json: bool) -> None:
    """What `unerring explain` says of a rule, for the plan of each MATCH_RECOGNIZE; the statement is run for it."""
    from unerring.matching import describe, printed

    described = [describe(recognition.batch_plan()) for recognition in tables.recognised(text)[1]]
    for one in described:
        sys.stdout.write((msgspec.json.encode(one).decode() if as_json else printed(one)) + "\n")


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name.strip()) or not value.strip():
        raise CallerError(f"{text!r} is not NAME=VALUE; write --table t=events.csv, --schema 't=id bigint, v double'")
    return name.strip(), value.strip()


def _columns(name: str, text: str) -> list[tuple[str, str]]:
    """`id bigint, price decimal(10, 2)` as pairs of a name and a type."""
    columns: list[tuple[str, str]] = []
    for part in re.split(r",(?![^(]*\))", text):
        match = re.fullmatch(r'\s*("[^"]+"|\w+)\s+([A-Za-z_][\w ]*(?:\([\d, ]+\))?(?:\[\])?)\s*', part)
        if match is None:
            raise CallerError(
                f"--schema {name}: {part.strip()!r} is not a column; write a name and a type, such as id bigint"
            )
        columns.append((match.group(1).strip('"'), match.group(2).strip()))
    return columns
