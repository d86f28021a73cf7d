"""A driver that brings a folder of files into a stream, micro-batch by micro-batch; tests kill it: `python -m
pipeline.intake_driver DATA MASTER FILES_PER_BATCH`."""

from __future__ import annotations

import sys
from pathlib import Path

from unerring import SparkConfig
from unerring.model import Column, ColumnType, StreamSchema
from unerring.pipeline import ingest, spark_session

SCHEMA = StreamSchema(
    "Reading", (Column("machine", ColumnType.TEXT), Column("value", ColumnType.INT, nullable=True)), ("machine",)
)
LATENESS_US = 40
COLUMNS = "at bigint, machine string, value bigint"


def main(data: Path, master: str, files: int) -> None:
    config = SparkConfig(master=master, memory="512m", log=str(data / "spark.log"), quick=True)
    with spark_session(config, "intake") as spark:
        frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files).parquet(str(data / "incoming"))
        query = ingest(
            frame, stream=SCHEMA, time="at", time_unit="us", lateness=LATENESS_US, data=data, buckets=3, once=True
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
