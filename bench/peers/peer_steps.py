"""What the sides of the workflow race share, in whatever environment a peer has: plain Python, nothing else.

A request is a line of JSON, and so is its answer. `one` and `many` are workflows of two steps that do nothing, `start`
and `wait` a long one whose steps call the service of step_service.py.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit


def call_step(url: str, workflow: str, step: int, key: str) -> int:
    """One step at the service. `key` is what the peer's documentation would have us send, so that the service could
    know a repetition; this service writes it down and knows none."""
    place = urlsplit(url)
    link = http.client.HTTPConnection(place.hostname or "127.0.0.1", place.port, timeout=30)
    try:
        headers = {"workflow": workflow, "step-key": key, "worker": str(os.getpid())}
        link.request("POST", f"/a{step}", b"{}", headers)
        answer = link.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the service answered {answer.status}")
    finally:
        link.close()
    return step + 1


async def timed(run: Callable[[int], Awaitable[Any]], count: int, at_once: int) -> dict[str, Any]:
    """So many workflows, so many of them at once: how many a second, and how long each took."""
    import asyncio

    todo, took = list(range(count)), []

    async def work() -> None:
        while todo:
            number = todo.pop()
            began = time.perf_counter()
            if await run(number) != 2:
                raise AssertionError("a workflow went wrong")
            took.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return {"rate": count / (time.perf_counter() - began), "ms": took}


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def serve(answer: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
    """Answer every line of standard input. An error is an answer too: the race says it, and ends."""
    import asyncio

    loop = asyncio.get_running_loop()
    say({"ready": True})
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            say(await answer(json.loads(line)))
        except Exception as error:  # whatever it is, the race shows it
            say({"error": f"{type(error).__name__}: {error}"})
