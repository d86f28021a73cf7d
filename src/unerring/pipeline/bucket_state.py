"""A bucket's state in Spark's own store, in pieces, so that a micro-batch writes what changed and not what there is.

The engine's state is a trail: a whole snapshot and the changes since (see `states`). Held rows are chunks, each written
once with the micro-batch that brought it, and removed when the watermark has passed all of it. A head says which of
them count. A worker that has the engine at hand from the micro-batch before goes on with it; the head's digest says
whether it stands where the store does.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from unerring.model import TIME_MIN, protect, verified
from unerring.pipeline.artifacts import after
from unerring.pipeline.partition import Kept
from unerring.pipeline.states import SMALL_BYTES, wants_whole
from unerring.pipeline.streamed import Reading, Standing, advance, engine_of, packed, rows_in, unpacked

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CHUNKS_MAX: Final = 64
"""So many chunks of held rows; more are put together."""
AT_HAND_MAX: Final = 64
"""Buckets that a worker has at hand."""
_REMEDY: Final = "begin the query again with a new checkpoint"
_at_hand: OrderedDict[bytes, Standing] = OrderedDict()


class _Head(msgspec.Struct, frozen=True, array_like=True):
    through_us: int
    digest: bytes
    """Of all that was ever kept: equal digests have equal states."""
    trail: int = 0
    """How many pieces the engine's state has."""
    whole_bytes: int = 0
    delta_bytes: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    """Held rows: a number, and the newest time in it."""
    written: int = 0
    """Chunks so far."""


class Bucket(StatefulProcessor):
    """What Spark runs for each bucket."""

    def __init__(self, reading: Reading, folder: str = "") -> None:
        """`folder`: where this package is on the host of a Spark Connect server that was sent it."""
        self._reading = reading
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return after(self._folder, Bucket, (self._reading,))

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", "head binary")
        self._trail = handle.getMapState("trail", "number int", "state binary")
        self._held = handle.getMapState("held", "number int", "rows binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        return self._step(rows_in(rows, self._reading), timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        return self._step([], timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        """There is nothing to close."""

    def _step(self, fresh: list[pa.Table], watermark_ms: int) -> Iterator[pd.DataFrame]:
        """Take rows, and let time pass."""
        head = self._read_head()
        standing = self._standing(head)
        before_us = standing.through_us
        outputs, waiting = advance(standing, fresh, watermark_ms, self._reading)
        if outputs is not None and len(outputs):
            yield outputs.to_pandas()
        if not len(standing.held) and not standing.engine.keys:
            for state in (self._head, self._trail, self._held):
                state.clear()
            return
        if not fresh and standing.through_us == before_us:
            self._remember(head, standing)  # a timer that another call of this micro-batch was ahead of
            return
        digest = hashlib.blake2b(head.digest + str(standing.through_us).encode(), digest_size=16)
        if standing.through_us > before_us or not head.trail:
            head = self._keep_engine(head, standing, digest)
        head = self._keep_rows(head, standing, waiting, digest)
        head = msgspec.structs.replace(head, through_us=standing.through_us, digest=digest.digest())
        self._head.update((protect(msgspec.msgpack.encode(head)),))
        self._handle.registerTimer(watermark_ms + 1)
        self._remember(head, standing)

    def _keep_engine(self, head: _Head, standing: Standing, digest: Any) -> _Head:
        engine = standing.engine
        kept = Kept(tuple(range(head.trail)), head.whole_bytes, head.delta_bytes)
        if head.trail and not wants_whole(kept):
            piece = engine.delta()
            digest.update(piece)
            self._trail.updateValue((head.trail,), (protect(piece),))
            more = head.delta_bytes + len(piece)
            return msgspec.structs.replace(head, trail=head.trail + 1, delta_bytes=more)
        piece = engine.snapshot()
        digest.update(piece)
        for number in range(1, head.trail):
            self._trail.removeKey((number,))
        self._trail.updateValue((0,), (protect(piece),))
        if len(piece) >= SMALL_BYTES:
            engine.mark()
        return msgspec.structs.replace(head, trail=1, whole_bytes=len(piece), delta_bytes=0)

    def _keep_rows(self, head: _Head, standing: Standing, waiting: pa.Table, digest: Any) -> _Head:
        """The rows that came and wait; chunks of which none waits any more are gone."""
        import pyarrow.compute as pc

        from unerring.pipeline.carrying import TIME

        chunks = [chunk for chunk in head.chunks if chunk[1] > standing.through_us]
        gone = [chunk for chunk in head.chunks if chunk[1] <= standing.through_us]
        if len(chunks) >= CHUNKS_MAX:
            chunks, gone, waiting = [], [*gone, *chunks], standing.held
        for number, _ in gone:
            self._held.removeKey((number,))
        written = head.written
        if len(waiting):
            rows = packed(waiting)
            digest.update(rows)
            self._held.updateValue((written,), (protect(rows),))
            chunks.append((written, int(pc.max(waiting.column(TIME)).as_py())))
            written += 1
        return msgspec.structs.replace(head, chunks=tuple(chunks), written=written)

    def _read_head(self) -> _Head:
        kept = self._head.get()
        if kept is None:
            return _Head(TIME_MIN, b"")
        return msgspec.msgpack.decode(self._verified(kept[0]), type=_Head)

    def _standing(self, head: _Head) -> Standing:
        """The bucket as the store has it."""
        known = _at_hand.pop(head.digest, None) if head.digest else None
        if known is not None:
            return known
        engine = engine_of(self._reading, [self._piece(self._trail, number) for number in range(head.trail)])
        if head.whole_bytes >= SMALL_BYTES:
            engine.mark()
        chunks = [unpacked(self._piece(self._held, number)) for number, _ in head.chunks]
        return Standing.of(head.through_us, chunks, engine, self._reading)

    def _piece(self, state: Any, number: int) -> bytes:
        return self._verified(state.getValue((number,))[0])

    def _verified(self, data: Any) -> bytes:
        where = f"rule {self._reading.plan.name}: the state in the query's checkpoint"
        return verified(bytes(data), where, _REMEDY)

    def _remember(self, head: _Head, standing: Standing) -> None:
        _at_hand[head.digest] = standing
        while len(_at_hand) > AT_HAND_MAX:
            _at_hand.popitem(last=False)
