"""Files that we write and read again carry a digest of all their bytes, looked at before anything in them is used.

A protected file is one line that people can read, `unerring/1 xxh3 <digest>`, and then the bytes themselves. In a file
that grows line by line each line ends with its own digest. XXH3 finds bit rot, not forgery; what must not be forged has
a SHA-256 hash besides.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, TypeVar

import msgspec
import xxhash

from unerring.model.errors import LogError

_HEAD: Final = b"unerring/1 xxh3 "
_ANY_HEAD: Final = re.compile(rb"unerring/\d+ ")
DIGEST_HEX: Final = 32
HASH_HEX: Final = 64
_TAIL: Final = b" xxh3 "
_TAIL_HEX: Final = 16
_REMEDY: Final = "restore it from a copy"

T = TypeVar("T")


def digest_of(*parts: Any) -> str:
    """The XXH3 digest (128 bits, as hexadecimal digits) of bytes that lie one after the other."""
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part)
    return state.hexdigest()


def sha256_of(*parts: Any) -> str:
    """The SHA-256 hash (as hexadecimal digits) of bytes that lie one after the other."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.hexdigest()


def protect(data: bytes) -> bytes:
    """The bytes of a protected file that holds `data`."""
    return _HEAD + digest_of(data).encode() + b"\n" + data


def is_protected(raw: bytes) -> bool:
    """False for a file of a release that did not protect its files (or for one whose first line is damaged)."""
    return raw.startswith(_HEAD)


def was_protected(raw: bytes) -> bool:
    """Whether half of what a protected file begins with is there, and the other half may be damaged; or it was cut off
    within that."""
    half = len(_HEAD) // 2
    return _HEAD.startswith(raw) or raw[:half] == _HEAD[:half] or raw[half : len(_HEAD)] == _HEAD[half:]


def verified(raw: bytes, where: str, remedy: str = _REMEDY) -> bytes:
    """The content of a protected file; LogError, with what to do, unless every byte is as it was written."""
    if not is_protected(raw):
        if _ANY_HEAD.match(raw):
            raise LogError(f"{where} was written by a newer release; use that one")
        raise LogError(f"{where} has no digest: it is damaged, or an older release wrote it; {remedy}")
    data = raw[len(_HEAD) + DIGEST_HEX + 1 :]
    if raw[len(_HEAD) : len(_HEAD) + DIGEST_HEX + 1] != digest_of(data).encode() + b"\n":
        raise LogError(f"{where} is damaged: its bytes do not match its digest; {remedy}")
    return data


def protect_json(value: Any) -> bytes:
    """A protected file with a value as JSON."""
    return protect(msgspec.json.encode(value))


def verified_json(raw: bytes, kind: type[T], where: str, remedy: str = _REMEDY) -> T:
    """The value in a protected file of JSON. A file of an older release, JSON without a digest, is taken as it is."""
    old = raw[:1] in (b"{", b"[")
    data = raw if old else verified(raw, where, remedy)
    try:
        return msgspec.json.decode(data, type=kind)
    except ValueError as error:
        raise LogError(f"{where} is damaged ({error}); {remedy}") from None


def protect_line(data: bytes) -> bytes:
    """One line of a file that grows, without its end of line."""
    return data + _TAIL + xxhash.xxh3_64_hexdigest(data).encode()


def verified_line(line: bytes, where: str) -> bytes:
    """The content of a protected line. A line of an older release, JSON that ends with a brace, is taken as it is."""
    if line.endswith(b"}"):
        return line
    data, tail = line[: -len(_TAIL) - _TAIL_HEX], line[-len(_TAIL) - _TAIL_HEX :]
    if tail != _TAIL + xxhash.xxh3_64_hexdigest(data).encode():
        raise LogError(f"{where} has a damaged line: its bytes do not match its digest; restore it from a copy")
    return data
