"""`unerring channel`: what an operator may do about the channels of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unerring.cli._place import HERE, Data, Scratch

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Reset a producer of a run's channel; make signing keys."
)


@app.callback()
def _describe() -> None:
    """What an operator may do about the channels of a run."""


@app.command()
def reset(
    stream: Annotated[str, typer.Argument(help="The stream that the channel feeds.")],
    producer: Annotated[
        str, typer.Argument(help="The producer's name, or its id as `unerring status --json` shows it.")
    ] = "",
    data: Data = HERE,
    scratch: Scratch = None,
) -> None:
    """Forget the epoch of a producer whose clock was ahead: the log takes what it sends next, whatever its epoch.

    Stop the run and the producer first. Nothing that is in the log changes.
    """
    from unerring.app import place_of, reset_producer

    for line in reset_producer(place_of(data, scratch), stream, producer):
        typer.echo(line)


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="The file with the key; a new one is drawn if it is not there.")],
) -> None:
    """Print the public half of a producer's signing key, for `[keys]` of a policy or `ConsumerConfig(keys=...)`.

    The publisher signs with it by `ProducerConfig(signed=True, signing_key=FILE)`.
    """
    from unerring.runtime import public_key

    typer.echo(public_key(file))
