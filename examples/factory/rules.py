"""Situations A and B of the correlation paper (section II), at every facility and at every level above it.

Situation A: whenever the production rate of a part over the last ten minutes changes, say so. A window.
Situation B: whenever a production rate changes, divide the free storage among the parts anew and say what changed: at
    which rate each part is to be accepted. An operator of our own, on events A to F of the paper.

Two more situations are what a facility acts on: a part that finds no place for five minutes, and a line that stands
still.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec

from factory.streams import Consumed, Delivered, Produced, StoragePrice, Stored
from unerring import Event, Operator, columns, fn, last, rule, step, stream, time_of, trailing

TEN_MINUTES = timedelta(minutes=10)
FIVE_MINUTES = timedelta(minutes=5)

ProductionRate = (
    rule("ProductionRate").on(Produced).window(trailing(TEN_MINUTES)).on_change("parts").emit(parts=fn.count())
)
"""Situation A of a facility."""

RegionRate = (
    rule("RegionRate")
    .on(Produced)
    .key("region", "part")
    .window(trailing(TEN_MINUTES))
    .on_change("parts")
    .emit(parts=fn.count())
)
"""Situation A of a region."""

Need = (
    rule("Need")
    .on(Consumed, Stored)
    .window(trailing(TEN_MINUTES))
    .on_change()
    .emit(consumed=fn.count(Consumed.consumed), stored=fn.count(Stored.stored))
)
"""Event F: how much faster parts are needed here than they arrive."""


@stream(key=("facility", "part"))
class Accept:
    """Situation B: accept this part for storage at this rate (places in ten minutes)."""

    facility: str
    part: str
    region: str
    places: int


class StorageState(msgspec.Struct, array_like=True):
    """What a facility knows. Sorted by part when it is written, so that equal states are equal bytes."""

    region: str = ""
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
        state.region = payload.get("region") or state.region
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
                yield {"facility": facility, "part": part, "region": state.region, "places": places}

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
"""Situation B of a facility."""


@stream(key="region")
class RegionAccept:
    """Situation B of a region: so many places its facilities have for a part."""

    region: str
    part: str
    places: int


class RegionState(msgspec.Struct, array_like=True):
    """Places by part and facility."""

    places: dict[str, dict[str, int]] = {}


class RegionAllocation(Operator):
    """Adds up what the facilities of a region accept, and says when a part's sum changed."""

    def __init__(self) -> None:
        self._state = RegionState()

    def on_event(self, event: Event) -> Iterator[dict[str, object]]:
        payload = event.payload
        part = payload["part"]
        here = self._state.places.setdefault(part, {})
        before = sum(here.values())
        here[payload["facility"]] = payload["places"]
        if sum(here.values()) != before:
            yield {"region": payload["region"], "part": part, "places": sum(here.values())}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state, order="deterministic")

    def restore(self, state: bytes) -> None:
        self._state = msgspec.msgpack.decode(state, type=RegionState)


RegionDivision = rule("RegionDivision").on(StorageDivision).key("region").operator(RegionAllocation, RegionAccept)
"""Situation B of a region."""

_refused = step("refused", StorageDivision, columns(StorageDivision).places == 0)
_accepted = step("accepted", StorageDivision, columns(StorageDivision).places > 0)

Shortage = (
    rule("Shortage")
    .pattern(_refused.not_then(_accepted, within=FIVE_MINUTES))
    .emit(region=last(_refused).region, since=time_of(last(_refused)))
)
"""A part has found no place for five minutes: somebody has to do something."""

_made = step("made", Produced)
_another = step("another", Produced)

Standstill = (
    rule("Standstill")
    .pattern(_made.not_then(_another, within=TEN_MINUTES))
    .emit(region=last(_made).region, since=time_of(last(_made)))
)
"""A line that made parts has made none for ten minutes."""

RULES = (ProductionRate, RegionRate, Need, StorageDivision, RegionDivision, Shortage, Standstill)
