"""One key, one bucket: alone, in a column, and in Spark (see tests/pipeline for the last)."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from unerring.log import Spread, bucket_of, buckets_of
from unerring.log.buckets import hash_of
from unerring.model import CallerError

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(INT64, st.text(max_size=40), st.floats(), st.booleans(), st.binary(max_size=9)), max_size=30))
def test_a_column_of_keys_finds_the_same_buckets_as_each_key_alone(keys: list[tuple]) -> None:
    columns = [
        pa.array([key[i] for key in keys], kind)
        for i, kind in enumerate([pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.binary()])
    ]
    found = buckets_of(columns, len(keys), 7)
    assert found.tolist() == [bucket_of(key, 7) for key in keys]


@given(st.lists(st.text(), min_size=1))
def test_dictionary_columns_hash_as_plain_ones(words: list[str]) -> None:
    plain = pa.array(words, pa.string())
    assert (
        buckets_of([plain], len(words), 5).tolist() == buckets_of([plain.dictionary_encode()], len(words), 5).tolist()
    )


def test_equal_values_have_one_bucket() -> None:
    for buckets in (2, 8, 64):
        assert bucket_of((0.0,), buckets) == bucket_of((-0.0,), buckets)
        assert bucket_of((float("nan"),), buckets) == bucket_of((-float("nan"),), buckets)


def test_buckets_are_known_numbers_for_good() -> None:
    # The first are what Spark's pmod(xxhash64(...), 1000) gives; a change would make every log on disk unreadable.
    keys = [(0,), (1,), ("A",), ("machine-7", 3), (True,), (1.5,)]
    assert [Spread(1000, ranges=False).of(key) for key in keys] == [188, 418, 2, 525, 1, 366]
    assert [bucket_of(key, 1000) for key in keys] == [hash_of(key) * 1000 >> 64 for key in keys]
    assert [hash_of(key) for key in keys[:2]] == [0xB71B47EBDA15746C, 0x9ED50FD59358D232]


@given(key=st.integers(-(2**63), 2**63 - 1), one=st.integers(1, 4096), other=st.integers(1, 4096), ranges=st.booleans())
def test_a_key_lies_where_its_bucket_of_another_spread_may_have_keys(
    key: int, one: int, other: int, ranges: bool
) -> None:
    written, wanted = Spread(one, ranges=ranges), Spread(other)
    held = written.holding(wanted.of((key,)), wanted)
    assert written.of((key,)) in held
    if ranges and one % other == 0:
        assert len(held) == one // other
    if ranges and other % one == 0:
        assert len(held) == 1


@given(st.lists(INT64, min_size=1, max_size=30), st.integers(1, 4096), st.booleans())
def test_spreads_of_a_column_and_of_each_key_agree(keys: list[int], buckets: int, ranges: bool) -> None:
    spread = Spread(buckets, ranges=ranges)
    assert spread.of_columns([pa.array(keys, pa.int64())], len(keys)).tolist() == [spread.of((key,)) for key in keys]


def test_ranges_begin_and_end_where_they_say() -> None:
    spread = Spread(3)
    for bucket in range(3):
        first, last = -(-bucket * 2**64 // 3), -(-(bucket + 1) * 2**64 // 3) - 1
        assert [first * 3 >> 64, last * 3 >> 64] == [bucket, bucket]
    assert spread.of(()) == 0


def test_no_key_is_one_bucket() -> None:
    assert bucket_of((), 8) == 0
    assert buckets_of([], 3, 8).tolist() == [0, 0, 0]


def test_keys_spread() -> None:
    counts = np.bincount(buckets_of([pa.array(range(10_000), pa.int64())], 10_000, 8), minlength=8)
    assert counts.min() > 1100


def test_none_is_not_a_key() -> None:
    with pytest.raises(CallerError, match="cannot be part of a key"):
        bucket_of((None,), 4)


def test_a_stream_without_a_key_lies_in_the_first_bucket_whatever_the_spread() -> None:
    for spread in (Spread(4), Spread(4, ranges=False)):
        assert spread.of(()) == 0
        assert spread.of_columns([], 3).tolist() == [0, 0, 0]
