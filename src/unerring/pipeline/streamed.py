"""A plan over a DataFrame of any Spark user: batch or streaming, in one form.

Rows go to buckets by key; one Python call takes a bucket's rows of a micro-batch. On a stream, rows are held until the
watermark has passed them, then fed in the order of time; what a stream's rows make is given out once, when no row that
is not late can change it. The bucket's state (held rows, the engine's state) is Spark's to keep: a query that is
stopped, or killed, goes on from its checkpoint. Spark's RocksDB keeps it in pieces (see `bucket_state`); another store
of Spark's has one value for a bucket, which is written anew each time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import MILLISECOND_US, TIME_MAX, TIME_MIN, Column, ColumnType, RuleError, protect, verified
from unerring.pipeline.carrying import BUCKET, ORDINAL, TIME, as_log_rows, carried, carried_schema, quoted, split
from unerring.pipeline.feeding import Feed, feed_of
from unerring.rules import Plan, key_types

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.types import StructType

BUCKETS: Final = 8
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
WHOLE: Final = (
    f"this session keeps each bucket's state as one value, which every micro-batch writes anew; set {PROVIDER} to "
    f"{ROCKSDB}, and a micro-batch writes what changed"
)
_OLD: Final = b"\x93"
_AT: Final = "event_at"
_PLACE: Final = (Column("_rank", ColumnType.INT), Column("_ordinal", ColumnType.INT), Column("_index", ColumnType.INT))


@dataclass(frozen=True, slots=True)
class Reading:
    """How a DataFrame's columns are a plan's input."""

    plan: Plan
    columns: tuple[str, ...]
    """The DataFrame's name of each column of the plan's input."""
    key: tuple[str, ...]
    time: str
    ordinal: str | None = None
    buckets: int = BUCKETS
    streaming: bool = False
    in_flow: bool = False
    """It is a flow of a declarative pipeline: nothing can be asked of the DataFrame."""

    @property
    def outputs(self) -> tuple[Column, ...]:
        """The columns that come back: when decided, place among what was decided then, key, payload."""
        keys = (Column(f"_key{number}", kind, True) for number, kind in enumerate(key_types(self.plan)))
        return Column("time", ColumnType.INT), *_PLACE, *keys, *self.plan.outputs[0].columns


class _State(msgspec.Struct, frozen=True, array_like=True):
    """The state of a bucket between micro-batches."""

    through_us: int
    held: bytes
    engine: bytes


def run_plan(frame: DataFrame, reading: Reading) -> DataFrame:
    """The plan's outputs, carried (`carrying.uncarried` makes columns of them)."""
    carrying = _carry(frame, reading)
    kinds = [column.type for column in reading.outputs]
    if reading.in_flow and not reading.streaming:
        # A table of the same pipeline may not be there yet, and then the server cannot group by its columns.
        parts = carrying.repartition(reading.buckets, BUCKET)
        return parts.mapInArrow(_whole_partition(reading), carried_schema(kinds))
    if not reading.streaming:
        return carrying.groupBy(BUCKET).applyInArrow(_whole(reading), carried_schema(kinds))
    if frame.sparkSession.conf.get(PROVIDER) == ROCKSDB:
        from unerring.pipeline.artifacts import folder_of
        from unerring.pipeline.bucket_state import Bucket

        schema, bucket = carried_schema(kinds), Bucket(reading, folder_of(frame.sparkSession))
        return carrying.groupBy(BUCKET).transformWithStateInPandas(bucket, schema, "Append", "EventTime")
    from pyspark.sql.streaming.state import GroupStateTimeout
    from pyspark.sql.types import BinaryType, StructType

    state = StructType().add("state", BinaryType())
    warnings.warn(WHOLE, stacklevel=3)
    return carrying.groupBy(BUCKET).applyInPandasWithState(
        _piece(reading), carried_schema(kinds), state, "append", GroupStateTimeout.EventTimeTimeout
    )


def _carry(frame: DataFrame, reading: Reading) -> DataFrame:
    keys = ", ".join(quoted(name) for name in reading.key)
    bucket = f"CAST(pmod(xxhash64({keys}), {reading.buckets}) AS int)" if keys else "0"
    if reading.ordinal is not None:
        ordinal = f"CAST({quoted(reading.ordinal)} AS bigint)"
    else:  # A batch's rows have an order, a file's its own; a stream's have none.
        ordinal = "CAST(-1 AS bigint)" if reading.streaming else "monotonically_increasing_id()"
    columns = [
        pair
        for number, (name, column) in enumerate(
            zip(reading.columns, reading.plan.inputs[0].schema.columns, strict=True)
        )
        for pair in carried(name, column.type, number)
    ]
    event_us = f"unix_micros({quoted(reading.time)}) AS {TIME}"
    carrying = frame.selectExpr(
        f"{bucket} AS {BUCKET}", f"{quoted(reading.time)} AS {_AT}", event_us, f"{ordinal} AS {ORDINAL}", *columns
    )
    if reading.in_flow:
        # Spark's own functions would ask the server for the columns, which it refuses there.
        carrying._cached_schema = _carried_spark(reading)  # type: ignore[attr-defined]
    return carrying


def _carried_spark(reading: Reading) -> StructType:
    """The columns that `_carry` gives, as Spark has them."""
    from pyspark.sql.types import StructType

    schema = StructType().add(BUCKET, "integer").add(_AT, "timestamp").add(TIME, "long").add(ORDINAL, "long")
    kinds = [column.type for column in reading.plan.inputs[0].schema.columns]
    return StructType([*schema, *carried_schema(kinds)])


def _whole(reading: Reading) -> Callable[[pa.Table], pa.Table]:
    """All rows of a bucket at once; after the last one time goes on for ever."""

    def run(table: pa.Table) -> pa.Table:
        _check_times(table.column(TIME).null_count, reading)
        return _feed(engine_of(reading), table, reading, TIME_MAX)

    return run


@dataclass
class Standing:
    """Where a bucket stands between micro-batches."""

    through_us: int
    held: pa.Table
    """Rows that the watermark has not passed."""
    engine: Feed

    @staticmethod
    def of(through_us: int, chunks: list[pa.Table], engine: Feed, reading: Reading) -> Standing:
        """As it was kept; of the rows in `chunks`, those count that still wait."""
        import pyarrow as pa

        held = pa.concat_tables(chunks) if chunks else _carried_arrow(reading).empty_table()
        return Standing(through_us, held.filter(pa.array(held.column(TIME).to_numpy() > through_us)), engine)


def rows_in(frames: Iterable[pd.DataFrame], reading: Reading) -> list[pa.Table]:
    """The rows that a micro-batch brought."""
    import pyarrow as pa

    whole = list(frames)
    _check_times(sum(int(frame[TIME].isna().sum()) for frame in whole), reading)
    return [pa.Table.from_pandas(frame, _carried_arrow(reading), preserve_index=False) for frame in whole]


def advance(
    standing: Standing, fresh: list[pa.Table], watermark_ms: int, reading: Reading
) -> tuple[pa.Table | None, pa.Table]:
    """Take rows and let time pass; what that made, if it passed, and those of the rows that wait."""
    import pyarrow as pa

    came = pa.concat_tables([_carried_arrow(reading).empty_table(), *fresh])
    through_us = watermark_ms * MILLISECOND_US
    # At the start there is no watermark yet, which Spark tells as the year 1970.
    if through_us <= max(standing.through_us, 0):
        standing.held = pa.concat_tables([standing.held, came])
        return None, came
    table = pa.concat_tables([standing.held, came])
    due = table.column(TIME).to_numpy() <= through_us
    outputs = _feed(standing.engine, table.filter(pa.array(due)), reading, through_us)
    standing.through_us, standing.held = through_us, table.filter(pa.array(~due))
    return outputs, came.filter(pa.array(came.column(TIME).to_numpy() > through_us))


def _whole_partition(reading: Reading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The same for a partition, which has whole buckets."""
    whole = _whole(reading)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        some = list(batches)
        if some:
            yield from whole(pa.Table.from_batches(some)).to_batches()

    return run


def _piece(reading: Reading) -> Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """A function that handles a bucket's rows in a micro-batch, or the passing of time alone."""

    def run(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        kept = _kept(bytes(state.get[0]), reading) if state.exists else _State(TIME_MIN, b"", b"")
        engine = engine_of(reading, [kept.engine] if kept.engine else [])
        standing = Standing.of(kept.through_us, [unpacked(kept.held)] if kept.held else [], engine, reading)
        fresh = [] if state.hasTimedOut else rows_in(frames, reading)
        watermark_ms = state.getCurrentWatermarkMs()
        outputs, _ = advance(standing, fresh, watermark_ms, reading)
        if outputs is not None and len(outputs):
            yield outputs.to_pandas()
        if not len(standing.held) and not engine.keys:
            state.remove()
            return
        now = _State(standing.through_us, packed(standing.held), engine.snapshot())
        state.update((protect(msgspec.msgpack.encode(now)),))
        state.setTimeoutTimestamp(watermark_ms + 1)

    return run


def _kept(state: bytes, reading: Reading) -> _State:
    """The state of a bucket in Spark's store. An older release kept the array itself."""
    where = f"rule {reading.plan.name}: the state in the query's checkpoint"
    remedy = "begin the query again with a new checkpoint"
    return msgspec.msgpack.decode(state if state[:1] == _OLD else verified(state, where, remedy), type=_State)


def _check_times(missing: int, reading: Reading) -> None:
    if missing:
        rows = f"{missing} rows have" if missing > 1 else "a row has"
        raise RuleError(
            f"rule {reading.plan.name}: {rows} no time in column {reading.time!r}, and an event without a time "
            f"cannot be ordered; give them one, or leave them out (where {reading.time} IS NOT NULL)"
        )


def engine_of(reading: Reading, trail: Sequence[bytes] = ()) -> Feed:
    """A matcher, as it stood after a whole state and the changes to it."""
    stream = reading.plan.inputs[0].schema.name
    engine = feed_of(reading.plan, {stream: 0})
    if trail:
        engine.restore_from([trail])
    return engine


def _feed(engine: Feed, table: pa.Table, reading: Reading, through_us: int) -> pa.Table:
    import pyarrow as pa

    schema = reading.plan.inputs[0].schema
    outputs = engine.feed({schema.name: as_log_rows(table, schema)}, through_us)
    refused = engine.take_quarantined()
    if refused:
        event, reason = refused[0]
        raise RuleError(
            f"rule {reading.plan.name} could not process {len(refused)} events, the first at {event.stamp.time}: "
            f"{reason}; a DataFrame has no quarantine, so filter such rows out first"
        )
    made = outputs[reading.plan.outputs[0].name]
    names = [part for number in range(len(reading.outputs)) for part in (f"v{number}", f"n{number}")]
    return pa.Table.from_arrays([_whole_array(column) for column in split(made, reading.outputs)], names=names)


def _whole_array(column: Any) -> Any:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _carried_arrow(reading: Reading) -> pa.Schema:
    """The columns that `_carry` gives, as Arrow has them; the event time itself is not looked at again."""
    import pyarrow as pa

    fields = [pa.field(TIME, pa.int64()), pa.field(ORDINAL, pa.int64())]
    for number, column in enumerate(reading.plan.inputs[0].schema.columns):
        kind = {
            ColumnType.BOOL: pa.bool_(),
            ColumnType.FLOAT: pa.float64(),
            ColumnType.TEXT: pa.string(),
            ColumnType.BYTES: pa.binary(),
        }.get(column.type, pa.int64())
        fields += [pa.field(f"v{number}", kind), pa.field(f"n{number}", pa.bool_())]
    return pa.schema(fields)


def packed(table: pa.Table) -> bytes:
    import pyarrow as pa

    if not len(table):
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unpacked(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
