"""Which bucket a key belongs to: the same answer for one key in Python, for a column in NumPy, and in Spark.

The hash is XXH64 with seed 42 over the key's canonical bytes, column after column, each column's hash being the next
one's seed. That is what Spark's `xxhash64(columns…)` computes.

Bucket i of n holds a range of hashes, those from i·2^64/n up to (i+1)·2^64/n: so buckets split and merge without that
all keys move. Earlier releases spread keys by the hash modulo n; what they wrote is still read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash

from unerring.model import CallerError, Key, Value

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

SEED: Final = 42
BUCKETS_MAX: Final = 4096

_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_NAN_BITS: Final = struct.pack("<Q", 0x7FF8000000000000)


class Spread(msgspec.Struct, frozen=True):
    """How keys are spread over buckets."""

    buckets: int
    ranges: bool = True
    """By ranges of the hash; else by the hash modulo the number of buckets, as in earlier releases."""

    def of(self, key: Key) -> int:
        """The bucket of one key. A TIME value is given as microseconds, as everywhere."""
        digest = hash_of(key) if key else 0
        return digest * self.buckets >> 64 if self.ranges else _signed(digest) % self.buckets

    def of_columns(self, columns: list[pa.Array | pa.ChunkedArray], rows: int) -> np.ndarray[Any, Any]:
        """The bucket of each row, from its key columns."""
        import numpy as np

        if not columns:
            return np.zeros(rows, dtype=np.int64)
        hashes = hashes_of(columns, rows)
        if not self.ranges:
            return hashes.view(np.int64) % np.int64(self.buckets)
        # The upper half of a product of 128 bits, from two products that fit into 64.
        high, low = hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF)
        count = np.uint64(self.buckets)
        return ((high * count + (low * count >> np.uint64(32))) >> np.uint64(32)).view(np.int64)

    def holding(self, bucket: int, other: Spread) -> range:
        """The buckets of this spread that may have keys of one bucket of another."""
        if self == other:
            return range(bucket, bucket + 1)
        if not (self.ranges and other.ranges):
            return range(self.buckets)
        first = bucket * self.buckets // other.buckets
        return range(first, -(-(bucket + 1) * self.buckets // other.buckets))


def bucket_of(key: Key, buckets: int) -> int:
    """The bucket of one key, by ranges."""
    return Spread(buckets).of(key)


def buckets_of(columns: list[pa.Array | pa.ChunkedArray], rows: int, buckets: int) -> np.ndarray[Any, Any]:
    """The bucket of each row, by ranges, from its key columns."""
    return Spread(buckets).of_columns(columns, rows)


def hash_of(key: Key) -> int:
    """The hash of one key."""
    seed = SEED
    for value in key:
        seed = xxhash.xxh64_intdigest(canonical_bytes(value), seed)
    return seed


def hashes_of(columns: list[pa.Array | pa.ChunkedArray], rows: int) -> np.ndarray[Any, Any]:
    """The hash of each row's key."""
    import numpy as np

    seeds = np.full(rows, SEED, dtype=np.uint64)
    for column in columns:
        seeds = _hash_column(column, seeds)
    return seeds


def canonical_bytes(value: Value) -> bytes:
    """A value's bytes: equal values have equal bytes (−0.0 is 0.0, every NaN is one NaN)."""
    match value:
        case bool():
            return struct.pack("<i", value)
        case int():
            return struct.pack("<q", value)
        case float():
            return _NAN_BITS if value != value else struct.pack("<d", value + 0.0)
        case str():
            return value.encode()
        case bytes():
            return value
    raise CallerError(f"{value!r} cannot be part of a key; use bool, int, float, str, bytes or a time")


def _signed(digest: int) -> int:
    return digest - (1 << 64) if digest >> 63 else digest


def _hash_column(column: pa.Array | pa.ChunkedArray, seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_boolean(array.type):
        return _hash_4(array.cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.uint64), seeds)
    if pa.types.is_timestamp(array.type) or pa.types.is_int64(array.type):
        return _hash_8(array.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64), seeds)
    if pa.types.is_float64(array.type):
        numbers = array.to_numpy(zero_copy_only=False) + 0.0
        bits = np.where(np.isnan(numbers), np.float64("nan"), numbers).view(np.uint64)
        return _hash_8(np.where(np.isnan(numbers), np.uint64(0x7FF8000000000000), bits), seeds)
    return _hash_text(array, seeds)


def _hash_text(array: pa.Array, seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Each distinct (text, seed) is hashed once: keys repeat far more often than they are new."""
    import numpy as np
    import pyarrow as pa

    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    words = [canonical_bytes(word) for word in coded.dictionary.to_pylist()]
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if len(seeds) and (seeds == seeds[0]).all():
        seed = int(seeds[0])
        hashed: np.ndarray[Any, Any] = np.array([xxhash.xxh64_intdigest(w, seed) for w in words], dtype=np.uint64)[
            codes
        ]
        return hashed
    pairs, where = np.unique(np.stack([codes.view(np.uint64), seeds]), axis=1, return_inverse=True)
    digests = np.array(
        [xxhash.xxh64_intdigest(words[int(code)], int(seed)) for code, seed in pairs.T.tolist()], dtype=np.uint64
    )
    mixed: np.ndarray[Any, Any] = digests[where.reshape(-1)]
    return mixed


def _hash_8(values: np.ndarray[Any, Any], seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """XXH64 of eight bytes each, for whole columns."""
    import numpy as np

    with np.errstate(over="ignore"):
        lane = _rotate(values * np.uint64(_P2), 31) * np.uint64(_P1)
        state = (seeds + np.uint64(_P5) + np.uint64(8)) ^ lane
        return _avalanche(_rotate(state, 27) * np.uint64(_P1) + np.uint64(_P4))


def _hash_4(values: np.ndarray[Any, Any], seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    with np.errstate(over="ignore"):
        state = (seeds + np.uint64(_P5) + np.uint64(4)) ^ (values * np.uint64(_P1))
        return _avalanche(_rotate(state, 23) * np.uint64(_P2) + np.uint64(_P3))


def _rotate(values: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    import numpy as np

    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(state: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    state = (state ^ (state >> np.uint64(33))) * np.uint64(_P2)
    state = (state ^ (state >> np.uint64(29))) * np.uint64(_P3)
    mixed: np.ndarray[Any, Any] = state ^ (state >> np.uint64(32))
    return mixed
