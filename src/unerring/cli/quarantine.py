"""`unerring quarantine show|replay`: bad events, and the way back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from unerring.cli._place import HERE, Run
from unerring.model import UNDECODABLE, CallerError

if TYPE_CHECKING:
    from unerring.log import Held, Returned

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

_TEXT_MAX = 200

Stream = Annotated[list[str] | None, typer.Option(help="Only events of this stream or rule. Repeatable.")]
Why = Annotated[
    list[str] | None, typer.Option(help="Only events with this reason, such as late or schema. Repeatable.")
]


@app.command()
def show(
    run: Run = HERE,
    stream: Stream = None,
    reason: Why = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    secrets: Annotated[
        bool,
        typer.Option("--secrets", help="Show the bytes of streams with secret columns, too; this needs their keys."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines, to be corrected and passed to `replay --from`.")
    ] = False,
) -> None:
    """Show bad events: who sent them, why they are not in their stream, and their bytes.

    With --json each line also has `row`, the event's time and columns as far as they can be decoded, to be corrected.
    """
    shown = 0
    for one in islice(_held(run, stream, reason, secrets), limit):
        shown += 1
        if as_json:
            sys.stdout.write(msgspec.json.encode(one).decode() + "\n")
            continue
        sys.stdout.write(f"{one.stream}  {one.producer}, {one.epoch}, {one.sequence}  {one.reason}: {one.detail}\n")
        sys.stdout.write(f"    {_readable(one.raw)}\n")
    if not shown and not as_json:
        typer.echo("nothing is in quarantine" if not stream and not reason else "no such event is in quarantine")


@app.command()
def replay(
    run: Run = HERE,
    stream: Stream = None,
    reason: Why = None,
    corrected: Annotated[
        Path | None,
        typer.Option("--from", help="Corrected lines of `show --json`; by default the events are replayed unchanged."),
    ] = None,
    zone: Annotated[str | None, typer.Option(help="The time zone of times without one, such as UTC.")] = None,
    restamp: Annotated[
        bool,
        typer.Option("--restamp", help="Give an event that is late the first time after the stream's end."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each stream.")] = False,
) -> None:
    """Replay events into their streams: each once, however often this is called.

    They go to the stream's end. A stream's past is final, so an event whose time has passed stays in quarantine, unless
    --restamp gives it a new time. Events that are still bad stay there with their reason.

    Exit code 0: all events are back. 1: some stayed. 2: nothing could be done.
    """
    from unerring.app import place_of
    from unerring.log import STAYS, Returned, Stayed, Times, bring_back

    Times("time", zone=zone)  # a sentence, if there is no such zone
    log = place_of(run).log
    by_stream: dict[str, list[Held]] = {}
    for one in _held(run, stream, reason, True) if corrected is None else _read(corrected, stream, reason):
        by_stream.setdefault(one.stream, []).append(one)
    if not by_stream and not as_json:
        typer.echo("there is nothing to replay")
    stayed = 0
    for name, wanted in by_stream.items():
        if log.declaration(name) is None:  # a rule's: such events are in their streams
            done = Returned(name, 0, 0, tuple(Stayed(*one.id, one.reason, STAYS[one.reason]) for one in wanted))
        else:
            done = bring_back(log.chain(name), wanted, zone=zone, restamp=restamp)
        stayed += len(done.stayed)
        _tell(done, as_json)
    raise SystemExit(1 if stayed else 0)


def _tell(done: Returned, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
        return
    before = f"; {done.already:,} were back before" if done.already else ""
    typer.echo(f"{done.brought:,} events are back in stream {done.stream}{before}")
    for one in done.stayed:
        typer.echo(f"{one.producer}, {one.epoch}, {one.sequence} stays: {one.reason}: {one.detail}")


def _held(run: str, streams: list[str] | None, reasons: list[str] | None, secrets: bool) -> Iterator[Held]:
    from unerring.app import check_run, place_of
    from unerring.log import held

    check_run(run)
    log = place_of(run).log
    wanted = _reasons(reasons)
    for name in streams or log.store.names(""):
        if streams and name not in log.store.names(""):
            raise CallerError(f"there is no stream or rule {name!r} in {run}; it has {', '.join(log.store.names(''))}")
        yield from (one for one in held(log, name, secrets=secrets) if not wanted or one.reason.value in wanted)


def _read(path: Path, streams: list[str] | None, reasons: list[str] | None) -> Iterator[Held]:
    from unerring.log import Held

    wanted = _reasons(reasons)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CallerError(f"{path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line, type=Held)
        except UNDECODABLE as error:
            raise CallerError(f"{path}, line {number}: {error}; expected lines of `quarantine show --json`") from None
        if (not streams or one.stream in streams) and (not wanted or one.reason.value in wanted):
            yield one


def _reasons(given: list[str] | None) -> frozenset[str]:
    from unerring.log import Reason

    known = [reason.value for reason in Reason]
    for reason in given or ():
        if reason not in known:
            raise CallerError(f"--reason {reason!r} is not known; use one of {', '.join(known)}")
    return frozenset(given or ())


def _readable(raw: bytes) -> str:
    """The bytes on one line: text where they are text, Python's notation where not."""
    text = repr(raw)[2:-1] if raw else "(no bytes)"
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(raw):,} bytes)"
