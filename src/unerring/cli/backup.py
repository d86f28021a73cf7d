"""`unerring backup RUN TO`: copy a run to another place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    to: Annotated[str, typer.Argument(help="An empty folder, or an address such as s3://bucket/backups/monday.")],
    scratch: Scratch = None,
    states: Annotated[
        bool, typer.Option(help="Also the states of rules on Spark; without them they are computed again.")
    ] = True,
    with_keys: Annotated[
        bool,
        typer.Option("--with-keys", help="Also the run's secret and the keys of its processes: guard it like a key."),
    ] = False,
    signing_key: Annotated[
        Path | None, typer.Option(help="Sign the backup with the key in this file (`unerring anchor --new-key`).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: what was copied, and the hash.")] = False,
) -> None:
    """Copy a run to another place: log, quarantine, positions, roots, states, databases of processes, policy.

    The run may go on. Its processes on this host stand still while their databases are read, so that these are of
    one moment; the log is copied afterwards. Private keys stay where they are. Interrupted, enter the same command
    again: it goes on. The hash stands for the whole backup; keep it elsewhere, for `unerring restore --hash`.
    """
    import msgspec

    from unerring.app import back_up, place_of
    from unerring.cli._copied import copying, sized
    from unerring.log import SigningKey

    key = None if signing_key is None else SigningKey(signing_key)
    with copying("copied") as say:
        backup = back_up(place_of(run, scratch), to, states=states, keys=with_keys, key=key, say=say)
    if as_json:
        fields: dict[str, Any] = {name: getattr(backup, name) for name in backup.__struct_fields__ if name != "files"}
        shown = {**fields, "objects": len(backup.files), "bytes": backup.size, "hash": backup.hash}
        typer.echo(msgspec.json.encode(shown).decode())
        return
    for host in backup.elsewhere:
        typer.echo(f"not in it: what the run's processes on host {host} have on their disk", err=True)
    still = f"; the run stood still for {backup.paused_us / 1e6:.2f} s" if backup.paused_us else ""
    typer.echo(f"{sized(backup)} are in {to}{still}")
    typer.echo(f"hash {backup.hash}{f', signed by {backup.key}' if backup.key else ''}")
