"""Configuration: frozen, checked when built; the cluster's part has a fingerprint that any difference changes."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, strategies as st

from unerring.model import ClusterConfig, ConfigError, ProcessConfig, check


class Window(ClusterConfig, frozen=True):
    length_us: int = 10
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self, "length_us", 1, 1000)


class Door(ClusterConfig, frozen=True):
    length_us: int = 10
    names: tuple[str, ...] = ()


class Patience(ProcessConfig, frozen=True):
    share: float = 0.5

    def __post_init__(self) -> None:
        check(self, "share", 0, 1)


lengths = st.integers(1, 1000)
name_tuples = st.lists(st.text(max_size=3), max_size=3).map(tuple)


@given(lengths, name_tuples, lengths, name_tuples)
def test_fingerprints_are_equal_exactly_when_the_values_are(
    length: int, names: tuple[str, ...], other_length: int, other_names: tuple[str, ...]
) -> None:
    one, other = Window(length, names), Window(other_length, other_names)
    assert (one.fingerprint() == other.fingerprint()) == (one == other)
    assert one.fingerprint() == Window(length, names).fingerprint()


def test_another_kind_of_config_with_the_same_values_is_another() -> None:
    assert Window().fingerprint() != Door().fingerprint()


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    # Hash seeds differ between processes; members that differ in nothing else must agree.
    program = (
        "from unerring.model import ClusterConfig\n"
        "class Window(ClusterConfig, frozen=True):\n"
        "    length_us: int = 10\n"
        "    names: tuple[str, ...] = ()\n"
        "print(Window(7, ('a', 'b')).fingerprint())\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    assert told.stdout.strip() == Window(7, ("a", "b")).fingerprint()


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), float("-inf")])
def test_a_value_out_of_its_bounds_is_refused_by_name(value: float) -> None:
    with pytest.raises(ConfigError, match=r"Patience\.share is .*; it must be between 0 and 1"):
        Patience(value)


@pytest.mark.parametrize("value", [0, 0.5, 1])
def test_bounds_are_inclusive(value: float) -> None:
    assert Patience(value).share == value


def test_a_config_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Window().length_us = 3  # type: ignore[misc]


def test_a_misspelt_option_is_refused_when_read() -> None:
    with pytest.raises(msgspec.ValidationError, match="lenght_us"):
        msgspec.json.decode(b'{"lenght_us": 3}', type=Window)
