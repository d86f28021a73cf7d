"""The Spark jobs of an intake: tasks check rows and write runs, publish bad rows, and number what runs share.

A task sends the driver a few hundred bytes for each run that it wrote. Rows go from Spark to the task's Python as
Arrow, and from there to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log import (
    Answer,
    EventLog,
    Intake,
    Intakes,
    Means,
    Order,
    Parts,
    Slice,
    Slicer,
    Taker,
    overlapping_rows,
    slice_of,
)
from unerring.model import StreamSchema
from unerring.pipeline.monitoring import named_jobs
from unerring.pipeline.session import settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ANSWER: Final = "answer binary"
BATCH: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "65536"}
_OVERLAPPING_ROWS: Final = 2_000_000
"""So many rows whose runs overlap in time are numbered by tasks instead of the driver."""
_PUBLISHED: Final = 8
"""So many objects of bad rows are published by tasks."""


def job_of(frame: DataFrame, address: str) -> Callable[[Order], Sequence[Answer]]:
    """The job that takes the rows of a DataFrame in."""

    def run(order: Order) -> Sequence[Answer]:
        spark = frame.sparkSession
        with settings(spark, BATCH), named_jobs(spark, f"ingest {order.schema.name}"):
            answers = frame.mapInArrow(_take(address, msgspec.msgpack.encode(order)), ANSWER).collect()
        return [msgspec.msgpack.decode(bytes(row.answer), type=Answer) for row in answers]

    return run


def _take(address: str, told: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        order = msgspec.msgpack.decode(told, type=Order)
        taker = Taker(EventLog(address).store, order, context.partitionId() if context else 0)
        for batch in batches:
            if batch.num_rows:
                taker.take(pa.Table.from_batches([batch]))
        taken = taker.finish()
        if taken.rows:
            yield _answer([msgspec.msgpack.encode(taken)])

    return task


def means_of(spark: SparkSession, address: str, schema: StreamSchema) -> Means:
    """Tasks do what is too much for the driver."""

    def publish(intakes: Intakes, names: Sequence[str]) -> None:
        if len(names) < _PUBLISHED:
            for name in names:
                intakes.publish(name)
            return
        stream, source = intakes.stream, intakes.source

        def one(name: bytes) -> bytes:
            Intakes(EventLog(address).store, stream, source).publish(name.decode())
            return b""

        _spread(spark, [name.encode() for name in names], one)

    def slicer(intake: Intake) -> Slicer | None:
        if overlapping_rows(intake) < _OVERLAPPING_ROWS:
            return None
        told = msgspec.msgpack.encode((schema, intake))

        def one(ends: bytes) -> bytes:
            known, whole = msgspec.msgpack.decode(told, type=tuple[StreamSchema, Intake])
            parts = Parts(EventLog(address).store, known.name, known)
            return msgspec.msgpack.encode(slice_of(parts, whole, *msgspec.msgpack.decode(ends, type=tuple[int, int])))

        def slices(intervals: Sequence[tuple[int, int]]) -> Iterator[Slice]:
            for answer in _spread(spark, [msgspec.msgpack.encode(ends) for ends in intervals], one):
                yield msgspec.msgpack.decode(answer, type=Slice)

        return slices

    return Means(publish, slicer)


def _spread(spark: SparkSession, asked: Sequence[bytes], task: Callable[[bytes], bytes]) -> list[bytes]:
    """Give each of these to a task; the answers, in the same order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _answer([msgspec.msgpack.encode((number, task(asked[number])))])

    frame = spark.range(0, len(asked), 1, len(asked)).mapInArrow(run, ANSWER)
    answers = [msgspec.msgpack.decode(bytes(row.answer), type=tuple[int, bytes]) for row in frame.collect()]
    return [answer for _, answer in sorted(answers)]


def _answer(answers: list[bytes]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(answers, pa.binary())], names=["answer"])
