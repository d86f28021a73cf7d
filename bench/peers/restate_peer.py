"""Restate's side of the workflow race, in an environment of its own (`make peers`).

worker PORT STEPS    serves the handlers until it is ended; several may listen on one port
client INGRESS       starts workflows, as peer_steps.py says
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import peer_steps
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

race = restate.Service("Race")


async def _act(n: int) -> int:
    return n + 1


@race.handler()
async def two(ctx: restate.Context, n: int) -> int:
    for name in ("a0", "a1"):
        n = await ctx.run_typed(name, _act, n=n)
    return n


@race.handler()
async def long(ctx: restate.Context, asked: dict[str, Any]) -> int:
    n, id = 0, ctx.request().id
    while n < asked["steps"]:
        step, key = n, f"{id!r}/{n}"

        async def call(step: int = step, key: str = key) -> int:
            return await asyncio.to_thread(peer_steps.call_step, sys.argv[3], asked["workflow"], step, key)

        n = await ctx.run_typed(f"a{n}", call)
    return n


async def work(port: int) -> None:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(1024)
    config = Config()
    config.bind = [f"fd://{listening.fileno()}"]
    config.loglevel = "ERROR"
    serving = asyncio.create_task(serve(restate.app([race]), config, mode="asgi"))
    peer_steps.say({"ready": os.getpid()})
    await serving


class Ingress:
    """Connections to the server, one for each workflow under way."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._free: list[http.client.HTTPConnection] = []

    def call(self, handler: str, body: Any, key: str = "") -> Any:
        link = self._free.pop() if self._free else http.client.HTTPConnection(self._host, self._port, timeout=600)
        headers = {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
        link.request("POST", f"/Race/{handler}", json.dumps(body), headers)
        answer = link.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"Restate answered {answer.status}: {text[:200]!r}")
        self._free.append(link)
        return json.loads(text)


async def ask(address: str) -> None:
    ingress = Ingress(address)
    threads = ThreadPoolExecutor(64)
    loop = asyncio.get_running_loop()
    running: dict[str, dict[str, Any]] = {}

    def attach(id: str) -> Any:
        """The same call again: it has an id, so that it is the same workflow. The server may be away for a while."""
        until = time.monotonic() + 600
        while True:
            try:
                return Ingress(address).call("long", running[id], key=id)
            except (OSError, RuntimeError, http.client.HTTPException):
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "many" in request:

            async def run(_: int) -> Any:
                return await loop.run_in_executor(threads, ingress.call, "two", 0)

            return await peer_steps.timed(run, request["many"], request["at_once"])
        if "start" in request:
            id = request["start"]
            running[id] = {"workflow": id, "steps": request["steps"]}
            sent = Ingress(address)
            await loop.run_in_executor(threads, sent.call, "long/send", running[id], id)
            return {}
        return {"steps": await loop.run_in_executor(threads, attach, request["wait"])}

    await peer_steps.serve(answer)


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[2])) if sys.argv[1] == "worker" else ask(sys.argv[2]))
