"""Commands around an app: what was found, what is explained, what is refused, the verdict on its processes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from unerring import Embedded
from unerring.app.folder import remember
from unerring.app.live_cluster import make_cluster
from unerring.app.new import make_app
from unerring.app.sealed_events import SealedEvents
from unerring.app.status import StatusMetrics
from unerring.cli import main
from unerring.log import EventLog, LogWriter
from unerring.model import Event, Stamp
from unerring.pipeline.versions import enter
from unerring.runtime.process_cluster import PLACES, Places

SECOND = 1_000_000
ADDRESS = "plant.app:app"


@pytest.fixture
def unerring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A new application in a folder of its own, and the command beside it: what it says."""
    make_app("plant", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("plant", "plant.app"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def command(*words: str) -> str:
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main(list(words))
        told = capfd.readouterr()
        return told.out + told.err

    return command


def found(data: Path, peaks: dict[int, float]) -> None:
    """Situations, as either engine leaves them in the log."""
    from plant.app import app

    remember(data, ADDRESS)
    writer = LogWriter(EventLog(data / "log"), app.outputs[0])
    for second, peak in peaks.items():
        payload = {"machine": "press-1", "since": (second - 1) * SECOND, "celsius": peak}
        writer.append("rule", (1, second), Stamp(second * SECOND), payload, 0)
    writer.advance(max(peaks) * SECOND, 0)
    writer.seal()


def test_what_was_found_is_printed(unerring: Callable[..., str]) -> None:
    found(Path("run"), {10: 84.0, 20: 97.0})
    first = "1970-01-01T00:00:10Z  overheating  machine=press-1  since=1970-01-01T00:00:09Z  celsius=84.0\n"
    last = "1970-01-01T00:00:20Z  overheating  machine=press-1  since=1970-01-01T00:00:19Z  celsius=97.0\n"
    assert unerring("situations", "run") == first + last
    assert unerring("situations", "run", "--last", "1") == last
    told = json.loads(unerring("situations", "run", "--last", "1", "--json"))
    assert (told["time_us"], told["ordinal"], told["payload"]["celsius"]) == (20 * SECOND, 0, 97.0)
    assert "run has no stream 'cold'; it has overheating" in unerring("situations", "run", "--stream", "cold")
    assert "there is no folder" in unerring("situations", "nowhere")


def test_only_what_is_new_follows(unerring: Callable[..., str]) -> None:
    found(Path("run"), {10: 84.0})
    follower = SealedEvents(Path("run"))

    def peaks(events: object) -> list[float]:
        return [event.payload["celsius"] for event in events if isinstance(event, Event)]  # type: ignore[attr-defined]

    assert peaks(follower.so_far()) == [84.0]
    found(Path("run"), {10: 84.0, 20: 97.0})
    assert peaks(follower.new()) == [97.0]
    assert peaks(follower.new()) == []
    assert peaks(SealedEvents(Path("run")).so_far(last=1)) == [97.0]


def test_an_app_is_explained_with_all_that_it_has(unerring: Callable[..., str]) -> None:
    told = unerring("explain", ADDRESS)
    assert told.index("rule: overheating") < told.index("process cool_down")


@pytest.mark.parametrize("option", [["--once"], ["--master", "local[2]"], ["--live", "x"]])
def test_what_a_live_run_does_not_do_is_said_before_anything_starts(
    unerring: Callable[..., str], option: list[str]
) -> None:
    assert f"{option[0]} does not go with --engine live" in unerring("run", ADDRESS, "--engine", "live", *option)


def test_a_log_that_live_replicas_have_yet_to_read_is_not_cut(unerring: Callable[..., str]) -> None:
    make_cluster(ADDRESS, 1, Path("run").absolute())
    remember(Path("run"), ADDRESS)
    told = unerring("retain", "run", "--before", "2026-03-01T00:00:00Z")
    assert "stream overheating has only been detected through" in told
    metrics = StatusMetrics(Path("run")).text()
    assert 'unerring_situations_total{stream="overheating"} 0' in metrics


def test_a_run_is_rescaled(unerring: Callable[..., str]) -> None:
    from plant.app import app

    remember(Path("run"), ADDRESS)
    [level] = app.levels("run")
    for schema in level.inputs:
        level.log.create(schema, level.buckets)
    assert "run has not begun, so there is nothing to rescale" in unerring("rescale", "run", "--buckets", "8")
    enter(level)
    found(Path("run"), {10: 84.0})
    assert "0 buckets; choose between 1 and 4096" in unerring("rescale", "run", "--buckets", "0")
    told = unerring("rescale", "run", "--buckets", "8", "--at", "2026-03-01T00:00:00Z")
    assert told == "level 1: 8 partitions after 2026-03-01 00:00:00\n"
    assert "a change to 8 buckets is under way" in unerring("rescale", "run", "--buckets", "9")
    assert app.levels("run") == (level,), "its time has not come"
    assert "give --buckets N for rules on Spark, or --shards NODE=N" in unerring("rescale", "run")
    told = unerring("rescale", "run", "--shards", "overheating=3")
    assert f"run is not going on; start it with another number: unerring run {ADDRESS} --shards overheating=3" in told


def test_processes_of_an_app_are_judged_as_far_as_journals_tell(unerring: Callable[..., str]) -> None:
    from plant.app import cool_down

    folder = Path("run/processes")
    folder.mkdir(parents=True)
    (folder / PLACES).write_bytes(msgspec.json.encode(Places([ADDRESS], {})))

    async def one() -> None:
        async with Embedded([cool_down], folder / "n0.db") as engine:
            await engine.run("cool_down", "hot-1", machine="press-1", celsius=97.0)

    asyncio.run(one())
    told = unerring("process", "audit", "--data", "run")
    assert "instances: 1 completed; 0 interactions in the journals" in told
    assert (
        "2 actions not compared, because they are in no --journal: cool_down.call_fitter, cool_down.start_fan" in told
    )
    assert "nothing is wrong with what could be compared" in told
    # A journal that tells of one of them is held to it: what was done twice is found.
    did = {"what": "do", "iid": "hot-1/call_fitter/0", "action": "call_fitter", "group": 3, "view": -1, "basis": []}
    Path("twice.jsonl").write_text(2 * (json.dumps({**did, "request": None, "reply": None}) + "\n"))
    told = unerring("audit", "run/processes", "--journal", "twice.jsonl")
    assert "1 actions not compared, because they are in no --journal: cool_down.start_fan" in told
    assert "hot-1/call_fitter/0 was done twice" in told
    assert "something is wrong" in told
