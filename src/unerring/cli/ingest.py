"""`unerring ingest FILE`: bring a file of events into a stream of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from unerring.cli._place import HERE, Data
from unerring.log import share_text
from unerring.model import CallerError, to_duration_us

if TYPE_CHECKING:
    from unerring.log import EventLog, Times
    from unerring.model import StreamSchema


def command(
    file: Annotated[Path, typer.Argument(help="A CSV, JSON-lines or Parquet file.")],
    stream: Annotated[str, typer.Option(help="The stream's name.")],
    time_column: Annotated[str, typer.Option(help="The column with the event time.")],
    lateness: Annotated[str, typer.Option(help="How far out of order rows may be: 10s, 500ms, 2h.")] = "0s",
    time_unit: Annotated[
        str | None, typer.Option(help="Unit of numbers in the time column: s, ms, us (the default) or ns.")
    ] = None,
    zone: Annotated[str | None, typer.Option(help="The time zone of times without one, such as UTC.")] = None,
    key: Annotated[str, typer.Option(help="Key columns of a new stream, separated by commas.")] = "",
    no_key: Annotated[bool, typer.Option("--no-key", help="A new stream has no key.")] = False,
    quarantine_max: Annotated[
        float, typer.Option(metavar="PERCENT", help="If more of the rows go to quarantine, the exit code is 1.")
    ] = 1.0,
    app: Annotated[str | None, typer.Option(help="module:attribute of the app that declares the stream.")] = None,
    data: Data = HERE,
    end: Annotated[bool, typer.Option("--end", help="The stream is complete with this file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Write a file of events into a stream of the log, in order, once.

    Rows may be out of order by the given lateness. Later rows, and rows that do not fit the stream, go to quarantine
    with a reason. Ingesting the same file again adds nothing; an interrupted ingest continues where it stopped.

    Exit code 1: more than --quarantine-max percent of the rows are in quarantine. 2: the file could not be ingested.
    """
    from rich.console import Console

    from unerring.app import place_of
    from unerring.log import IngestConfig, Times, ingest

    times = Times(time_column, time_unit, zone)
    place = place_of(data)
    place.check()
    log = place.log
    schema, buckets = _declared(log, stream, app, file, key, no_key, times)
    config = IngestConfig(lateness_us=to_duration_us(lateness))
    with Console(stderr=True).status(f"reading {file}") as status:
        result = ingest(
            log,
            file,
            schema,
            times,
            config,
            end=end,
            buckets=buckets,
            show=lambda rows: status.update(f"reading {file}: {rows:,} rows"),
        )
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(result)))
    elif result.already:
        typer.echo(f"{file} is already in stream {stream}: nothing to add")
    else:
        typer.echo(f"{result.added:,} of {result.rows:,} rows of {file} are in stream {stream}")
        for reason, count in result.quarantined.items():
            typer.echo(f"{count:,} went to quarantine: {reason}")
    if result.share * 100 > quarantine_max:
        count = sum(result.quarantined.values())
        share = f"{count:,} of {result.rows:,} rows ({share_text(count, result.rows)})"
        typer.echo(
            f"unerring: {share} of {file} are in quarantine, more than --quarantine-max {quarantine_max:g}: see why "
            f"with `unerring quarantine show {data} --stream {stream}`",
            err=True,
        )
        raise SystemExit(1)


def _declared(
    log: EventLog, stream: str, app: str | None, file: Path, key: str, no_key: bool, times: Times
) -> tuple[StreamSchema, int]:
    """The stream as its app declares it, as the log knows it, or after the file's own columns; and its buckets."""
    from unerring.log import BUCKETS, guess_schema

    if app is not None:
        from unerring.app import load

        loaded = load(app)
        for schema in loaded.streams:
            if schema.name == stream:
                return schema, loaded.buckets
        raise CallerError(f"app {app} has no stream {stream!r}; it has {', '.join(s.name for s in loaded.streams)}")
    known = log.declaration(stream)
    if known is not None:
        return known.schema, known.buckets
    if not file.is_file():
        raise CallerError(f"{file} is not a file; give a CSV, JSON-lines or Parquet file")
    columns = tuple(name.strip() for name in key.split(",") if name.strip())
    if not columns and not no_key:
        raise CallerError(
            f"stream {stream} is new in {log.store.locate('')}, and its key is not known; name the key columns "
            "with --key, such as --key machine, use --no-key if it has none, or name its app with --app"
        )
    if columns and no_key:
        raise CallerError(f"--key {key} and --no-key contradict each other; give one of them")
    return guess_schema(file, stream, columns, times), BUCKETS
