"""What a facility does about a shortage of storage and about a line that stands still.

Renting storage and ordering parts can be undone; a truck that left and a message that was sent cannot.
"""

from __future__ import annotations

import msgspec

from unerring import Process, Service

STORAGE = Service("storage")
PARTS = Service("parts")
TRUCKS = Service("trucks")
NOTES = Service("notes")


class Relief(msgspec.Struct):
    """From a `Shortage`: where, of what, and what was arranged."""

    facility: str = ""
    part: str = ""
    region: str = ""
    since: int = 0
    offer: int = 0
    contract: str = ""
    truck: str = ""


relieve = Process("relieve", state=Relief, services=(STORAGE, TRUCKS, NOTES))


@relieve.action(service="storage", writes="offer", time=10_000)
async def ask_price(facility: str) -> int:
    """What a place costs now, in cents."""


@relieve.condition
def affordable(offer: int) -> bool:
    return offer < 500


@relieve.action(service="storage", writes="contract", write=True, cost=3, time=20_000)
async def rent(facility: str, part: str) -> str:
    """More places for this part; the contract can be cancelled."""


@relieve.action(service="trucks", writes="truck", write=True, compensable=False, time=30_000)
async def book(facility: str, part: str) -> str:
    """A truck takes the parts away. Once booked it comes."""


@relieve.action(service="notes", write=True, compensable=False, time=10_000)
async def tell_management(facility: str, part: str, contract: str, truck: str) -> None: ...


relieve.flow(ask_price, relieve.xor(affordable, {True: [rent], False: [book]}), tell_management)


class Repair(msgspec.Struct):
    """From a `Standstill`."""

    facility: str = ""
    part: str = ""
    region: str = ""
    since: int = 0
    order: str = ""
    contract: str = ""
    truck: str = ""


repair = Process("repair", state=Repair, services=(STORAGE, PARTS, TRUCKS, NOTES))


@repair.action(service="parts", writes="order", write=True, cost=5, time=20_000)
async def order_parts(facility: str, part: str) -> str:
    """Spare parts; the order can be withdrawn."""


@repair.action(service="storage", writes="contract", write=True, cost=3, time=20_000)
async def make_room(facility: str, part: str) -> str:
    """Places for what the line's suppliers go on sending; can be cancelled."""


@repair.action(service="trucks", writes="truck", write=True, compensable=False, time=30_000)
async def send_fitters(facility: str, order: str) -> str: ...


@repair.action(service="notes", write=True, compensable=False, time=10_000)
async def tell_customers(facility: str, order: str, contract: str, truck: str) -> None: ...


repair.flow(repair.both([order_parts], [make_room]), send_fitters, tell_customers)

PROCESSES = (relieve, repair)
