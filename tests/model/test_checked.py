"""Protected bytes: every flipped bit is found, and older files are read as they are."""

from __future__ import annotations

import msgspec
import pytest

from unerring.model import (
    LogError,
    is_protected,
    protect,
    protect_json,
    protect_line,
    verified,
    verified_json,
    verified_line,
)


class Kept(msgspec.Struct, frozen=True):
    name: str
    count: int = 0


def flips(data: bytes) -> list[bytes]:
    """The same bytes with one bit turned, for each bit."""
    return [data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :] for at in range(len(data)) for bit in range(8)]


def test_protected_bytes_come_back() -> None:
    for data in (b"", b"{}", bytes(range(256))):
        assert is_protected(protect(data))
        assert verified(protect(data), "here") == data


def test_every_flipped_bit_is_found() -> None:
    for raw in flips(protect(b"\x00some state\xff")):
        with pytest.raises(LogError, match="x/state"):
            verified(raw, "x/state")
    for raw in flips(protect_json(Kept("a", 12))):
        with pytest.raises(LogError, match=r"x/kept\.json"):
            verified_json(raw, Kept, "x/kept.json")
    for line in flips(protect_line(b'{"name":"a"}')):
        with pytest.raises(LogError, match="x/lines"):
            verified_line(line, "x/lines")


def test_every_cut_is_found() -> None:
    raw = protect_json(Kept("a", 12))
    for length in range(len(raw)):
        with pytest.raises(LogError):
            verified_json(raw[:length], Kept, "kept.json")


def test_json_of_an_older_release_is_read() -> None:
    assert verified_json(b'{"name":"a"}', Kept, "kept.json") == Kept("a")
    assert verified_json(b"[1,2]", tuple[int, int], "position.json") == (1, 2)
    assert verified_line(b'{"name":"a"}', "lines") == b'{"name":"a"}'


def test_bytes_that_are_no_text_are_a_sentence() -> None:
    for raw in (b'{"name":"\xff"}', protect(b'{"name":"\xff"}'), protect(b"{"), b""):
        with pytest.raises(LogError, match=r"kept\.json"):
            verified_json(raw, Kept, "kept.json")


def test_a_newer_release_is_named() -> None:
    with pytest.raises(LogError, match="newer release"):
        verified(b"unerring/2 crc ...", "x")
