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
    """Start one more replica of a rule, and wait until it is caught up."""
    _ask(data, "add", node)


@app.command()
def remove(replica: Replica, data: Data = FOLDER) -> None:
    """Take a replica out for good: of the record, with the word of one that remains, then its process."""
    _ask(data, "remove", replica)


@app.command()
def replace(replica: Replica, data: Data = FOLDER) -> None:
    """Add a replica; when it is caught up, remove this one. The number of failures survived never falls."""
    _ask(data, "replace", replica)


@app.command()
def evict(replica: Replica, data: Data = FOLDER) -> None:
    """Let nobody wait for this incarnation of a replica any more. If its process lives, it joins anew."""
    _ask(data, "evict", replica)


def _ask(data: Path, command: str, subject: str) -> None:
    from unerring.runtime.live.supervisor import ask

    typer.echo(ask(data / "live", command, subject))
