"""Bit rot in what the rules' states on Spark are kept in: found before anything of it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from unerring.model import TIME_MIN, LogError, protect
from unerring.pipeline import savepoints
from unerring.pipeline.intervals import Bounds, Front
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition, read_state
from unerring.pipeline.states import SAVEPOINTS, STATES, States, partition_at
from unerring.pipeline.streamed import Reading, _kept, _State
from unerring.pipeline.versions import enter

from .worlds import TYPED, advance, missing, pair, random_events, write

PLANS = (pair("Pairs", TYPED, "A", "B", 40), missing("Misses", TYPED, "A", "B", 15))
AT_US = 200


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Level, Partition]:
    """A level with open matches, its state kept as a state, as a savepoint and as where it started."""
    [level] = levels_of(PLANS, (TYPED,), str(tmp_path), 1)
    enter(level)
    write(level.log.create(TYPED, 1), random_events(1, 60, 5), [100], AT_US)
    partition = Partition(level, 0)
    advance(level, [partition], AT_US)
    States(level).begin(TIME_MIN)
    States(level).keep(partition)
    savepoints.keep(partition)
    assert partition.keys
    return level, partition


def flips(data: bytes, step: int) -> list[bytes]:
    return [data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :] for at in range(0, len(data), step)]


def flip_all(path: Path, read: Callable[[], object], step: int) -> None:
    """Whatever byte is flipped, reading ends with the file's name; with the right ones it goes on."""
    whole = path.read_bytes()
    for flipped in flips(whole, step):
        path.write_bytes(flipped)
        with pytest.raises(LogError, match=str(path)):
            read()
    path.write_bytes(whole)
    read()


def test_every_byte_of_states_and_savepoints_is_protected(kept: tuple[Level, Partition]) -> None:
    level, partition = kept
    for folder in (STATES, SAVEPOINTS):
        [state] = (Path(level.address) / folder).glob("*/[0-9]*")
        flip_all(state, partial(States(level, folder).partition_at, 0, AT_US), 37)
    [began] = Path(level.address).glob("states/*/began")
    flip_all(began, States(level).began, 1)
    for flipped in flips(partition.snapshot(), 1):
        with pytest.raises(LogError, match="somewhere"):
            read_state(flipped, level, 0, 1, AT_US, "somewhere")
    assert partition_at(level, 0, AT_US).snapshot() == partition.snapshot()


def test_every_byte_of_a_frames_state_in_sparks_own_store_is_protected(kept: tuple[Level, Partition]) -> None:
    _, partition = kept
    state = partition.snapshot()
    reading = Reading(PLANS[0], ("key", "type", "v"), ("key",), "time")
    with pytest.raises(LogError, match="rule Pairs: the state in the query's checkpoint is damaged"):
        _kept(flips(state, 1)[-1], reading)
    old = _State(5, b"", b"engine")
    assert _kept(msgspec.msgpack.encode(old), reading) == old


def test_a_state_in_the_place_of_another_is_refused(kept: tuple[Level, Partition]) -> None:
    level, _ = kept
    [state] = Path(level.address).glob("states/*/[0-9]*")
    before = state.with_name(f"{AT_US - 1 - TIME_MIN:019d}.0of1")
    before.write_bytes(state.read_bytes())
    with pytest.raises(LogError, match=f"{before} is the state at 200, not at 199: it was swapped"):
        States(level).partition_at(0, AT_US - 1)


def test_a_state_of_another_form_is_refused(kept: tuple[Level, Partition]) -> None:
    level, _ = kept
    [state] = Path(level.address).glob("states/*/[0-9]*")
    for older, why in (([level.version, 0, AT_US, []], "another release"), ([3, level.version, 0, 1, 0, [], []], "3")):
        state.write_bytes(protect(msgspec.msgpack.encode(older)))
        with pytest.raises(LogError, match=f"{state} is a state (in the form of {why}|of format {why})"):
            States(level).partition_at(0, AT_US)


def test_an_interval_of_a_damaged_checkpoint_is_not_run(kept: tuple[Level, Partition]) -> None:
    """Hadoop keeps a checksum of Spark's own files on a local disk, but not everywhere."""
    level, _ = kept
    front = Front(level, Bounds())
    end_us = front.reached_us()
    front.check(end_us)
    flipped_us = end_us ^ 1 << 20
    with pytest.raises(LogError, match=f"has an interval up to {flipped_us}, and stream Typed ends at {end_us}"):
        front.check(flipped_us)
