"""Tables that give keys numbers, in the order of arrival: of integers, of few keys of any type, and of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from unerring.matching.kernel.columns import Array
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.state import Room, keys_more
from unerring.matching.outputs import canonical_key
from unerring.model import Key

LOOK_UP: Final = """

def look_up(n, first, values, slots, held, M, out):
    mask = len(slots) - 1
    for i in range(first, n):
        v = values[i]
        h = (v ^ (v >> 31)) * -7046029254386353131
        tag = (h >> 33) & 2147483647
        at = (h ^ (h >> 29)) & mask
        while True:
            slot = slots[at]
            if slot == -1:
                if M[0] == len(held):
                    return i
                slots[at] = (tag << 32) | M[0]
                held[M[0]] = v
                out[i] = M[0]
                M[0] += 1
                break
            if slot >> 32 == tag and held[slot & 4294967295] == v:
                out[i] = slot & 4294967295
                break
            at = (at + 1) & mask
    return n


def place(n, held, slots):
    mask = len(slots) - 1
    for number in range(n):
        v = held[number]
        h = (v ^ (v >> 31)) * -7046029254386353131
        at = (h ^ (h >> 29)) & mask
        while slots[at] != -1:
            at = (at + 1) & mask
        slots[at] = (((h >> 33) & 2147483647) << 32) | number
"""
"""A table with open addressing. A slot is the number of a key and 31 bits of its hash, so that the key itself is looked
at only where it is likely to be the one. Stops where there is no room for another key."""

FULL: Final = 0.8
"""The share of slots that may be taken."""
FEW_MAX: Final = 1 << 15
"""So many keys that are not one integer are kept as objects, which is quicker; more, as bytes."""


class IntegerTable:
    """Integer keys of any size: 8 bytes for the key, and 8 for a slot, of which at least every fifth is free."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.slots = room.longer(np.empty(0, np.int64), 8, -1)
        self.held = room.longer(np.empty(0, np.int64), 4)
        """The key of each number."""
        self._counted = np.zeros(1, np.int64)

    @property
    def size(self) -> int:
        return int(self._counted[0])

    def numbers(self, values: Array, functions: Functions) -> Array:
        out = np.empty(len(values), np.int64)
        row = 0
        with np.errstate(over="ignore"):  # a hash may wrap
            while True:
                table = (self.slots, self.held, self._counted)
                row = int(functions["look_up"](len(values), row, values, *table, out))
                if row == len(values):
                    return out
                self._grow(functions)

    def _grow(self, functions: Functions) -> None:
        self.held = self.room.longer(self.held, keys_more(len(self.held), len(self.held) + 1))
        if len(self.held) > FULL * len(self.slots):
            slots = 2 * len(self.slots)
            del self.slots
            self.slots = self.room.longer(np.empty(0, np.int64), slots, -1)
            functions["place"](self.size, self.held, self.slots)


class ObjectTable:
    """Few keys of any type, as they are."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._numbers: dict[Key, int] = {}

    @property
    def size(self) -> int:
        return len(self._keys)

    def _add(self, key: Key) -> int:
        number = self._numbers.setdefault(key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(key)
        return number

    def numbers(self, keys: Sequence[Key], functions: Functions) -> Array:
        return np.fromiter((self._add(canonical_key(key)) for key in keys), np.int64, len(keys))

    def keys(self, numbers: Array) -> list[Key]:
        return [self._keys[number] for number in numbers.tolist()]


class BytesTable:
    """Many keys of any type: their bytes, one after the other, where each of them begins, and a table of their hashes.

    Two keys may have one hash: the second is then found by the hash of its bytes and a number behind them.
    """

    def __init__(self, room: Room, hash_of: Callable[[bytes], int] = hash) -> None:
        self.room = room
        self._hash_of = hash_of
        self.hashes = IntegerTable(room)
        self.bytes = room.longer(np.empty(0, np.uint8), 1 << 16)
        self.begins = room.longer(np.empty(0, np.int64), 1 << 10)
        """Of every number, and where the last key ends."""
        self.size = 0

    def numbers(self, keys: Sequence[Key], functions: Functions) -> Array:
        coded = [_ENCODER.encode(canonical_key(key)) for key in keys]
        hashes = np.fromiter(map(self._hash_of, coded), np.int64, len(coded))
        numbers = self.hashes.numbers(hashes, functions)
        others = [at for at, number in enumerate(numbers.tolist()) if not self._is_at(number, coded[at])]
        for at in others:
            numbers[at] = self._beside(coded[at], functions)
        return numbers

    def _beside(self, coded: bytes, functions: Functions) -> int:
        """The number of a key whose hash another one has."""
        for salt in range(1 << 32):
            salted = np.array([self._hash_of(coded + salt.to_bytes(4))], np.int64)
            number = int(self.hashes.numbers(salted, functions)[0])
            if self._is_at(number, coded):
                return number
        raise OverflowError("a hash that is the same for all keys")

    def _is_at(self, number: int, coded: bytes) -> bool:
        """Whether a number is that of a key; a number that is new is from now on."""
        begin = int(self.begins[number])
        if number < self.size:
            return self.bytes[begin : int(self.begins[number + 1])].tobytes() == coded
        end = begin + len(coded)
        if end > len(self.bytes):
            self.bytes = self.room.longer(self.bytes, max(len(coded), min(len(self.bytes), 1 << 24)))
        if number + 1 == len(self.begins):
            self.begins = self.room.longer(self.begins, keys_more(len(self.begins), len(self.begins) + 1))
        self.bytes[begin:end] = np.frombuffer(coded, np.uint8)
        self.begins[number + 1] = end
        self.size += 1
        return True

    def keys(self, numbers: Array) -> list[Key]:
        ends = zip(self.begins[numbers].tolist(), self.begins[numbers + 1].tolist(), strict=True)
        return [_DECODER.decode(self.bytes[begin:end].tobytes()) for begin, end in ends]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(tuple[Any, ...])
