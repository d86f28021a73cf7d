"""`unerring run APP --engine live`: channels into the log, and a supervised process for everybody."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from unerring.app.application import load
from unerring.app.live import LIVE, begin_anew, command, make_cluster
from unerring.model import ConfigError
from unerring.runtime.live import Cluster, Supervisor


class LiveOptions(msgspec.Struct, frozen=True):
    """How a live run is laid out; the same on every host of a list."""

    f: int = 1
    durable: bool = False
    tls: str = ""
    hosts: dict[str, str] = {}
    here: str = ""
    etcd: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hosts and self.here not in self.hosts:
            raise ConfigError(f"--here is {self.here!r}; name one of the hosts {', '.join(self.hosts)}")
        if self.here and not self.hosts:
            raise ConfigError("--here names one of several hosts; list them with --host NAME=ADDRESS")


def run_live(address: str, options: LiveOptions, data: Path, say: Callable[[str], Any]) -> None:
    """Run until SIGINT or SIGTERM; a new run in the same folder goes on from there."""
    data = data.absolute()
    o = options
    cluster = make_cluster(address, o.f, data, durable=o.durable, tls=o.tls, hosts=o.hosts, etcd=o.etcd)
    cluster = begin_anew(cluster, data)
    app = load(address)
    feeds = None
    if app.channels and o.here in ("", *list(o.hosts)[:1]):
        from unerring.app.feeds import feeds_of

        feeds = feeds_of(app, data)
    try:
        asyncio.run(_supervise(cluster, data, app.name, options, say))
    finally:
        if feeds is not None:
            feeds.stop()
    say("stopped; the next run goes on from here")


async def _supervise(cluster: Cluster, data: Path, name: str, options: LiveOptions, say: Callable[[str], Any]) -> None:
    supervisor = Supervisor(cluster, data / LIVE, lambda process: command(data, process), options.here)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
    count = len(supervisor.wanted)
    say(f"{name} runs live in {data} with f = {options.f}: {count} processes; Ctrl-C stops it, status shows it")
    await supervisor.run()
