"""A replica that is played alone: what it is told, and all that it answers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from tests.correlation.table import schema
from unerring.correlation import (
    MEMBERSHIP,
    Ack,
    Batch,
    CorrelationConfig,
    Fed,
    NodeSpec,
    Replica,
    Role,
    Topology,
)
from unerring.correlation.messages import (
    Enter,
    Entered,
)
from unerring.correlation.record import Member, Record, Standing
from unerring.correlation.replica import TICK
from unerring.matching import Quarantined, Row
from unerring.model import (
    BEFORE_ALL,
    Effects,
    Event,
    Persist,
    Send,
    Stamp,
)

CONFIG = CorrelationConfig()
GONE, JOINING, CAUGHT_UP = Standing.GONE, Standing.JOINING, Standing.CAUGHT_UP
TICK_US = CONFIG.tick_us


class Echo:
    """Says again what it is fed, refuses negative numbers, and counts: that is its state."""

    def __init__(self) -> None:
        self.count = 0
        self.through: list[int] = []

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        events = [row.event for row in rows]
        self.count += len(events)
        self.through.append(through)
        wrong = [one for one in events if one.payload["v"] < 0]
        said = [Event("s", one.stamp, (), one.payload) for one in events if one not in wrong]
        return Fed({"s": said}, [Quarantined("R", one, "negative") for one in wrong])

    def snapshot(self) -> bytes:
        return str(self.count).encode()

    def restore(self, state: bytes) -> None:
        self.count = int(state)


def topology(f: int = 1) -> Topology:
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a",), f=1),
        NodeSpec("N", Role.CORRELATION, ("a",), ("s",), f),
        NodeSpec("app", Role.APPLICATION, ("s",), f=1),
    )
    return Topology(nodes, tuple(schema(name) for name in "as"))


def event(time: int, v: int | None = None, stream: str = "a") -> Event:
    return Event(stream, Stamp(time, 0), (), {"v": time if v is None else v})


def stamp(count: int) -> Stamp:
    return Stamp(count, 0) if count else BEFORE_ALL


class One:
    """N/0, which has entered; the events of its streams have the times 1, 2, 3..."""

    def __init__(
        self,
        layout: Topology | None = None,
        engine: Any = Echo,
        disk: dict[str, bytes] | None = None,
        name: str = "N/0",
        **bounds: int,
    ) -> None:
        self.layout = layout or topology()
        self.disk = disk
        self.config = CorrelationConfig(**{"process_pause_us": 1_000, **bounds})
        records = None if disk is None else dict(disk)
        self.machine = Replica(name, self.layout, self.config, engine, Random(1), records)
        self.token = ""
        self.begun = self.keep(self.machine.start(0))
        for effect in self.begun:
            if isinstance(effect, Send) and isinstance(effect.message, Enter):
                self.token = effect.message.token

    def keep(self, effects: Effects) -> Effects:
        for effect in effects:
            if isinstance(effect, Persist) and self.disk is not None:
                self.disk.update(effect.puts)
                for key in effect.deletes:
                    del self.disk[key]
        return effects

    def enter(self, record: Record | None = None, founding: bool = True, incarnation: int = 1) -> Effects:
        record = record or self.layout.founding()
        return self.hear(MEMBERSHIP, Entered(self.token, incarnation, founding, record))

    def hear(self, sender: str, message: object, now: int = 0) -> Effects:
        return self.keep(self.machine.handle(sender, message, now))

    def tick(self, now: int, name: str = TICK) -> Effects:
        return self.keep(self.machine.timer(name, now))

    def batch(self, first: int, last: int, now: int = 0, sender: str = "src/0", **fields: Any) -> Effects:
        """The events from one number to another."""
        events = tuple(event(number) for number in range(first, last + 1))
        made = Batch("a", stamp(first - 1), first - 1, events, max(first - 1, last))
        return self.hear(sender, msgspec.structs.replace(made, **fields), now)

    def acked(self, count: int, now: int = 0) -> list[Effects]:
        ack = Ack("s", stamp(count), count, 1, 999)
        return [self.hear(name, ack, now) for name in ("app/0", "app/1")]

    @property
    def made(self) -> int:
        return self.machine.outgoing.queues["s"].count


def member(**bounds: int) -> One:
    one = One(**bounds)
    one.enter()
    return one


def to(effects: Effects, kind: type) -> list[tuple[str, Any]]:
    return [(e.to, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def kinds(effects: Effects) -> list[str]:
    """Each effect by what it is, a message by its own name."""
    return [type(e.message if isinstance(e, Send) else e).__name__ for e in effects]


def record_of(version: int, **members: Member) -> Record:
    named = {f"{name[:-1]}/{name[-1]}": one for name, one in members.items()}
    return Record(version, {**topology().founding().members, **named})
