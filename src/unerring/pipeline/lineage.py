"""The lineage of what Spark takes in: files and named sources on one side, a stream of the log on the other."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from unerring.lineage import Dataset, Flow, TracedRun, begin, ending, folders_of, stream_dataset
from unerring.log import EventLog

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from unerring.model import StreamSchema


def taken_in(address: str, schema: StreamSchema, files: Iterable[str], source: str) -> Flow:
    """From files, or from what only has a name, into a stream."""
    inputs = folders_of(files) or (Dataset("spark", source),)
    return Flow(inputs, (stream_dataset(EventLog(address).store, schema),))


def trace_query(address: str, schema: StreamSchema, source: str, query: StreamingQuery) -> None:
    """Tell of a query that was started, and of its end."""
    flow = lambda: taken_in(address, schema, (), source)  # noqa: E731
    run = begin("ingest", f"ingest.{schema.name}", flow, engine="spark", streaming=True)
    if run.is_on:
        threading.Thread(target=_await_end, args=(run, query), name="lineage of a query", daemon=True).start()


def _await_end(run: TracedRun, query: StreamingQuery) -> None:
    from pyspark.errors import PySparkException

    try:
        with ending([run]):
            query.awaitTermination()
    except PySparkException:
        pass  # whoever started the query hears of it from the query
