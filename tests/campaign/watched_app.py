"""An application whose inputs, service and sink the environment names, so that each of them can fail."""

from __future__ import annotations

import os

import msgspec

from unerring import App, Process, Service, last, rule, step, stream


@stream(key="machine")
class Reading:
    machine: str
    celsius: float


@stream(key="machine")
class Door:
    machine: str
    open: int


@stream(key="machine")
class Lamp:
    machine: str
    open: int


hot = step("hot", Reading, Reading.celsius > 80)
opened = step("opened", Door, Door.open > 0)
overheating = rule("overheating").pattern(hot).emit(peak=last(hot).celsius)
unsafe = rule("unsafe").pattern(hot.then(opened).within(seconds=60)).emit(peak=last(hot).celsius)
lit = rule("lit").pattern(step("on", Lamp, Lamp.open > 0)).emit()


class Cooling(msgspec.Struct):
    machine: str = ""
    done: int = 0


cooling = Process("cooling", state=Cooling, services=[Service("fans")])


@cooling.action(service="fans", writes="done", write=True)
async def cool(machine: str) -> int: ...


cooling.flow(cool)

venting = Process("venting", state=Cooling, services=[Service("vents")])
"""It waits with something done, so that an operator may hold it or have it undone."""


@venting.action(service="vents", writes="done", write=True)
async def vent(machine: str) -> int: ...


venting.flow(vent, venting.receive("shut", writes="done"))

app = App(
    "watched",
    rules=[overheating, unsafe, lit],
    channels={
        Reading: os.environ.get("WATCHED_READINGS", "tcp://127.0.0.1:9"),
        Door: os.environ.get("WATCHED_DOORS", "tcp://127.0.0.1:9"),
        Lamp: os.environ.get("WATCHED_LAMPS", "tcp://127.0.0.1:9"),
    },
    processes=[cooling, venting],
    services={
        "fans": os.environ.get("WATCHED_FANS", "http://127.0.0.1:9"),
        "vents": os.environ.get("WATCHED_VENTS", "http://127.0.0.1:9"),
    },
    buckets=1,
    start="earliest",
)
app.on("overheating").start(cooling)
app.deliver("unsafe", to=os.environ.get("WATCHED_SINK", "http://127.0.0.1:9/unsafe"), name="alarm")
