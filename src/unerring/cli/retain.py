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
    --durable that are all gone begin again with the savepoint.
    """
    from rich.console import Console

    from unerring.app import address_in, check_run, load, needs_of, place_of, retained_levels
    from unerring.audit import moment
    from unerring.cli._times import time_us
    from unerring.pipeline import SparkConfig, cut_here, retain, spark_session

    place = place_of(run, scratch)
    check_run(place)
    needs = needs_of(place)
    loaded = load(app or address_in(place))
    before_us = time_us("--before", before)
    config = SparkConfig(master=master, memory=memory, log=str(place.scratch / "retain.log"))
    levels = retained_levels(loaded, place)
    with Console(stderr=True).status("making a savepoint first"):
        if len(levels) > len(loaded.levels(place)):  # a query of the whole levels would be refused there
            removed = cut_here(levels, before_us, needs)
        else:
            with spark_session(config, f"retain {loaded.name}") as spark:
                removed = retain(spark, levels, before_us, needs)
    if as_json:
        typer.echo(msgspec.json.encode(removed).decode())
        return
    for stream, count in removed.items():
        after_us = needs.after.get(stream, before_us)
        held = f"; live replicas may ask for what is after {moment(after_us)}" if after_us < before_us else ""
        typer.echo(f"{stream}: {count:,} segment{'' if count == 1 else 's'} removed{held}")
