"""Situations A and B of the correlation paper (section II): production rates, and how a facility's storage is divided.

Situation A: whenever the production rate of a part over the last ten minutes changes, say so. A window.
Situation B: whenever a production rate changes, divide the free storage among the parts anew and say what changed: at
    which rate each part is to be accepted. An operator of our own, on events A to F of the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from unerring import Operator, event_of, fn, rule, run_on, stream, trailing
from unerring.model import SECOND_US, Event

TEN_MINUTES = timedelta(minutes=10)


@stream(key=("facility", "part"))
class Produced:
    """Event A: construction of a part finished."""

    facility: str
    part: str
    produced: int = 1


@stream(key=("facility", "part"))
class Consumed:
    """Event B: construction with a part started."""

    facility: str
    part: str
    consumed: int = 1


@stream(key=("facility", "part"))
class Stored:
    """Event C: a part arrived from another facility."""

    facility: str
    part: str
    stored: int = 1


@stream(key=("facility", "part"))
class Delivered:
    """Event D: a part was shipped to another facility."""

    facility: str
    part: str
    delivered: int = 1


@stream(key="facility")
class StoragePrice:
    """Event E: the price of additional storage, in cents a square metre."""

    facility: str
    cents: int


ProductionRate = (
    rule("ProductionRate").on(Produced).window(trailing(TEN_MINUTES)).on_change("parts").emit(parts=fn.count())
)
"""Situation A."""

Need = (
    rule("Need")
    .on(Consumed, Stored)
    .window(trailing(TEN_MINUTES))
    .on_change()
    .emit(consumed=fn.count(Consumed.consumed), stored=fn.count(Stored.stored))
)
"""Event F: how much faster parts are needed here than they arrive."""


@stream(key="facility")
class Accept:
    """Situation B: accept this part for storage at this rate (places in ten minutes)."""

    facility: str
    part: str
    places: int


class StorageState(msgspec.Struct, array_like=True):
    """What a facility knows. Sorted by part when it is written, so that equal states are equal bytes."""

    cents: int = 0
    stock: dict[str, int] = {}
    rate: dict[str, int] = {}
    need: dict[str, tuple[int, int]] = {}
    accepted: dict[str, int] = {}


class Allocation(Operator):
    """Divides a facility's free storage among its parts, by how fast they are made and how badly they are needed."""

    def __init__(self, places: int, rent_below_cents: int, rented_places: int) -> None:
        self._places = places
        self._rent_below_cents = rent_below_cents
        self._rented_places = rented_places
        self._state = StorageState()

    def on_event(self, event: Event) -> Iterator[dict[str, object]]:
        state, payload = self._state, event.payload
        part = payload.get("part", "")
        match event.stream:
            case "Produced" | "Stored":
                state.stock[part] = state.stock.get(part, 0) + 1
            case "Consumed" | "Delivered":
                state.stock[part] = max(0, state.stock.get(part, 0) - 1)
            case "StoragePrice":
                state.cents = payload["cents"]
            case "Need":
                state.need[part] = (payload["consumed"], payload["stored"])
            case "ProductionRate":
                state.rate[part] = payload["parts"]
                yield from self._divide(payload["facility"])

    def _divide(self, facility: str) -> Iterator[dict[str, object]]:
        state = self._state
        rented = self._rented_places if 0 < state.cents < self._rent_below_cents else 0
        free = max(0, self._places + rented - sum(state.stock.values()))
        weights = {part: self._weight(part) for part in sorted(state.rate)}
        total = sum(weights.values())
        for part, weight in weights.items():
            places = free * weight // total if total else 0
            if state.accepted.get(part) != places:
                state.accepted[part] = places
                yield {"facility": facility, "part": part, "places": places}

    def _weight(self, part: str) -> int:
        consumed, stored = self._state.need.get(part, (0, 0))
        return self._state.rate[part] * (1 + consumed) * 100 // (1 + stored)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state, order="deterministic")

    def restore(self, state: bytes) -> None:
        self._state = msgspec.msgpack.decode(state, type=StorageState)


StorageDivision = (
    rule("StorageDivision")
    .on(Produced, Consumed, Stored, Delivered, StoragePrice, Need, ProductionRate)
    .key("facility")
    .operator(Allocation, Accept, places=10, rent_below_cents=500, rented_places=5)
)
"""Situation B."""


def a_day() -> list[Event]:
    """A few minutes of one facility."""
    seconds = iter(range(0, 10_000, 7))

    def at(record: object) -> Event:
        return event_of(record, next(seconds) * SECOND_US)

    return [
        at(StoragePrice("Stuttgart", 700)),
        at(Produced("Stuttgart", "gear")),
        at(Produced("Stuttgart", "axle")),
        at(Consumed("Stuttgart", "gear")),
        at(Stored("Stuttgart", "axle")),
        at(Produced("Stuttgart", "gear")),
        at(StoragePrice("Stuttgart", 300)),
        at(Delivered("Stuttgart", "axle")),
        at(Produced("Stuttgart", "gear")),
    ]


if __name__ == "__main__":
    for situation in run_on([ProductionRate, StorageDivision], a_day()):
        print(situation.stream, situation.stamp.time // SECOND_US, situation.payload)
