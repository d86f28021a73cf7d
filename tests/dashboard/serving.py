"""A dashboard in a thread of this process: for runs that have ended, where nothing is killed."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from tests.dashboard.running import TOKEN, until
from unerring.app.status import RunStatus
from unerring.dashboard import Access, Dashboard


@contextmanager
def serving(data: Path, access: Access | str = TOKEN) -> Iterator[str]:
    """Its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Dashboard(RunStatus(data), access).app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        until(lambda: server.started, "the server is up")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
