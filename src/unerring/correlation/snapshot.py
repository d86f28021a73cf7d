"""The snapshot that a joiner gets from a live replica: all of its state, as bytes, in parts, with a digest.

Everything in it is needed. Without the merge buffer, events that are acknowledged would be lost; without the outgoing
queue, those that the other replica alone could still resend; without the marks, the joiner would offer a chain with a
hole; with one pruning position in place of per-receiver acks, it would prune what a slower receiver lacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from unerring.correlation.intake import Intake
from unerring.correlation.messages import Receipt, SnapshotPart, Switch
from unerring.correlation.outgoing import Outgoing
from unerring.correlation.switching import FromLog, Lane
from unerring.matching import Merge, MergeState, Packed, Waiting, unpack
from unerring.model import BEFORE_ALL, TIME_MIN, UNDECODABLE, Event, FrameError, ProtocolError, Stamp


class InputState(msgspec.Struct, frozen=True, array_like=True):
    stream: str
    last: Stamp
    count: int
    watermark: int
    maker: str = ""
    """The node that it comes from now…"""
    ended: tuple[str, Stamp, int] | None = None
    """…and the one that it came from before the last upgrade, with its last event."""


class OutputState(msgspec.Struct, frozen=True, array_like=True):
    stream: str
    mark: Stamp
    mark_count: int
    watermark: int
    events: tuple[Event, ...] | Packed


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    inputs: tuple[InputState, ...]
    merge: MergeState
    engine: bytes
    outputs: tuple[OutputState, ...]
    receipts: tuple[Receipt, ...]
    registered: tuple[tuple[str, int, int], ...]
    switch: Switch | None = None
    version_min: int = 0


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Snapshot)


def take(intake: Intake, merge: Merge, engine: bytes, outgoing: Outgoing) -> Snapshot:
    """A replica's whole state."""
    return Snapshot(
        inputs=tuple(
            InputState(s, i.last, i.count, i.watermark, intake.maker(s), intake.ended.get(s))
            for s, i in intake.streams.items()
        ),
        merge=merge.state(),
        engine=engine,
        outputs=tuple(
            OutputState(s, queue.mark, queue.mark_count, queue.watermark, queue.kept())
            for s, queue in outgoing.queues.items()
        ),
        receipts=outgoing.receipts(),
        registered=tuple((name, i, version) for name, (i, version) in outgoing.registered.items()),
        switch=outgoing.span.switch,
        version_min=outgoing.version_min,
    )


def fits(snapshot: Snapshot, intake: Intake, outgoing: Outgoing) -> bool:
    """Whether its giver takes and sends the same: while an upgrade is under way, one may know later nodes."""
    read, made = (sorted(state.stream for state in states) for states in (snapshot.inputs, snapshot.outputs))
    return read == sorted(intake.streams) and made == sorted(outgoing.queues)


def put_back(snapshot: Snapshot, intake: Intake, merge: Merge, outgoing: Outgoing) -> None:
    """All but the engine's state, into fresh parts."""
    streams = intake.streams
    _check(snapshot, streams, merge, outgoing)
    outgoing.span.learn(snapshot.switch)
    intake.switch = outgoing.span.switch
    for state in [state for state in snapshot.inputs if state.stream in streams]:
        before = streams[state.stream]
        streams[state.stream] = type(before)(state.stream, state.last, state.count, state.watermark, before.shapes)
        intake.go_on_with(state.stream, state.maker, state.ended)
    lanes = tuple(lane for lane in snapshot.merge.lanes if lane[0] in merge.names)
    merge.restore(MergeState(snapshot.merge.through, lanes))
    intake.consume(merge)
    for output in [output for output in snapshot.outputs if output.stream in outgoing.queues]:
        outgoing.queues[output.stream] = type(outgoing.queues[output.stream])(
            output.stream,
            output.mark,
            output.mark_count,
            unpack(outgoing.schemas[output.stream], output.events),
            output.watermark,
        )
    for receipt in snapshot.receipts:
        queue = outgoing.queues.get(receipt.stream)
        if queue is not None and queue.follows(receipt.last, receipt.count):
            outgoing.learn(receipt)
    outgoing.adopt(snapshot.registered)
    outgoing.version_min = max(outgoing.version_min, snapshot.version_min)


def born(made: FromLog, intake: Intake, merge: Merge, outgoing: Outgoing) -> Snapshot:
    """The state of a replica of a new node, of what its driver has made of the log. Nothing of it has counted yet."""
    nothing = Lane(BEFORE_ALL, 0, TIME_MIN, ())  # by nodes that come, too, and have not entered yet
    lanes = {stream: made.lanes.get(stream, nothing) for stream in intake.streams}
    taken = {stream: lane for stream, lane in lanes.items() if stream in merge.names}
    waiting = {s: tuple(Waiting(e.stamp, e.key, e.payload) for e in lane.waiting) for s, lane in lanes.items()}
    return Snapshot(
        inputs=tuple(InputState(s, i.last, i.count, i.watermark, intake.maker(s)) for s, i in lanes.items()),
        merge=MergeState(
            made.through_us,
            tuple((s, i.last, max(i.watermark, i.has_us, made.through_us), waiting[s]) for s, i in taken.items()),
        ),
        engine=made.engine,
        outputs=tuple(OutputState(s, queue.mark, 0, TIME_MIN, ()) for s, queue in outgoing.queues.items()),
        receipts=(),
        registered=(),
        switch=made.switch,
    )


def completed(kept: Snapshot, merge: Merge) -> Snapshot:
    """A replica's own state of before an upgrade, with the names that came with it. Nothing has come under them: what
    it had acknowledged would be on its disk, and the rest is kept for it. If it was given up, it joins anew."""
    read, merged = [state.stream for state in kept.inputs], [lane[0] for lane in kept.merge.lanes]
    inputs = [InputState(name, BEFORE_ALL, 0, TIME_MIN) for name in merge.names if name not in read]
    lanes = [(name, BEFORE_ALL, TIME_MIN, ()) for name in merge.names if name not in merged]
    state = MergeState(kept.merge.through, (*kept.merge.lanes, *lanes))
    return msgspec.structs.replace(kept, inputs=(*kept.inputs, *inputs), merge=state)


def _check(snapshot: Snapshot, streams: Mapping[str, object], merge: Merge, outgoing: Outgoing) -> None:
    """A snapshot of another node, or one that nobody has taken. Names that went with an upgrade are not needed."""
    read, merged = [state.stream for state in snapshot.inputs], [lane[0] for lane in snapshot.merge.lanes]
    made = [output.stream for output in snapshot.outputs]
    lacking = [name for name in merge.names if name not in read or name not in merged]
    lacking += [name for name in outgoing.queues if name not in made]
    if lacking or len(set(read)) < len(read) or (not read and streams):
        raise ProtocolError(f"a snapshot of streams {read} and {made}, which are not those of this node")


def encode(snapshot: Snapshot) -> bytes:
    return _ENCODER.encode(snapshot)


def decode(data: bytes) -> Snapshot:
    try:
        return _DECODER.decode(data)
    except UNDECODABLE as error:
        raise FrameError(f"invalid snapshot: {error}") from None


def split(data: bytes, part_bytes: int, incarnation: int) -> list[SnapshotPart]:
    """Parts that fit into messages."""
    digest = _digest(data)
    pieces = [data[at : at + part_bytes] for at in range(0, len(data), part_bytes)] or [b""]
    return [SnapshotPart(incarnation, n, len(pieces), digest, piece) for n, piece in enumerate(pieces)]


class Assembly:
    """Parts of one snapshot as they come in; a corrupt one is refused."""

    def __init__(self) -> None:
        self._digest = b""
        self._count = 0
        self._parts: dict[int, bytes] = {}

    def add(self, part: SnapshotPart) -> Snapshot | None:
        """The snapshot once it is whole. Parts of another one begin anew."""
        if (part.digest, part.parts) != (self._digest, self._count):
            self._digest, self._count = part.digest, part.parts
            self._parts = {}
        if part.number >= part.parts:
            raise FrameError(f"invalid part {part.number} of a snapshot of {part.parts} parts")
        self._parts[part.number] = part.data
        if len(self._parts) < part.parts:
            return None
        data = b"".join(self._parts[number] for number in range(part.parts))
        self._parts = {}
        self._digest = b""
        if _digest(data) != part.digest:
            raise FrameError("the snapshot is corrupt; it is refused, and another one is requested")
        return decode(data)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
