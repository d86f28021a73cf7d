"""The messages between producers and consumers.

| message | from → to | when |
|---|---|---|
| Frames | producer → all; producer → one (replay) | events were published; an answer to a NACK |
| Heartbeat | producer → all; producer → one | a burst went idle; a first Ack; an empty NACK; a watermark |
| Nack | consumer → producer; consumer → peer | a gap, after a short pause; repeated with growing pauses |
| Peer | consumer → producer | it keeps signed batches and can be asked for them |
| Evicted | producer → consumer | a NACK for frames that are gone: the lowest sequence still there |
| Gone | relay → consumer | a NACK for frames that are lost to the relay, and so to all behind it |
| Ack | consumer → producer | the first registers, all acknowledge: cumulative, at intervals |
| Stale | consumer → producer | a frame of a lower epoch: its sender has been succeeded |
| Newcomer | consumer → producer | a consumer starts, or starts again after a loss: what must it know? |
| Initial | producer → consumer | the application's initial information, at a cut between two publishes |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from unerring.model import Message, ProtocolError

SEQUENCE_MAX: Final = (1 << 48) - 1
ORDINAL_MAX: Final = (1 << 32) - 1
"""Behind this nothing of a time follows."""
EPOCH_MAX: Final = (1 << 40) - 1
NAME_CHARS_MAX: Final = 1024
RANGES_MAX: Final = 1 << 14

# What a number or a text from outside can be at all; whether it is plausible now, the machines say.
ProducerId = Annotated[int, Meta(ge=0)]
Epoch = Annotated[int, Meta(ge=0, le=EPOCH_MAX)]
Number = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
Time = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Signature = Annotated[bytes, Meta(max_length=64)]
Range = tuple[Number, Number]
"""First and last sequence, both included."""
Ranges = Annotated[tuple[Range, ...], Meta(max_length=RANGES_MAX)]

PresentEpoch = Callable[[int], int]
"""The epoch that a producer which starts at this `now` would take: what lies far beyond it, no clock has given."""


def any_epoch(now: int) -> int:
    """Where no clock stands behind the epochs."""
    return EPOCH_MAX


def check_epoch(epoch: int, most: int) -> None:
    """Refuse an epoch that no producer can have yet: once believed, it would shut out the right one."""
    if epoch > most:
        raise ProtocolError(
            f"epoch {epoch} is above {most}, the highest that a clock can have given by now; check the sender's clock"
        )


def _check_ranges(ranges: tuple[Range, ...]) -> None:
    before = 0
    for first, last in ranges:
        if not before < first <= last:
            raise ValueError(f"ranges are not in order: {first} to {last} after {before}")
        before = last


def producer_id(name: str) -> int:
    """The eight bytes that stand for a producer's name in every frame."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class Frames(msgspec.Struct, frozen=True, gc=False):
    """Consecutive events of one producer: the unit on the wire, in the replay buffer and in hold-back."""

    producer: int
    epoch: int
    first: int
    times: Sequence[int]
    payloads: Sequence[bytes]
    ordinals: Sequence[int] | None = None
    size: int = 0
    """Bytes of all payloads, for the bounds: counted once, where the frames are made. A batch that came over the wire
    counts the few bytes of their lengths too."""
    signature: bytes = b""
    """The producer's, on the batch as it was published; a part of a batch has none."""
    more: bool = False
    """More events of its last time may follow. Otherwise it is a watermark of that time."""

    @property
    def last(self) -> int:
        return self.first + len(self.payloads) - 1

    def cut(self, first: int, last: int) -> Frames:
        """The part of its events that lies in [first, last]."""
        low, high = max(first - self.first, 0), last - self.first + 1
        if low == 0 and high >= len(self.payloads):
            return self
        payloads = self.payloads[low:high]
        return Frames(
            self.producer,
            self.epoch,
            self.first + low,
            self.times[low:high],
            payloads,
            None if self.ordinals is None else self.ordinals[low:high],
            sum(map(len, payloads)),
            more=self.more or high < len(self.payloads),
        )


def joined(parts: Sequence[Frames]) -> list[Frames]:
    """The same events in as few frames as possible: neighbours without a gap between them become one."""
    runs: list[list[Frames]] = []
    for frames in parts:
        before = runs[-1][-1] if runs else None
        if (
            before is not None
            and before.last + 1 == frames.first
            and (before.producer, before.epoch) == (frames.producer, frames.epoch)
        ):
            runs[-1].append(frames)
        else:
            runs.append([frames])
    return [_join(run) if len(run) > 1 else run[0] for run in runs]


def _join(run: Sequence[Frames]) -> Frames:
    head = run[0]
    ordinals: list[int] | None = None
    if any(frames.ordinals for frames in run):
        ordinals = [n for frames in run for n in frames.ordinals or [0] * len(frames.payloads)]
    return Frames(
        head.producer,
        head.epoch,
        head.first,
        [time for frames in run for time in frames.times],
        [payload for frames in run for payload in frames.payloads],
        ordinals,
        sum(frames.size for frames in run),
        more=run[-1].more,
    )


class Heartbeat(Message, frozen=True, gc=False):
    """The producer's name and direct address, and the last sequence it published (0: none yet)."""

    producer: ProducerId
    epoch: Epoch
    last: Number
    name: Name
    direct: Name
    previous_epoch: Epoch = 0
    previous_last: Number | None = None
    """The epoch before this one, and where it ended, if a durable mark tells."""
    key: Annotated[bytes, Meta(max_length=NAME_CHARS_MAX)] = b""
    """The public key that checks its signed batches."""
    peers: Annotated[tuple[Name, ...], Meta(max_length=RANGES_MAX)] = ()
    """The consumers that keep its signed batches and can be asked for them in its place."""
    watermark_us: Time | None = None
    """A watermark: whatever comes behind `last` is stamped later than this."""
    signature: Signature = b""
    """The producer's, on all of it."""


class Nack(Message, frozen=True, gc=False):
    producer: ProducerId
    epoch: Epoch
    ranges: Ranges
    signed: bool = False
    """Asked of a peer: only whole batches with their producer's signature are of use."""
    bytes_max: Annotated[int, Meta(ge=0)] = 0
    """What one frame of the answer may weigh; 0: not said. A single event is sent whatever it weighs."""

    def __post_init__(self) -> None:
        _check_ranges(self.ranges)


class Evicted(Message, frozen=True, gc=False):
    """Everything below `lowest` is gone."""

    producer: ProducerId
    epoch: Epoch
    lowest: Annotated[int, Meta(ge=1, le=SEQUENCE_MAX + 1)]
    signature: Signature = b""


class Gone(Message, frozen=True, gc=False):
    """These will never come."""

    producer: ProducerId
    epoch: Epoch
    ranges: Ranges


class Peer(Message, frozen=True, gc=False):
    """Ask me too: at `address`."""

    producer: ProducerId
    epoch: Epoch
    address: Name


class Ack(Message, frozen=True, gc=False):
    """Retention for this consumer starts behind what it has accepted."""

    producer: ProducerId
    epoch: Epoch
    consumer: Name
    accepted: Number


class Stale(Message, frozen=True, gc=False):
    producer: ProducerId
    epoch: Epoch
    current: Epoch


class Newcomer(Message, frozen=True, gc=False):
    producer: ProducerId
    epoch: Epoch


class Initial(Message, frozen=True, gc=False):
    """What the application tells a newcomer; it stands for everything up to the cut."""

    producer: ProducerId
    epoch: Epoch
    cut: Number
    information: bytes
    name: Name
    direct: Name
    signature: Signature = b""


Control = Heartbeat | Nack | Evicted | Gone | Peer | Ack | Stale | Newcomer | Initial


class Asked(msgspec.Struct, frozen=True, gc=False):
    """To the producer's application: somebody new wants its initial information; answer with `welcome`, at once."""

    consumer: str


class Watermark(msgspec.Struct, frozen=True, gc=False):
    """To the consumer's application, in its place in the stream: nothing at or before this time follows."""

    producer: int
    epoch: int
    last: int
    """The sequence behind which it stands."""
    watermark_us: int


class Loss(msgspec.Struct, frozen=True, gc=False):
    """A range that this consumer will never deliver, in its place in the stream. `last` None: an unknown end, and with
    it epochs behind that nothing came of: a producer may begin again several times before anyone hears of it.

    With `information`, the producer's initial information stands for it; the range may then be empty.
    """

    producer: int
    epoch: int
    first: int
    last: int | None
    cause: str
    information: bytes | None = None

    @property
    def count(self) -> int | None:
        return None if self.last is None else self.last - self.first + 1
