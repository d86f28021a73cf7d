"""The service that all sides of the workflow race call: a step takes a while, and stands in a journal.

step_service.py PORT FOLDER PAUSE_MS. It runs in our environment. Our nodes reach it through the filter, by their
interaction ids; the peers reach it as it is, and what would be their key is written down with the step.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from unerring import IdempotencyFilter, SqliteStore


def main() -> None:
    import uvicorn

    folder, pause_s = Path(sys.argv[2]), float(sys.argv[3]) / 1000
    journal = (folder / "journal").open("a", buffering=1)

    def note(what: str, headers: dict[bytes, bytes], scope: Any) -> None:
        ours = scope.get("unerring")
        line = {
            "what": what,
            "workflow": ours.instance if ours is not None else headers.get(b"workflow", b"").decode(),
            "step": int(scope["path"].removeprefix("/a")),
            "key": ours.iid if ours is not None else headers.get(b"step-key", b"").decode(),
            "worker": headers.get(b"worker", b"0").decode(),
            "ns": time.time_ns(),
        }
        journal.write(json.dumps(line) + "\n")

    async def step(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        if scope["method"] == "DELETE":
            note("undo", headers, scope)
        else:
            note("begin", headers, scope)
            await asyncio.sleep(pause_s)
            note("do", headers, scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"1"})

    app: Any = IdempotencyFilter(step, SqliteStore(str(folder / "filter.db")))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", lifespan="off")


if __name__ == "__main__":
    main()
