"""The number of a node's start rises, whatever its clock does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from unerring.runtime.starts import FOLDER, start_us

NOW_US = 1_800_000_000_000_000
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now_us = [NOW_US]
    monkeypatch.setattr(time, "time_ns", lambda: now_us[0] * 1000)
    return now_us


def test_it_rises_though_the_clock_is_set_back(clock: list[int], tmp_path: Path) -> None:
    assert start_us(tmp_path, "n0", DAY_US) == NOW_US
    clock[0] += HOUR_US
    assert start_us(tmp_path, "n0", DAY_US) == NOW_US + HOUR_US
    clock[0] -= HOUR_US
    assert [start_us(tmp_path, "n0", DAY_US) for _ in range(2)] == [NOW_US + HOUR_US + 1, NOW_US + HOUR_US + 2]
    assert start_us(tmp_path, "n1", DAY_US) == NOW_US, "each node has its own"
    clock[0] += 2 * HOUR_US
    assert start_us(tmp_path, "n0", DAY_US) == NOW_US + 2 * HOUR_US


def test_a_clock_further_ahead_than_peers_take_is_not_followed(clock: list[int], tmp_path: Path) -> None:
    clock[0] += 365 * DAY_US
    start_us(tmp_path, "n0", DAY_US)
    clock[0] = NOW_US
    assert start_us(tmp_path, "n0", DAY_US) == NOW_US


@pytest.mark.parametrize("content", [b"", b"1800000000000001", b"no number"])
def test_without_the_last_one_the_clock_says_it(content: bytes, clock: list[int], tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "n0").write_bytes(content)
    assert start_us(tmp_path, "n0", DAY_US) == NOW_US


def test_a_folder_that_cannot_be_written_keeps_nobody_from_starting(clock: list[int], tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file")
    assert start_us(tmp_path, "n0", DAY_US) == NOW_US
