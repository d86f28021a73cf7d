"""The side of DBOS in the comparison. It has its own environment (`make peers`) and answers requests in JSON lines.

{"chain": 100}               one workflow of so many steps that do nothing: seconds
{"many": 320, "at_once": 16} so many workflows of two such steps: workflows a second
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS, SetWorkflowID

DBOS(config={"name": "peer", "system_database_url": sys.argv[1], "run_admin_server": False, "log_level": "ERROR"})
logging.disable(logging.INFO)


@DBOS.step()
def act(n: int) -> int:
    return n + 1


@DBOS.workflow()
def chain(count: int) -> int:
    n = 0
    for _ in range(count):
        n = act(n)
    return n


def many(count: int, at_once: int) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as workers:
        results = list(workers.map(lambda _: chain(2), range(count)))
    if results != [2] * count:
        raise AssertionError("a workflow went wrong")
    return count / (time.perf_counter() - began)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if "chain" in request:
        with SetWorkflowID(f"chain-{time.time_ns()}"):
            began = time.perf_counter()
            if chain(request["chain"]) != request["chain"]:
                raise AssertionError("a step is missing")
            return {"took_s": time.perf_counter() - began}
    return {"rate": many(request["many"], request["at_once"])}


def main() -> None:
    DBOS.launch()
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    os._exit(0)  # its threads would wait for work


if __name__ == "__main__":
    main()
