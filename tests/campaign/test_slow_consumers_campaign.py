"""A consumer that does not read for a while, over every event service: alone each loses, with a channel none does."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.runtime.conformance import servers

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "lossy_service.py"


@contextlib.contextmanager
def service(scheme: str, folder: Path) -> Iterator[str]:
    if scheme not in servers.PROGRAMS:
        host = "239.255.80.1" if scheme == "multicast" else "127.0.0.1"
        yield f"{scheme}://{host}:{free_port()}"
        return
    program = shutil.which(servers.PROGRAMS[scheme][0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    assert program is not None, f"{servers.PROGRAMS[scheme][0]} is not there; run `make install` as root"
    with servers.running(scheme, Path(program), folder) as broker:
        yield f"{scheme}://127.0.0.1:{broker.port}/readings"


@pytest.mark.parametrize("scheme", ["nats", "redis", "mqtt", "zmq", "udp", "multicast"])
def test_alone_it_loses_and_with_a_channel_it_does_not(scheme: str, tmp_path: Path) -> None:
    with service(scheme, tmp_path) as url:
        command = [sys.executable, str(EXAMPLE), url, "--slow"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    alone, reliable = ran.stdout.splitlines()
    assert int(alone.split()[1]) < 6000
    assert reliable == "with a channel: 6000 of 6000, in order, once"
