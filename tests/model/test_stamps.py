"""Stamps: exact in both directions, ordered as tuples, never without a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, SchemaError, Stamp, to_datetime, to_duration_us, to_time_us

zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)
times = st.integers(TIME_MIN, TIME_MAX)


@given(moments)
def test_a_moment_survives_the_way_to_microseconds_and_back(moment: datetime) -> None:
    assert to_datetime(to_time_us(moment)) == moment


@given(moments, moments)
def test_event_time_keeps_the_order_of_moments(one: datetime, other: datetime) -> None:
    assert (to_time_us(one) < to_time_us(other)) == (one < other)


@given(moments)
def test_event_time_does_not_depend_on_the_zone_a_moment_is_written_in(moment: datetime) -> None:
    assert to_time_us(moment.astimezone(UTC)) == to_time_us(moment)


def test_no_microsecond_is_lost_far_from_1970() -> None:
    # A float of seconds could not tell these two apart.
    late = datetime(9000, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)
    assert to_time_us(late) - to_time_us(late - timedelta(microseconds=1)) == 1


def test_times_before_1970_are_negative_and_exact() -> None:
    assert to_time_us(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


def test_a_moment_without_a_zone_is_refused_with_what_to_do() -> None:
    with pytest.raises(SchemaError, match=r"no time zone; use datetime\(\.\.\., tzinfo=UTC\)"):
        to_time_us(datetime(2024, 1, 1))


@given(times)
def test_an_int_is_microseconds_already(time_us: int) -> None:
    assert to_time_us(time_us) == time_us
    assert to_duration_us(time_us) == time_us


@given(st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)))
def test_durations_are_exact(duration: timedelta) -> None:
    assert timedelta(microseconds=to_duration_us(duration)) == duration


@given(times, st.integers(0, 2**31), times, st.integers(0, 2**31))
def test_stamps_are_ordered_by_time_then_ordinal(time: int, ordinal: int, other_time: int, other_ordinal: int) -> None:
    one, other = Stamp(time, ordinal), Stamp(other_time, other_ordinal)
    if time != other_time:
        assert (one < other) == (time < other_time)
    else:
        assert (one < other) == (ordinal < other_ordinal)
    assert one >= BEFORE_ALL


@pytest.mark.parametrize("time_us", [TIME_MAX, TIME_MIN])
def test_a_time_that_no_datetime_can_hold_is_named(time_us: int) -> None:
    with pytest.raises(SchemaError, match="outside the years 1 to 9999"):
        to_datetime(time_us)
