"""A task's part of an intake: rows are checked by column, sorted into runs, and written; bad ones are kept aside.

What a task answers is small: which runs it wrote, where the bad rows are, and how many there were of each kind. Nothing
that it writes counts before an intake names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.buckets import Spread
from unerring.log.files import BLOCK_ROWS, block_of, json_of
from unerring.log.intakes import Intakes
from unerring.log.quarantine import BadEvent, Reason, encode_bad
from unerring.log.runs import RunFile, order_of, write_run
from unerring.log.store import Store
from unerring.log.times import Times
from unerring.model import TIME_MIN, ProcessConfig, StreamSchema, check

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

CORRUPT: Final = "_corrupt_record"
"""The column in which Spark's readers leave a row that they could not read."""


class TakeConfig(ProcessConfig, frozen=True):
    """The bounds of a task that takes rows in."""

    rows_per_run: int = 2_000_000
    bytes_per_run: int = 192 << 20
    """A run is written when it has so many rows, or bytes in memory."""
    event_bytes_max: int = 1 << 20
    """A larger row goes to quarantine."""
    bad_rows_held: int = 20_000
    """So many bad rows become one object."""

    def __post_init__(self) -> None:
        check(self, "rows_per_run", 1, 1 << 26)
        check(self, "bytes_per_run", 1 << 10, 1 << 34)
        check(self, "event_bytes_max", 64, 1 << 30)
        check(self, "bad_rows_held", 1, 1 << 20)


class Order(msgspec.Struct, frozen=True):
    """What a task is told about the intake that it works for."""

    stream: str
    """The stream's folder in the log's store."""
    schema: StreamSchema
    spread: Spread
    times: Times
    source: str
    number: int
    from_us: int
    """Rows at or before this time are late."""
    ahead_us: int | None
    """Rows after this time are ahead of the clock; None: no row is."""
    lanes: tuple[int, ...]
    """How many rows of each lane earlier intakes have numbered."""
    config: TakeConfig


class Answer(msgspec.Struct, frozen=True):
    """A task's answer."""

    lane: int
    rows: int
    newest_us: int
    runs: tuple[RunFile, ...]
    bad: tuple[str, ...]
    quarantined: dict[str, int]


class Taker:
    """Takes the rows of one lane, in their order."""

    def __init__(self, store: Store, order: Order, lane: int) -> None:
        self._store = store
        self._order = order
        self._intakes = Intakes(store, order.stream, order.source)
        self._lane = lane
        self._producer = f"{self._intakes.producer}/{lane}"
        self._first = order.lanes[lane] if lane < len(order.lanes) else 0
        self._rows = 0
        self._newest_us = TIME_MIN
        self._raw: list[pa.Table] = []
        self._raw_rows = 0
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._bad: list[BadEvent] = []
        self._runs: list[RunFile] = []
        self._aside: list[str] = []
        self._counts: dict[str, int] = {}

    def take(self, table: pa.Table) -> None:
        """The next rows, as the source has them."""
        self._raw.append(table)
        self._raw_rows += len(table)
        if self._raw_rows >= BLOCK_ROWS:
            self._check_raw()

    def finish(self) -> Answer:
        """Everything is there: write what is left."""
        self._check_raw()
        self._write_run()
        self._write_bad()
        return Answer(self._lane, self._rows, self._newest_us, tuple(self._runs), tuple(self._aside), self._counts)

    def _check_raw(self) -> None:
        import pyarrow as pa

        if not self._raw_rows:
            return
        raw = pa.concat_tables(self._raw)
        self._raw, self._raw_rows = [], 0
        first = self._first + self._rows
        self._rows += len(raw)
        good, kept = self._without_corrupt(raw, first)
        block = block_of(good, self._order.schema, self._order.times, 0)
        for bad in block.bad:
            self._refuse(first + int(kept[bad.row]), bad.reason, bad.detail, bad.raw)
        table = block.table
        rows = kept[table.column("_sequence").to_numpy()]
        table = table.set_column(table.column_names.index("_sequence"), "_sequence", pa.array(first + rows))
        self._hold(self._in_bounds(table))

    def _without_corrupt(self, raw: pa.Table, first: int) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """The rows that the source could read, and their places."""
        import numpy as np
        import pyarrow as pa

        kept = np.arange(len(raw))
        if CORRUPT not in raw.column_names:
            return raw, kept
        column = raw.column(CORRUPT)
        raw = raw.drop_columns([CORRUPT])
        if column.null_count == len(column):
            return raw, kept
        broken = column.is_valid().to_numpy()
        for row in np.flatnonzero(broken).tolist():
            text = column[row].as_py().encode()
            self._refuse(first + row, *_why_corrupt(text), text)
        kept = np.flatnonzero(~broken)
        return raw.take(pa.array(kept)), kept

    def _in_bounds(self, table: pa.Table) -> pa.Table:
        """Without rows that are late, ahead of the clock, or too large."""
        import numpy as np

        order = self._order
        times = table.column("time").to_numpy()
        if order.ahead_us is not None:
            table = self._without(table, times > order.ahead_us, Reason.AHEAD, f"the clock allows {order.ahead_us}")
            times = table.column("time").to_numpy()
        if len(times):
            self._newest_us = max(self._newest_us, int(times.max()))
        table = self._without(table, times <= order.from_us, Reason.LATE, f"the stream has reached {order.from_us}")
        limit = order.config.event_bytes_max
        if len(table) and table.nbytes > limit:
            sizes = _sizes(table, order.schema)
            large = sizes > limit
            if large.any():
                why = f"up to {int(np.max(sizes))} bytes, {limit} are allowed"
                table = self._without(table, large, Reason.TOO_LARGE, why)
        return table

    def _without(self, table: pa.Table, bad: np.ndarray[Any, Any], reason: Reason, why: str) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        if not bad.any():
            return table
        for row in np.flatnonzero(bad).tolist():
            time_us, sequence = (table.column(name)[row].as_py() for name in ("time", "_sequence"))
            self._refuse(sequence, reason, f"time {time_us}: {why}", json_of(table, row), time_us)
        return table.filter(pa.array(~bad))

    def _hold(self, table: pa.Table) -> None:
        if not len(table):
            return
        self._held.append(table)
        self._held_rows += len(table)
        self._held_bytes += table.nbytes
        config = self._order.config
        if self._held_rows >= config.rows_per_run or self._held_bytes >= config.bytes_per_run:
            self._write_run()

    def _write_run(self) -> None:
        import pyarrow as pa

        if not self._held:
            return
        table = pa.concat_tables(self._held).combine_chunks()
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        if self._order.schema.strict:
            table = self._first_of_each_time(table)
        table = table.append_column("_producer", pa.repeat(pa.scalar(self._producer), len(table)))
        table = table.append_column("_epoch", pa.repeat(pa.scalar(0, pa.int64()), len(table)))
        order = self._order
        self._runs.append(write_run(self._store, order.stream, order.schema, order.spread, table))

    def _first_of_each_time(self, table: pa.Table) -> pa.Table:
        import numpy as np

        order, ordinals = order_of(table.column("time").to_numpy())
        doubled = np.zeros(len(table), dtype=bool)
        doubled[order] = ordinals > 0
        return self._without(table, doubled, Reason.NOT_INCREASING, "another event has this time")

    def _refuse(self, sequence: int, reason: Reason, detail: str, raw: bytes, time_us: int | None = None) -> None:
        self._bad.append(BadEvent(self._producer, 0, sequence, reason, detail, raw, time_us))
        self._counts[reason.value] = self._counts.get(reason.value, 0) + 1
        if len(self._bad) >= self._order.config.bad_rows_held:
            self._write_bad()

    def _write_bad(self) -> None:
        if not self._bad:
            return
        data = encode_bad(self._bad, self._order.stream)
        self._bad = []
        name = self._intakes.bad_name(self._order.number, data)
        self._store.create(f"{self._intakes.folder}/{name}", data)
        self._aside.append(name)


def _why_corrupt(text: bytes) -> tuple[Reason, str]:
    """What Spark does not say: whether a row cannot be read at all, or only does not fit."""
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            msgspec.json.decode(text)
        except ValueError as error:
            return Reason.UNDECODABLE, str(error)
    return Reason.SCHEMA, "the source could not read it with the stream's types"


def _sizes(table: pa.Table, schema: StreamSchema) -> np.ndarray[Any, Any]:
    """About how many bytes each row's payload has."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = np.full(len(table), 8 * len(schema.columns), np.int64)
    for field in schema.arrow():
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            sizes += pc.fill_null(pc.binary_length(table.column(field.name)), 0).to_numpy()
    return sizes
