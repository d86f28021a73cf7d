"""The greeting between a consumer and a producer on TCP. It comes before anything else and is small."""

from __future__ import annotations

from typing import Final

from unerring.model import Address, Codec, Message

VERSION: Final = 2
HELLO_BYTES_MAX: Final = 4096


class Hello(Message, frozen=True):
    """A consumer's first frame. `subscribes`: pushed frames are wanted as well as direct ones."""

    version: int
    subscribes: bool


class Welcome(Message, frozen=True):
    """The producer's answer: where it is to be reached directly."""

    direct: Address


class Refused(Message, frozen=True):
    """The producer's other answer."""

    why: str


GREETINGS: Final = Codec(Hello | Welcome | Refused, HELLO_BYTES_MAX)
