"""`unerring restore BACKUP [TO]`: check a backup, and make a run of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unerring.cli._place import Scratch


def command(
    backup: Annotated[str, typer.Argument(help="What `unerring backup` wrote: a folder, or an address.")],
    to: Annotated[
        str, typer.Argument(help="The empty folder or address where the run goes on. Without it: only check.")
    ] = "",
    scratch: Scratch = None,
    verified: Annotated[
        bool, typer.Option("--verify", help="Read all that was restored once more, as `unerring verify` does.")
    ] = False,
    hashed: Annotated[str, typer.Option("--hash", help="The hash that `unerring backup` printed.")] = "",
    trusted_key: Annotated[
        Path | None, typer.Option(help="The public key that must have signed the backup: 64 digits, or PEM.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: what was restored, and damage.")] = False,
) -> None:
    """Check a backup against its list, and copy it to an empty place. Then enter the `unerring run` that ran there.

    A backup that is not complete, or of which anything was changed, is refused. Interrupted, enter the same command
    again: it goes on, and until then no command takes the place for a run. What services did after the backup is not
    in it, see docs/operations.md; do not let the old run go on beside the restored one.

    Exit code 1: --verify found damage, which the run had when it was copied.
    """
    import msgspec

    from unerring.app import place_of, restore, verify
    from unerring.audit import moment
    from unerring.cli._copied import copying, sized
    from unerring.log import public_key
    from unerring.model import CallerError

    if verified and not to:
        raise CallerError("--verify reads what was restored; name the place where to restore it")
    place = place_of(to, scratch) if to else None
    trusted = "" if trusted_key is None else public_key(trusted_key)
    with copying("checked" if place is None else "restored") as say:
        held = restore(backup, place, trusted=trusted, hashed=hashed, say=say)
    damage = verify(place).damage if verified and place is not None else []
    if as_json:
        shown = {"run": held.run, "app": held.app, "taken_us": held.taken_us, "streams": held.streams}
        typer.echo(msgspec.json.encode({**shown, "objects": len(held.files), "damage": damage}).decode())
        raise typer.Exit(1 if damage else 0)
    for sentence in damage:
        typer.echo(f"damaged: {sentence}")
    typer.echo(f"{sized(held)}, as they were saved at {moment(held.taken_us)}")
    if place is not None:
        run = f"unerring run {held.app or 'APP'} --data {place}"
        typer.echo(f"they are a run in {place}; it goes on with: {run}, and the options that it had")
    if verified and not damage:
        typer.echo("every byte that was read is as it was written")
    raise typer.Exit(1 if damage else 0)
