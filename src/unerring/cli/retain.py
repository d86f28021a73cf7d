"""`unerring retain RUN`: let go of a run's past."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    before: Annotated[
        str, typer.Option(help="Remove what is before this event time (microseconds, or ISO 8601 with an offset).")
    ],
    scratch: Scratch = None,
    app: Annotated[str, typer.Option(help="module:attribute of the app; by default the one that ran there.")] = "",
    master: Annotated[str, typer.Option(help="The Spark master, such as local[*] or spark://HOST:PORT.")] = "local[*]",
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
    as_json: Annotated[bool, typer.Option("--json", help="Segments removed, by stream, as one JSON object.")] = False,
) -> None:
    """Remove a log's segments before a time. Nothing is removed without this command.

    A savepoint of every rule's state at that time is made first; an audit and a new query start from it. What a reader
    has not committed stays, whatever the time, and so does what live replicas may still ask for. Live replicas without
    --durable need the whole log to start again, so their log is not cut.
    """
    from rich.console import Console

    from unerring.app import address_in, check_run, load, needed_after, place_of
    from unerring.audit import moment
    from unerring.cli._times import time_us
    from unerring.pipeline import SparkConfig, retain, spark_session

    place = place_of(run, scratch)
    check_run(place)
    needed = needed_after(place)
    loaded = load(app or address_in(place))
    before_us = time_us("--before", before)
    config = SparkConfig(master=master, memory=memory, log=str(place.scratch / "retain.log"))
    with (
        Console(stderr=True).status("starting Spark; a savepoint is made first"),
        spark_session(config, f"retain {loaded.name}") as spark,
    ):
        removed = retain(spark, loaded.levels(place), before_us, needed)
    if as_json:
        typer.echo(msgspec.json.encode(removed).decode())
        return
    for stream, count in removed.items():
        after_us = needed.get(stream, before_us)
        held = f"; live replicas may ask for what is after {moment(after_us)}" if after_us < before_us else ""
        typer.echo(f"{stream}: {count:,} segment{'' if count == 1 else 's'} removed{held}")
