"""`unerring rescale RUN --buckets N`: divide a run's keys into another number of partitions."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    buckets: Annotated[int, typer.Option(help="Into how many partitions keys are divided from now on.")],
    at: Annotated[
        str,
        typer.Option(
            help="Change at this event time (microseconds, or ISO 8601 with an offset); by default at once, after what "
            "is sealed."
        ),
    ] = "",
    scratch: Scratch = None,
    app: Annotated[str, typer.Option(help="module:attribute of the app; by default the one that ran there.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The time at which each level changes, as JSON.")] = False,
) -> None:
    """Let Spark divide a run's keys into another number of partitions, while it runs or stopped.

    A run that is going on ends its partitions at the agreed time and goes on with the new ones, which take over the
    state of their keys; a run that is stopped does so when it starts. Results and stamps do not change. What was sealed
    before stays as it is.
    """
    from unerring.app import address_in, check_run, load, place_of
    from unerring.audit import moment
    from unerring.cli._times import time_us
    from unerring.pipeline import rescale

    place = place_of(run, scratch)
    check_run(place)
    loaded = load(app or address_in(place))
    agreed = rescale(loaded.levels(place), buckets, time_us("--at", at) if at else None)
    if as_json:
        typer.echo(msgspec.json.encode(agreed).decode())
        return
    for number, after_us in agreed.items():
        typer.echo(f"level {number}: {buckets} partitions after {moment(after_us)}")
