"""An application that a Kafka topic feeds, for runs that are killed. Its addresses come from the environment."""

from __future__ import annotations

import os

import msgspec

from unerring import App, Process, Service, last, rule, step, stream


@stream(key="machine", lateness="1s")
class Reading:
    machine: str
    number: int
    celsius: float


hot = step("hot", Reading, Reading.celsius > 80)
heat = rule("heat").pattern(hot).emit(number=last(hot).number)


class Note(msgspec.Struct):
    machine: str = ""
    number: int = 0
    done: int = 0


noting = Process("noting", state=Note, services=[Service("notes")])


@noting.action(service="notes", writes="done", write=True)
async def note_down(number: int) -> int: ...


noting.flow(note_down)

app = App(
    "killed",
    rules=[heat],
    channels={Reading: os.environ.get("KILLED_TOPIC", "kafka://127.0.0.1/readings")},
    processes=[noting],
    services={"notes": os.environ.get("KILLED_NOTES", "http://127.0.0.1:9")},
    buckets=1,
    start="earliest",
)
app.on("heat").start(noting)
