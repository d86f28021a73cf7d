"""`unerring ingest SOURCE...`: bring events into a stream of the log, from files, or as a Spark job from anywhere."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from unerring.cli._ingest_on_spark import OnSpark, options_of
from unerring.cli._place import HERE, Data
from unerring.log import share_text
from unerring.model import CallerError, to_duration_us

if TYPE_CHECKING:
    from unerring.lineage import Flow
    from unerring.log import EventLog, Ingested, Times
    from unerring.model import StreamSchema


def command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="CSV, JSON-lines or Parquet files; with --master one source, whatever Spark reads: files, folders, "
            "patterns, addresses such as s3a://bucket/events, or '' for a source that --option describes.",
        ),
    ],
    stream: Annotated[str, typer.Option(help="The stream's name.")],
    time_column: Annotated[str, typer.Option(help="The column with the event time.")],
    lateness: Annotated[
        str | None,
        typer.Option(
            help="How far out of order rows may be, also across the files of one call: 10s, 500ms, 2h. Default: what "
            "the stream declares. On Spark files are sorted as a whole; there it is how late the next files may be, "
            "and rows wait for them."
        ),
    ] = None,
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
    end: Annotated[bool, typer.Option("--end", help="The stream is complete with this.")] = False,
    master: Annotated[
        str | None, typer.Option(help="Do it as a Spark job: local[*], local[N], spark://HOST:PORT, yarn or k8s://…")
    ] = None,
    memory: Annotated[str, typer.Option(help="Spark: the heap of the driver's JVM.")] = "2g",
    kind: Annotated[
        str | None,
        typer.Option("--format", help="Spark: the format, if the name does not tell: parquet, delta, jdbc, …"),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Spark: an option of the reader, NAME=VALUE; several times if needed.")
    ] = None,
    named: Annotated[
        str | None,
        typer.Option("--source", help="Spark: the name under which the log remembers what came. Default: from SOURCE."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Spark: go on with what comes, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Write events into a stream of the log, in order, once.

    Rows may be out of order by the given lateness. Later rows, and rows that do not fit the stream, go to quarantine
    with a reason. Ingesting the same file again adds nothing; an interrupted ingest continues where it stopped.

    Without --master one process reads the files, in the order in which they are named, as if they were one: rows find
    their places across the files' seams, within the lateness. When the last file ends, all of it is sealed, up to its
    newest time: the files of a later call do not find places before that. So name files that overlap in one call.

    With --master Spark does it: its tasks check, sort and write the rows.
    A folder may be ingested again when it has new files. Examples:

    unerring ingest monday.csv tuesday.csv --stream Reading --time-column at --key machine --lateness 30s

    unerring ingest events/ --master local[*] --stream Reading --time-column at --key machine

    unerring ingest events/ --master local[*] --stream Reading --time-column at --lateness 30s --follow

    unerring ingest "" --format jdbc --option url=jdbc:… --option dbtable=orders --master local[*] --stream Order
    --time-column placed --key customer

    Exit code 1: more than --quarantine-max percent of the rows are in quarantine. 2: it could not be ingested.
    """
    from unerring.app import place_of
    from unerring.log import Times

    times = Times(time_column, time_unit, zone)
    place = place_of(data)
    place.check()
    late_us = None if lateness is None else to_duration_us(lateness)
    declared = _declared(place.log, stream, app)
    if master is not None:
        if len(sources) > 1:
            raise CallerError(
                f"with --master there is one source, and these are {len(sources)}; name their folder, or a pattern in "
                "quotes such as 'events/*.csv'"
            )
        spark = OnSpark(place, master, memory, sources[0], kind, options_of(option or []), named)
        columns = None if declared else _key_of(place.log, stream, key, no_key)
        wanted = declared[0] if declared else stream
        result = (
            spark.follow(wanted, times, columns, late_us)
            if follow
            else spark.take(wanted, times, columns, late_us, end)
        )
    elif kind or option or named or follow:
        raise CallerError(
            "--format, --option, --source and --follow are Spark's; add --master, such as --master local[*]"
        )
    else:
        for source in sources:
            if "://" in source:
                raise CallerError(
                    f"{source} is an address, not a file; add --master, such as --master local[*]: Spark reads it"
                )
        files = [Path(source) for source in sources]
        result = _in_process(
            place.log, files, declared or _guessed(place.log, stream, files[0], key, no_key, times), times, late_us, end
        )
    _report(result, sources, stream, data, quarantine_max, as_json)


def _in_process(
    log: EventLog, files: list[Path], declared: tuple[StreamSchema, int], times: Times, late_us: int | None, end: bool
) -> Ingested:
    """Files, by this process alone."""
    from rich.console import Console

    from unerring.lineage import traced
    from unerring.log import IngestConfig, ingest

    schema, buckets = declared
    config = IngestConfig(lateness_us=schema.lateness_us if late_us is None else late_us)
    what = _named(list(map(str, files)))
    with (
        traced("ingest", f"ingest.{schema.name}", partial(_flow, log, files, schema)) as lineage,
        Console(stderr=True).status(f"reading {what}") as status,
    ):
        done = ingest(
            log,
            files,
            schema,
            times,
            config,
            end=end,
            buckets=buckets,
            show=lambda rows: status.update(f"reading {what}: {rows:,} rows"),
        )
        lineage.rows = done.added
        return done


def _flow(log: EventLog, files: list[Path], schema: StreamSchema) -> Flow:
    from unerring.lineage import Flow, folders_of, stream_dataset

    return Flow(folders_of(str(file.absolute()) for file in files), (stream_dataset(log.store, schema),))


def _named(sources: list[str]) -> str:
    return sources[0] if len(sources) == 1 else f"{len(sources)} files"


def _report(result: Ingested, sources: list[str], stream: str, data: str, quarantine_max: float, as_json: bool) -> None:
    """What came of it; exit code 1 if too much of it is in quarantine."""
    source = _named(sources)
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(result)))
    elif result.already:
        is_or_are = "is" if len(sources) == 1 else "are"
        typer.echo(f"{source} {is_or_are} already in stream {stream}: nothing to add")
    else:
        before = f", {result.files_already:,} of which were in before," if result.files_already else ""
        told = "were added to" if before else "are in"
        typer.echo(f"{result.added:,} of {result.rows:,} rows of {source}{before} {told} stream {stream}")
        for reason, count in result.quarantined.items():
            typer.echo(f"{count:,} went to quarantine: {reason}")
    if result.waiting and not as_json:
        typer.echo(f"{result.waiting:,} of them wait for later rows, within the lateness; --end releases them")
    if result.share * 100 > quarantine_max:
        count = sum(result.quarantined.values())
        share = f"{count:,} of {result.rows:,} rows ({share_text(count, result.rows)})"
        typer.echo(
            f"unerring: {share} of {source} are in quarantine, more than --quarantine-max {quarantine_max:g}: see why "
            f"with `unerring quarantine show {data} --stream {stream}`",
            err=True,
        )
        raise SystemExit(1)


def _declared(log: EventLog, stream: str, app: str | None) -> tuple[StreamSchema, int] | None:
    """The stream as its app declares it, or as the log knows it; and its buckets."""
    if app is not None:
        from unerring.app import load

        loaded = load(app)
        for schema in loaded.streams:
            if schema.name == stream:
                return schema, loaded.buckets
        raise CallerError(f"app {app} has no stream {stream!r}; it has {', '.join(s.name for s in loaded.streams)}")
    known = log.declaration(stream)
    return (known.schema, known.buckets) if known is not None else None


def _guessed(log: EventLog, stream: str, file: Path, key: str, no_key: bool, times: Times) -> tuple[StreamSchema, int]:
    """A new stream, after the file's own columns; and its buckets."""
    from unerring.log import BUCKETS, guess_schema

    if not file.is_file():
        raise CallerError(
            f"{file} is not a file; give a CSV, JSON-lines or Parquet file, or use --master (such as local[*]) "
            "for folders and other sources"
        )
    return guess_schema(file, stream, _key_of(log, stream, key, no_key), times), BUCKETS


def _key_of(log: EventLog, stream: str, key: str, no_key: bool) -> tuple[str, ...]:
    """The key columns of a new stream."""
    columns = tuple(name.strip() for name in key.split(",") if name.strip())
    if not columns and not no_key:
        raise CallerError(
            f"stream {stream} is new in {log.store.locate('')}, and its key is not known; name the key columns "
            "with --key, such as --key machine, use --no-key if it has none, or name its app with --app"
        )
    if columns and no_key:
        raise CallerError(f"--key {key} and --no-key contradict each other; give one of them")
    return columns
