"""An application from a channel to a service, whose addresses the environment gives."""

from __future__ import annotations

import os

import msgspec

from unerring import App, Process, Service, last, rule, step, stream


@stream(key="machine")
class Reading:
    machine: str
    celsius: float


hot = step("hot", Reading, Reading.celsius > 80)
hotter = step("hotter", Reading, Reading.celsius > last(hot).celsius)
overheating = rule("overheating").pattern(hot.then(hotter).within(seconds=60)).emit(peak=last(hotter).celsius)


class Cooling(msgspec.Struct):
    machine: str = ""
    done: int = 0


cooling = Process("cooling", state=Cooling, services=[Service("fans")])


@cooling.action(service="fans", writes="done", write=True)
async def cool(machine: str) -> int: ...


cooling.flow(cool)

app = App(
    "plant",
    rules=[overheating],
    channels={Reading: os.environ.get("TRACED_CHANNEL", "tcp://127.0.0.1:9")},
    processes=[cooling],
    services={"fans": os.environ.get("TRACED_FANS", "http://127.0.0.1:9")},
    buckets=1,
    start="earliest",
)
app.on("overheating").start(cooling)
