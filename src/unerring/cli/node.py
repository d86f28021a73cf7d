"""`unerring node`: one process node of a cluster, or a cluster of one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from unerring.cli._address import naming_at, pairs, versions_at
from unerring.cli._place import HERE, HostFolder
from unerring.model import UNDECODABLE, CallerError, Report, to_duration_us

if TYPE_CHECKING:
    from unerring.processes import ProcessesConfig
    from unerring.runtime import LinksConfig

ROUND_S: Final = 1.0
"""How often a node notes that its loop goes on."""
REPLY_BYTES_MAX: Final = 1 << 20
LARGE_BYTES_MAX: Final = 256 << 20
"""Of a service's reply; the second where processes have large values."""
LOGGED: Final = (
    "process.unknown_outcome",
    "process.unreached_outcome",
    "process.no_service",
    "process.too_large",
    "process.naming_failed",
)
"""Reports that go into the node's log, besides those of the timeline."""


def command(
    processes: Annotated[
        list[str], typer.Argument(help="module:attribute of each process, or of an app for all its processes.")
    ],
    name: Annotated[str, typer.Option(help="This node's name in the cluster.")] = "node",
    listen: Annotated[str, typer.Option(help="host:port to listen on; loopback only without --tls.")] = "",
    peer: Annotated[list[str] | None, typer.Option(help="name=host:port of another node; once for each.")] = None,
    service: Annotated[list[str] | None, typer.Option(help="name=URL of an HTTP service; once for each.")] = None,
    data: HostFolder = HERE,
    tls: Annotated[str, typer.Option(help="A folder made by `unerring certs` for this node.")] = "",
    policy: Annotated[str, typer.Option(help="With --tls: the file with the rights (`unerring policy`).")] = "",
    secret_file: Annotated[
        str, typer.Option(help="Without --tls: the file with the secret that all nodes of this run share.")
    ] = "",
    start: Annotated[str, typer.Option(help="process=ID: start this instance, print its result, and end.")] = "",
    given: Annotated[str, typer.Option(help="The input of the started instance, as a JSON object.")] = "{}",
    costs: Annotated[Path | None, typer.Option(help="Group by these learned costs (`unerring costs --write`).")] = None,
    also_costs: Annotated[
        list[Path] | None, typer.Option(help="Costs that open instances were started with; once for each.")
    ] = None,
    failover: Annotated[
        str,
        typer.Option(
            help="How long an instance may stand still when a master is lost, such as 1s (grouping, heartbeats)."
        ),
    ] = "",
    also_failover: Annotated[
        list[str] | None, typer.Option(help="Such times that open instances were started with; once for each.")
    ] = None,
    naming: Annotated[
        str,
        typer.Option(
            help="Who executes the next group: self, rotate, nearest, idle, or module:function.", show_default=False
        ),
    ] = "self",
    finished_max: Annotated[
        int | None, typer.Option(min=1, help="Ended instances that a node keeps; the oldest go first.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics for Prometheus, /healthz and /readyz on this port.")
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            help="The address of that port. Beyond loopback /metrics needs --tls, and a certificate that may view "
            "the run."
        ),
    ] = "127.0.0.1",
    large: Annotated[
        str, typer.Option(help="The store of large values, which all nodes reach; by default the folder of --data.")
    ] = "",
) -> None:
    """Run a process node until Ctrl-C. With three nodes that name each other, f = 1; alone, f = 0."""
    from unerring.app import bounded, note_kept, place_of, priced
    from unerring.processes import ProcessesConfig

    versions = priced(versions_at(processes), costs, also_costs or ())
    thresholds = [to_duration_us(time) for time in also_failover or ()]
    failover_us = to_duration_us(failover) if failover else 0
    versions = bounded(versions, failover_us, thresholds)
    paced = ProcessesConfig.within(failover_us) if failover_us else ProcessesConfig()
    kept = finished_max or paced.finished_max
    config = msgspec.structs.replace(paced, naming=naming_at(naming), finished_max=kept)
    folder = place_of(data).scratch
    folder.mkdir(parents=True, exist_ok=True)
    note_kept(config.finished_max, folder, name)
    from unerring.runtime import LinksConfig, collect_seldom

    collect_seldom()
    trust = LinksConfig(tls=tls, policy=policy, secret=secret_file)
    asked_at = None if metrics_port is None else (metrics_host, metrics_port)
    links = (listen, pairs(peer))
    asyncio.run(_run(versions, name, links, config, pairs(service), folder, trust, start, given, large, asked_at))


async def _run(
    processes: list[Any],
    name: str,
    links: tuple[str, dict[str, str]],
    config: ProcessesConfig,
    services: dict[str, str],
    data: Path,
    trust: LinksConfig,
    start: str,
    given: str,
    large: str,
    asked_at: tuple[str, int] | None,
) -> None:
    from unerring.log import store_at
    from unerring.processes import ClusterBounds, large_variables
    from unerring.runtime import (
        LOG_FILE,
        SUFFIX,
        HttpService,
        Reports,
        RunningNode,
        control_of,
        own_log,
        tell,
        timeline,
    )
    from unerring.tracing import call_me

    def happens(report: Report) -> None:
        word = timeline.REPORTED.get(report.what)
        if word is not None:
            timeline.note(data, name, word, report.detail)
        if report.detail and (word is not None or report.what in LOGGED):
            own_log.say(f"{word or report.what}: {report.detail}", instance=_instance_in(report.detail))

    call_me(name)
    own_log.run, own_log.role = str(data), name
    listen, peers = links
    bounds = ClusterBounds(f=len(peers) // 2)
    bytes_max = LARGE_BYTES_MAX if any(map(large_variables, processes)) else REPLY_BYTES_MAX
    node = RunningNode(
        name,
        processes,
        data / f"{name}.db",
        {called: HttpService(url, reply_bytes_max=bytes_max) for called, url in services.items()},
        peers=peers,
        listen_on=listen,
        bounds=bounds,
        config=config,
        reports=Reports(happens),
        large=store_at(large) if large else None,
        links_config=msgspec.structs.replace(trust, frame_bytes_max=2 * bounds.state_bytes_max + (2 << 20)),
    )
    address = await node.open()
    try:
        if start:
            process, _, instance = start.partition("=")
            result = await node.run(process, instance, **_object(given))
            typer.echo(msgspec.json.encode(result).decode())
            return
        control = control_of(node, data / f"{name}{SUFFIX}")
        await control.open()
        runs = f"{name} runs{' on ' + address if address else ''}, f = {bounds.f}; Ctrl-C stops it"
        if LOG_FILE in os.environ:
            own_log.say(runs)
        else:
            typer.echo(runs, err=True)
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        telling = asyncio.create_task(tell(node, data))
        try:
            async with _asked(asked_at, data, trust), _measured(data):
                await node.wait(stopping)
        finally:
            telling.cancel()
            await control.close()
    finally:
        await node.close()


@contextlib.asynccontextmanager
async def _asked(at: tuple[str, int] | None, data: Path, links: LinksConfig) -> AsyncIterator[None]:
    """While a node runs it says there that it does: the server ends when the node stops."""
    if at is None:
        yield
        return
    from unerring.app import Health, StatusMetrics, Trust, place_of, serve

    health = Health()

    async def come_round() -> None:
        while True:
            health.come_round()
            await asyncio.sleep(ROUND_S)

    place = place_of(str(data))
    server = serve(StatusMetrics(place), health, at[1], at[0], Trust(links.tls, links.policy, place.address))
    coming = asyncio.create_task(come_round())
    try:
        yield
    finally:
        health.stop()
        coming.cancel()
        server.stop()


@contextlib.asynccontextmanager
async def _measured(data: Path) -> AsyncIterator[None]:
    """While a node runs it sends its numbers to OpenTelemetry's receiver, if its variables ask for that."""
    from unerring.app import StatusMetrics, metrics_sender, place_of
    from unerring.runtime import NODE_MARK

    # A node of a run is told of by the run.
    sender = None if NODE_MARK in os.environ else metrics_sender(StatusMetrics(place_of(str(data))))
    try:
        yield
    finally:
        if sender is not None:
            await asyncio.to_thread(sender.stop)  # its last look asks the node, whose loop this is


def _instance_in(detail: str) -> str:
    """The instance that a report begins with, if it does: `INSTANCE: …`, or `INSTANCE/STEP/…: …`."""
    return detail.partition(":")[0].partition("/")[0] if ": " in detail else ""


def _object(given: str) -> dict[str, Any]:
    try:
        decoded: dict[str, Any] = msgspec.json.decode(given, type=dict[str, Any])
    except UNDECODABLE as error:
        raise CallerError(f"--given must be a JSON object: {error}") from None
    return decoded
