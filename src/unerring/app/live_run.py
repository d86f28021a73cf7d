"""`unerring run APP --engine live`: channels into the log, and a supervised process for everybody."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unerring.app.application import load
from unerring.app.live import command, make_cluster
from unerring.log import EventLog
from unerring.runtime.live import Supervisor


def run_live(address: str, f: int, data: Path, say: Callable[[str], Any]) -> None:
    """Run until SIGINT or SIGTERM; a new run in the same folder goes on from there."""
    cluster = make_cluster(address, f, data.absolute())
    app = load(address)
    feeds = None
    if app.channels:
        from unerring.app.feeds import Feeds

        schemas = {schema.name: schema for schema in app.streams}
        feeds = Feeds(EventLog(data / "log"), app.channels, schemas, app.buckets)
    try:
        asyncio.run(_supervise(cluster, data.absolute(), app.name, f, say))
    finally:
        if feeds is not None:
            feeds.stop()
    say("stopped; the next run goes on from here")


async def _supervise(cluster: Any, data: Path, name: str, f: int, say: Callable[[str], Any]) -> None:
    supervisor = Supervisor(cluster, data / "live", lambda process: command(data, process))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
    say(f"{name} runs live in {data} with f = {f}: {len(cluster.names)} processes; Ctrl-C stops it, status shows it")
    await supervisor.run()
