"""A producer's records on stable storage: its epoch, the mark of a clean close, and, if it is durable, its buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from unerring.channels.codec import ChannelCodec
from unerring.channels.messages import Frames

_EPOCH: Final = "channel/epoch"
_CLOSED_AT: Final = "channel/closed_at"
_LAST: Final = "channel/last"
_FRAME: Final = "channel/frame/"
_REGISTERED: Final = "channel/registered/"
_UNCONFIRMED: Final = b"once"
"""The record of a consumer that was heard of once."""
_SIGNING: Final = "channel/signing"
_SUCCEEDED: Final = "channel/succeeded"


class Recovered(msgspec.Struct, frozen=True):
    """An earlier incarnation, as far as it is on record."""

    epoch: int = 0
    closed_at: int | None = None
    last: int | None = None
    """The last sequence of a durable producer; None if it was not durable."""
    last_stamp: tuple[int, int] | None = None
    frames: tuple[Frames, ...] = ()
    registered: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    """Those of them that were heard of once."""
    signing_seed: bytes = b""
    succeeded: int = 0
    """The epoch for which it stopped; 0: it did not."""


def recover(records: Mapping[str, bytes], codec: ChannelCodec) -> Recovered:
    """Read the records back, frames in the order of their sequences."""
    closed, last = records.get(_CLOSED_AT), records.get(_LAST)
    fields = (None, None, None) if last is None else tuple(int(part) for part in last.split())
    sequence, time, ordinal = fields
    return Recovered(
        epoch=int(records.get(_EPOCH, b"0")),
        closed_at=None if closed is None else int(closed),
        last=sequence,
        last_stamp=None if time is None or ordinal is None else (time, ordinal),
        frames=tuple(codec.decode(records[key]) for key in sorted(records) if key.startswith(_FRAME)),
        registered=tuple(map(_consumer, filter(_is_registered, sorted(records)))),
        unconfirmed=tuple(
            _consumer(key) for key in filter(_is_registered, sorted(records)) if records[key] == _UNCONFIRMED
        ),
        signing_seed=records.get(_SIGNING, b""),
        succeeded=int(records.get(_SUCCEEDED, b"0")),
    )


def _is_registered(key: str) -> bool:
    return key.startswith(_REGISTERED)


def _consumer(key: str) -> str:
    return key.removeprefix(_REGISTERED)


def epoch_put(epoch: int) -> tuple[str, bytes]:
    return _EPOCH, b"%d" % epoch


def closed_put(last: int) -> tuple[str, bytes]:
    return _CLOSED_AT, b"%d" % last


def succeeded_put(epoch: int) -> tuple[str, bytes]:
    return _SUCCEEDED, b"%d" % epoch


CLOSED_KEY: Final = _CLOSED_AT
SUCCEEDED_KEY: Final = _SUCCEEDED
LAST_KEY: Final = _LAST


def last_put(last: int, stamp: tuple[int, int]) -> tuple[str, bytes]:
    return _LAST, b"%d %d %d" % (last, *stamp)


def frame_key(first: int) -> str:
    """Sorts as the sequences do."""
    return f"{_FRAME}{first:015d}"


def registered_put(consumer: str, confirmed: bool) -> tuple[str, bytes]:
    return _REGISTERED + consumer, b"" if confirmed else _UNCONFIRMED


def registered_key(consumer: str) -> str:
    return _REGISTERED + consumer


def signing_put(seed: bytes) -> tuple[str, bytes]:
    return _SIGNING, seed
