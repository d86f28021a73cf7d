"""`unerring dashboard`: a run in the browser."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._place import HERE, Run, Scratch
from unerring.model import NetworkError

if TYPE_CHECKING:
    from unerring.dashboard import Dashboard

HOST = "127.0.0.1"


def command(
    run: Run = HERE,
    scratch: Scratch = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: any free port.")] = 8700,
    token: Annotated[
        str,
        typer.Option(
            envvar="UNERRING_TOKEN", help="The token for kill and restart; by default a new one, which is printed."
        ),
    ] = "",
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve a run's page on loopback until Ctrl-C: the query tree, situations and why they arose, processes, channels,
    Spark, failures and elections, the verdict. From elsewhere: ssh -L 8700:127.0.0.1:8700 HOST."""
    from unerring.app import RunStatus, place_of
    from unerring.dashboard import Dashboard

    made = secrets.token_urlsafe(12)
    dashboard = Dashboard(RunStatus(place_of(run, scratch)), token or made)
    listener = _listen(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}/"
    typer.echo(f"{address} shows {run}; Ctrl-C stops it")
    if not token:
        typer.echo(f"to kill and restart processes from it, use the token {made}")
    if browser:
        typer.launch(f"{address}#token={token or made}")
    asyncio.run(_serve(dashboard, listener))


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {os.strerror(error.errno or 0)}"
        raise NetworkError(f"port {port} {why}; choose another with --port, or --port 0 for any") from None


async def _serve(dashboard: Dashboard, listener: socket.socket) -> None:
    import uvicorn

    # A page that is open holds its stream for ever; it is not waited for when the server ends.
    config = uvicorn.Config(
        dashboard.app, log_level="warning", timeout_graceful_shutdown=1, server_header=False, lifespan="on"
    )
    await uvicorn.Server(config).serve(sockets=[listener])
