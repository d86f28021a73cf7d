"""A run is parts that start in order, are checked, and stop in the opposite order; options that do not go together are
refused before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unerring.app.metrics import Metrics
from unerring.app.options import RunOptions
from unerring.app.parts import Parts
from unerring.app.run import METRICS_FILE, Run
from unerring.model import CallerError, ConfigError, UnerringError, WorldError


class Noted:
    """A part that notes what is asked of it, and may fail of it."""

    def __init__(self, name: str, notes: list[str], fails_to: str = "") -> None:
        self._name = name
        self._notes = notes
        self._fails_to = fails_to

    def _note(self, verb: str) -> None:
        self._notes.append(f"{verb} {self._name}")
        if verb == self._fails_to:
            raise WorldError(f"{self._name} cannot {verb}")

    def start(self, say: Callable[[str], None]) -> None:
        say(f"starting {self._name}")
        self._note("start")

    def check(self) -> None:
        self._note("check")

    def stop(self) -> None:
        self._note("stop")


def run_of(folder: Path, notes: list[str], parts: Parts, engine_fails_to: str = "") -> Run[Noted]:
    return Run(
        Noted("engine", notes, engine_fails_to),
        folder,
        parts,
        Metrics(),
        feeds=Noted("feeds", notes),
        reactions=Noted("reactions", notes),
    )


def test_parts_start_in_order_and_stop_in_the_opposite_one(tmp_path: Path) -> None:
    notes: list[str] = []
    said: list[str] = []
    parts = Parts(tmp_path)
    run = run_of(tmp_path, notes, parts)
    run.start(said.append)
    assert said == ["starting feeds", "starting engine", "starting reactions"]
    parts.began("channel Typed")
    run.check()
    assert 'unerring_part_up{part="channel Typed"} 1' in (tmp_path / METRICS_FILE).read_text()
    run.stop()
    order = ["feeds", "engine", "reactions"]
    assert notes == [
        *(f"start {name}" for name in order),
        *(f"check {name}" for name in order),
        *(f"stop {name}" for name in reversed(order)),
    ]


def test_what_ends_a_part_ends_the_run_with_its_sentence(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    run = run_of(tmp_path, [], parts)
    run.start(lambda text: None)
    parts.end(OSError("pulled out"))
    with pytest.raises(WorldError, match="OSError: pulled out"):
        run.check()


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_a_part_that_fails_does_not_keep_the_others_from_stopping(tmp_path: Path, verb: str) -> None:
    notes: list[str] = []
    run = run_of(tmp_path, notes, Parts(tmp_path), verb)
    if verb == "start":
        with pytest.raises(WorldError, match="engine cannot start"):
            run.start(lambda text: None)
        run.stop()
    else:
        with pytest.raises(WorldError, match="engine cannot stop"):
            run.stop()
    assert [note for note in notes if note.startswith("stop")] == ["stop reactions", "stop engine", "stop feeds"]


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"engine": "flink"}, CallerError, "there is no engine 'flink'; use spark or live"),
        (
            {"engine": "live", "master": "local"},
            CallerError,
            "--master does not go with --engine live: it runs without",
        ),
        ({"engine": "live", "resident": True}, CallerError, "--resident does not go with --engine live"),
        (
            {"f": 1, "once": True},
            CallerError,
            "--once does not go with several drivers: a run that ends needs no standby; use --f 0",
        ),
        ({"live": ("W1",), "hosts": {"a": "::1"}, "here": "a"}, CallerError, "--host does not go with several drivers"),
        ({"engine": "live", "here": "a"}, ConfigError, "--here names one of several hosts"),
        ({"engine": "live", "hosts": {"a": "::1"}}, ConfigError, "--here is ''; name one of the hosts a"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: dict[str, Any], error: type[UnerringError], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        RunOptions(**options)


def test_what_options_mean() -> None:
    assert not RunOptions(f=0).supervised, "one driver in the run's own process"
    assert RunOptions(f=1).drivers == 2
    assert RunOptions(f=1, memory="2g").driver.memory == "2g"
    assert RunOptions().tolerated == 1
    assert [RunOptions(once=True, resident=asked).stays for asked in (None, True, False)] == [True, True, False]
    assert not RunOptions(resident=False).stays
    assert RunOptions(f=1).driver.resident
    several = {"a": "10.0.0.1", "b": "10.0.0.2"}
    assert RunOptions(engine="live", hosts=several, here="a").has_log
    assert not RunOptions(engine="live", hosts=several, here="b").has_log
