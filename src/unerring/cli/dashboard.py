"""`unerring dashboard`: a run in the browser."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unerring.cli._place import HERE, Run, Scratch
from unerring.model import ConfigError, NetworkError

if TYPE_CHECKING:
    from unerring.dashboard import Dashboard
    from unerring.model import Who

HOST = "127.0.0.1"
OPENING = """<!doctype html><meta charset="utf-8"><title>Unerring</title>
<meta http-equiv="refresh" content="0;url=%s"><a href="%s">Go on</a>
"""


def command(
    run: Run = HERE,
    scratch: Scratch = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0: any free port.")] = 8700,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with a token, or with lines ROLE/NAME TOKEN; by default the run's own, which is printed."
        ),
    ] = None,
    public: Annotated[
        bool,
        typer.Option("--public/--private", help="Show the run to every user of this host; changes need the token."),
    ] = False,
    tls: Annotated[str, typer.Option(help="Serve HTTPS with the certificate in this folder (`unerring certs`).")] = "",
    host: Annotated[str, typer.Option(help="Another address to listen on than loopback; needs --tls.")] = HOST,
    oidc: Annotated[
        Path | None, typer.Option(help="A file with an OpenID Connect provider and the roles of its people.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="What the roles of tokens may do (`unerring policy`).")] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve a run's page on loopback until Ctrl-C: the query tree, situations and why they arose, processes, channels,
    Spark, failures and elections, the verdict. From elsewhere: ssh -L 8700:127.0.0.1:8700 HOST."""
    from unerring.app import RunStatus, place_of
    from unerring.dashboard import OWNER, TOKEN_FILE, Access, Dashboard, Oidc, own_token, read_oidc

    if host != HOST and not tls:
        raise ConfigError(f"refusing to serve on {host} without TLS; give --tls DIR, or use ssh -L to reach loopback")
    given = _tokens(token_file)
    place = place_of(run, scratch)
    status = RunStatus(place)
    tokens = given or {own_token(place.scratch): OWNER}
    if public and (host != HOST or oidc is not None or any(who != OWNER for who in tokens.values())):
        raise ConfigError("--public is for one user of one host; leave it out beyond loopback and where others log in")
    access = Access(tokens, private=not public, policy_file="" if policy is None else str(policy))
    provider = None if oidc is None else Oidc(read_oidc(oidc))
    names = [host, socket.gethostname()]
    dashboard = Dashboard(status, access, names, bool(tls), provider)
    listener = _listen(host, port)
    address = f"http{'s' if tls else ''}://{host}:{listener.getsockname()[1]}/"
    typer.echo(f"{address} shows {run}; Ctrl-C stops it")
    if not given:
        what = "kill and restart processes from it" if public else "log in"
        typer.echo(f"to {what}, use the token {next(iter(tokens))} ({TOKEN_FILE} in the run's folder), or --open")
    with contextlib.ExitStack() as opened:
        if browser:
            code = access.sessions.code(next(iter(tokens.values())))
            page = _opening(place.scratch, f"{address}login#code={code}")
            opened.callback(page.unlink, missing_ok=True)
            webbrowser.open(page.as_uri())
        asyncio.run(_serve(dashboard, listener, tls))


def _opening(folder: Path, address: str) -> Path:
    """A page that only this user can read and that leads to the address. Whoever looks at the browser's arguments sees
    its name, and not the code."""
    page = folder.absolute() / "open.html"
    try:
        page.unlink(missing_ok=True)
        descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{page} cannot be written ({error.strerror}); leave --open out, and log in") from None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(OPENING % (address, address))
    return page


def _tokens(file: Path | None) -> dict[str, Who]:
    """Never from an argument: every user of the host can see those."""
    from unerring.dashboard import OWNER, read_tokens

    if file is None:
        named = os.environ.pop("UNERRING_TOKEN", "")  # children need not know it
        return {named: OWNER} if named else {}
    return read_tokens(file)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {os.strerror(error.errno or 0)}"
        raise NetworkError(f"port {port} {why}; choose another with --port, or --port 0 for any") from None


async def _serve(dashboard: Dashboard, listener: socket.socket, tls: str) -> None:
    import uvicorn

    from unerring.dashboard import BoundedConnection

    # A page that is open holds its stream for ever; it is not waited for when the server ends.
    config = uvicorn.Config(
        dashboard.app,
        log_level="warning",
        timeout_graceful_shutdown=1,
        server_header=False,
        lifespan="on",
        http=BoundedConnection,
        ssl_certfile=f"{tls}/node.pem" if tls else None,
        ssl_keyfile=f"{tls}/node.key" if tls else None,
    )
    await uvicorn.Server(config).serve(sockets=[listener])
