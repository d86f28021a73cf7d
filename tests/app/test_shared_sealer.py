"""What a replica of an application does with what it holds, once it is sealed by whomever."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.pipeline.worlds import TYPED, pair
from unerring.app import App
from unerring.app.shared_sealer import LOOK_S, SharedSealer
from unerring.correlation import CorrelationConfig, Forget
from unerring.log import EventLog, MemoryStore, events_of
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

    def whole(self, stream: str, through_us: int) -> list[Sequence[Event]]:
        return [[event for event in self.events if event.stamp.time <= through_us]]


def machine_with(held: Sequence[Event], watermark: int, election: Any) -> Any:
    return SimpleNamespace(
        config=CorrelationConfig(),
        merge=Held(held),
        holding=True,
        election=election,
        intake=SimpleNamespace(
            streams={"Pairs": SimpleNamespace(watermark=watermark)}, consumed={"Pairs": 40}, maker=lambda name: "W"
        ),
    )


def forgotten(held: Sequence[Event], watermark: int, sealed: int) -> list[Forget]:
    """What a replica that does not lead lets go."""
    log = EventLog(MemoryStore())
    chain = log.create(RULE.output, 1)
    chain.seal(sealed, chain.read(chain.base.from_us, chain.base.from_us))
    offered: list[Forget] = []
    machine = machine_with(held, watermark, SimpleNamespace(leading=False))
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


def test_a_new_leader_seals_at_once() -> None:
    """Situations waited for its next turn, although the leader before it had died with its own."""
    log, election = EventLog(MemoryStore()), SimpleNamespace(leading=False)
    chain = log.create(RULE.output, 1)
    sealer = SharedSealer(log, APP, machine_with(events(380, 385, 570), 400, election), seal_s=3600.0)
    sealed = asyncio.Event()
    host: Any = SimpleNamespace(driver=SimpleNamespace(offer=lambda sender, message: sealed.set()))

    async def follow() -> None:
        following = asyncio.create_task(sealer.run(host))
        for _ in range(3):  # it looks, and leaves it to the one that leads
            await asyncio.sleep(2 * LOOK_S)
        assert chain.refresh() < 380
        election.leading = True
        await asyncio.wait_for(sealed.wait(), 60)
        assert [event.stamp.time for event in events_of(chain.read(0, chain.refresh()), RULE.output)] == [380, 385]
        following.cancel()
        await asyncio.wait([following])

    asyncio.run(follow())


_FIRST_SEGMENT = """
import sys
from tests.app.test_shared_sealer import RULE, events
from unerring.app.live_sealer import table_of_pieces
from unerring.app.shared_sealer import rehearse
from unerring.log import EventLog, seal_interval

chain = EventLog(sys.argv[1]).create(RULE.output, 1)
if sys.argv[2] == "rehearsed":
    rehearse()
before = set(sys.modules)
seal_interval(chain, table_of_pieces([tuple(events(380, 385))], RULE.output), 400, rule="")
print(len(set(sys.modules) - before))
"""


def test_the_first_segment_of_a_new_leader_loads_nothing(tmp_path: Path) -> None:
    """Its situations waited up to 1.2 s for modules that the leader before it had loaded long ago."""

    def loads(how: str) -> int:
        command = [sys.executable, "-c", _FIRST_SEGMENT, str(tmp_path / how), how]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert loads("rehearsed") == 0
    assert loads("not rehearsed") > 0
