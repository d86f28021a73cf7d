"""A log with situations of every type, and the targets that they are delivered into: fake and real, by one port."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

import pyarrow as pa

from unerring.log import Chain, EventLog, MemoryStore, Store, with_origin
from unerring.model import StreamSchema, schema_of, stream
from unerring.sinks import Delivery, DeliveryConfig, SinkRecord, Target, judge_target
from unerring.sinks.memory import MemoryTable, MemoryTarget


@stream(key="machine", name="overheating")
class Overheating:
    machine: str
    celsius: float
    count: int
    sure: bool
    seen: datetime
    note: str | None = None
    raw: bytes | None = None
    peak: float | None = None


SCHEMA: StreamSchema = schema_of(Overheating)
STORE = MemoryStore()
"""Where targets without a memory have their position."""
BEGIN_US = 1_700_000_000_000_000
TEXTS = ["m1", "", 'a "quoted" one', "two\nlines", "comma, and ; and \\", "ünïcödé ☃", "NULL", "\\N", "\\."]
FLOATS = [1.5, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1]
INTS = [0, -1, 2**63 - 1, -(2**63), 7]


def rows(count: int, begin_us: int = BEGIN_US, seed: int = 1, same: float = 0.3) -> pa.Table:
    """Situations in stamp order; some of one time."""
    random = Random(seed)
    times, ordinals = [], []
    time_us, ordinal = begin_us, -1
    for _ in range(count):
        if random.random() < same and ordinal >= 0:
            ordinal += 1
        else:
            time_us, ordinal = time_us + random.randrange(1, 2_000), 0
        times.append(time_us)
        ordinals.append(ordinal)
    maybe: Callable[[Any], Any] = lambda value: None if random.random() < 0.2 else value  # noqa: E731
    columns = {
        "time": pa.array(times, pa.int64()),
        "ordinal": pa.array(ordinals, pa.int64()),
        "machine": pa.array([random.choice(TEXTS) for _ in times], pa.string()),
        "celsius": pa.array([random.choice(FLOATS) for _ in times], pa.float64()),
        "count": pa.array([random.choice(INTS) for _ in times], pa.int64()),
        "sure": pa.array([random.random() < 0.5 for _ in times], pa.bool_()),
        "seen": pa.array([time + random.randrange(-(10**15), 10**9) for time in times], pa.timestamp("us", "UTC")),
        "note": pa.array([maybe(random.choice(TEXTS)) for _ in times], pa.string()),
        "raw": pa.array([maybe(random.randbytes(random.randrange(4))) for _ in times], pa.binary()),
        "peak": pa.array([maybe(random.choice(FLOATS)) for _ in times], pa.float64()),
    }
    return with_origin(pa.table(columns), SCHEMA)


def chain_with(count: int, store: Store | None = None, segment_rows: int = 40, seed: int = 1) -> Chain:
    """A sealed stream of so many situations."""
    chain = EventLog(store or MemoryStore()).create(SCHEMA, buckets=2)
    add(chain, rows(count, seed=seed), segment_rows)
    return chain


def add(chain: Chain, table: pa.Table, segment_rows: int = 40) -> None:
    """Seal rows, whole times a segment; between them, empty ones."""
    times = table.column("time").to_pylist()
    first = 0
    while first < len(times):
        end = min(first + segment_rows, len(times))
        while end < len(times) and times[end] == times[end - 1]:
            end += 1
        chain.seal(times[end - 1], table.slice(first, end - first))
        first = end
        if first < len(times) and times[first] > times[first - 1] + 1:
            chain.seal(times[first - 1] + 1, table.slice(0, 0))


class Place:
    """Where one kind of target can be made. A test asks for fresh ones by name."""

    kind = "memory"
    retried: tuple[type[BaseException], ...] = ()

    def __init__(self) -> None:
        self._tables: dict[str, MemoryTable] = {}

    def url(self, name: str) -> str:
        """The address, where there is one."""
        return f"memory:{name}"

    def open(self, name: str, record: SinkRecord, schema: StreamSchema = SCHEMA) -> Target:
        return MemoryTarget(self._tables.setdefault(name, MemoryTable(schema)), record.id)


def record_of(place: Place, name: str, token: str = "0a1b2c3d") -> SinkRecord:
    return SinkRecord(name, SCHEMA.name, place.url(name), token)


@dataclass
class Fault(Target):
    """A target whose write fails now and then: before it is done, or after, when only the answer is lost."""

    inner: Target
    plan: Callable[[], str]
    error: type[Exception]

    def position(self) -> Any:
        return self.inner.position()

    def write(self, chunk: Any, after: Any) -> None:
        when = self.plan()
        if when == "before":
            raise self.error("the target is away")
        self.inner.write(chunk, after)
        if when == "after":
            raise self.error("the answer was lost")

    def read(self, from_us: int, through_us: int) -> Any:
        return self.inner.read(from_us, through_us)

    def rewind(self, to: Any) -> None:
        self.inner.rewind(to)

    def close(self) -> None:
        self.inner.close()


QUICK = DeliveryConfig(rows_max=30, look_s=0.001, pause_s_min=0.001, pause_s_max=0.01, note_s=0.01)


def delivery(chain: Chain, record: SinkRecord, opening: Callable[[], Target], **given: Any) -> Delivery:
    return Delivery(chain, record, opening, given.pop("config", QUICK), **given)


def wrong_in(target: Target, chain: Chain) -> dict[str, int]:
    """What an audit of the target counts, with the log as the perfect run."""
    chain.refresh()
    stretch = judge_target(target, chain, chain.base.from_us, chain.through_us)
    assert stretch.perfect == chain.count(chain.base.from_us, chain.through_us)
    return stretch.counts
