"""Ports that a server of a test may have a moment later."""

from __future__ import annotations

import os
import socket
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


def is_free(port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> bool:
    with socket.socket(socket.AF_INET, kind) as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
