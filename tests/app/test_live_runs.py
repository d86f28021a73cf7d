"""Live runs in other shapes: poison, strangers, a restart of everything; TLS, etcd, disks, an operator's commands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.app.live_tree import APART_US, LiveRun, complete, feed, read_status, readings, violations
from tests.app.sum_app import POISON, app
from tests.ports import free_port
from unerring.app import live
from unerring.app.folder import remember
from unerring.app.generations import begin_anew
from unerring.log import EventLog, LogWriter, Quarantine, Reason
from unerring.model import CallerError, ConfigError, DiskError, schema_of
from unerring.runtime.certificates import make_certificates
from unerring.runtime.live import cluster as clusters
from unerring.runtime.live.etcd import EtcdStorage

from .tree_app import Reading

SUMS = "tests.app.sum_app:app"
UNERRING = [sys.executable, "-m", "unerring"]


def wait_for(condition: Callable[[], bool], within_s: float = 120, what: object = "") -> None:
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.05)


@pytest.mark.timeout(300)
def test_poison_goes_to_quarantine_at_every_replica_alike_and_a_run_without_disks_begins_anew(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, SUMS, readings(60))
    asyncio.run(_first_half(run))
    run.cluster = begin_anew(run.cluster, tmp_path)
    assert run.cluster.generation == 2
    run.supervisor = run.new_supervisor()
    asyncio.run(_second_half(run))
    assert run.violations() == []
    [bad] = Quarantine(EventLog(tmp_path / "log").store, "Total").events()
    assert (bad.reason, bad.producer, bad.epoch) == (Reason.RULE, "Reading", POISON * APART_US)
    assert "thirteen degrees" in bad.detail


async def _first_half(run: LiveRun) -> None:
    running = asyncio.create_task(run.supervisor.run())
    try:
        run.feed(run.events[:40])
        await run.until(lambda: run.status("situations/0").get("inputs", {}).get("Total", {}).get("events", 0) == 39)
        for name in run.replicas:
            await run.until(lambda name=name: run.status(name).get("reports", {}).get("correlation.quarantined") == 1)  # type: ignore[misc]
        await _stranger_is_refused(run)
    finally:
        run.supervisor.stop()
        await running


async def _stranger_is_refused(run: LiveRun) -> None:
    """A process of the same cluster with another version of the rules."""
    other = run.data / "other"
    topology = msgspec.structs.replace(run.cluster.topology, rules="another version")
    msgspec.structs.replace(run.cluster, topology=topology).write(other / "live")
    stranger = await asyncio.create_subprocess_exec(*live.command(other, "Total/2"), stderr=asyncio.subprocess.PIPE)
    try:
        assert stranger.stderr is not None
        said = ""
        while "give both the same cluster configuration" not in said:
            line = await asyncio.wait_for(stranger.stderr.readline(), 600)
            assert line, said
            said += line.decode()
    finally:
        stranger.kill()
        await stranger.wait()


async def _second_half(run: LiveRun) -> None:
    running = asyncio.create_task(run.supervisor.run())
    try:
        run.feed(run.events[40:])
        run.end()
        await run.until(run.complete)
    finally:
        run.supervisor.stop()
        await running


# ---- etcd ------------------------------------------------------------------------------------------------------


def test_a_disk_that_cannot_be_written_ends_the_run_and_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LiveRun(tmp_path, SUMS, readings(1))
    started: list[int] = []

    def full(folder: Path, name: str, what: object, said: str) -> None:
        started.append(run.supervisor.processes[name].pid)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unerring.runtime.timeline.note", full)
    with pytest.raises(DiskError, match="No space left"):
        asyncio.run(run.supervisor.run())
    assert started
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


def test_the_folder_of_another_release_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    told = b'{"app":"other:app","version":"9.0","format":99}'
    (tmp_path / "run.json").write_bytes(told)
    with pytest.raises(CallerError, match=r"release 9\.0 in format 99"):
        remember(tmp_path, SUMS)
    assert (tmp_path / "run.json").read_bytes() == told


def test_etcd_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(DiskError, match="nobody joins or is evicted until it does"):
        EtcdStorage([f"http://127.0.0.1:{free_port()}"], "c").load()
    with pytest.raises(ConfigError, match="no address of etcd"):
        EtcdStorage(["127.0.0.1"], "c")


class Command:
    """`unerring run` as people call it, killed and started again."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.options = options
        self.run: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.data.parent / "run.log").open("ab") as log:
            command = [*UNERRING, "run", SUMS, "--engine", "live", "--data", str(self.data), *self.options]
            self.run = subprocess.Popen(command, stdout=log, stderr=log)

    def kill_everything(self) -> None:
        assert self.run is not None
        self.run.kill()
        self.run.wait()
        for path in (self.data / "live" / "pids").iterdir():
            try:
                os.kill(int(path.read_text().split()[0]), signal.SIGKILL)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        assert self.run is not None
        self.run.send_signal(signal.SIGINT)
        assert self.run.wait(600) == 0

    def told(self, name: str) -> dict[str, object]:
        return read_status(self.data, name)

    def member(self, name: str, incarnation: int) -> bool:
        told = self.told(name)
        return (told.get("phase"), told.get("incarnation")) == ("MEMBER", incarnation)

    def replica(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*UNERRING, "replica", *arguments, "--data", str(self.data)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.timeout(600)
@pytest.mark.long
def test_replicas_come_and_go_and_everything_dies_with_tls_etcd_and_disks(etcd: str, tmp_path: Path) -> None:
    make_certificates(tmp_path / "ca", [])
    data = tmp_path / "data"
    run = Command(data, "--f", "1", "--durable", "--tls", str(tmp_path / "ca"), "--etcd", etcd)
    run.start()
    try:
        wait_for(lambda: run.member("Total/0", 1) and run.member("Total/1", 1), what=lambda: run.told("Total/0"))
        events = readings(90)
        writer = LogWriter(EventLog(data / "log"), schema_of(Reading), None, app.buckets)
        feed(writer, events[:30])
        replaced = run.replica("replace", "Total/1")
        assert replaced.stdout.startswith("Total/2 is added and caught up; incarnation 1 of Total/1 is evicted")
        evicted = run.replica("evict", "Total/0")
        assert evicted.stdout == "incarnation 1 of Total/0 is evicted\n", evicted.stderr
        wait_for(lambda: run.member("Total/0", 2))
        feed(writer, events[30:60])
        assert run.replica("remove", "Total/2").returncode == 0
        alone = run.replica("remove", "Total/0")
        assert alone.returncode == 2
        assert "no other caught-up replica" in alone.stderr
        assert run.replica("evict", "Total/7").stderr.startswith("unerring: Total/7 is not in the membership record")
        assert "caught up" in run.replica("add", "Total").stdout
        run.kill_everything()
        run.start()
        feed(writer, events[60:])
        writer.end(0)
        writer.seal()
        wait_for(lambda: complete(data, ["Total"]), what="not complete")
        assert run.told("Total/0")["incarnation"] == 2, "its disk had all that it had acknowledged"
        run.end()
    except BaseException:
        run.kill_everything()
        raise
    assert violations(data, app, events) == []
    assert POISON in [event.payload["celsius"] for event in events]
    assert clusters.read(data / "live").tls
    refused = subprocess.run(
        [*UNERRING, "run", SUMS, "--engine", "live", "--data", str(data), "--f", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "another f" in refused.stderr
