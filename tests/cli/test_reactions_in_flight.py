"""Reactions alone change while a live run goes on: one comes, one goes, one gives something else, at one time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.editions import sealed
from tests.cli.test_upgrade_command import Beside, going_on
from unerring.app.acting import PROCESSES
from unerring.app.application import load
from unerring.app.process_audit import known_in
from unerring.app.reconciling import reconcile
from unerring.log import Positions
from unerring.pipeline import agreed_upgrades, current
from unerring.runtime import processes

TEXT = """
import msgspec
from tests.app.tree_app import Reading
from unerring import App, Process, fn, rule, tumbling
from unerring.model import SECOND_US


class Note(msgspec.Struct):
    value: int = 0
    done: int = 0


def process(name):
    noting = Process(name, state=Note)

    @noting.action(writes="done", deterministic=True)
    async def note(value: int) -> int:
        return value

    return noting.flow(note)


Rate = rule("Rate").on(Reading).window(tumbling(SECOND_US // 2)).emit(n=fn.count(), last=fn.last(Reading.celsius))
app = App("plant", rules=[Rate], streams=[Reading], buckets=1)
for name, column in {reactions}.items():
    app.on("Rate").start(process(name), value=column)
"""
BEFORE = {"cool": "last", "warn": "last"}
AFTER = {"cool": "n", "tell": "last"}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Beside]:
    texts = [TEXT.replace("{reactions}", repr(reactions)) for reactions in (BEFORE, AFTER)]
    run = Beside(tmp_path, *texts)
    (run.home / "wider.py").write_text(texts[1])
    yield from going_on(run)


@pytest.mark.timeout(900)
def test_reactions_change_while_a_live_run_goes_on(run: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = {one["name"]: one["pid"] for one in processes(run.place.live)}
    assert run.enter("wider:app", str(run.data)).returncode == 0
    run.feed_until(lambda: "the rules of wider:app take over\n" in run.said())
    assert {one["name"]: one["pid"] for one in processes(run.place.live)} == replicas, "all of them go on"
    [agreed] = agreed_upgrades(run.place.log)
    tells = Positions(run.place.log.store, "Rate")
    run.feed_until(lambda: tells.get("starts-tell").time > agreed.at_us)
    assert current(run.place.log).app == "wider:app"  # type: ignore[union-attr]
    run.stop()
    situations = [one.stamp.time for one in sealed(run.place.log, "Rate")]
    assert situations[0] <= agreed.at_us < situations[-1]
    started = [name.split("-") for name in known_in(run.data / PROCESSES).decided]
    assert {process for process, *_ in started} == {*BEFORE, *AFTER}
    assert all(process in (BEFORE if int(at) <= agreed.at_us else AFTER) for process, _, at, _ in started)
    monkeypatch.syspath_prepend(str(run.home))
    assert not reconcile(load("wider:app"), run.data).violations
