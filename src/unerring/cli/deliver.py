"""`unerring deliver RUN`: bring sealed streams into tables, databases, topics and services, each event once."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Annotated

import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    stream: Annotated[
        str, typer.Option(help="The stream to deliver; by default all sinks that the app declares.")
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            help="The target: postgresql://HOST/DATABASE/TABLE, delta:ADDRESS, iceberg:CATALOG.NAMESPACE.TABLE, "
            "kafka://BROKER/TOPIC, or https://… for a webhook."
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="The sink's name; by default the stream's.")] = "",
    secrets: Annotated[
        bool, typer.Option("--secrets", help="With --to: deliver the values of secret columns, too, and not NULL.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is sealed later, until Ctrl-C.")] = False,
    rewind: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Set the sink (--name) back to this event time first: a table loses what is after it."
        ),
    ] = "",
    forget: Annotated[
        str, typer.Option(metavar="NAME", help="The run has no such sink any more; its target keeps what it has.")
    ] = "",
    scratch: Scratch = None,
    app: Annotated[str, typer.Option(help="module:attribute of the app; by default the one that ran there.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each sink.")] = False,
) -> None:
    """Bring what a run has sealed into a target, exactly once, from where that target is.

    It may be called at any time, also while the run is running or delivers by itself. A target that does not answer is
    tried again until it does. Exit code 2: it cannot be delivered, and a sentence says why.
    """
    import msgspec

    from unerring.app import (
        Sink,
        address_in,
        check_run,
        deliver_all,
        forget_sink,
        load,
        place_of,
        rewind_sink,
        sink_deliveries,
    )
    from unerring.cli._times import time_us
    from unerring.model import CallerError

    place = place_of(run, scratch)
    check_run(place)
    if forget:
        forget_sink(place, forget)
        typer.echo(f"{place} has no sink {forget} any more; what it delivered stays where it is")
        return
    if bool(stream) != bool(to):
        raise CallerError("--stream and --to go together: which stream, and where to")
    loaded = None
    if to:
        sinks = [Sink(name or stream, stream, to, secrets=secrets)]
    else:
        loaded = load(app or address_in(place))
        sinks = [sink for sink in loaded.sinks if not name or sink.name == name]
        if not sinks:
            names = ", ".join(sink.name for sink in loaded.sinks) or "none"
            raise CallerError(
                f"app {loaded.name} has no sink {name!r}; it has {names}: name one with --stream and --to"
            )
    if rewind:
        if len(sinks) != 1:
            raise CallerError("--rewind needs the name of one sink: --name NAME")
        typer.echo(rewind_sink(place, sinks[0], loaded, time_us("--rewind", rewind)))
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    works = sink_deliveries(place, sinks, loaded, lambda text: typer.echo(text, err=True))
    deliver_all(place, works, stopping, follow, loaded.name if loaded else "")
    for work in works:
        done = work.progress
        if as_json:
            sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
        else:
            typer.echo(f"{done.name}: {done.delivered:,} events of {done.stream} delivered to {done.to}")
