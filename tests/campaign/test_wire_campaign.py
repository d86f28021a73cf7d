"""A long rain on the codec: no bytes, however made, may do anything but give a message or a FrameError."""

from __future__ import annotations

import random
from typing import Any

from unerring.model import Codec, FrameError, Message

ROUNDS = 2_000_000


class Whole(Message, frozen=True):
    number: int
    text: str
    parts: list[bytes]
    pairs: dict[str, float] | None = None
    anything: Any = None


def test_spoilt_messages_never_do_anything_else() -> None:
    chance = random.Random(7)
    codec = Codec(Whole, 4096)
    whole = Whole(2**40, "text", [b"one", b"two" * 20], {"a": 1.5}, [1, {"b": [None, True]}])
    clean = codec.encode(whole)
    taken = refused = 0
    for _ in range(ROUNDS):
        spoilt = bytearray(clean)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(spoilt) + 1)
            match chance.randrange(4):
                case 0:
                    spoilt[at : at + 1] = chance.randbytes(1)
                case 1:
                    del spoilt[at:]
                    spoilt += b"\x00"
                case 2:
                    spoilt[at:at] = chance.randbytes(3)
                case _:
                    spoilt[at : at + 2] = b""
        try:
            found = codec.decode(bytes(spoilt))
        except FrameError:
            refused += 1
        else:
            assert isinstance(found, Whole)
            taken += 1
    # Both must happen often, or the rain was too weak or too strong to say anything.
    assert taken > ROUNDS // 1000
    assert refused > ROUNDS // 10
