"""`unerring why-not RUN RULE --key K --at TIME`: why a situation was not found."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    rule: Annotated[str, typer.Argument(help="The rule, or the stream of its situations.")],
    at: Annotated[
        str, typer.Option(help="By this event time (microseconds, or ISO 8601 with an offset); by default the last.")
    ] = "",
    key: Annotated[
        list[str] | None,
        typer.Option(help="The rule's key. Repeat it for a key of several columns, in the rule's order."),
    ] = None,
    app: Annotated[str, typer.Option(help="module:attribute of the app; by default the one that ran there.")] = "",
    scratch: Scratch = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole answer as one JSON object.")] = False,
) -> None:
    """Say why a rule did not find a situation: how far each attempt came by a time, and which condition, deadline,
    forbidden event or skip ended it. The nearest miss is first; what was found, and what may still be found, is said
    too.

    The rule runs again over the key's events in the log, as far back as it looks. Nothing of the run is changed. A
    reason that *alone decided* was tried: with that one thing different, the rule finds the situation.

        unerring why-not plant Standstill --key 7 --at 2026-03-01T08:00:00Z
    """
    import msgspec

    from unerring.app import WhyNot, address_in, attempt_lines, load, place_of
    from unerring.cli._times import time_us

    place = place_of(run, scratch)
    asked = WhyNot(load(app or address_in(place)), place)
    answer = asked(rule, key or (), time_us("--at", at) if at else asked.past.last_us())
    if as_json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        return
    for line in attempt_lines(answer):
        typer.echo(line)
