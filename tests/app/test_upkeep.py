"""A run keeps its log small: it merges segments in the background, and removes what the app's rule lets go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.store_app import app as plain
from tests.pipeline import kills
from tests.pipeline.worlds import advance
from unerring import App
from unerring.app.parts import Parts
from unerring.app.place import Place, place_of
from unerring.app.upkeep import PART, Upkeep
from unerring.log import CompactionConfig, Retention
from unerring.model import CallerError, ConfigError
from unerring.pipeline import savepoints
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.states import partition_at
from unerring.pipeline.versions import enter
from unerring.rules.workloads import W1, W2, W3, Typed

SMALL = CompactionConfig(segments_min=4, newest_kept=2)


def run_over(level: Level, partitions: list[Partition], end_us: int, step_us: int) -> None:
    while partitions[0].through_us < end_us:
        advance(level, partitions, min(end_us, max(partitions[0].through_us, 0) + step_us))


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A run that is over, with twenty segments of its input and as many of each output."""
    on_s3 = request.param == "s3"
    address = f"{request.getfixturevalue('s3_bucket')}/{tmp_path.name}" if on_s3 else str(tmp_path / "run")
    made = place_of(address, tmp_path / "scratch")
    [level] = plain.levels(made)
    kills.prepare_level(level, seed=3, events=1000, rows=50)
    enter(level)
    partitions = [Partition(level, bucket) for bucket in range(level.buckets)]
    run_over(level, partitions, level.chains()["Typed"].through_us, 1_000_000)
    return made


def upkeep(place: Place, retention: Retention | None = None, said: list[str] | None = None) -> Upkeep:
    app = App("stored", rules=[W1, W2, W3], streams=[Typed], buckets=2, retention=retention)
    notes: list[str] = [] if said is None else said
    return Upkeep(app, place, Parts(), notes.append, SMALL, look_s=0.01)


def rows(place: Place, stream: str) -> list[dict[str, object]]:
    chain = place.log.chain(stream)
    return list(chain.read(chain.base.from_us, chain.refresh()).to_pylist())


def test_small_segments_are_merged_and_hold_the_same(place: Place) -> None:
    before = {name: rows(place, name) for name in ("Typed", "W1", "W2", "W3")}
    objects = place.log.chain("Typed").objects_held
    upkeep(place).compact()
    assert place.log.chain("Typed").objects_held < objects / 2
    assert {name: rows(place, name) for name in before} == before


def test_what_is_older_goes_and_a_state_is_kept_first(place: Place) -> None:
    said: list[str] = []
    whole = rows(place, "W1")
    end_us = place.log.chain("Typed").through_us
    upkeep(place, Retention(age_us=end_us // 4), said).retain()
    base_us = place.log.chain("Typed").base.from_us
    assert end_us // 2 < base_us <= end_us - end_us // 4
    left = rows(place, "W1")
    assert left == whole[-len(left) :]
    assert len(left) < len(whole)
    assert said[0].startswith("retention removed")
    # From what is kept, the rest is found again: an audit has where to start from.
    [level] = plain.levels(place)
    saved_us = savepoints.find(level)
    assert saved_us is not None
    assert saved_us >= base_us
    partitions = [partition_at(level, bucket, saved_us) for bucket in range(level.buckets)]
    again = []
    for partition in partitions:
        again += partition.advance(end_us, {"Typed": level.chains()["Typed"].spans(saved_us, end_us)})["W1"].to_pylist()
    assert len(again) == sum(row["time"] > saved_us for row in whole)  # type: ignore[operator]


def test_by_size_the_oldest_go(place: Place) -> None:
    chain = place.log.chain("Typed")
    upkeep(place, Retention(bytes_max=100_000)).retain()
    assert place.log.chain("Typed").base.from_us > chain.base.from_us
    before = place.log.chain("Typed").base.from_us
    upkeep(place, Retention(bytes_max=100_000)).retain()
    assert place.log.chain("Typed").base.from_us == before, "it is small enough now"


def test_nothing_is_removed_that_a_rule_has_not_read(place: Place) -> None:
    log = place.log
    typed = log.chain("Typed")
    typed.seal(typed.through_us + 10**12, typed.read(typed.through_us, typed.through_us))
    sealed_us = log.chain("W1").through_us
    upkeep(place, Retention(age_us=1)).retain()
    assert log.chain("Typed").base.from_us <= sealed_us


def test_it_works_beside_a_run(place: Place) -> None:
    objects = place.log.chain("Typed").objects_held
    part = upkeep(place)
    part.start(lambda text: None)
    try:
        for _ in range(20_000):
            if place.log.chain("Typed").objects_held < objects / 2:
                break
    finally:
        part.stop()
    assert place.log.chain("Typed").objects_held < objects / 2
    assert PART in part._parts._parts


def test_a_rule_of_nothing_is_refused() -> None:
    with pytest.raises((CallerError, ConfigError), match="above 0"):
        Retention(age_us=0)
