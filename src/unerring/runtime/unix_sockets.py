"""Unix sockets in folders of any depth: the path of a socket may have a hundred bytes, a folder's has no such bound."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group, as Linux has them."""


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """A name of a socket that fits, through a descriptor of its folder."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def is_ours(connection: socket.socket) -> bool:
    """Whether a process of this user, or of root, is at the other end; the kernel says so."""
    return _other_end(connection)[1] in (os.geteuid(), 0)


def peer(connection: socket.socket) -> tuple[str, int]:
    """The user at the other end, and the number of its process."""
    process, user = _other_end(connection)
    try:
        return pwd.getpwuid(user).pw_name, process
    except KeyError:
        return str(user), process


def _other_end(connection: socket.socket) -> tuple[int, int]:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return process, user


def listening(path: Path) -> socket.socket:
    """A socket of that name, for its owner alone; one that a killed process left is replaced.

    It has its name once it listens: who sees the name is answered.
    """
    from unerring.log import private_folder  # whoever only asks need not load it

    private_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.setblocking(False)
        with short(aside) as name:
            listener.bind(name)
        aside.chmod(0o600)
        listener.listen()
        aside.rename(path)
    except BaseException:
        listener.close()
        aside.unlink(missing_ok=True)
        raise
    return listener
