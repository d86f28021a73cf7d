"""A process that was drawn: orders of which something is done, waits, is under way, or was refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from tests.app.sum_app import Total
from tests.app.tree_app import Reading
from unerring import App, Process, Refused


class Order(msgspec.Struct):
    item: str = ""


async def reserve_stock(item: str) -> None:
    if item == "nothing":
        raise Refused("there is none", for_good=True)


async def check_credit(item: str) -> None:
    if item == "gold":
        await asyncio.Event().wait()  # as long as the test looks


async def ship() -> None: ...


order = Process.from_bpmn(
    Path(__file__).parent / "drawn.bpmn",
    state=Order,
    handlers={"reserve": reserve_stock, "Check credit": check_credit, "ship": ship},
)
app = App("drawn", rules=[Total], streams=[Reading], processes=[order])  # an app has a rule; it is not run here
