"""The side of DBOS in the comparison. It has its own environment (`make peers`) and answers requests in JSON lines.

{"chain": 100}               one workflow of so many steps that do nothing: seconds
{"many": 320, "at_once": 16} so many workflows of two such steps: workflows a second, and how long each took
{"start": "w", "steps": 50}  a workflow whose steps call the service of step_service.py; {"wait": "w"} for its end

dbos_peer.py DATABASE [STEPS]
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import peer_steps
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


@DBOS.step()
def call(step: int) -> int:
    workflow = DBOS.workflow_id or ""
    return peer_steps.call_step(sys.argv[2], workflow, step, f"{workflow}/{DBOS.step_id}")


@DBOS.workflow()
def long(steps: int) -> int:
    n = 0
    while n < steps:
        n = call(n)
    return n


def many(count: int, at_once: int) -> dict[str, Any]:
    def two(_: int) -> float:
        began = time.perf_counter()
        if chain(2) != 2:
            raise AssertionError("a workflow went wrong")
        return (time.perf_counter() - began) * 1000

    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as workers:
        took = list(workers.map(two, range(count)))
    return {"rate": count / (time.perf_counter() - began), "ms": took}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if "chain" in request:
        with SetWorkflowID(f"chain-{time.time_ns()}"):
            began = time.perf_counter()
            if chain(request["chain"]) != request["chain"]:
                raise AssertionError("a step is missing")
            return {"took_s": time.perf_counter() - began}
    if "start" in request:
        with SetWorkflowID(request["start"]):
            DBOS.start_workflow(long, request["steps"])
        return {}
    if "wait" in request:
        return {"steps": DBOS.retrieve_workflow(request["wait"]).get_result()}
    return many(request["many"], request["at_once"])


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
