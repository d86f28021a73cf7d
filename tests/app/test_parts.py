"""Every part of a run is supervised: started again, or the run ends with a sentence and a non-zero code."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.app.live_tree import readings
from tests.app.tree_app import Reading
from unerring import App
from unerring.app.live_cluster import make_cluster
from unerring.app.metrics import Metrics
from unerring.app.parts import FILE, Parts, parts_in
from unerring.app.status import RunStatus
from unerring.cli import main
from unerring.log import EventLog, LogWriter
from unerring.model import ConfigError, DiskError, HandshakeError, LogError, protect_json, schema_of, verified_json
from unerring.rules.workloads import W1, Typed
from unerring.runtime.live import LiveSupervisor
from unerring.runtime.process_cluster import ClusterShape, NodeCluster
from unerring.runtime.restarts import GivenUp, Restarts, RestartsConfig

ROOT = Path(__file__).parent.parent.parent
QUICK = RestartsConfig(pause_s_min=0.0, pause_s_max=0.0, tries_max=5)


# ---- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["live", "spark"])
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("pigeon://x", "app deaf: the channel of Typed: 'pigeon://x': there is no transport 'pigeon'; use one of"),
        ("127.0.0.1:7101", "'127.0.0.1:7101' is not the URL of a transport; write scheme://place"),
        ("tcp://127.0.0.1:7101?tls=nowhere", "tls=nowhere: cannot use ca.pem, node.pem and node.key there"),
        ("tcp://127.0.0.1", "'127.0.0.1' is not an address; write host:port"),
    ],
)
def test_a_wrong_address_of_a_channel_is_said_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    engine: str,
    url: str,
    sentence: str,
) -> None:
    app = 'from unerring import App\nfrom unerring.rules.workloads import W1, Typed\napp = App("deaf", rules=[W1], '
    (tmp_path / "deaf_app.py").write_text(f"{app}channels={{Typed: {url!r}}})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "deaf_app", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["run", "deaf_app:app", "--engine", engine, "--data", "run"])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_channel_has_an_address_or_several() -> None:
    app = App("many", rules=[W1], channels={Typed: ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:1"]})
    assert app.channels == {"Typed": ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")}
    for wrong in (7, [], [7]):
        with pytest.raises(ConfigError, match=r"the channel of Typed is .*; write an address, .* or a list of them"):
            App("wrong", rules=[W1], channels={Typed: wrong})  # type: ignore[dict-item]


# ---- the mechanism --------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_good_while() -> None:
    restarts = Restarts(RestartsConfig(pause_s_min=0.5, pause_s_max=3.0, well_s=10.0, tries_max=4))
    assert [restarts.failed(1.0) for _ in range(3)] == [0.5, 1.0, 2.0]
    assert not restarts.used_up
    assert restarts.failed(1.0) == 3.0
    assert restarts.used_up
    assert restarts.failed(11.0) == 0.5
    assert (restarts.used_up, restarts.total) == (False, 5)


def test_a_part_that_fails_is_started_again_and_status_and_metrics_show_it(tmp_path: Path) -> None:
    said: list[str] = []
    parts = Parts(tmp_path, said.append, QUICK)
    seen: list[dict[str, object]] = []

    def work() -> None:
        parts.check()
        seen.append(parts_in(tmp_path)["parts"][0])
        if len(seen) < 4:
            raise DiskError("no space left")

    parts.keep("channel Typed", work, threading.Event())
    assert [(one["state"], one["restarts"], one["why"]) for one in seen] == [
        ("running", 0, ""),
        *(("running", times, "no space left") for times in (1, 2, 3)),
    ]
    assert parts.error is None
    assert said == ["channel Typed failed and is started again in 0.0 s: no space left"] * 3
    metrics = Metrics()
    parts.measure(metrics)
    assert 'unerring_part_up{part="channel Typed"} 1' in metrics.text()
    assert 'unerring_part_restarts_total{part="channel Typed"} 3' in metrics.text()


@pytest.mark.parametrize(
    ("error", "tries"),
    [(OSError("pulled out"), 5), (LogError("damaged"), 1), (ConfigError("wrong"), 1), (HandshakeError("refused"), 1)],
)
def test_what_cannot_go_on_ends_the_run_with_its_sentence(tmp_path: Path, error: Exception, tries: int) -> None:
    parts = Parts(tmp_path, config=QUICK)
    tried: list[int] = []

    def work() -> None:
        tried.append(1)
        raise error

    parts.keep("reaction to W1", work, threading.Event())
    assert len(tried) == tries
    with pytest.raises(Exception, match=str(error)):
        parts.check()
    (told,) = parts_in(tmp_path)["parts"]
    assert told["state"] == "failed"


# ---- real runs ------------------------------------------------------------------------------------------------------

FULL = """
import sys, threading, time
from pathlib import Path
from unerring.app.feeds import Feeds
from unerring.app.parts import Parts, parts_in
from unerring.channels import Start
from unerring.log import EventLog
from unerring.model import schema_of, stream
from unerring.rules.workloads import Typed
from unerring.runtime.channel import Publisher

disk = Path(sys.argv[1])
log = EventLog(disk / "log")
parts = Parts(disk)

def until(condition):
    end_s = time.monotonic() + 60
    while not condition():
        parts.check()
        assert time.monotonic() < end_s, parts_in(disk)
        threading.Event().wait(0.01)

def reached(count):
    return lambda: log.chain("Typed").refresh() >= count

with Publisher("tcp://127.0.0.1:0", Typed) as out:
    feeds = Feeds(log, {"Typed": out.address}, {"Typed": schema_of(Typed)}, 1, start=Start.EARLIEST, parts=parts)
    feeds.start()
    out.publish(Typed(1, "A", 0.5), at=1)
    out.watermark(1)
    until(reached(1))
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            pass
    for time_us in range(2, 101):
        out.publish(Typed(time_us % 7, "A", 0.5), at=time_us)
    out.watermark(100)
    until(lambda: parts._parts["channel Typed"].state == "waiting")
    (disk / "ballast").unlink()
    until(reached(100))
    until(lambda: parts_in(disk)["parts"][0]["state"] == "running")
    told = parts_in(disk)["parts"][0]
    print(told["name"], told["restarts"] > 0, told["why"].startswith("no space left for"))
    feeds.stop()
print(log.chain("Typed").read(0, 100).column("time").to_pylist() == list(range(1, 101)))
"""


def test_intake_goes_on_when_a_full_disk_has_room_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    own_mounts = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    command = [*own_mounts, "sh", "-c", mount, str(disk), sys.executable, "-c", FULL, str(disk)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["channel Typed True True", "True"]


def test_a_live_run_whose_log_is_damaged_ends_with_the_files_name(tmp_path: Path) -> None:
    """Its source would be started again for ever, and the screen be silent."""
    writer = LogWriter(EventLog(tmp_path / "log"), schema_of(Reading), None, 1)
    for number, event in enumerate(readings(70), 1):
        writer.append("p", (1, number), event.stamp, dict(event.payload), 0)
        if number % 10 == 0:
            writer.seal()
    gone = sorted((tmp_path / "log" / "Reading" / "segments").glob("*.parquet"))[1]
    gone.unlink()
    run = [sys.executable, "-m", "unerring", "run", "tests.app.tree_app:app", "--engine", "live", "--f", "0"]
    ended = subprocess.run(
        [*run, "--data", str(tmp_path)], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert ended.returncode == 2, ended.stderr
    said = ended.stderr.splitlines()[-1]
    assert said.startswith("unerring: source_Reading/0 cannot go on: ")
    assert f"{gone.name} is missing" in said


def test_processes_that_keep_ending_end_the_run_with_their_last_words(tmp_path: Path) -> None:
    """A live node all of whose processes do, and a majority of process nodes."""
    twice = RestartsConfig(pause_s_min=0.0, pause_s_max=0.0, tries_max=2)
    cluster = make_cluster("tests.app.tree_app:app", 0, tmp_path)
    ending = [sys.executable, "-c", "raise SystemExit('the compiler is gone')"]
    living = [sys.executable, "-c", "import sys, signal; signal.pause()"]
    said: list[str] = []

    async def supervise() -> None:
        commands = {"Rate/0": ending}
        supervisor = LiveSupervisor(
            cluster, tmp_path / "live", lambda name: commands.get(name, living), "", said.append, twice
        )
        await supervisor.run()

    with pytest.raises(GivenUp, match=r"Rate/0 cannot go on: the compiler is gone \(see .*Rate\.0\.log\)"):
        asyncio.run(supervise())

    nodes = NodeCluster(["nowhere:order"], tmp_path / "nodes", ClusterShape(f=0, restarts=twice), {}, said.append)
    nodes.start()
    try:
        with pytest.raises(GivenUp, match="n0 cannot go on: unerring: there is no module 'nowhere'"):
            nodes.watch(threading.Event())
    finally:
        nodes.stop()


def test_a_run_whose_disk_takes_nothing_is_not_told_as_ended(tmp_path: Path) -> None:
    """Nobody can write down that it lives, but its process is there."""
    EventLog(tmp_path / "log").create(schema_of(Reading), 1)
    Parts(tmp_path).check()
    told = verified_json((tmp_path / FILE).read_bytes(), dict[str, Any], FILE)
    (tmp_path / FILE).write_bytes(protect_json({**told, "at": told["at"] - 3_600}))
    run = RunStatus(tmp_path).look()["run"]
    assert run["state"] == "running"
    (note,) = run["notes"]
    assert note.startswith(f"the run's own process {os.getpid()} has written nothing for 36")
    assert note.endswith("it is stuck, or its disk takes nothing")
