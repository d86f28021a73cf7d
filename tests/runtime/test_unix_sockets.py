"""A socket in a folder whose path is longer than the name of a socket may be."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

from unerring.runtime import unix_sockets


def _speaks(path: Path) -> bytes:
    with unix_sockets.listening(path) as listener:
        with socket.socket(socket.AF_UNIX) as asked:
            with unix_sockets.short(path) as name:
                asked.connect(name)
            answering, _ = listener.accept()
            with answering:
                answering.sendall(b"here")
                return asked.recv(4)


def test_a_deep_folder_has_sockets_too(tmp_path: Path) -> None:
    path = tmp_path / ("deep" * 20) / ("deeper" * 20) / "n0.sock"
    assert len(bytes(path)) > 200
    assert _speaks(path) == b"here"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "n0.sock"
    unix_sockets.listening(path).close()
    assert path.exists()
    assert _speaks(path) == b"here"
