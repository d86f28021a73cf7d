"""`unerring what-if RUN …`: one event or one number different."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from unerring.cli._place import Run, Scratch
from unerring.model import CallerError


def command(
    run: Run,
    drop: Annotated[str, typer.Option(metavar="EVENT", help="If this event had not come.")] = "",
    change: Annotated[str, typer.Option(metavar="EVENT", help="If this event had had other values (--value).")] = "",
    add: Annotated[str, typer.Option(metavar="EVENT", help="If there had been one more event (--value).")] = "",
    value: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="A value of the event. Repeatable.")
    ] = None,
    set_: Annotated[
        str, typer.Option("--set", metavar="RULE:NUMBER=VALUE", help="If this number of a rule were different.")
    ] = "",
    since: Annotated[str, typer.Option(help="With --set: from this event time on; by default all of the log.")] = "",
    numbers: Annotated[str, typer.Option(metavar="RULE", help="Print the numbers of this rule, and try nothing.")] = "",
    app: Annotated[str, typer.Option(help="module:attribute of the app; by default the one that ran there.")] = "",
    scratch: Scratch = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole answer as one JSON object.")] = False,
) -> None:
    """Change one event or one number of a rule, and see which situations come and go, level over level.

    It runs over the log; nothing of the run is changed. EVENT is STREAM@TIME or STREAM@TIME#ORDINAL, with the time in
    microseconds or ISO 8601. VALUE of a duration may be written as 30s. For other changes of rules, and for logs that
    are too large for one process, use `unerring upgrade --dry-run`.

        unerring what-if plant --drop Produced@2026-03-01T08:00:00Z
        unerring what-if plant --numbers Standstill
        unerring what-if plant --set Standstill:absence1.within=30s
    """
    import msgspec

    from unerring.app import Past, WhatIf, address_in, load, place_of

    given = [name for name in (drop, change, add, set_, numbers) if name]
    if len(given) != 1:
        raise CallerError("give one of --drop, --change, --add, --set and --numbers: one thing is different at a time")
    place = place_of(run, scratch)
    tried = WhatIf(Past(load(app or address_in(place)), place))
    if numbers:
        known = tried.numbers(numbers)
        if as_json:
            sys.stdout.write(msgspec.json.encode([msgspec.to_builtins(one) for one in known]).decode() + "\n")
            return
        for one in known:
            shown = f"{one.value / 1_000_000:g}s" if one.duration else f"{one.value:g}"
            typer.echo(f"{numbers}:{one.name}={shown}   in {one.where}")
        return
    answer = _try(tried, drop, change, add, set_, since, dict(map(_pair, value or ())))
    if as_json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
        return
    for line in _lines(answer):
        typer.echo(line)


def _try(tried: Any, drop: str, change: str, add: str, set_: str, since: str, values: dict[str, str]) -> dict[str, Any]:
    from unerring.app import number_value
    from unerring.cli._times import time_us

    answer: dict[str, Any]
    if set_:
        target, _, text = set_.partition("=")
        rule, _, name = target.partition(":")
        if not text or not name:
            raise CallerError(f"--set {set_!r}: write RULE:NUMBER=VALUE; --numbers RULE prints the numbers of a rule")
        since_us = time_us("--since", since) if since else None
        answer = tried.with_number(rule, name, number_value(tried.numbers(rule), name, text), since_us)
    elif drop:
        answer = tried.without(*_stamped(drop))
    elif change:
        answer = tried.with_values(*_stamped(change), values)
    else:
        stream, stamp = _stamped(add)
        answer = tried.with_event(stream, stamp.time, values)
    return answer


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CallerError(f"--value {text!r}: write COLUMN=VALUE")
    return name, value


def _stamped(text: str) -> tuple[str, Any]:
    from unerring.cli._times import time_us
    from unerring.model import Stamp

    stream, at, place = text.partition("@")
    when, _, ordinal = place.partition("#")
    if not at or not when or (ordinal and not ordinal.isdigit()):
        raise CallerError(f"{text!r} does not name an event; write STREAM@TIME or STREAM@TIME#ORDINAL")
    return stream, Stamp(time_us("the event's time", when), int(ordinal or 0))


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    from unerring.audit import moment

    if not answer["gone"] and not answer["come"]:
        yield "no situation comes or goes"
    for rule in answer["rules"]:
        yield f"{rule['stream']}: {rule['gone']} gone, {rule['come']} come"
        for sign, events in (("-", rule["gone_events"]), ("+", rule["come_events"])):
            for event in events[:10]:
                values = "  ".join(f"{name}={value}" for name, value in event["payload"].items())
                yield f"  {sign} {moment(event['time_us'])}  {values}"
    yield from answer["notes"]
