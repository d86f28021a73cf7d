"""`unerring rescale RUN`: divide a run's keys otherwise, on Spark into partitions, live among shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from unerring.cli._place import Run, Scratch

if TYPE_CHECKING:
    from unerring.app import App, Place


def command(
    run: Run,
    buckets: Annotated[
        int | None, typer.Option(help="On Spark: into how many partitions keys are divided from now on.")
    ] = None,
    shards: Annotated[
        list[str] | None,
        typer.Option(help="Live: among how many nodes the keys of a rule are divided, as NODE=N; 1: one. Repeatable."),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            help="Change at this event time (microseconds, or ISO 8601 with an offset); by default at once, after what "
            "is sealed."
        ),
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            help="Live: with beginning, rules that look back without end read the whole log for their shards."
        ),
    ] = "",
    scratch: Scratch = None,
    app: Annotated[str, typer.Option(help="module:attribute of the app; by default the one that ran there.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The time at which each level changes, as JSON.")] = False,
) -> None:
    """Divide a run's keys otherwise: on Spark into another number of partitions, live among another number of shards.

    Partitions (--buckets), while it runs or stopped: a run that is going on ends its partitions at the agreed time and
    goes on with the new ones, which take over the state of their keys; a run that is stopped does so when it starts.

    Shards (--shards rates=3), while it runs: the new shards start beside the old ones, make their states of the log as
    far back as the rule looks, and take over at an agreed time; a rule that looks back without end is refused, unless
    --since beginning lets it read the whole log. A run that is stopped is started with --shards.

    Results and stamps do not change. What was sealed before stays as it is.
    """
    from unerring.app import BEGINNING, address_in, check_run, load, place_of
    from unerring.audit import moment
    from unerring.cli._times import time_us
    from unerring.model import CallerError
    from unerring.pipeline import rescale

    place = place_of(run, scratch)
    check_run(place)
    if (buckets is None) == (not shards):
        raise CallerError("give --buckets N for rules on Spark, or --shards NODE=N for live ones")
    if since and (since != BEGINNING or not shards):
        raise CallerError(
            f"--since {since}: only --since {BEGINNING} is known, beside --shards; leave it out otherwise"
        )
    address = app or address_in(place)
    loaded = load(address)
    if buckets is None:
        at_us = time_us("--at", at) if at else None
        _divide(place, address, loaded, shards or [], at_us, bool(since), as_json)
        return
    agreed = rescale(loaded.levels(place), buckets, time_us("--at", at) if at else None)
    if as_json:
        typer.echo(msgspec.json.encode(agreed).decode())
        return
    for number, after_us in agreed.items():
        typer.echo(f"level {number}: {buckets} partitions after {moment(after_us)}")


def _divide(
    place: Place, address: str, app: App, shards: list[str], at_us: int | None, whole: bool, as_json: bool
) -> None:
    """Agree on another number of shards: the run that is going on does the rest."""
    from unerring.app import Ownership, agree_on_upgrade, changes_while_it_runs
    from unerring.cli._address import counts
    from unerring.model import CallerError

    wanted = counts(shards)
    owner = Ownership(place)
    try:
        owner.take()
    except CallerError:
        pass  # as it should be: the run has it
    else:
        owner.stop()
        named = " ".join(f"--shards {node}={count}" for node, count in wanted.items())
        raise CallerError(f"{place} is not going on; start it with another number: unerring run {address} {named}")
    if not changes_while_it_runs(place):
        raise CallerError(f"{place} runs on Spark, where keys are in partitions; give --buckets N")
    under_way = agree_on_upgrade(place, address, app, at_us, from_beginning=whole, prepared=True, shards=wanted)
    if as_json:
        typer.echo(msgspec.json.encode({"upgrade": under_way.proposed.number, "shards": wanted}).decode())
        return
    listed = ", ".join(f"{node} has {count}" for node, count in wanted.items())
    typer.echo(
        f"agreed: {listed} {'shards' if max(wanted.values()) > 1 else 'shard'} {under_way.when}; the run does that"
    )
