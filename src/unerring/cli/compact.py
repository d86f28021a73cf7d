"""`unerring compact RUN`: merge the small segments of a run's log, as a Spark job."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from unerring.cli._place import Run, Scratch


def command(
    run: Run,
    stream: Annotated[list[str] | None, typer.Option(help="Only this stream. Repeatable.")] = None,
    scratch: Scratch = None,
    master: Annotated[str, typer.Option(help="The Spark master, such as local[*] or spark://HOST:PORT.")] = "local[*]",
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object: what became of each stream.")] = False,
) -> None:
    """Merge sealed segments into large objects with the same rows, and delete those that were replaced long ago.

    A run does this itself as it goes. The command is for a log that nobody compacted, or for a time when a cluster is
    idle; the run may be running. Readers, positions and audits are not disturbed.
    """
    from rich.console import Console

    from unerring.app import check_run, place_of
    from unerring.log import join
    from unerring.pipeline import SparkConfig, compact_log, spark_session

    place = place_of(run, scratch)
    check_run(place)
    for name in stream or ():
        place.log.chain(name)  # a sentence, if there is none of that name
    place.scratch.mkdir(parents=True, exist_ok=True)
    config = SparkConfig(master=master, memory=memory, log=str(place.scratch / "compact.log"))
    with Console(stderr=True).status("starting Spark"), spark_session(config, "unerring compact") as spark:
        compacted = compact_log(spark, join(place.address, "log"), stream)
    if as_json:
        typer.echo(msgspec.json.encode(compacted).decode())
        return
    for name, one in compacted.items():
        typer.echo(f"{name}: {one.objects_before:,} objects became {one.objects:,}; {one.deleted:,} deleted")
