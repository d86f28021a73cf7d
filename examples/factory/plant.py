"""A plant that makes events: facilities in a hierarchy of suppliers, with seasons, bursts and breakdowns, from a seed.

A facility makes one kind of part out of its suppliers' parts. Its pace follows a season; now and then there is a burst
of orders, or its line breaks down and everything behind it runs dry. What it made is shipped to the facility above.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from factory.streams import Consumed, Delivered, Produced, StoragePrice, Stored
from unerring import Event, event_of
from unerring.model import SECOND_US

START_US = 1_767_225_600 * SECOND_US
"""The first of January 2026, when this plant opened."""

HOUR_US = 3600 * SECOND_US
REGIONS = ("North", "South")


class Facility(NamedTuple):
    """One place: what it makes, from whose parts, and for whom."""

    name: str
    region: str
    part: str
    suppliers: tuple[str, ...]
    customer: str


def facilities(levels: int = 3, suppliers: int = 2) -> list[Facility]:
    """A tree: one facility assembles, each one has suppliers, down to those that make their parts from raw material."""
    found: list[Facility] = []

    def add(name: str, region: str, depth: int, customer: str) -> None:
        below = [f"{name}.{number}" for number in range(1, suppliers + 1)] if depth < levels else []
        found.append(Facility(name, region, f"part of {name}", tuple(below), customer))
        for number, supplier in enumerate(below):
            add(supplier, region if depth > 1 else REGIONS[number % len(REGIONS)], depth + 1, name)

    add("F", REGIONS[0], 1, "")
    return found


class Plant:
    """`for event in Plant(seed=1).events(10_000)`: one seed, one sequence of events, by their stamps."""

    def __init__(self, seed: int, levels: int = 3, suppliers: int = 2, pace_s: float = 20.0) -> None:
        self.facilities = {facility.name: facility for facility in facilities(levels, suppliers)}
        self._random = Random(seed)
        self._pace_s = pace_s
        self._stock = {(f.name, supplier): 2 for f in self.facilities.values() for supplier in f.suppliers}
        self._down_until = dict.fromkeys(self.facilities, 0)
        self._burst_until = dict.fromkeys(self.facilities, 0)
        self._unshipped: dict[str, int] = {}
        self._turn = 0
        self._due: list[tuple[int, int, str, str]] = []
        for name in self.facilities:
            self._plan(START_US, name, "make")
            self._plan(START_US, name, "price")

    def events(self, count: int) -> Iterator[Event]:
        """The first `count` events."""
        made = 0
        last: dict[str, int] = {}
        while made < count:
            now, _, name, what = heapq.heappop(self._due)
            for record in self._happens(now, self.facilities[name], what):
                # Times of one stream rise strictly, as those of one producer's clock do.
                stream = type(record).__name__
                last[stream] = max(now, last.get(stream, 0) + 1)
                yield event_of(record, last[stream])
                made += 1
                if made == count:
                    return

    def _plan(self, now: int, name: str, what: str, more_us: int = 0) -> None:
        self._turn += 1
        at = now + more_us + int(self._random.expovariate(1.0) * self._wait_us(now, name, what))
        heapq.heappush(self._due, (at, self._turn, name, what))

    def _wait_us(self, now: int, name: str, what: str) -> float:
        if what == "price":
            return HOUR_US / 4
        if what != "make":
            return 60 * SECOND_US
        season = 1.0 + 0.5 * math.sin(2 * math.pi * ((now - START_US) % (8 * HOUR_US)) / (8 * HOUR_US))
        hurry = 5.0 if now < self._burst_until[name] else 1.0
        return self._pace_s * SECOND_US / (season * hurry)

    def _happens(self, now: int, at: Facility, what: str) -> Iterator[object]:
        if what == "price":
            self._plan(now, at.name, "price")
            yield StoragePrice(at.region, at.name, self._random.randrange(200, 900))
        elif what == "make":
            self._plan(now, at.name, "make")
            yield from self._make(now, at)
        else:
            supplier = self.facilities[what]
            self._stock[at.name, what] += 1
            yield Stored(at.region, at.name, supplier.part)

    def _make(self, now: int, at: Facility) -> Iterator[object]:
        luck = self._random.random()
        if now < self._down_until[at.name]:
            return
        if luck < 0.002:
            self._down_until[at.name] = now + int(self._random.uniform(0.2, 0.8) * HOUR_US)
            return
        if luck > 0.995:
            self._burst_until[at.name] = now + int(self._random.uniform(0.1, 0.4) * HOUR_US)
        if any(self._stock[at.name, supplier] == 0 for supplier in at.suppliers):
            return
        for supplier in at.suppliers:
            self._stock[at.name, supplier] -= 1
            yield Consumed(at.region, at.name, self.facilities[supplier].part)
        yield Produced(at.region, at.name, at.part)
        if self._random.random() < 0.9:
            yield from self._ship(now, at, 1 + self._unshipped.pop(at.name, 0))
        else:
            self._unshipped[at.name] = self._unshipped.get(at.name, 0) + 1

    def _ship(self, now: int, at: Facility, parts: int) -> Iterator[object]:
        """A truck takes what stands there; the last facility's product leaves the plant."""
        for _ in range(parts):
            yield Delivered(at.region, at.name, at.part)
            if at.customer:
                self._plan(now, at.customer, at.name, more_us=60 * SECOND_US)
