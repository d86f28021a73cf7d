"""Bit rot in what the rules' states on Spark are kept in: found before anything of it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from unerring.model import TIME_MIN, LogError, verified
from unerring.pipeline import savepoints
from unerring.pipeline.intervals import Bounds, Front
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.share import Share
from unerring.pipeline.state_store import _share
from unerring.pipeline.states import States
from unerring.pipeline.streamed import Reading, _kept, _State
from unerring.pipeline.versions import enter

from .worlds import TYPED, advance, missing, pair, random_events, write

PLANS = (pair("Pairs", TYPED, "A", "B", 40), missing("Misses", TYPED, "A", "B", 15))
AT_US = 200


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Level, Share]:
    """A level with open matches, its state kept as a state, as a savepoint and as where it started."""
    [level] = levels_of(PLANS, (TYPED,), str(tmp_path), 1)
    enter(level)
    write(level.log.create(TYPED, 1), random_events(1, 60, 5), [100], AT_US)
    share = Share(level, 0)
    advance(level, [share], AT_US)
    States(level).begin(TIME_MIN)
    States(level).keep(share)
    savepoints.keep(level, AT_US, 0, share.snapshot())
    assert share.keys
    return level, share


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


def test_every_byte_of_states_and_savepoints_is_protected(kept: tuple[Level, Share]) -> None:
    level, share = kept
    [state] = (level.checkpoint / "states").glob("[0-9]*")
    flip_all(state, lambda: States(level).share_at(0, AT_US), 37)
    [savepoint] = (Path(level.data) / "savepoints").glob("*/*/0")
    flip_all(savepoint, lambda: savepoints.share_at(level, 0, AT_US), 37)
    flip_all(level.checkpoint / "states" / "start", States(level).begins_at, 1)
    other = Share(level, 0)
    for flipped in flips(share.snapshot(), 1):
        with pytest.raises(LogError, match="somewhere"):
            other.restore(flipped, AT_US, "somewhere")
    assert States(level).share_at(0, AT_US).snapshot() == share.snapshot()


def test_every_byte_of_a_state_in_sparks_own_store_is_protected(kept: tuple[Level, Share]) -> None:
    level, share = kept
    state = share.snapshot()
    assert _share(level, 0, AT_US, state).snapshot() == state
    for flipped in flips(state, 37):
        with pytest.raises(LogError, match="what Spark's store has for bucket 0"):
            _share(level, 0, AT_US, flipped)
    reading = Reading(PLANS[0], ("key", "type", "v"), ("key",), "time")
    with pytest.raises(LogError, match="rule Pairs: the state in the query's checkpoint is damaged"):
        _kept(flips(state, 1)[-1], reading)
    old = _State(5, b"", b"engine")
    assert _kept(msgspec.msgpack.encode(old), reading) == old


def test_a_state_that_sparks_own_store_lacks_is_not_replaced_by_an_empty_one(kept: tuple[Level, Share]) -> None:
    level, _ = kept
    assert _share(level, 0, TIME_MIN, None).through_us == TIME_MIN, "where the level started"
    with pytest.raises(LogError, match="Spark's store has no state of bucket 0 of level 1 at 300; remove that folder"):
        _share(level, 0, 300, None)


def test_a_state_in_the_place_of_another_is_refused(kept: tuple[Level, Share]) -> None:
    level, share = kept
    [state] = (level.checkpoint / "states").glob("[0-9]*")
    before = state.with_name(f"{AT_US - 1 - TIME_MIN:019d}.0")
    before.write_bytes(state.read_bytes())
    with pytest.raises(LogError, match=f"{before} is the state at 200, not at 199: it was swapped"):
        States(level).share_at(0, AT_US - 1)
    with pytest.raises(LogError, match="is the state at 200, not at 150"):
        _share(level, 0, 150, share.snapshot())


def test_states_of_a_release_without_digests_are_read(kept: tuple[Level, Share]) -> None:
    level, share = kept
    [state] = (level.checkpoint / "states").glob("[0-9]*")
    state.write_bytes(verified(state.read_bytes(), "here"))
    (level.checkpoint / "states" / "start").write_bytes(b"-17")
    assert States(level).share_at(0, AT_US).snapshot() == share.snapshot()
    assert States(level).begins_at() == -17


def test_an_interval_of_a_damaged_checkpoint_is_not_run(kept: tuple[Level, Share]) -> None:
    """Hadoop keeps a checksum of Spark's own files on a local disk, but not everywhere."""
    level, _ = kept
    front = Front(level, Bounds())
    end_us = front.reached_us()
    front.check(end_us)
    flipped_us = end_us ^ 1 << 20
    with pytest.raises(LogError, match=f"has an interval up to {flipped_us}, and stream Typed ends at {end_us}"):
        front.check(flipped_us)
