"""`unerring erase RUN STREAM --key K`: let nobody read the secret values of one key any more."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from unerring.cli._place import Run, Scratch
from unerring.model import CallerError


def command(
    run: Run,
    stream: Annotated[str, typer.Argument(help="The stream, of primary events or of situations.")],
    key: Annotated[
        list[str] | None, typer.Option(help="The key: one --key for each of the stream's key columns, in their order.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; this cannot be undone.")] = False,
    scratch: Scratch = None,
    as_json: Annotated[bool, typer.Option("--json", help="What was done, as one JSON object.")] = False,
) -> None:
    """Erase the secret values of one key of a stream, wherever they lie: segments, merged ones, quarantine, copies.

    The ring (UNERRING_KEYS) loses what their data key is computed from, for all of its keys. No file of the run
    changes, so hashes, roots and `unerring verify` stay as they are. The events stay, with NULL in their secret
    columns, and so do other columns. Later events of the key are taken, and their secret values are not kept. Old
    copies of the ring must go, too.
    """
    import msgspec

    from unerring.app import check_run, erase_key, place_of

    place = place_of(run, scratch)
    check_run(place)
    if not yes:
        if not sys.stdin.isatty():
            raise CallerError("erasing cannot be undone; say --yes")
        typer.confirm(f"erase the secret values of {' '.join(key or ())} in {stream} for ever?", abort=True)
    done = erase_key(place, stream, key or ())
    if as_json:
        typer.echo(msgspec.json.encode(done).decode())
        return
    for line in _lines(done):
        typer.echo(line)


def _lines(done: Any) -> list[str]:
    columns = ", ".join(done.columns)
    state = "erased" if done.fresh else "erased before"
    lines = [f"{state}: {columns} of {done.events:,} events of {done.stream}"]
    if done.others:
        lines.append(f"other streams have secret columns of their own: {', '.join(done.others)}")
    return lines
