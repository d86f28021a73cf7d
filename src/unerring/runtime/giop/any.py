"""An Any that holds a sequence<octet>: the one kind of event that is ours. Others are told apart, never decoded."""

from __future__ import annotations

from typing import Final

from unerring.model import FrameError
from unerring.runtime.giop.cdr import Decoder, Encoder, encapsulation

TK_NULL: Final = 0
TK_VOID: Final = 1
TK_ULONG: Final = 5
TK_OCTET: Final = 10
TK_STRING: Final = 18
TK_SEQUENCE: Final = 19


class ForeignEvent(FrameError):
    """An event of another program on the same channel."""


def _octet_sequence() -> bytes:
    inner = encapsulation()
    inner.ulong(TK_OCTET)
    inner.ulong(0)  # no bound
    outer = Encoder()
    outer.ulong(TK_SEQUENCE)
    outer.octets(bytes(inner))
    return bytes(outer)


_OCTET_SEQUENCE: Final = _octet_sequence()
"""The TypeCode; a multiple of four long, so that it fits wherever a ulong does."""


def write_octets(encoder: Encoder, data: bytes) -> None:
    """An Any of sequence<octet>."""
    encoder.align(4)
    encoder.raw(_OCTET_SEQUENCE)
    encoder.octets(data)


def write_ulong(encoder: Encoder, value: int) -> None:
    """An Any of unsigned long."""
    encoder.ulong(TK_ULONG)
    encoder.ulong(value)


def write_string(encoder: Encoder, value: str) -> None:
    """An Any of string."""
    encoder.ulong(TK_STRING)
    encoder.ulong(0)  # no bound
    encoder.string(value)


def read_octets(decoder: Decoder) -> bytes | None:
    """The content of an Any of sequence<octet>; None for an empty Any. ForeignEvent: another type."""
    kind = decoder.ulong()
    if kind in (TK_NULL, TK_VOID):
        return None
    if kind != TK_SEQUENCE:
        raise ForeignEvent(f"an event of CORBA type {kind}, not a sequence of octets: another program's")
    inner = decoder.encapsulated()
    element = inner.ulong()
    if element != TK_OCTET:
        raise ForeignEvent(f"an event that is a sequence of CORBA type {element}, not of octets: another program's")
    return decoder.octets()
