"""`unerring capacity`: what a load takes, and what saturates first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unerring.app import Capacity, Use


def command(
    rate: Annotated[float, typer.Option(help="Primary events per second.")] = 5_000.0,
    f: Annotated[int, typer.Option(help="Failures to survive, at every level at once.")] = 1,
    levels: Annotated[int, typer.Option(help="Levels of the query tree.")] = 1,
    fan_in: Annotated[int, typer.Option(help="How many nodes' outputs a node of the next level takes.")] = 2,
    selectivity: Annotated[float, typer.Option(help="Outputs for each event that a level takes.")] = 0.108,
    readers: Annotated[int, typer.Option(help="Nodes of the first level that read each event.")] = 1,
    keys: Annotated[float, typer.Option(help="Keys with an open match, in each rule.")] = 1_000,
    event_bytes: Annotated[int, typer.Option(help="Bytes of an event's payload.")] = 26,
    instances: Annotated[float, typer.Option(help="Process instances started per second.")] = 0.0,
    actions: Annotated[int, typer.Option(help="Actions of an instance.")] = 2,
    group: Annotated[float, typer.Option(help="Actions in a group.")] = 1.0,
    hosts: Annotated[int, typer.Option(help="Machines.")] = 1,
    cores: Annotated[int, typer.Option(help="Cores of each machine.")] = 2,
    nic_gbit: Annotated[float, typer.Option(help="Network of each machine, in Gbit/s.")] = 1.0,
    disk_mb_per_s: Annotated[float, typer.Option(help="What the run's disk can write, in MB/s.")] = 200.0,
    buckets: Annotated[int, typer.Option(help="Buckets of keys on Spark; one task for each.")] = 4,
    seal_ms: Annotated[float, typer.Option(help="Milliseconds until a segment of the log is sealed.")] = 100.0,
    retention_days: Annotated[float, typer.Option(help="Days for which the log is kept.")] = 7.0,
    errors: Annotated[bool, typer.Option("--errors", help="Compare the model with what was measured.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compute what a load needs (messages, bytes, state, storage, cores) and what saturates first.

    The model is scaled from measurements on two cores. Tests compare it with what protocols and formats really do. See
    docs/scale.md.
    """
    import msgspec

    from unerring.app import capacity as model

    if errors:
        _show_errors(as_json)
        return
    load = model.Load(
        rate=rate,
        f=f,
        levels=levels,
        fan_in=fan_in,
        selectivity=selectivity,
        readers=readers,
        keys=int(keys),
        event_bytes=event_bytes,
        instances=instances,
        actions=actions,
        group=group,
        hosts=hosts,
        cores=cores,
        nic_gbit=nic_gbit,
        disk_mb_per_s=disk_mb_per_s,
        buckets=buckets,
        seal_ms=seal_ms,
        retention_days=retention_days,
    )
    needed = model.capacity(load)
    if as_json:
        sys.stdout.write(msgspec.json.encode(needed).decode() + "\n")
    else:
        _show(needed)


def _show(needed: Capacity) -> None:
    from rich.console import Console
    from rich.table import Table

    live, spark, log, channels, processes = needed.live, needed.spark, needed.log, needed.channels, needed.processes
    table = Table("part", "what", "how much", show_lines=False)

    def part(name: str, *rows: tuple[str, str], uses: list[Use] | None = None) -> None:
        shares = [(use.what, f"{use.share:.0%}" if use.share >= 0.01 else "below 1%") for use in uses or []]
        for number, (what, much) in enumerate([*rows, *shares]):
            table.add_row(name if number == 0 else "", what, much)
        table.add_section()

    part(
        "channels",
        ("an event, alone and in a batch", f"{channels.bytes_per_event_alone} B, {channels.bytes_per_event_batched} B"),
        ("from the producers", f"{_bytes(channels.bytes_per_s)}/s"),
        ("the replay buffer lasts", _seconds(channels.outage_covered_s)),
    )
    part(
        "log",
        ("segments", f"{log.segments_per_s:,.0f} /s"),
        ("an event, outputs included", f"{log.bytes_per_event:.1f} B"),
        ("a day", _bytes(log.bytes_per_day)),
        ("kept", f"{_bytes(log.bytes_kept)}, {log.files_kept:,.0f} files"),
    )
    part(
        "live",
        ("nodes, replicas", f"{live.nodes}, {live.replicas}"),
        ("situations", f"{live.situations_per_s:,.1f} /s"),
        ("event messages", f"{live.event_messages_per_s:,.0f} /s, {_bytes(live.wire_bytes_per_s)}/s"),
        ("state of a replica's rule", _bytes(live.state_bytes_per_replica)),
        ("cores", f"{live.cores:.1f}"),
        uses=live.uses,
    )
    part(
        "Spark",
        ("drivers, cores", f"{spark.drivers}, {spark.cores:.1f}"),
        ("a micro-batch", _seconds(spark.batch_s)),
        ("latency, middle and worst", f"{_seconds(spark.latency_p50_s)}, {_seconds(spark.latency_worst_s)}"),
        ("state of all levels", _bytes(spark.state_bytes)),
        ("written of it", f"{_bytes(spark.state_bytes_written_per_s)}/s"),
        uses=spark.uses,
    )
    if needed.load.instances:
        part(
            "processes",
            ("replicas of an instance", str(processes.replicas)),
            ("states decided", f"{processes.groups_per_s:,.0f} /s"),
            ("messages with a state", f"{processes.state_messages_per_s:,.0f} /s"),
            ("synced commits of a host", f"{processes.commits_per_s_and_host:,.0f} /s"),
            uses=processes.uses,
        )
    console = Console()
    console.print(table)
    for name, what in needed.bends.items():
        console.print(f"{name} reaches its limit first at {what}", highlight=False, soft_wrap=True)
    for note in needed.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)


def _show_errors(as_json: bool) -> None:
    import msgspec
    from rich.console import Console
    from rich.table import Table

    from unerring.app import errors

    compared = errors()
    if as_json:
        document: list[dict[str, Any]] = [
            {**msgspec.to_builtins(one), "percent": round(one.percent, 1)} for one in compared
        ]
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return
    table = Table("figure", "measured", "model", "unit", "error")
    for one in compared:
        table.add_row(one.what, _number(one.measured), _number(one.model), one.unit, f"{one.percent:+.0f} %")
    Console().print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:,.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} PB"


def _seconds(seconds: float) -> str:
    return "falls behind" if seconds == float("inf") else f"{seconds:,.2f} s"
