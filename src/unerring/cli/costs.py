"""`unerring costs`: what the actions of processes were seen to cost, learned on Spark from their histories."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from unerring.cli._place import HERE, Data, Scratch


def command(
    data: Data = HERE,
    scratch: Scratch = None,
    half_life_h: Annotated[float, typer.Option(help="Hours after which an execution counts half.")] = 6.0,
    write: Annotated[
        Path | None, typer.Option(help="Write the costs to this file, for `unerring node --costs`.")
    ] = None,
    master: Annotated[str, typer.Option(help="The Spark master, such as local[*] or spark://HOST:PORT.")] = "local[*]",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each action, one per line.")
    ] = False,
) -> None:
    """Learn what actions cost: execution time and time to undo, as quantiles with recent executions weighted more.

    First write the histories to the log with `unerring process export`. Nodes with --costs use the learned costs for
    grouping; a write stays passive whatever it costs.
    """
    from unerring.app import place_of
    from unerring.pipeline import SparkConfig, learn, start

    place = place_of(data, scratch)
    spark = start(SparkConfig(master=master, memory="1g", log=str(place.scratch / "spark.log")), "unerring costs")
    try:
        learned = learn(spark, place.address, half_life_h * 3600)
    finally:
        spark.stop()
    if write is not None:
        write.write_bytes(msgspec.json.encode(learned))
    for cost in learned:
        if as_json:
            sys.stdout.write(msgspec.json.encode(cost).decode() + "\n")
            continue
        if not cost.process:
            times = f"p50 {cost.p50_us / 1000:g} ms, p95 {cost.p95_us / 1000:g} ms"
            typer.echo(f"{cost.action}  {cost.seen} seen  {times}")
            continue
        undone = f"undone {cost.undone} times, {cost.undo_p50_us / 1000:g} ms" if cost.undone else "never undone"
        times = f"p50 {cost.p50_us / 1000:g} ms, p95 {cost.p95_us / 1000:g} ms"
        typer.echo(f"{cost.process}.{cost.action}  {cost.seen} executions  {times}  {undone}")
