"""Ports that a server of a test may have a moment later."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from random import Random

_FROM, _BELOW = 10_000, 32_000
"""Below the ports that the system gives to connections: those may be taken between the look and the bind."""
_RANDOM = Random(os.getpid())


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[int]:
    """Different ones that nobody has now."""
    ports: list[int] = []
    while len(ports) < count:
        port = _RANDOM.randrange(_FROM, _BELOW)
        if port not in ports and is_free(port, kind):
            ports.append(port)
    return ports


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    return free_ports(1, kind)[0]


def pairs_of_ports(names: Sequence[str], apart: int) -> dict[str, tuple[int, int]]:
    """Two for each name, so far apart, for servers that take their second one for granted."""
    pairs: dict[str, tuple[int, int]] = {}
    taken: set[int] = set()
    while len(pairs) < len(names):
        port = _RANDOM.randrange(_FROM, _BELOW - apart)
        both = (port, port + apart)
        if taken.isdisjoint(both) and all(map(is_free, both)):
            pairs[names[len(pairs)]] = both
            taken.update(both)
    return pairs


def is_free(port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> bool:
    with socket.socket(socket.AF_INET, kind) as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
