"""`unerring replica`: change who the replicas of a running node are."""

from __future__ import annotations

from typing import Annotated

import typer

from unerring.cli._place import HERE, HostFolder

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Add, remove, replace or evict a replica of a live run."
)

Replica = Annotated[str, typer.Argument(help="A replica, such as Rate/1; `unerring status` lists them.")]


@app.command()
def add(node: Annotated[str, typer.Argument(help="The rule, such as Rate.")], data: HostFolder = HERE) -> None:
    """Start one more replica of a rule, and wait until it has caught up."""
    _ask(data, "add", node)


@app.command()
def remove(replica: Replica, data: HostFolder = HERE) -> None:
    """Remove a replica for good: from the record, confirmed by one that remains, and then its process."""
    _ask(data, "remove", replica)


@app.command()
def replace(replica: Replica, data: HostFolder = HERE) -> None:
    """Add a replica, and remove this one when the new one has caught up. The rule survives f failures all the time."""
    _ask(data, "replace", replica)


@app.command()
def evict(replica: Replica, data: HostFolder = HERE) -> None:
    """Stop waiting for this incarnation of a replica. If its process is alive, it joins again."""
    _ask(data, "evict", replica)


def _ask(data: str, command: str, subject: str) -> None:
    from unerring.app import place_of
    from unerring.runtime import ask_supervisor

    typer.echo(ask_supervisor(place_of(data).live, command, subject))
