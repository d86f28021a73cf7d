"""One function for many questions, as a Spark job: merging and checking objects of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from unerring.pipeline.monitoring import named_jobs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def ask_tasks(
    spark: SparkSession, asked: Sequence[bytes], task: Callable[[bytes], bytes], what: str, per_task: int = 1
) -> list[bytes]:
    """What a function gives for each of many questions, wherever there is room; in the order of the questions."""
    questions = list(asked)
    if not questions:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            numbers = batch.column(0).to_pylist()
            answers = [task(questions[number]) for number in numbers]
            yield pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(answers, pa.binary())], ["number", "answer"])

    tasks = -(-len(questions) // per_task)
    frame = spark.range(0, len(questions), 1, tasks).mapInArrow(run, "number bigint, answer binary")
    with named_jobs(spark, what):
        rows = frame.collect()
    return [bytes(row.answer) for row in sorted(rows, key=lambda row: row.number)]
