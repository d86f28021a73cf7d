"""`unerring dashboard`: a run in the browser."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._place import HERE, Run, Scratch
from unerring.model import ConfigError, NetworkError

if TYPE_CHECKING:
    from unerring.dashboard import Dashboard

HOST = "127.0.0.1"


def command(
    run: Run = HERE,
    scratch: Scratch = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: any free port.")] = 8700,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token for kill and restart; by default a new token, which is printed."),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve a run's page on loopback until Ctrl-C: the query tree, situations and why they arose, processes, channels,
    Spark, failures and elections, the verdict. From elsewhere: ssh -L 8700:127.0.0.1:8700 HOST."""
    from unerring.app import RunStatus, place_of
    from unerring.dashboard import Dashboard

    token = _token(token_file)
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


def _token(file: Path | None) -> str:
    """Never from an argument: every user of the host can see those."""
    if file is None:
        return os.environ.get("UNERRING_TOKEN", "")
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as a token: {error}") from None
    if not token:
        raise ConfigError(f"{file} has no token in it; write one, such as: openssl rand -hex 12 > {file}")
    return token


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
