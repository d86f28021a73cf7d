"""What a replica of an application does with what it holds, once it is sealed by whomever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.pipeline.worlds import TYPED, pair
from unerring.app import App
from unerring.app.shared_sealer import SharedSealer
from unerring.correlation import CorrelationConfig, Forget
from unerring.log import EventLog, MemoryStore
from unerring.model import Event, Stamp

RULE = pair("Pairs", TYPED, "A", "B", 40)
APP = App("trial", rules=[RULE], streams=[TYPED], buckets=1)


class Held:
    """What waits of one stream."""

    streams = ("Pairs",)

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events

    def lanes(self, stream: str) -> list[str]:
        return [stream]

    def size(self, lane: str) -> int:
        return len(self.events)

    def waiting(self, lane: str) -> list[Sequence[Event]]:
        return [self.events]


def forgotten(held: Sequence[Event], watermark: int, sealed: int) -> list[Forget]:
    """What a replica that does not lead lets go."""
    log = EventLog(MemoryStore())
    chain = log.create(RULE.output, 1)
    chain.seal(sealed, chain.read(chain.base.from_us, chain.base.from_us))
    offered: list[Forget] = []
    machine: Any = SimpleNamespace(
        config=CorrelationConfig(),
        merge=Held(held),
        holding=True,
        election=SimpleNamespace(leading=False),
        intake=SimpleNamespace(
            streams={"Pairs": SimpleNamespace(watermark=watermark)}, consumed={"Pairs": 40}, maker=lambda name: "W"
        ),
    )
    host: Any = SimpleNamespace(driver=SimpleNamespace(offer=lambda sender, message: offered.append(message)))
    sealer = SharedSealer(log, APP, machine, 0.1)

    async def twice() -> None:
        await sealer._seal("Pairs", host)
        offered.clear()
        await sealer._seal("Pairs", host)

    asyncio.run(twice())
    return offered


def events(*times: int) -> list[Event]:
    return [Event("Pairs", Stamp(time, 0), (1,), {"key": 1, "began": 0, "type": "B"}) for time in times]


def test_what_is_sealed_is_let_go() -> None:
    assert forgotten(events(380, 385), watermark=600, sealed=564) == [Forget("Pairs", 42, "W")]


def test_one_that_is_behind_what_is_sealed_lets_go_too() -> None:
    """Its room was full of what others had sealed, and it got nothing more, for ever. Found by the scenario `whole`."""
    assert forgotten(events(380, 385, 570), watermark=389, sealed=564) == [Forget("Pairs", 42, "W")]


def test_what_is_not_sealed_is_kept() -> None:
    assert forgotten(events(570), watermark=600, sealed=564) == []
