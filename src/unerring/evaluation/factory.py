"""The factory of the correlation paper (section II, figure 1) at the size of its section VI: 70 correlation nodes.

35 facilities in four tiers make one product. At each of them a source tells what happens to parts (events A to E), a
rates node correlates situation A (a part's production rate changed) and event F (how badly a part is needed), and a
storage node correlates situation B (at which rate a part is to be accepted for storage), from all of these and from the
rates of every facility upstream. The global management takes all situations B.

    primary i -> rates i   -> rate i -> storage i, and storage of every facility downstream
              -> storage i -> accept i -> management
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Final

import msgspec

from unerring.correlation import Fed, NodeSpec, Role, Topology
from unerring.matching import Row
from unerring.model import Column, ColumnType, Event, Stamp, StreamSchema

TIERS: Final = (1, 4, 10, 20)
"""Facilities in each tier; the first assembles the product."""
PARTS: Final = 18
"""Types of parts at a facility."""
STEPS: Final = 50
EVENTS_PER_STEP: Final = 27
"""Events of one facility in one step: 35 * 50 * 27 = 47 250 primary events in all."""
WINDOW_STEPS: Final = 5
"""A production rate is taken over so many steps."""
PLACES: Final = 52
"""A facility's storage."""

PRODUCED, CONSUMED, STORED, DELIVERED, PRICE, RATE, NEED = range(7)
"""Events A, B, C, D, E; situation A; event F."""
_OFTEN: Final = (30, 22, 22, 22, 4)


@lru_cache
def downstream(tiers: tuple[int, ...] = TIERS) -> tuple[tuple[int, ...], ...]:
    """For each facility, those on the way from it to the product, itself first."""
    ways: list[tuple[int, ...]] = [(0,)]
    before: list[int] = [0]
    for size in tiers[1:]:
        tier = list(range(len(ways), len(ways) + size))
        for place, facility in enumerate(tier):
            ways.append((facility, *ways[before[place * len(before) // size]]))
        before = tier
    return tuple(ways)


def _schema(name: str) -> StreamSchema:
    columns = tuple(Column(column, ColumnType.INT) for column in ("kind", "part", "v"))
    return StreamSchema(name, columns)


@lru_cache
def factory(f: int, tiers: tuple[int, ...] = TIERS) -> Topology:
    """Every correlation node with f additional replicas."""
    ways = downstream(tiers)
    facilities = range(len(ways))
    upstream: list[list[int]] = [[] for _ in facilities]
    for facility, way in enumerate(ways):
        for other in way:
            upstream[other].append(facility)
    nodes = [NodeSpec(f"source{i}", Role.SOURCE, outputs=(f"primary{i}",)) for i in facilities]
    nodes += [
        NodeSpec(f"rates{i}", Role.CORRELATION, (f"primary{i}",), (f"rate{i}", f"need{i}"), f) for i in facilities
    ]
    for i in facilities:
        inputs = (f"primary{i}", f"need{i}", *(f"rate{j}" for j in upstream[i]))
        nodes.append(NodeSpec(f"storage{i}", Role.CORRELATION, inputs, (f"accept{i}",), f))
    nodes.append(NodeSpec("management", Role.APPLICATION, tuple(f"accept{i}" for i in facilities)))
    names = [f"{kind}{i}" for kind in ("primary", "rate", "need", "accept") for i in facilities]
    return Topology(tuple(nodes), tuple(_schema(name) for name in names))


def primary_events(
    seed: int, steps: int = STEPS, tiers: tuple[int, ...] = TIERS
) -> list[list[list[tuple[int, int, int]]]]:
    """For each step and facility, (kind, part, value). The same seed gives the same factory."""
    draw = Random(f"factory {seed}")
    kinds = [kind for kind, often in enumerate(_OFTEN) for _ in range(often)]
    choice, rand = draw.choice, draw.random

    def one(slow: float) -> tuple[int, int, int]:
        # Some parts are made and used more often than others, and machines of a facility speed up and slow down.
        return choice(kinds), int(PARTS * rand() ** slow), int(100 * rand())

    speeds = [[1.0 + draw.random() for _ in range(sum(tiers))] for _ in range(1 + steps // 10)]
    return [
        [[one(speeds[step // 10][facility]) for _ in range(EVENTS_PER_STEP)] for facility in range(sum(tiers))]
        for step in range(steps)
    ]


def events_of(stream: str, time: int, drawn: Sequence[tuple[int, int, int]]) -> list[Event]:
    """One facility's events of one step: all of one time."""
    return [
        Event(stream, Stamp(time, n), (), {"kind": kind, "part": part, "v": v})
        for n, (kind, part, v) in enumerate(drawn)
    ]


class _Rates(msgspec.Struct, array_like=True):
    recent: list[list[int]]
    """For each of the last steps, how many of each part were produced."""
    produced: list[int]
    reported: list[int]
    consumed: list[int]
    stored: list[int]
    needed: list[int]


class Rates:
    """Situation A and event F of one facility: emitted whenever they change, part by part."""

    def __init__(self, facility: int) -> None:
        self.rate, self.need = f"rate{facility}", f"need{facility}"
        self.state = _Rates([], *([0] * PARTS for _ in range(5)))

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        outputs: dict[str, list[Event]] = {self.rate: [], self.need: []}
        begin, end = 0, len(rows)
        while begin < end:
            time = rows[begin].event.stamp.time
            stop = begin
            while stop < end and rows[stop].event.stamp.time == time:
                stop += 1
            self._step(time, rows[begin:stop], outputs)
            begin = stop
        return Fed(outputs)

    def _step(self, time: int, rows: Sequence[Row], outputs: dict[str, list[Event]]) -> None:
        state = self.state
        now = [0] * PARTS
        for row in rows:
            payload = row.event.payload
            kind, part = payload["kind"], payload["part"]
            if kind == PRODUCED:
                now[part] += 1
            elif kind == CONSUMED:
                state.consumed[part] += 1
            elif kind == STORED:
                state.stored[part] += 1
        state.recent.append(now)
        gone = state.recent.pop(0) if len(state.recent) > WINDOW_STEPS else None
        rates, needs = outputs[self.rate], outputs[self.need]
        first_rate, first_need = len(rates), len(needs)
        for part in range(PARTS):
            state.produced[part] += now[part] - (gone[part] if gone else 0)
            if state.produced[part] != state.reported[part]:
                state.reported[part] = state.produced[part]
                rates.append(_event(self.rate, time, len(rates) - first_rate, RATE, part, state.reported[part]))
            need = 100 * (1 + state.consumed[part]) // (1 + state.stored[part])
            if need != state.needed[part]:
                state.needed[part] = need
                needs.append(_event(self.need, time, len(needs) - first_need, NEED, part, need))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=_Rates)


class _Storage(msgspec.Struct, array_like=True):
    stock: list[int]
    rates: dict[int, list[int]]
    """By the rank of the stream that reported them."""
    need: list[int]
    price: int
    accepted: list[int]


class Storage:
    """Situation B of one facility: whenever a rate changes, here or upstream, divide the free places among parts."""

    def __init__(self, facility: int) -> None:
        self.accept = f"accept{facility}"
        self.state = _Storage([0] * PARTS, {}, [100] * PARTS, 0, [0] * PARTS)

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        made: list[Event] = []
        state = self.state
        stock, need, rates = state.stock, state.need, state.rates
        changed, time = False, 0
        for rank, event in rows:
            if event.stamp.time != time:
                if changed:
                    self._divide(time, made)
                changed, time = False, event.stamp.time
            payload = event.payload
            kind, part = payload["kind"], payload["part"]
            if kind == RATE:
                rates.setdefault(rank, [0] * PARTS)[part] = payload["v"]
                changed = True
            elif kind == NEED:
                need[part] = payload["v"]
            elif kind in (PRODUCED, STORED):
                stock[part] = min(stock[part] + 1, PLACES // PARTS)
            elif kind == PRICE:
                state.price = payload["v"]
            else:
                stock[part] = max(0, stock[part] - 1)
        if changed:
            self._divide(time, made)
        return Fed({self.accept: made})

    def _divide(self, time: int, made: list[Event]) -> None:
        state = self.state
        rented = PLACES // 4 if state.price < 30 else 0
        free = PLACES + rented - sum(state.stock)
        weights = [state.need[part] * (1 + sum(rate[part] for rate in state.rates.values())) for part in range(PARTS)]
        total = sum(weights)
        ordinal = 0
        for part in range(PARTS):
            places = free * weights[part] // total
            if places != state.accepted[part]:
                state.accepted[part] = places
                made.append(_event(self.accept, time, ordinal, RATE, part, places))
                ordinal += 1

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        self.state = msgspec.msgpack.decode(state, type=_Storage)


def _event(stream: str, time: int, ordinal: int, kind: int, part: int, value: int) -> Event:
    return Event(stream, Stamp(time, ordinal), (), {"kind": kind, "part": part, "v": value})


def engine_of(node: str) -> Rates | Storage:
    """A fresh engine for a correlation node."""
    return Rates(int(node[5:])) if node.startswith("rates") else Storage(int(node[7:]))
