"""Sinks beside their libraries: how many rows a second, and how long a situation takes from its seal to the target.

The floor is the same library writing the same rows, which it has in memory already, in chunks of the same size; the
sink reads them from a sealed log on disk first, and moves its position with each chunk. Rounds of both alternate, and
the best of each counts. Servers are of this run, on this machine; Kafka is librdkafka's mock cluster.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.kafka import MockCluster
from tests.processes import postgres
from tests.s3 import S3Server
from tests.sinks.places import DeltaPlace, IcebergPlace, KafkaPlace, PostgresPlace, RealPlace
from unerring.log import Chain, EventLog, with_origin
from unerring.model import schema_of, stream
from unerring.sinks import Delivery, DeliveryConfig, SinkRecord, Target


@stream(key="machine", name="overheating")
class Overheating:
    machine: str
    celsius: float
    count: int


SCHEMA = schema_of(Overheating)
SEGMENT_ROWS = 50_000
PER_S = 5_000
SEALED_EVERY_S = 0.02
NEVER = threading.Event()


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    rows, rounds, seconds = (4_000, 1, 1.0) if quick else (400_000, 3, 10.0)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        s3 = S3Server.start(folder)
        running.callback(s3.end)
        places: list[RealPlace] = [
            DeltaPlace(str(folder / "lake")),
            IcebergPlace(s3),
            PostgresPlace(running.enter_context(postgres.server())),
            KafkaPlace(running.enter_context(MockCluster())),
        ]
        table = rows_of(rows, 1_700_000_000_000_000)
        chain = sealed(folder / "log", table)
        for place in places:
            yield from _ratio(place, chain, table, rounds)
        for place in places:
            yield from _lag(place, folder / f"following-{place.kind}", seconds)


def _ratio(place: RealPlace, chain: Chain, table: pa.Table, rounds: int) -> Iterator[dict[str, Any]]:
    config = DeliveryConfig(rows_max=min(DeliveryConfig().rows_max, max(len(table) // 4, 1)))
    ours, theirs = [], []
    for number in range(rounds):
        record = SinkRecord(f"ours{number}", SCHEMA.name, place.url(f"ours{number}"), "00000000")
        target = place.open(record.name, record, SCHEMA)
        work = Delivery(chain, record, lambda: target, config)  # noqa: B023
        ours.append(_timed(lambda: work.run(NEVER, follow=False)))  # noqa: B023
        floor = FLOORS[place.kind](place, f"theirs{number}", table.slice(0, 0))
        chunks = [table.slice(at, config.rows_max) for at in range(0, len(table), config.rows_max)]
        theirs.append(_timed(lambda: [floor(chunk) for chunk in chunks]))  # noqa: B023
    rate, floor_rate = (len(table) / min(wall_s for wall_s, _ in times) for times in (ours, theirs))
    cpu_s, floor_cpu_s = (min(cpu_s for _, cpu_s in times) for times in (ours, theirs))
    yield _figure(f"{place.kind}.rows_per_s", rate, "rows/s")
    yield _figure(f"{place.kind}.library_rows_per_s", floor_rate, "rows/s")
    yield _figure(f"{place.kind}.ratio", rate / floor_rate, "of the library alone", 0.8)
    yield _figure(f"{place.kind}.cpu_ratio", floor_cpu_s / cpu_s, "the library's CPU time by ours, here")


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and those of this process's threads."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - cpu


# --- the libraries by themselves ---


def _delta(place: RealPlace, name: str, empty: pa.Table) -> Callable[[pa.Table], None]:
    from deltalake import DeltaTable, write_deltalake

    assert isinstance(place, DeltaPlace)
    held = DeltaTable.create(place.where(name), empty.schema)
    return lambda chunk: write_deltalake(held, chunk, mode="append")


def _iceberg(place: RealPlace, name: str, empty: pa.Table) -> Callable[[pa.Table], None]:
    from pyiceberg.catalog import load_catalog

    held = load_catalog("lake").create_table(f"plant.{place.table(name)}", empty.schema)
    return lambda chunk: held.append(chunk)


def _postgresql(place: RealPlace, name: str, empty: pa.Table) -> Callable[[pa.Table], None]:
    import psycopg
    from pyarrow import csv

    assert isinstance(place, PostgresPlace)
    place.execute(
        f"CREATE TABLE {place.table(name)} (time timestamptz, ordinal bigint, machine text, celsius float8, "
        "count bigint, PRIMARY KEY (time, ordinal))"
    )
    connection = psycopg.connect(place.dsn, autocommit=True)

    def write(chunk: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        csv.write_csv(chunk, sink, csv.WriteOptions(include_header=False))
        with connection.cursor().copy(f"COPY {place.table(name)} FROM STDIN (FORMAT csv)") as copy:
            copy.write(memoryview(sink.getvalue()))

    return write


def _kafka(place: RealPlace, name: str, empty: pa.Table) -> Callable[[pa.Table], None]:
    import msgspec
    from confluent_kafka import Producer

    assert isinstance(place, KafkaPlace)
    place.url(name)
    topic = place.table(name)
    producer = Producer(
        {"bootstrap.servers": place.cluster.address, "transactional.id": name, "linger.ms": 5, "log_level": 0}
    )
    producer.init_transactions(30)

    def write(chunk: pa.Table) -> None:
        producer.begin_transaction()
        numbers = chunk.set_column(0, "time", chunk.column("time").cast(pa.int64()))
        for row in numbers.to_pylist():
            value = msgspec.json.encode(row)
            while True:
                try:
                    producer.produce(topic, value, b"%d-%d" % (row["time"], row["ordinal"]), partition=0)
                    producer.poll(0)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.commit_transaction(30)

    return write


FLOORS = {"delta": _delta, "iceberg": _iceberg, "postgresql": _postgresql, "kafka": _kafka}


# --- from the seal to the target ---


def _lag(place: RealPlace, folder: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """Situations that are stamped when they are sealed; each is there when the write that has it returns."""
    every_s = 1.0 if place.kind in ("delta", "iceberg") else 0.0
    record = SinkRecord("lag", SCHEMA.name, place.url("lag"), "00000000")
    lags_ms: list[np.ndarray[Any, Any]] = []
    chain = EventLog(folder).create(SCHEMA, 1)
    stopping = threading.Event()
    config = DeliveryConfig(every_s=every_s, look_s=0.005)
    work = Delivery(
        EventLog(folder).chain(SCHEMA.name),
        record,
        lambda: _Watched(place.open("lag", record, SCHEMA), lags_ms),
        config,
    )
    thread = threading.Thread(target=work.run, args=(stopping,))
    thread.start()
    while work.progress.state != "delivering":
        NEVER.wait(0.01)
    per_seal = int(PER_S * SEALED_EVERY_S)
    began = time.monotonic()
    number = 0
    while time.monotonic() < began + seconds:
        now_us = time.time_ns() // 1000
        chain.seal(now_us, _stamped(rows_of(per_seal, now_us - per_seal)))
        number += 1
        NEVER.wait(max(0.0, began + number * SEALED_EVERY_S - time.monotonic()))
    while sum(map(len, lags_ms)) < number * per_seal:
        NEVER.wait(0.01)
    stopping.set()
    thread.join()
    held = np.concatenate(lags_ms)
    yield _figure(f"{place.kind}.lag_p50_ms", float(np.percentile(held, 50)), "ms")
    yield _figure(f"{place.kind}.lag_p99_ms", float(np.percentile(held, 99)), f"ms at {PER_S:,} situations/s")


class _Watched:
    """A target that notes how old each row is when it has it."""

    def __init__(self, inner: Target, lags_ms: list[np.ndarray[Any, Any]]) -> None:
        self._inner = inner
        self._lags_ms = lags_ms
        self.position, self.read = inner.position, inner.read
        self.rewind, self.close = inner.rewind, inner.close

    def write(self, chunk: pa.Table, after: Any) -> None:
        self._inner.write(chunk, after)
        times = chunk.column("time").cast(pa.int64()).to_numpy()
        self._lags_ms.append((time.time_ns() // 1000 - times) / 1e3)


# --- rows ---


def rows_of(count: int, begin_us: int) -> pa.Table:
    """As a target takes them: a time each."""
    random = np.random.default_rng(7)
    return pa.table(
        {
            "time": pa.array(begin_us + 1 + np.arange(count)).cast(pa.timestamp("us", "UTC")),
            "ordinal": pa.array(np.zeros(count, np.int64)),
            "machine": pa.array(np.char.add("press-", random.integers(0, 1000, count).astype(str)).tolist()),
            "celsius": pa.array(random.random(count) * 100),
            "count": pa.array(random.integers(0, 50, count)),
        },
        pa.schema(
            [
                pa.field("time", pa.timestamp("us", "UTC"), False),
                pa.field("ordinal", pa.int64(), False),
                *SCHEMA.arrow(),
            ]
        ),
    )


def sealed(folder: Path, table: pa.Table) -> Chain:
    chain = EventLog(folder).create(SCHEMA, 1)
    for at in range(0, len(table), SEGMENT_ROWS):
        part = _stamped(table.slice(at, SEGMENT_ROWS))
        chain.seal(part.column("time")[-1].as_py(), part)
    return chain


def _stamped(table: pa.Table) -> pa.Table:
    return with_origin(table.set_column(0, "time", table.column("time").cast(pa.int64())), SCHEMA)


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    said, met = (None, None) if goal is None else (f"≥ {goal}", value >= goal)
    return {"bench": "deliver", "figure": name, "value": round(value, 3), "unit": unit, "goal": said, "met": met}
