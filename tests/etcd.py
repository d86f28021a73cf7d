"""An etcd of the tests' own, on free ports of this machine, in a folder of its own."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.ports import free_port
from unerring.model import DiskError
from unerring.runtime.live.etcd import EtcdStorage

PATIENCE_S = 60.0


@contextlib.contextmanager
def etcd_server(program: Path, folder: Path) -> Iterator[str]:
    """Its address, once it answers."""
    client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    command = [program, "--data-dir", folder / "etcd", "--name", "e0"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"e0={peer}"]
    with (folder / "etcd.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not _answers(client):
            assert time.monotonic() < deadline_s, "etcd does not answer"
            threading.Event().wait(0.1)
        yield client
    finally:
        running.kill()
        running.wait()


def _answers(url: str) -> bool:
    try:
        EtcdStorage([url], "probe").load()
    except DiskError:
        return False
    return True
