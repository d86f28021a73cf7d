"""`unerring at RUN TIME`: a run as it was at a moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    time: Annotated[
        str, typer.Argument(help="The event time (microseconds, or ISO 8601 with an offset); by default the last.")
    ] = "",
    wall: Annotated[
        str, typer.Option(help="The wall time, for replicas and instances; with it alone, the events known by then.")
    ] = "",
    rule: Annotated[str, typer.Option(help="Only this rule, and more of its keys.")] = "",
    scratch: Scratch = None,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as one JSON object.")] = False,
) -> None:
    """Show a run as it was at a moment: open matches of its rules by key, what the streams had, who led, how far
    instances were; and which event and which decision come next and came before.

    It is recomputed from the log, the instances' histories and the timeline; nothing of the run is changed. Rules are
    in event time, processes in wall time; when a segment was sealed links the two.

        unerring at plant 2026-03-01T08:00:00Z --rule Standstill
    """
    import msgspec

    from unerring.app import RunStatus, Travel, place_of
    from unerring.cli._times import time_us

    travel = Travel(RunStatus(place_of(run, scratch)))
    at_us, wall_us = (time_us(name, text) if text else None for name, text in (("TIME", time), ("--wall", wall)))
    document = travel.at(at_us, wall_us, rule)
    if as_json:
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    for line in _lines(document):
        typer.echo(line)


def _lines(document: dict[str, Any]) -> Iterator[str]:
    from unerring.audit import moment

    wall = document["wall_us"]
    yield f"event time {moment(document['at_us'])}" + (f", wall time {moment(wall)}" if wall is not None else "")
    if wall is None:
        yield "the wall time of this moment is not known, so replicas and instances are not shown; give --wall"
    yield ""
    yield "rules"
    for rule in document["rules"]:
        some = f" in the {rule['keys_looked_at']} latest of {rule['keys']} keys" if rule["keys"] else ""
        state = f"{rule['open']} open{some}" if rule["told"] else f"{rule['events']} events given, {rule['keys']} keys"
        last = rule["last"]
        yield f"  {rule['rule']}: {state}" + (f"; last found at {moment(last['time_us'])}" if last else "")
        for one in rule["by_key"]:
            for match in one["matches"]:
                bound = " ".join(f"{event['step']}@{moment(event['time_us'])}" for event in match["bound"][-3:])
                yield f"    {', '.join(map(str, one['key']))}: {match['text']}  {bound}"
    yield "streams"
    for stream in document["streams"]:
        marks = ", ".join(f"{name} {mark['sequence']}" for name, mark in stream["producers"].items())
        yield f"  {stream['stream']}: {stream['events']:,} events" + (f" (taken of {marks})" if marks else "")
    if document["timeline_from_us"] is not None:
        yield (
            f"the timeline that is held begins at {moment(document['timeline_from_us'])}: of who was there before it "
            "only failures are known"
        )
    if document["replicas"]:
        yield "processes"
        for part in document["replicas"]:
            word = "leads" if part["leads"] else "up" if part["up"] else "down"
            yield f"  {part['who']}: {word} since {moment(part['since_us'])}"
    if document["instances"] and document["instances"]["count"]:
        counts = ", ".join(f"{count:,} {status}" for status, count in document["instances"]["by_status"].items())
        yield f"instances: {counts}"
        for one in document["instances"]["items"][:20]:
            yield f"  {one['instance']}: {one['status']}, {one['groups']} groups, view {one['view']}, {one['master']}"
    steps = document["steps"]
    for name, one in steps.items():
        if one is not None:
            what = one.get("stream") or f"{one['who']} {one['what']}"
            yield f"{name.replace('_', ' ')}: {moment(one.get('time_us', one.get('at_us')))} {what}"
