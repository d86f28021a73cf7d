"""States on the store: bases and deltas that any driver may write and any other goes on from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from unerring.log import cut, requests_made, store_at
from unerring.model import TIME_MAX, TIME_MIN, LogError, RuleError, protect, verified
from unerring.pipeline import savepoints, states as states_module
from unerring.pipeline.beginnings import beginning, settle
from unerring.pipeline.checkpoints import committed_us, folder_of
from unerring.pipeline.intervals import spans_of
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition, PartitionState
from unerring.pipeline.shuffling import Interval
from unerring.pipeline.states import TIMES_KEPT, States, partition_at
from unerring.pipeline.versions import enter
from unerring.pipeline.work import run_partition
from unerring.rules.workloads import W3

from .worlds import OTHER, TYPED, advance, missing as absent, pair, random_events, write

PLANS = (pair("Pairs", TYPED, "A", "B", 400), absent("Misses", TYPED, "A", "B", 150))
END_US = 600


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these states were large."""
    monkeypatch.setattr(states_module, "SMALL_BYTES", 0)


def level_in(address: str, buckets: int = 1, keys: int = 40, seed: int = 5) -> Level:
    [level] = levels_of(PLANS, (TYPED,), address, buckets)
    enter(level)
    write(level.log.create(TYPED, buckets), random_events(seed, 250, keys), [200, 400], END_US)
    return level


def step(level: Level, partition: Partition, end_us: int) -> None:
    partition.advance(end_us, spans_of(level.chains(), partition.through_us, end_us))


def direct(level: Level, end_us: int, bucket: int = 0) -> bytes:
    """The state of a partition that was never stopped."""
    partition = Partition(level, bucket)
    step(level, partition, end_us)
    return partition.snapshot()


def objects(level: Level) -> list[Path]:
    return sorted(Path(level.address).glob("states/*/[0-9]*"))


def is_whole(path: Path) -> bool:
    return not msgspec.msgpack.decode(verified(path.read_bytes(), ""), type=PartitionState).trail


def test_a_partition_is_restored_from_a_base_and_few_deltas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_module, "DELTAS_MAX", 5)
    level = level_in(str(tmp_path))
    states, partition = States(level), Partition(level, 0)
    for end_us in range(10, END_US, 10):
        step(level, partition, end_us)
        states.keep(partition)
        again = partition_at(level, 0, end_us)
        assert again.snapshot() == direct(level, end_us)
        if end_us % 70 == 0:
            partition = again  # another worker goes on
    whole = [is_whole(path) for path in objects(level)]
    assert 6 <= sum(whole) <= 30, "after some deltas, or when they have become as large, comes a whole state"
    assert max(map(len, "".join("b" if one else "d" for one in whole).split("b"))) == 5, "deltas in a row"


def test_a_delta_on_the_wrong_base_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States broken on purpose: what changed is put on the whole state, without the changes between."""
    monkeypatch.setattr(
        States,
        "_trail",
        lambda states, state: [*(states._there(at, state.bucket, state.buckets) for at in state.trail[:1]), state],
    )
    with pytest.raises(RuleError, match="what changed since 20 cannot follow the state at 10"):
        test_a_partition_is_restored_from_a_base_and_few_deltas(tmp_path, monkeypatch)


def test_a_small_state_is_always_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_module, "SMALL_BYTES", 1 << 20)
    level = level_in(str(tmp_path))
    states, partition = States(level), Partition(level, 0)
    for end_us in (100, 200, 300):
        step(level, partition, end_us)
        states.keep(partition)
    assert [is_whole(path) for path in objects(level)] == [True] * 3


def test_a_state_that_is_missing_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    level = level_in(str(tmp_path))
    states, partition = States(level), Partition(level, 0)
    states.begin(10)
    states.begin(20)
    assert states.began() == 10, "the first note counts"
    assert partition_at(level, 0, 10).through_us == 10
    with pytest.raises(LogError, match=r"0of1 is missing: the state of level 1 at 11; restore it"):
        partition_at(level, 0, 11)
    for end_us in (300, 310, 320):
        step(level, partition, end_us)
        states.keep(partition)
    base, between, _ = objects(level)
    assert is_whole(base)
    assert not is_whole(between)
    for gone in (between, base):
        gone.unlink()
        with pytest.raises(LogError, match=f"{gone} is missing: the state of level 1 at"):
            partition_at(level, 0, 320)


def test_a_delta_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    level = level_in(str(tmp_path))
    states, partition = States(level), Partition(level, 0)
    for end_us in (300, 310, 320, 330):
        step(level, partition, end_us)
        states.keep(partition)
    last = objects(level)[-1]
    held = msgspec.msgpack.decode(verified(last.read_bytes(), ""), type=PartitionState)
    assert len(held.trail) == 3
    wrong = msgspec.structs.replace(held, trail=held.trail[:-1])
    last.write_bytes(protect(msgspec.msgpack.encode(wrong)))
    with pytest.raises(RuleError, match="what changed since 320 cannot follow the state at 310"):
        partition_at(level, 0, 330)


def test_what_the_last_few_times_rest_on_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_module, "DELTAS_MAX", 5)
    level = level_in(str(tmp_path), 2)
    states = States(level)
    both = [Partition(level, bucket) for bucket in range(2)]
    for end_us in range(10, END_US, 10):
        for partition in both:
            step(level, partition, end_us)
            states.keep(partition)
        states.drop_before(end_us - 20)
        assert len(objects(level)) <= 2 * (TIMES_KEPT + 5 + 3)
        for time_us in range(max(10, end_us - 20 - 10 * (TIMES_KEPT - 1)), end_us + 1, 50):
            assert partition_at(level, 1, time_us).snapshot() == direct(level, time_us, 1)
    assert states.newest(TIME_MAX) == END_US - 10
    step(level, both[0], END_US)
    states.keep(both[0])
    assert states.newest(TIME_MAX) == END_US - 10, "of the other partition there is none"
    with pytest.raises(LogError, match="is missing"):
        partition_at(level, 0, 10)


def test_drivers_with_other_boundaries_share_their_states(tmp_path: Path) -> None:
    """A standby driver is as good as any: what one of them was first to keep, the others build on."""
    level = level_in(str(tmp_path))
    states, random = States(level), Random(3)
    drivers = [Partition(level, 0) for _ in range(3)]
    while any(driver.through_us < END_US for driver in drivers):
        number = random.choice([n for n, driver in enumerate(drivers) if driver.through_us < END_US])
        at_us = max(drivers[number].through_us, 0)
        step(level, drivers[number], min(at_us + random.choice((10, 20, 30)), END_US))
        states.keep(drivers[number])
        if random.random() < 0.1:
            newest_us = states.newest(TIME_MAX)
            assert newest_us is not None
            drivers[number] = partition_at(level, 0, newest_us)
    for path in objects(level):
        time_us = int(path.name.split(".")[0]) + TIME_MIN
        assert partition_at(level, 0, time_us).snapshot() == direct(level, time_us)


def test_a_slow_driver_whose_base_was_swept_costs_time_only(tmp_path: Path) -> None:
    level = level_in(str(tmp_path))
    states, quick, slow = States(level), Partition(level, 0), Partition(level, 0)
    step(level, slow, 20)
    states.keep(slow)
    for end_us in range(30, 310, 10):
        step(level, quick, end_us)
        states.keep(quick)
    for path in objects(level):
        if int(path.name.split(".")[0]) + TIME_MIN < 200:
            path.unlink()
    step(level, slow, 305)
    states.keep(slow)
    usable = states.newest(TIME_MAX)
    assert usable is None or partition_at(level, 0, usable).snapshot() == direct(level, usable)
    assert usable != 305, "what it rests on is gone"


def test_two_drivers_that_disagree_are_told(tmp_path: Path) -> None:
    level = level_in(str(tmp_path))
    states, right, wrong = States(level), Partition(level, 0), Partition(level, 0)
    step(level, right, 200)
    states.keep(right)
    step(level, wrong, 100)
    wrong.begin(200)
    with pytest.raises(LogError, match="is another state than this driver computed"):
        states.keep(wrong)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 4), (4, 1), (2, 2)])
def test_another_number_of_partitions_takes_the_states_up(tmp_path: Path, before: int, after: int) -> None:
    plans = (*PLANS, W3.plan, pair("Others", OTHER, "A", "C", 200))
    old, new = (levels_of(plans, (TYPED, OTHER), str(tmp_path), count)[0] for count in (before, after))
    enter(old)
    write(old.log.create(TYPED, 2), random_events(1, 200, 30), [200], END_US)
    write(old.log.create(OTHER, 2), random_events(2, 150, 20, OTHER), [250], END_US)
    parts = [Partition(old, bucket) for bucket in range(before)]
    trails: list[list[PartitionState]] = [[] for _ in parts]
    for end_us in (100, 200, 300):
        for part, trail in zip(parts, trails, strict=True):
            step(old, part, end_us)
            trail.append(part.state() if not trail else part.delta(()))
            if len(trail) == 1:
                part.mark()
    for bucket in range(after):
        taken = Partition(new, bucket)
        taken.restore(trails, 300)
        assert taken.snapshot() == direct(new, 300, bucket)
        step(new, taken, 400)
        assert taken.snapshot() == direct(new, 400, bucket)


def test_a_step_makes_one_request(tmp_path: Path) -> None:
    level = level_in(f"memory://{tmp_path.name}")
    states, partition = States(level), Partition(level, 0)
    step(level, partition, 10)
    states.keep(partition)
    for end_us in range(20, 200, 10):
        step(level, partition, end_us)
        before = sum(requests_made().values())
        states.keep(partition)
        assert sum(requests_made().values()) - before == 1
    store = store_at(f"{level.address}/states/level-1-{level.version}")
    assert len(store.names("")) == 19


def test_a_task_that_goes_on_makes_a_request_for_its_segment_and_one_for_its_state(tmp_path: Path) -> None:
    level = level_in(f"memory://{tmp_path.name}")
    ends = [200, 400, END_US]
    from_us = settle(replace(level, scratch=str(tmp_path)))
    for number, end_us in enumerate(ends):
        interval = Interval(from_us, (end_us,), spans_of(level.chains(), from_us, end_us))
        before = requests_made()
        run_partition(level, 0, interval, lambda step: {})
        made = {kind: count - before.get(kind, 0) for kind, count in requests_made().items()}
        if number:
            assert {kind: count for kind, count in made.items() if count} == {"get": 1, "put": 1}
        from_us = end_us


# Where a level begins


def test_an_empty_scratch_goes_on_from_the_newest_state_that_is_sealed(tmp_path: Path) -> None:
    level = replace(level_in(str(tmp_path / "run"), 2), scratch=str(tmp_path / "here"))
    assert settle(level, TIME_MIN) == TIME_MIN == committed_us(level)
    both = [Partition(level, bucket) for bucket in range(2)]
    for end_us in (100, 200, 300):
        advance(level, both, end_us)
        for partition in both:
            States(level).keep(partition)
    ahead = Partition(level, 0)
    step(level, ahead, 400)
    States(level).keep(ahead)
    assert beginning(level) == 300
    elsewhere = replace(level, scratch=str(tmp_path / "elsewhere"))
    assert settle(elsewhere) == 300 == committed_us(elsewhere)
    for partition in both:
        step(level, partition, 400)
        States(level).keep(partition)
    assert beginning(level) == 300, "what nobody sealed is computed again"
    assert beginning(level, at_most_us=250) == 200
    before = folder_of(level)
    (before / "offsets").mkdir(parents=True)
    settle(level)
    assert not before.exists(), "what Spark left here has no say in it"
    assert folder_of(level) != before, "and who still writes there is in nobody's way"
    (level.checkpoint / "begun").write_text("files")
    with pytest.raises(LogError, match="begun is damaged; remove"):
        folder_of(level)
    settle(level)
    savepoints.keep(partition_at(level, 0, 200))
    assert savepoints.find(level) is None
    savepoints.take(level, 300)
    assert savepoints.find(level) == 300
    for path in objects(level):
        path.unlink()
    assert beginning(level) == 300, "from the savepoint"
    savepoints.drop_before(level, 301)
    assert beginning(level) == TIME_MIN, "the log is all there"


def test_savepoints_of_an_earlier_release_are_not_taken_for_nothing(tmp_path: Path) -> None:
    """It kept a folder for each time. Without its state the level must not begin at the cut as if it were new."""
    level = level_in(str(tmp_path))
    older = tmp_path / "savepoints" / f"level-1-{level.version}" / f"{200 - TIME_MIN:019d}" / "0"
    older.parent.mkdir(parents=True)
    older.write_bytes(b"state")
    assert beginning(replace(level, number=2)) == TIME_MIN
    cut(level.log.chain(TYPED.name), 200)
    with pytest.raises(LogError, match=r"savepoints/level-1-\w+ holds states of level 1 in the form of an earlier"):
        beginning(level)


def test_a_log_without_its_beginning_needs_a_state(tmp_path: Path) -> None:
    level = level_in(str(tmp_path))
    States(level).begin(TIME_MIN)
    chain = level.log.chain(TYPED.name)
    cut(chain, 200)
    with pytest.raises(LogError, match="no state of level 1 at or after 200, up to where retention removed"):
        beginning(level)
