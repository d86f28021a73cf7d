"""`unerring keys new|list|rotate`: the ring of keys for secret columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unerring.model import CallerError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Make, show and rotate the ring of keys that encrypts secret columns. UNERRING_KEYS names its file.",
)

Ring = Annotated[Path | None, typer.Argument(help="The ring's file; by default the one that UNERRING_KEYS names.")]


@app.command()
def new(
    file: Annotated[Path, typer.Argument(help="A file that is not there yet, outside of the run's folder.")],
) -> None:
    """Make a ring with one key, readable by you alone. Whoever loses it loses all secret values."""
    from unerring.log import KEYS_VARIABLE, new_ring

    made = new_ring(file)
    typer.echo(
        f"made key {made} in {file}; name it to the run and its readers: export {KEYS_VARIABLE}={file.absolute()}"
    )


@app.command("list")
def show(
    file: Ring = None, as_json: Annotated[bool, typer.Option("--json", help="The ring as a JSON object.")] = False
) -> None:
    """Show the keys of a ring by their ids, and how many keys of streams were erased. No key is shown."""
    import msgspec

    from unerring.log import read_ring
    from unerring.model import to_datetime

    ring = read_ring(_named(file))
    if as_json:
        keys = [{"id": id, "made_us": made_us} for id, made_us in ring.listed()]
        typer.echo(msgspec.json.encode({"ring": ring.id, "keys": keys, "erased": ring.erased}).decode())
        return
    typer.echo(f"ring {ring.id}")
    for number, (id, made_us) in enumerate(ring.listed(), 1):
        newest = "  encrypts" if number == len(ring.listed()) else ""
        typer.echo(f"{id}  made {to_datetime(made_us):%Y-%m-%d %H:%M:%S} UTC{newest}")
    typer.echo(f"{ring.erased:,} keys of streams are erased")


@app.command()
def rotate(file: Ring = None) -> None:
    """Add a key to a ring. It encrypts from now on; what older ones encrypted stays readable.

    Processes that run notice it by themselves. What was erased stays erased.
    """
    from unerring.log import rotate as add

    where = _named(file)
    typer.echo(f"made key {add(where)} in {where}; it encrypts from now on")


def _named(file: Path | None) -> Path:
    from unerring.log import KEYS_VARIABLE, ring_path

    where = file or ring_path()
    if where is None:
        raise CallerError(f"name the ring's file, or set {KEYS_VARIABLE}")
    return where
