"""SQLite's write-ahead log: whether a transaction in it is damaged that was once whole.

SQLite takes frames up to the first one whose checksum is wrong, and passes over the rest without a word. That is right
after a loss of power in the middle of the last transaction, but a flipped bit in an earlier one makes it forget all
that came after, which was acknowledged. Each transaction is synced before the next one begins, so a wrong frame with
a later transaction behind it is damage. (Of the last one nobody can say.) The format: sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F0682
"""The last bit says how words are read for checksums."""


def wrong_in(path: Path) -> str:
    """The damage of a database's write-ahead log; empty if it has none."""
    try:
        wal = path.with_name(f"{path.name}-wal").read_bytes()
    except FileNotFoundError:
        return ""
    if len(wal) <= _HEADER.size + _FRAME.size:
        return ""
    magic, _, page, _, *salts, one, two = _HEADER.unpack_from(wal)
    words = ">" if magic & 1 else "<"
    if magic & ~1 != _MAGIC or _sums(wal[: _HEADER.size - 8], words, (0, 0)) != (one, two):
        return "the head of its write-ahead log is damaged"
    frames = range(_HEADER.size, len(wal) - _FRAME.size - page + 1, _FRAME.size + page)
    known = [_FRAME.unpack_from(wal, at) for at in frames]
    ours = [number for number, frame in enumerate(known) if list(frame[2:4]) == salts]
    last = ours[-1] if ours else -1
    sums = (one, two)
    for number, frame in enumerate(known[: last + 1]):
        at = frames[number]
        data = wal[at : at + 8] + wal[at + _FRAME.size : at + _FRAME.size + page]
        sums = _sums(data, words, sums)
        if sums != frame[4:6] or list(frame[2:4]) != salts:
            ends = [later for later in ours if later >= number and known[later][1]]
            return f"frame {number + 1} of its write-ahead log is damaged" if ends and ends[0] < last else ""
    return ""


def _sums(data: bytes, words: str, sums: tuple[int, int]) -> tuple[int, int]:
    """Both running sums, modulo 2 to the power of 32, over pairs of words."""
    one, two = sums
    for first, second in struct.iter_unpack(f"{words}2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
