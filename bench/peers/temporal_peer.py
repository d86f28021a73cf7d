"""Temporal's side of the workflow race, in an environment of its own (`make peers`).

worker SERVER STEPS SETTINGS   carries out workflows and activities until it is ended
client SERVER SETTINGS         starts workflows, as peer_steps.py says
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import peer_steps

QUEUE = "race"
STEPS_URL = sys.argv[3] if len(sys.argv) > 3 else ""
TUNED = sys.argv[-1] == "tuned"
AS_SAMPLES: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=10)}
"""As in the samples of Temporal's Python SDK. Temporal has no default for this time; an activity must have one."""
QUICK: dict[str, Any] = {
    "start_to_close_timeout": timedelta(milliseconds=200),
    "retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=10), backoff_coefficient=1.0),
}
"""Ten times what a step takes, and another attempt at once."""
ACTIVITY = QUICK if TUNED else AS_SAMPLES


@activity.defn
def act(n: int) -> int:
    return n + 1


@activity.defn
def call(step: int) -> int:
    of = activity.info()
    return peer_steps.call_step(STEPS_URL, str(of.workflow_id), step, f"{of.workflow_run_id}/{of.activity_id}")


@workflow.defn
class Two:
    @workflow.run
    async def run(self, local: bool) -> int:
        n = 0
        for _ in range(2):
            if local:
                n = await workflow.execute_local_activity(act, n, **AS_SAMPLES)
            else:
                n = await workflow.execute_activity(act, n, **AS_SAMPLES)
        return n


@workflow.defn
class Long:
    @workflow.run
    async def run(self, steps: int) -> int:
        n = 0
        while n < steps:
            n = await workflow.execute_activity(call, n, **ACTIVITY)
        return n


async def work(server: str) -> None:
    client = await _connect(server)
    more: dict[str, Any] = {"sticky_queue_schedule_to_start_timeout": timedelta(milliseconds=100)} if TUNED else {}
    with ThreadPoolExecutor(100) as threads:
        worker = Worker(
            client,
            task_queue=QUEUE,
            workflows=[Two, Long],
            activities=[act, call],
            activity_executor=threads,
            **more,
        )
        running = asyncio.create_task(worker.run())
        peer_steps.say({"ready": os.getpid()})
        await running


async def ask(server: str) -> None:
    client = await _connect(server)
    running: dict[str, WorkflowHandle[Any, Any]] = {}
    me = os.getpid()
    asked = 0

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if "many" in request:
            name, local = f"two-{me}-{asked}", bool(request.get("local"))

            async def two(number: int) -> int:
                return await client.execute_workflow(Two.run, local, id=f"{name}-{number}", task_queue=QUEUE)

            return await peer_steps.timed(two, request["many"], request["at_once"])
        if "start" in request:
            id = request["start"]
            running[id] = await client.start_workflow(Long.run, request["steps"], id=id, task_queue=QUEUE)
            return {}
        return {"steps": await running[request["wait"]].result()}

    await peer_steps.serve(answer)


async def _connect(server: str) -> Client:
    while True:
        try:
            return await Client.connect(server)
        except RuntimeError:  # not yet there
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run({"worker": work, "client": ask}[sys.argv[1]](sys.argv[2]))
