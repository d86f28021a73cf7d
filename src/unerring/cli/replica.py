"""`unerring replica`: change who the replicas of a running node are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Add, remove, replace or evict a replica of a live run."
)

Data = Annotated[Path, typer.Option(help="The run's folder.")]
Replica = Annotated[str, typer.Argument(help="A replica, such as Rate/1; `unerring status` lists them.")]
FOLDER = Path("unerring-data")


@app.command()
def add(node: Annotated[str, typer.Argument(help="The rule, such as Rate.")], data: Data = FOLDER) -> None:
    """Start one more replica of a rule, and wait until it has caught up."""
    _ask(data, "add", node)


@app.command()
def remove(replica: Replica, data: Data = FOLDER) -> None:
    """Remove a replica for good: from the record, confirmed by one that remains, and then its process."""
    _ask(data, "remove", replica)


@app.command()
def replace(replica: Replica, data: Data = FOLDER) -> None:
    """Add a replica, and remove this one when the new one has caught up. The rule survives f failures all the time."""
    _ask(data, "replace", replica)


@app.command()
def evict(replica: Replica, data: Data = FOLDER) -> None:
    """Stop waiting for this incarnation of a replica. If its process is alive, it joins again."""
    _ask(data, "evict", replica)


def _ask(data: Path, command: str, subject: str) -> None:
    from unerring.runtime import ask_supervisor

    typer.echo(ask_supervisor(data / "live", command, subject))
