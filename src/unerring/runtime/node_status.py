"""What a process node tells of itself while it runs: its disk, the services that it asks, and whether it takes part."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec

from unerring.log import SyncsSeen, disk_syncs
from unerring.model import LogError, verified_json
from unerring.runtime.live.hosting import note
from unerring.runtime.os_processes import find
from unerring.runtime.process_node import RunningNode
from unerring.runtime.services.asked import ServiceSeen

STATUS_S: Final = 0.5
FOLDER: Final = "status"


class NodeStatus(msgspec.Struct):
    """The content of `processes/status/NODE.json`."""

    name: str
    pid: int
    at: float
    disk: SyncsSeen
    services: list[ServiceSeen]
    absent: str = ""
    """Why it takes no part yet, for people; empty: it does."""
    absent_us: int = 0
    """Since when, in wall time, if this is so."""
    silent_s: float = 0.0
    """How long it has written nothing, if it runs."""


async def tell(node: RunningNode, folder: Path) -> None:
    """Write it twice a second, until cancelled."""
    path = folder / FOLDER / f"{node.name}.json"
    absent_us = 0
    while True:
        absent_us = (absent_us or time.time_ns() // 1000) if node.absent else 0
        seen = [msgspec.to_builtins(one) for one in node.driver.services_seen()]
        fields = {"disk": msgspec.to_builtins(disk_syncs.look()), "services": seen}
        note(path, node.name, fields | {"absent": node.absent, "absent_us": absent_us})
        await asyncio.sleep(STATUS_S)


def node_statuses(folder: Path) -> list[NodeStatus]:
    """Of each node of a folder that has written one."""
    found = []
    for path in sorted((folder / FOLDER).glob("*.json")):
        try:
            status = verified_json(path.read_bytes(), NodeStatus, str(path))
        except (OSError, LogError):  # it is written anew twice a second
            continue
        process = find(folder, status.name)
        if process is not None and process.pid == status.pid:
            status.silent_s = max(0.0, time.time() - status.at)
        found.append(status)
    return found
