"""Streams, rules and logs that the pipeline's tests partition."""

from __future__ import annotations

import importlib.util
import random
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from unerring.log import Chain, EventLog, with_origin
from unerring.log.tables import events_of
from unerring.model import TIME_MAX, ColumnType, Event, Stamp, StreamSchema, schema_of, stream
from unerring.pipeline.intervals import Bounds, spans_of
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.resident.pool import Pool
from unerring.pipeline.sealing import numbered
from unerring.pipeline.streaming import outputs_in, seal_outputs
from unerring.rules.expressions import At, Attribute, Comparison, EventTime, KeyValue, Which, literal
from unerring.rules.patterns import Absence, Gap, Sequence, Step
from unerring.rules.plan import Input, Measure, PatternPlan, Selection, Variable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@stream(key="key", strict=True)
class Typed:
    key: int
    type: str
    v: float


@stream(key="name")
class Other:
    name: int
    type: str


def generators() -> ModuleType:
    """The rules' own random rules and streams, whichever way the tests were started."""
    path = Path(__file__).parent.parent / "matching" / "generators.py"
    spec = importlib.util.spec_from_file_location("rules_generators", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TYPED: StreamSchema = schema_of(Typed)
OTHER: StreamSchema = schema_of(Other)
_TYPE = Attribute("type", ColumnType.TEXT)


def variable(name: str, wanted: str) -> Variable:
    return Variable(name, Comparison("=", _TYPE, literal(wanted)))


def pair(name: str, source: StreamSchema, first: str, then: str, within_us: int) -> PatternPlan:
    """`first` then `then` within a time, the latest `first` wins."""
    return PatternPlan(
        name,
        (Input(source, source.key),),
        (variable("first", first), variable("then", then)),
        Sequence((Step("first"), Gap(), Step("then"))),
        (
            Measure("key", KeyValue(0, "key", ColumnType.INT)),
            Measure("began", EventTime(At(("first",), Which.LAST))),
            Measure("type", Attribute("type", ColumnType.TEXT, At(("then",), Which.LAST))),
        ),
        within_us=within_us,
        selection=Selection.RECENT,
    )


def missing(name: str, source: StreamSchema, first: str, then: str, within_us: int) -> PatternPlan:
    """`first` not followed by `then` within a time: fires for quiet keys, when merged time passes."""
    return PatternPlan(
        name,
        (Input(source, source.key),),
        (variable("first", first), variable("then", then)),
        Sequence((Step("first"), Absence("then", within_us=within_us))),
        (
            Measure("key", KeyValue(0, "key", ColumnType.INT)),
            Measure("began", EventTime(At(("first",), Which.LAST))),
        ),
        within_us=within_us,
        selection=Selection.ALL,
    )


def random_events(seed: int, count: int, keys: int, schema: StreamSchema = TYPED) -> list[Event]:
    rng = random.Random(seed)
    time, ordinal, events = 0, 0, []
    for _ in range(count):
        step = rng.choice([1, 1, 2, 5, 20]) if schema.strict else rng.choice([0, 0, 1, 3, 9])
        time, ordinal = time + step, ordinal + 1 if step == 0 and events else 0
        key = rng.randrange(keys)
        payload: dict[str, object] = {schema.key[0]: key, "type": rng.choice("ABCD")}
        if schema is TYPED:
            payload["v"] = rng.random()
        events.append(Event(schema.name, Stamp(time, ordinal), (key,), payload))
    return events


def write(chain: Chain, events: list[Event], cuts: list[int], end_us: int | None = None) -> None:
    """Seal events into a chain, cut after these times; then through `end_us`."""
    bounds = sorted({*cuts, events[-1].stamp.time if events else 0, *([] if end_us is None else [end_us])})
    for bound in bounds:
        if bound <= chain.through_us:
            continue
        part = [event for event in events if chain.through_us < event.stamp.time <= bound]
        chain.seal(bound, as_table(part, chain.schema))


def as_table(events: list[Event], schema: StreamSchema) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "time": pa.array([event.stamp.time for event in events], pa.int64()),
        "ordinal": pa.array([event.stamp.ordinal for event in events], pa.int64()),
    }
    for field in schema.arrow():
        columns[field.name] = pa.array([event.payload[field.name] for event in events], field.type)
    return with_origin(pa.table(columns), schema)


def sealed(data: Path, name: str) -> list[Event]:
    """All events that a stream's chain holds."""
    chain = EventLog(data / "log").chain(name)
    return list(events_of(chain.read(chain.base.from_us, TIME_MAX), chain.schema))


def advance(level: Level, partitions: list[Partition], end_us: int) -> None:
    """What the driver and the tasks do in one micro-batch, in this process."""
    chains = level.chains()
    spans = spans_of(chains, partitions[0].through_us, end_us)
    answers = [partition.advance(end_us, spans) for partition in partitions]
    outputs = outputs_in(level)
    tables = {}
    for name in outputs.chains:
        parts = [answer[name] for answer in answers]
        tables[name] = numbered(parts) if any(map(len, parts)) else None
    seal_outputs(outputs, tables, end_us)


def run_over(spark: SparkSession, levels: tuple[Level, ...], bounds: Bounds | None = None) -> None:
    """Run levels over what their log holds now, as `unerring run --once` does."""
    pool = Pool(spark, levels, bounds, once=True)
    pool.start()
    try:
        while not pool.hub.finished:
            pool.check()
            threading.Event().wait(0.01)
    finally:
        pool.stop()
