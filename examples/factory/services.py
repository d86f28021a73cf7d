"""The services that the factory's processes call: small HTTP applications behind the filter, each with a journal of the
effects it really had.

    python -m factory.services FOLDER [--port 0]        all four on one port, under /storage, /parts, /trucks and /notes

An effect is written on the filter's own connection, so that effect and record commit together. The journal is the table
`effects`: what was done, for whom, and whether it was undone.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from unerring import IdempotencyFilter, Interaction, SqliteStore

OPERATIONS = {
    "storage": ("ask_price", "rent", "make_room"),
    "parts": ("order_parts",),
    "trucks": ("book", "send_fitters"),
    "notes": ("tell_management", "tell_customers"),
}
READS = ("ask_price",)
FINAL = ("book", "send_fitters", "tell_management", "tell_customers")
"""What nobody can undo."""


class Effect(NamedTuple):
    """One line of a service's journal."""

    iid: str
    instance: str
    operation: str
    payload: dict[str, Any]
    undone: bool


def journal(folder: Path, service: str) -> list[Effect]:
    """Everything that the service did, in order."""
    with sqlite3.connect(f"file:{folder / service}.sqlite?mode=ro", uri=True) as connection:
        rows = connection.execute(
            "SELECT iid, instance, operation, payload, undone FROM effects ORDER BY at"
        ).fetchall()
    return [
        Effect(iid, instance, done, json.loads(payload), bool(undone)) for iid, instance, done, payload, undone in rows
    ]


def service(name: str, folder: Path) -> IdempotencyFilter:
    """One service behind the filter, with its database in `folder`."""
    store = SqliteStore(folder / f"{name}.sqlite")
    with sqlite3.connect(folder / f"{name}.sqlite") as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS effects (at INTEGER PRIMARY KEY AUTOINCREMENT, iid TEXT, instance TEXT,"
            " operation TEXT, payload TEXT, undone INTEGER DEFAULT 0)"
        )

    async def act(request: Request) -> Response:
        operation = request.path_params["operation"]
        if operation not in OPERATIONS[name]:
            return JSONResponse(f"{name} cannot {operation}", status_code=410)
        interaction: Interaction = request.scope["unerring"]
        if request.method == "DELETE":
            return _undo(operation, interaction)
        payload = await request.json()
        if operation in READS:
            return JSONResponse(_price(payload["facility"]))
        interaction.connection.execute(
            "INSERT INTO effects (iid, instance, operation, payload) VALUES (?, ?, ?, ?)",
            (interaction.iid, interaction.instance, operation, json.dumps(payload)),
        )
        return JSONResponse(f"{operation} {interaction.iid}")

    return IdempotencyFilter(Starlette(routes=[Route("/{operation}", act, methods=["POST", "DELETE"])]), store)


def _undo(operation: str, interaction: Interaction) -> Response:
    if operation in FINAL:
        return JSONResponse(f"{operation} cannot be undone", status_code=410)
    interaction.connection.execute("UPDATE effects SET undone = 1 WHERE iid = ?", (interaction.iid,))
    return JSONResponse("undone")


def _price(facility: str) -> int:
    """Cheap in some places, dear in others."""
    return 200 + int.from_bytes(hashlib.blake2b(facility.encode(), digest_size=2).digest()) % 700


def application(folder: Path) -> Starlette:
    """All four services under their names."""
    folder.mkdir(parents=True, exist_ok=True)
    return Starlette(routes=[Mount(f"/{name}", app=service(name, folder)) for name in OPERATIONS])


async def serve(folder: Path, port: int) -> None:
    server = uvicorn.Server(uvicorn.Config(application(folder), port=port, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        sys.stdout.write(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
    await serving


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m factory.services", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the services keep their databases")
    parser.add_argument("--port", type=int, default=0, help="0: any free one; its address is the first line printed")
    told = parser.parse_args()
    asyncio.run(serve(told.folder, told.port))


if __name__ == "__main__":
    main()
