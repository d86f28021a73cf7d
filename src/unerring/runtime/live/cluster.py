"""What every process of a live run must know: the query tree, and where everybody listens. One file a run."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from unerring.correlation import CorrelationConfig, Topology
from unerring.correlation.messages import MEMBERSHIP
from unerring.model import ConfigError

FILE = "cluster.json"


class Cluster(msgspec.Struct, frozen=True):
    """Written once, when a run's folder is made; a run with other rules or another f needs its own folder."""

    app: str
    topology: Topology
    addresses: dict[str, str]
    """host:port of every replica, source, application and of the membership record, by name."""
    config: CorrelationConfig = CorrelationConfig()
    durable: bool = False
    tls: str = ""

    @property
    def names(self) -> list[str]:
        """Everybody but the membership record."""
        return [name for name in self.addresses if name != MEMBERSHIP]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f"{FILE}.new"
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        os.replace(scratch, folder / FILE)


def read(folder: Path) -> Cluster:
    """The cluster of a run's folder."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Cluster)
    except FileNotFoundError:
        raise ConfigError(f"{folder} holds no live run; start one with `unerring run APP --engine live`") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{folder / FILE} cannot be read: {error}; make the run anew in another folder") from None


def free_addresses(names: Sequence[str], host: str = "127.0.0.1") -> dict[str, str]:
    """A free port of this machine for everybody. All are held until all are found, so that none is given twice."""
    held: list[socket.socket] = []
    found: dict[str, str] = {}
    try:
        for name in names:
            one = socket.socket()
            one.bind((host, 0))
            held.append(one)
            found[name] = f"{host}:{one.getsockname()[1]}"
    finally:
        for one in held:
            one.close()
    return found
