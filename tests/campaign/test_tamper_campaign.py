"""Hundreds of random manipulations of finished runs: all are found, and none in a run that nobody touched."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.app.tampering import Attack, Finished, finish
from unerring.app.place import place_of
from unerring.app.rooting import RootSealer
from unerring.app.verifying import verify
from unerring.log import SigningKey, anchor_of, new_key

SEEDS = 400
FIRST = 160_100_000


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_hundreds_of_manipulations_are_found(tmp_path: Path, signed: bool) -> None:
    whole = finish(tmp_path / "whole", tmp_path / "key.pem" if signed else None)
    tried: Counter[str] = Counter()
    missed: list[str] = []
    for seed in range(FIRST, FIRST + SEEDS):
        folder = tmp_path / "run"
        shutil.copytree(whole.folder, folder)
        run = Finished(folder, whole.anchor, whole.key)
        assert not verify(folder, anchors=[run.anchor], trusted=run.key).damage, "nobody touched it"
        done = Attack(run, random.Random(seed)).do()
        tried[done.partition(":")[0]] += 1
        if not verify(folder, anchors=[run.anchor], trusted=run.key).damage:
            missed.append(f"seed {seed}: {done}")
        shutil.rmtree(folder)
    sys.stdout.write(f"{SEEDS} manipulations: {dict(sorted(tried.items()))}; missed: {missed}\n")
    assert not missed
    assert len(tried) == 20, "every kind was tried"


def test_a_run_of_spark_is_found_whole_and_its_bytes_are_covered(tmp_path: Path) -> None:
    """A real run: what it sealed, and 100 manipulations of single bytes and objects."""
    from tests.campaign.test_rot_campaign import run_spark

    data = tmp_path / "data"
    run_spark(data)
    new_key(tmp_path / "key.pem")
    key = SigningKey(tmp_path / "key.pem")
    root = RootSealer(place_of(data), key).seal()
    run = Finished(data, anchor_of(root), key.public)
    assert verify(data, anchors=[run.anchor]).damage == []
    missed: list[str] = []
    for seed in range(FIRST + SEEDS, FIRST + SEEDS + 100):
        folder = tmp_path / "copy"
        shutil.copytree(data, folder)
        attack = Attack(Finished(folder, run.anchor, run.key), random.Random(seed))
        what = attack.drawn.choice([attack.flip, attack.truncate, attack.lengthen, attack.remove, attack.drop_roots])
        done = what()
        if not verify(folder, anchors=[run.anchor]).damage:
            missed.append(f"seed {seed}: {what.__name__} {done}")
        shutil.rmtree(folder)
    assert not missed
