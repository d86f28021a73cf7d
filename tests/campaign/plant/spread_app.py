"""An application whose channel and service are on another host. Their addresses come from the environment."""

from __future__ import annotations

import os

import msgspec

from unerring import App, Process, Service, fn, last, rule, step, stream, trailing


@stream(key="machine")
class Warm:
    machine: int
    number: int
    hot: bool


warm = step("warm", Warm)
heat = rule("heat").pattern(warm).emit(number=last(warm).number)
hot = step("hot", Warm, Warm.hot)
alarm = rule("alarm").pattern(hot).emit(number=last(hot).number)
tens = rule("tens").on(heat).window(trailing(1_000_000)).on_change("n").emit(n=fn.count())


class Note(msgspec.Struct):
    machine: int = 0
    number: int = 0
    done: int = 0


noting = Process("noting", state=Note, services=[Service("notes")])


@noting.action(service="notes", writes="done", write=True)
async def note_down(number: int) -> int: ...


noting.flow(note_down)

app = App(
    "spread",
    rules=[heat, tens, alarm],
    channels={Warm: os.environ.get("SPREAD_CHANNEL", "tcp://127.0.0.1:9")},
    processes=[noting],
    services={"notes": os.environ.get("SPREAD_NOTES", "http://127.0.0.1:9")},
    buckets=1,
    start="earliest",
)
app.on("alarm").start(noting)

watched = App("spread", rules=[heat, tens, alarm], streams=[Warm], buckets=1)
"""Without its actions, for an audit on a host that has no process node: what they did, the service tells."""
