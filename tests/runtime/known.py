"""A peer of our own user that breaks the rules after it has proved that it knows the secret."""

from __future__ import annotations

import asyncio
import socket

from unerring.runtime.secret import prove_to_acceptor, shared_secret


async def open_known_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As `asyncio.open_connection`, of somebody who knows the secret."""
    connection = socket.socket()
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    await prove_to_acceptor(connection, shared_secret())
    return await asyncio.open_connection(sock=connection)
