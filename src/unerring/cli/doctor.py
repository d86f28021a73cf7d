"""`unerring doctor`: what stands in the way of a run, before it begins or while it goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from unerring.cli._place import HERE, Scratch


def command(
    what: Annotated[
        str, typer.Argument(metavar="[RUN | APP]", help="A run's folder or address, or module:attribute of an app.")
    ] = HERE,
    data: Annotated[str, typer.Option(help="With an APP: where its run will be.")] = HERE,
    scratch: Scratch = None,
    engine: Annotated[str, typer.Option(help="spark or live, if only one is to be used.")] = "",
    f: Annotated[int, typer.Option("--f", min=0, help="With --host: failures that the run survives.")] = 1,
    host: Annotated[list[str] | None, typer.Option(help="NAME=ADDRESS of a host; once for each.")] = None,
    here: Annotated[str, typer.Option(help="The name of this host among them.")] = "",
    tls: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder with this host's certificate.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a finding, a line each.")] = False,
) -> None:
    """Look for what stands in the way of a run on this host, and say what to do about it.

    Packages, Java and its vector module, descriptors, memory, the clock, disk speed and space, the store and its
    conditional puts, certificates that expire, files that others can read, ports and peers; of a run that goes on also
    what its status says is wrong. Enter it on each host: on a store the hosts compare their clocks and releases. A run
    is not disturbed.

    Exit code 1: there is an error. Warnings do not count.
    """
    import msgspec

    from unerring.app import ERROR, Asked, examine, place_of
    from unerring.cli._address import pairs
    from unerring.model import CallerError

    hosts = pairs(host)
    if here and here not in hosts and hosts:
        raise CallerError(f"--here {here} is not in the list of hosts: {', '.join(hosts)}")
    if engine not in ("", "spark", "live"):
        raise CallerError(f"there is no engine {engine!r}; use spark or live")
    is_app = ":" in what and "://" not in what and not Path(what).exists()
    place = place_of(data if is_app else what, scratch)
    asked = Asked(place, what if is_app else "", engine, f, hosts, here, "" if tls is None else str(tls))
    errors = 0
    for one in examine(asked):
        errors += one.level == ERROR
        if as_json:
            sys.stdout.write(msgspec.json.encode(one).decode() + "\n")
        else:
            typer.echo(f"{one.level:<8} {one.check:<13} {one.says}")
    raise typer.Exit(1 if errors else 0)
