"""`unerring situations`: what a run has found."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._place import HERE, Run

if TYPE_CHECKING:
    from unerring.model import Event

LOOK_S = 0.2


def command(
    run: Run = HERE,
    stream: Annotated[
        list[str] | None, typer.Option(help="Only this stream, of situations or primary events. Repeatable.")
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, help="Only the latest ones, this many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new situations until Ctrl-C.")] = False,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Print the values of secret columns; this needs their keys.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print the situations that a run has sealed, in the order of their stamps, stream after stream.

    No reader's position changes, so you can call this at any time, also while the run is running.
    """
    from unerring.app import SealedEvents, check_run

    check_run(run)
    events = SealedEvents(run, stream or (), secrets=secrets)
    try:
        for event in events.so_far(last):
            _print(event, events.times[event.stream], secrets, as_json)
        while follow:
            for event in events.new():
                _print(event, events.times[event.stream], secrets, as_json)
            sys.stdout.flush()
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        return


def _print(event: Event, times: frozenset[str], secrets: bool, as_json: bool) -> None:
    import msgspec

    from unerring.app import event_document

    if as_json:
        sys.stdout.write(msgspec.json.encode(event_document(event, secrets=secrets)).decode() + "\n")
        return
    place = _moment(event.stamp.time) + (f"#{event.stamp.ordinal}" if event.stamp.ordinal else "")
    payload = (event if secrets else event.shown()).payload
    texts = {
        name: _moment(value) if name in times and isinstance(value, int) else value for name, value in payload.items()
    }
    columns = "  ".join(f"{name}={value}" for name, value in texts.items())
    sys.stdout.write(f"{place}  {event.stream}  {columns}\n")


def _moment(time_us: int) -> str:
    from unerring.model import to_datetime

    return to_datetime(time_us).isoformat().replace("+00:00", "Z")
