"""`unerring run APP --engine live`: channels into the log, and a supervised process for everybody."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from unerring.app.application import load
from unerring.app.live import LIVE, begin_anew, command, make_cluster
from unerring.app.parts import LOOK_S, Parts
from unerring.model import ConfigError
from unerring.runtime.live import Cluster, LiveSupervisor


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


def run_live(
    address: str, options: LiveOptions, data: Path, say: Callable[[str], Any], parts: Parts | None = None
) -> None:
    """Run until SIGINT or SIGTERM, or until a part of it cannot go on; a new run in the folder goes on from there."""
    data = data.absolute()
    parts = parts or Parts(data, say)
    o = options
    cluster = make_cluster(address, o.f, data, durable=o.durable, tls=o.tls, hosts=o.hosts, etcd=o.etcd)
    cluster = begin_anew(cluster, data)
    app = load(address)
    feeds = None
    if app.channels and o.here in ("", *list(o.hosts)[:1]):
        from unerring.app.feeds import feeds_of

        feeds = feeds_of(app, data, parts)
    try:
        asyncio.run(_supervise(cluster, data, app.name, options, say, parts))
    finally:
        if feeds is not None:
            feeds.stop()
    say("stopped; the next run goes on from here")


async def _supervise(
    cluster: Cluster, data: Path, name: str, options: LiveOptions, say: Callable[[str], Any], parts: Parts
) -> None:
    supervisor = LiveSupervisor(cluster, data / LIVE, lambda process: command(data, process), options.here, say)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.stop)
    count = len(supervisor.wanted)
    say(f"{name} runs live in {data} with f = {options.f}: {count} processes; Ctrl-C stops it, status shows it")
    await supervise(supervisor, _watch(parts))


async def _watch(parts: Parts) -> None:
    while True:
        await asyncio.to_thread(parts.look)
        await asyncio.sleep(LOOK_S)


async def supervise(supervisor: LiveSupervisor, watching: Coroutine[Any, Any, None]) -> None:
    """Until the supervisor is stopped, or what is watched beside it raises: then it is stopped, and that is raised."""
    watch = asyncio.create_task(watching)
    watch.add_done_callback(lambda _: supervisor.stop())
    try:
        await supervisor.run()
    finally:
        watch.cancel()
        [ended] = await asyncio.gather(watch, return_exceptions=True)
    if ended is not None and not isinstance(ended, asyncio.CancelledError):
        raise ended
