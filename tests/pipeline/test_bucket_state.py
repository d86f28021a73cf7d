"""A bucket's state in Spark's store: what a micro-batch writes, and that nothing of it matters to the situations."""

from __future__ import annotations

import copy
import random
from typing import Any

import pandas as pd
import pytest

from unerring.matching.oracle import run
from unerring.model import Event, Stamp, WorldError
from unerring.pipeline import bucket_state
from unerring.pipeline.bucket_state import Bucket
from unerring.pipeline.carrying import ORDINAL, TIME
from unerring.pipeline.streamed import Reading

from .worlds import TYPED, missing, pair, random_events

SECOND_US = 1_000_000
IDLE = 20_000


class Store:
    """As Spark's: named values and maps, a copy for each attempt of a micro-batch, and the bytes that were put."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Any, tuple[Any, ...]]] = {}
        self.timers: set[int] = set()
        self.written = 0

    def getValueState(self, name: str, schema: str) -> Value:
        return Value(self, name)

    def getMapState(self, name: str, key: str, value: str) -> Value:
        return Value(self, name)

    def registerTimer(self, at_ms: int) -> None:
        self.timers.add(at_ms)


class Value:
    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def _held(self) -> dict[Any, tuple[Any, ...]]:
        return self._store.values.setdefault(self._name, {})

    def get(self) -> tuple[Any, ...] | None:
        return self._held.get(())

    def update(self, value: tuple[Any, ...]) -> None:
        self.updateValue((), value)

    def getValue(self, key: Any) -> tuple[Any, ...] | None:
        return self._held.get(key)

    def updateValue(self, key: Any, value: tuple[Any, ...]) -> None:
        self._store.written += len(value[0])
        self._held[key] = value

    def removeKey(self, key: Any) -> None:
        del self._held[key]

    def clear(self) -> None:
        self._held.clear()


class Query:
    """Micro-batches of one bucket."""

    def __init__(self, plan: Any) -> None:
        self.reading = Reading(plan, ("key", "type", "v"), ("key",), "time", buckets=1)
        self.store = Store()
        self.watermark_ms = 0
        self.found: list[int] = []

    def batch(self, events: list[Event], watermark_us: int, attempts: int = 1) -> int:
        """Run one; its failed attempts leave nothing but what workers have at hand. The bytes that it wrote."""
        self.watermark_ms = watermark_us // 1000
        for _ in range(attempts):
            store, found = copy.deepcopy(self.store), []
            store.written = 0
            bucket = Bucket(self.reading)
            bucket.init(store)  # type: ignore[arg-type]
            if events:
                found += list(bucket.handleInputRows((0,), iter([carried(events)]), self))
            due = {at_ms for at_ms in store.timers if at_ms <= self.watermark_ms}
            store.timers -= due
            for _ in due:
                found += list(bucket.handleExpiredTimer((0,), self, None))
        self.store = store
        self.found += [int(time) for frame in found for time in frame["v0"]]
        return store.written

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark_ms


def carried(events: list[Event]) -> pd.DataFrame:
    columns = {TIME: [event.stamp.time for event in events], ORDINAL: [-1] * len(events)}
    for number, name in enumerate(("key", "type", "v")):
        columns |= {f"v{number}": [event.payload[name] for event in events], f"n{number}": [False] * len(events)}
    return pd.DataFrame(columns)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are written also of small states, and chunks of rows are soon put together."""
    monkeypatch.setattr("unerring.pipeline.states.SMALL_BYTES", 1)
    monkeypatch.setattr(bucket_state, "SMALL_BYTES", 1)
    monkeypatch.setattr(bucket_state, "CHUNKS_MAX", 3)
    bucket_state._at_hand.clear()


@pytest.mark.parametrize("seed", range(12))
def test_pieces_retries_and_lost_workers_change_nothing(seed: int) -> None:
    drawn = random.Random(seed)
    make = drawn.choice([pair, missing])
    plan = make("Found", TYPED, "A", "B", 40 * 20_000)
    events = [Event("Typed", Stamp(e.stamp.time * 20_000), e.key, e.payload) for e in random_events(seed, 150, 6)]
    late_us = 10 * 20_000
    came = sorted(events, key=lambda event: event.stamp.time + drawn.randrange(late_us))
    query, newest_us = Query(plan), 0
    while came:
        taken, came = came[: (count := drawn.randrange(0, 12))], came[count:]
        watermark_us = newest_us - late_us
        query.batch(taken, max(watermark_us, query.watermark_ms * 1000), attempts=drawn.choice([1, 1, 2]))
        newest_us = max([newest_us, *(event.stamp.time for event in taken)])
        if drawn.random() < 0.3:
            bucket_state._at_hand.clear()
    end_us = newest_us + 60 * SECOND_US
    query.batch([], end_us)
    wanted = run(plan, events, {"Typed": 0}, end_us)
    assert query.found == [event.stamp.time for event in wanted] != []
    assert not query.store.values["held"]


def test_a_micro_batch_writes_what_changed() -> None:
    plan = pair("Found", TYPED, "A", "B", 1_000_000 * SECOND_US)
    query = Query(plan)
    at_us = SECOND_US
    first = [event(at_us + key, key, "A") for key in range(IDLE)]
    query.batch(first, 0)
    whole = query.batch([], at_us + SECOND_US)
    costs = []
    for n in range(2, 40):
        changed = [event(at_us + n * SECOND_US + key, key, "A") for key in range(10)]
        costs.append(query.batch(changed, at_us + (n - 1) * SECOND_US))
    *others, largest = sorted(costs)
    assert others[-1] * 100 < whole
    assert largest < 1.1 * whole  # the changes had become more than what they changed
    assert len(query.store.values["held"]) == 2
    bucket_state._at_hand.clear()
    query.batch([event(at_us + 41 * SECOND_US, 19_999, "B")], at_us + 40 * SECOND_US)
    query.batch([], at_us + 42 * SECOND_US)
    assert query.found == [at_us + 41 * SECOND_US]


def event(at_us: int, key: int, kind: str) -> Event:
    return Event("Typed", Stamp(at_us), (key,), {"key": key, "type": kind, "v": 0.5})


def test_a_damaged_piece_is_noticed() -> None:
    query = Query(pair("Found", TYPED, "A", "B", 60 * SECOND_US))
    query.batch([event(SECOND_US, 1, "A")], 0)
    query.batch([], 2 * SECOND_US)
    bucket_state._at_hand.clear()
    [state] = query.store.values["trail"][(0,)]
    query.store.values["trail"][(0,)] = (state[:-1] + bytes([state[-1] ^ 1]),)
    with pytest.raises(WorldError, match="the state in the query's checkpoint"):
        query.batch([], 3 * SECOND_US)
