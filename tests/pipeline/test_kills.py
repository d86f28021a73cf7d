"""Kill -9 in the middle, start again: the sealed bytes are those of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.log.sealing import seal_interval
from unerring.pipeline.intervals import next_end, spans_of
from unerring.pipeline.partition import Partition
from unerring.pipeline.sealing import numbered
from unerring.pipeline.streaming import output_chains
from unerring.pipeline.versions import enter

from .driver import ROWS
from .kills import prepare, sealed_bytes, storm, undisturbed


@pytest.mark.long
def test_kills_in_several_windows_leave_what_an_undisturbed_run_does(java: Path, tmp_path: Path) -> None:
    batches = 5
    wanted = undisturbed(tmp_path / "perfect", 1, batches * ROWS)
    assert len(wanted) == 3 * batches
    blows = [
        ("Python workers", "after the offset log"),
        ("driver's JVM", "after the state"),
    ]
    missed = blows
    for trial in range(3):  # a killer that gets little of the machine may come too late for a window
        level = prepare(tmp_path / f"killed-{trial}", 1, batches * ROWS)
        hit = storm(Path(level.address), "local[2,4]", missed, ROWS)
        assert sealed_bytes(level) == wanted
        missed = [blow for blow in missed if blow not in hit]
        if not missed:
            break
    assert len(missed) < len(blows), "nobody was hit"


def test_a_zombie_that_wakes_with_other_boundaries_changes_nothing(tmp_path: Path) -> None:
    wanted = undisturbed(tmp_path / "perfect", seed=2)
    level = prepare(tmp_path / "run", seed=2)
    enter(level)
    chains = level.chains()
    end = chains[level.inputs[0].name].through_us
    # The zombie computed a longer first interval and fell asleep before it sealed.
    far = next_end(chains, level.chains()[level.inputs[0].name].base.from_us, end, 900)
    zombies = [Partition(level, bucket) for bucket in range(level.buckets)]
    spans = spans_of(chains, zombies[0].through_us, far)
    late = [partition.advance(far, spans) for partition in zombies]
    asleep = output_chains(level)
    undisturbed_again = undisturbed(Path(level.address).parent / "again", seed=2)
    for name, chain in output_chains(level).items():
        for path, data in undisturbed_again.items():
            if path.startswith(f"{name}/"):
                assert level.log.store.create(f"{name}/segments/{path.split('/')[1]}", data)
        chain.refresh()
    for name, chain in asleep.items():
        assert seal_interval(chain, numbered([outputs[name] for outputs in late]), far, "r") == 0
    assert sealed_bytes(level) == wanted
