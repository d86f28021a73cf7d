"""An application whose inputs, services, sink and pace the environment names, so that each of them can fail."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from unerring import App, Operator, Process, Service, last, rule, step, stream
from unerring.model import Event

LOOK_S = 0.02


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


@stream(key="machine")
class Lit:
    machine: str
    times: int


class Pace:
    """How many seconds an event is to take, as the file says that WATCHED_PACE names; it is looked at now and then."""

    def __init__(self) -> None:
        self._seconds, self._looked_s, self._owes_s = 0.0, 0.0, 0.0

    def seconds(self) -> float:
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_S:
            self._looked_s, self._seconds = now_s, 0.0
            with suppress(OSError):  # there is none, or none any more
                self._seconds = float(Path(os.environ.get("WATCHED_PACE", "")).read_text() or 0)
        return self._seconds

    def keep(self) -> None:
        """Of short times several are slept at once: a sleep takes longer than it is to."""
        self._owes_s += self.seconds()
        if self._owes_s > LOOK_S:
            ends_s, self._owes_s = time.monotonic() + self._owes_s, 0.0
            while (left_s := ends_s - time.monotonic()) > 0 and self.seconds():
                threading.Event().wait(min(left_s, LOOK_S))


pace = Pace()


class Lighting(Operator):
    """How often each lamp was lit. It keeps the pace, and breaks a rule of rules: it depends on a setting."""

    def __init__(self) -> None:
        self.times = 0

    def on_event(self, event: Event) -> Iterable[dict[str, Any]]:
        pace.keep()
        if event.payload["open"] > 0:
            self.times += int(os.environ.get("WATCHED_STEP", "1"))
            yield {"machine": event.payload["machine"], "times": self.times}

    def snapshot(self) -> bytes:
        return str(self.times).encode()

    def restore(self, state: bytes) -> None:
        self.times = int(state)


hot = step("hot", Reading, Reading.celsius > 80)
opened = step("opened", Door, Door.open > 0)
overheating = rule("overheating").pattern(hot).emit(peak=last(hot).celsius)
unsafe = rule("unsafe").pattern(hot.then(opened).within(seconds=60)).emit(peak=last(hot).celsius)
lit = rule("lit").on(Lamp).operator(Lighting, Lit)


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
