"""The events of the speed workloads: 20 million, drawn column by column from one seed, and prefixes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unerring.matching import Row
from unerring.model import Event, Stamp

EVENTS = 20_000_000
TYPES = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Columns:
    """Event time in microseconds, key, type as a code into TYPES, value."""

    time_us: Any
    key: Any
    code: Any
    v: Any

    def part(self, first: int, last: int) -> Columns:
        return Columns(self.time_us[first:last], self.key[first:last], self.code[first:last], self.v[first:last])

    def head(self, count: int) -> Columns:
        return self.part(0, count)


def columns(events: int = EVENTS, keys: int = 1000) -> Columns:
    """All of them. A prefix is `columns().head(n)`: drawing fewer would give other events."""
    random = np.random.default_rng(7)
    time_us = np.cumsum(random.integers(1, 5, events)) * 1000
    key = random.integers(0, keys, events)
    names = random.choice(list(TYPES), events)
    code = np.searchsorted(np.array(TYPES), names).astype(np.int8)
    return Columns(time_us, key, code, random.random(events))


def rows(drawn: Columns) -> list[Row]:
    """The events as merged rows of the stream Typed."""
    return [
        Row(0, Event("Typed", Stamp(time), (key,), {"key": key, "type": TYPES[code], "v": v}))
        for time, key, code, v in zip(
            drawn.time_us.tolist(), drawn.key.tolist(), drawn.code.tolist(), drawn.v.tolist(), strict=True
        )
    ]
