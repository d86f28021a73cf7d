"""`unerring doctor`: each thing that may be wrong is made wrong, and found with what to do about it."""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.app.live_tree import LiveRun, readings
from tests.app.small_run import make
from tests.ports import free_port
from unerring import __version__
from unerring.app import place_of
from unerring.app.doctor import finding, machine, network, shared, trust
from unerring.app.doctor.finding import ERROR, WARNING, WELL, Finding
from unerring.app.folder import FILE, Remembered
from unerring.app.owner import Ownership
from unerring.app.parts import FILE as PARTS, PartState, Written
from unerring.cli import main
from unerring.model import SECOND_US, protect_json
from unerring.runtime import began_at
from unerring.runtime.certificates import make_certificates

NOBODY = 65534


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    return int(str(ended.value.code or 0))


def only(found: Iterator[Finding], level: str) -> Finding:
    [one] = [one for one in found if one.level == level]
    return one


def levels(found: Iterator[Finding]) -> set[str]:
    return {one.level for one in found}


# ---- the machine ---------------------------------------------------------------------------------------------------


def test_packages_that_are_missing_or_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(machine.packages()) == {WELL}
    needs = ["msgspec>=99", "nosuchpackage>=1", "pytest>=1; extra == 'dev'", "xxhash", "pyarrow>=1,<2"]
    assert only(machine.packages("nosuchpackage"), WARNING).says.endswith("pip install it")
    monkeypatch.setattr(metadata, "requires", lambda of: needs)
    said = [one.says for one in machine.packages() if one.level == ERROR]
    assert len(said) == 3
    assert f"package msgspec is {metadata.version('msgspec')}, not >=99; install what this release asks for" in said[0]
    assert "package nosuchpackage is missing" in said[1]
    assert "not >=1,<2" in said[2]


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [
        ("4.3.1", "==4.3.*", True),
        ("4.4.0", "==4.3.*", False),
        ("2.10", ">=2.9", True),
        ("0.13.0", "<0.13", False),
        ("0.12.9", "<0.13", True),
        ("3.0", "<3", False),
        ("1.26.4", "~=1.26", True),
        ("2.0", "!=2.0", False),
        ("30.1.0.post1", "<31", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, wanted: str, holds: bool) -> None:
    assert machine._holds(version, wanted) is holds


def fake_java(folder: Path, version: str, modules: str) -> None:
    (folder / "bin").mkdir(parents=True)
    script = f'#!/bin/sh\ncase $1 in -version) echo \'openjdk version "{version}"\' >&2;; *) echo "{modules}";; esac\n'
    (folder / "bin" / "java").write_text(script)
    (folder / "bin" / "java").chmod(0o755)


def test_a_java_that_spark_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2", "jdk.incubator.vector")
    fake_java(tmp_path / "stripped", "21.0.1", "java.base")
    fake_java(tmp_path / "good", "21.0.1", "java.base\njdk.incubator.vector@21")
    for name, level, said in (
        ("none", ERROR, "where there is no bin/java"),
        ("old", ERROR, "is 11, and Spark needs 17 or newer"),
        ("stripped", ERROR, "has no module jdk.incubator.vector"),
        ("good", WELL, "is 21"),
    ):
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / name))
        found = machine.java()
        assert found.level == level
        assert said in found.says
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no java on the PATH" in machine.java().says


def test_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (250, hard))
        assert (machine.descriptors().level, "ulimit -n 4096" in machine.descriptors().says) == (ERROR, True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        assert machine.descriptors().level == WARNING
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        assert machine.descriptors().level == WELL
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine._free_memory()
    for free, level in ((100 << 20, ERROR), (1 << 30, WARNING), (8 << 30, WELL), (None, WARNING)):
        monkeypatch.setattr(machine, "_free_memory", lambda free=free: free)
        assert machine.memory().level == level


def test_a_clock_that_nothing_keeps_right(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        state = 5

        def adjtimex(self, _: Any) -> int:
            return self.state

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Kernel())
    assert machine.kernel_clock(several=True).level == WARNING
    assert "run chrony" in machine.kernel_clock(several=True).says
    assert machine.kernel_clock(several=False).level == WELL
    Kernel.state = 0
    assert machine.kernel_clock(several=True).level == WELL


def test_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    took = [0.0]
    monkeypatch.setattr(machine.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(machine.os, "fsync", lambda descriptor: clock.__setitem__(0, clock[0] + took[0]))
    for seconds, level in ((0.002, WELL), (0.05, WARNING), (0.3, ERROR)):
        took[0] = seconds
        found = [one for one in machine.disk(tmp_path / "not" / "yet") if one.check == "disk"]
        assert [one.level for one in found] == [level]
        assert f"takes {seconds * 1000:.1f} ms" in found[0].says


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a megabyte and a hundred files."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=20000", "tiny", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_and_a_read_only_disk(tiny: Path) -> None:
    found = only(machine.disk(tiny), ERROR)
    assert "GiB are free in" in found.says
    assert "make room" in found.says
    subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(tiny)], check=True)
    assert "more files fit into" in only(machine.disk(tiny), ERROR).says
    subprocess.run(["mount", "-o", "remount,ro", str(tiny)], check=True)
    assert "cannot be written by this user" in only(machine.disk(tiny), ERROR).says


# ---- certificates and files ----------------------------------------------------------------------------------------


def test_certificates_that_expire(tmp_path: Path) -> None:
    make_certificates(tmp_path / "ca", [])
    folders, renewed = trust.folders_of(str(tmp_path / "ca"))
    assert renewed
    now = datetime.datetime.now(datetime.UTC)
    for days, level, said in (
        (0, WELL, "is good until"),
        (-1, ERROR, "counts from"),
        (355, WARNING, "expires at"),
        (366, ERROR, "expired at"),
    ):
        [one] = trust.certificates(folders, renewed=False, now=now + datetime.timedelta(days=days))
        assert (one.level, said in one.says) == (level, True)
    [one] = trust.certificates(folders, renewed=True, now=now + datetime.timedelta(days=355))
    assert one.level == WELL, "the run renews it"
    (tmp_path / "broken").mkdir()
    shutil.copy(tmp_path / "ca" / "ca.pem", tmp_path / "broken")
    assert levels(trust.certificates([tmp_path / "broken"], renewed=False)) == {ERROR}
    below, _ = trust.folders_of(str(tmp_path))
    assert below == [tmp_path / "ca"]


def test_files_that_others_can_read_or_write(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "secret").write_bytes(b"s")
    (data / "log").write_bytes(b"l")
    (data / "secret").chmod(0o600)
    (data / "log").chmod(0o644)
    assert levels(trust.files(data)) == {WELL}, "in a folder of its own a file may be readable"
    (data / "secret").chmod(0o640)
    assert str(data / "secret") in only(trust.files(data), ERROR).says
    (data / "secret").chmod(0o600)
    (data / "log").chmod(0o666)
    assert str(data / "log") in only(trust.files(data), ERROR).says
    (data / "log").chmod(0o600)
    data.chmod(0o755)
    assert "chmod go-rwx" in only(trust.files(data), ERROR).says
    data.chmod(0o700)
    os.chown(data / "log", NOBODY, NOBODY)
    assert "belong to another user" in only(trust.files(data), ERROR).says


# ---- ports and peers -----------------------------------------------------------------------------------------------


def test_ports_that_are_taken(tmp_path: Path) -> None:
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        found = only(network.listens({"n0": f"127.0.0.1:{taken}", "n1": f"127.0.0.1:{free}"}), ERROR)
        assert f"n0 cannot listen on 127.0.0.1:{taken}: another program has the port" in found.says
    assert "correct --host or --here" in only(network.listens({"n0": "192.0.2.7:7400"}), ERROR).says
    assert levels(network.listens({"n1": f"127.0.0.1:{free}"})) == {WELL}


def test_peers_that_do_not_answer() -> None:
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert levels(network.reaches({"n0": f"127.0.0.1:{other.getsockname()[1]}"}, up=True)) == {WELL}
    assert "start it, or look why it ended" in only(network.reaches({"n0": f"127.0.0.1:{free}"}, up=True), WARNING).says
    assert levels(network.reaches({"n0": f"127.0.0.1:{free}"}, up=False)) == {WELL}
    assert "firewalls" in only(network.reaches({"n0": "no-such-host.invalid:7400"}, up=False), ERROR).says


def test_only_what_has_a_host_and_a_port_is_called() -> None:
    known = network.places_of(
        {"a": "tcp://h:1", "b": "http://h", "c": "udp://h:1", "d": "inproc://x", "e": "kafka://h:1,g:2/t"}
    )
    assert known == {"a": "h:1", "b": "h:80"}


# ---- stores and hosts ----------------------------------------------------------------------------------------------


def test_a_store_that_cannot_hold_a_run(s3_bucket: str, tmp_path: Path) -> None:
    assert "there is no bucket" in only(shared.store(place_of("s3://nowhere/run", tmp_path), ""), ERROR).says


def test_hosts_compare_their_clocks_and_releases_on_the_store(s3_bucket: str, tmp_path: Path) -> None:
    place = place_of(f"{s3_bucket}/{tmp_path.name}", tmp_path / "scratch")
    assert levels(shared.store(place, "a")) == {WELL}
    real_us = place.store.written_us("check/host-a.json")
    assert real_us is not None
    ahead = [one.says for one in shared.store(place, "b", now_us=real_us + 20 * SECOND_US) if one.level == WARNING]
    assert "this host's clock by that of" in ahead[0]
    assert "ahead; set it by NTP" in ahead[0]
    assert "the clock of host a by this one's" in ahead[1]
    assert "behind; set it by NTP" in ahead[1]
    found = list(shared.store(place, "c", now_us=real_us - 100 * SECOND_US))
    assert [one.says.partition(" by ")[0] for one in found if one.level == ERROR] == [
        "this host's clock",
        "the clock of host a",
        "the clock of host b",
    ]
    other = shared.Visit("9.9", real_us, 0)
    place.store.replace("check/host-a.json", protect_json(other))
    told = [one.says for one in shared.store(place, "d") if one.check == "releases"]
    assert f"host a has release 9.9 and this one {__version__}; finish the rolling upgrade" in told
    place.store.replace("check/host-a.json", protect_json(msgspec.structs.replace(other, at_us=0)))
    assert not [one for one in shared.store(place, "d") if "host a" in one.says], "of long ago"


def test_a_run_of_another_release(tmp_path: Path) -> None:
    make(tmp_path)
    assert levels(shared.releases(place_of(tmp_path))) == {WELL}
    (tmp_path / FILE).write_bytes(protect_json(Remembered("a:b", "0.0.9")))
    assert "was run by release 0.0.9 last" in only(shared.releases(place_of(tmp_path)), WARNING).says
    (tmp_path / FILE).write_bytes(protect_json(Remembered("a:b", "9.0", 99)))
    assert "use the release that wrote it" in only(shared.releases(place_of(tmp_path)), ERROR).says


# ---- the command ---------------------------------------------------------------------------------------------------


def test_an_app_is_examined_before_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--data", str(tmp_path / "run"), "--engine", "live", "--f", "0", "--json")
    assert run("tests.app.tree_app:app", "--host", "a=127.0.0.1", "--here", "a", *options) == 0
    found = [msgspec.json.decode(line, type=Finding) for line in capsys.readouterr().out.splitlines()]
    assert {"packages", "descriptors", "memory", "clock", "disk", "space", "store", "app"} <= {o.check for o in found}
    assert not (tmp_path / "run").exists(), "nothing is changed"
    with socket.create_server(("127.0.0.1", 7400)):
        assert run("tests.app.tree_app:app", "--host", "a=127.0.0.1", "--here", "a", *options) == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "127.0.0.1:7400: another program has the port" in next(o["says"] for o in told if o["level"] == ERROR)
    assert run("tests.app.no_such_app:app", *options) == 1
    assert run("tests.app.tree_app:app", "--host", "a=127.0.0.1", "--here", "b", *options) == 2


def test_a_live_run_that_is_stopped_and_one_that_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o700)
    os.umask(0o077)
    run_ = LiveRun(tmp_path, "tests.app.tree_app:low", readings(1))
    place = place_of(tmp_path)
    place.store.replace(FILE, protect_json(Remembered("tests.app.tree_app:low", __version__)))
    assert run(str(tmp_path), "--engine", "live") == 0
    said = capsys.readouterr().out
    assert "the ports of this host are free" in said
    host, _, port = run_.cluster.addresses["Rate/1"].rpartition(":")
    with socket.create_server((host, int(port))):
        assert run(str(tmp_path), "--engine", "live") == 1
        assert "Rate/1 cannot listen on" in capsys.readouterr().out
    failed = PartState("channel Reading", "failed", why="the disk is full")
    pid = os.getpid()
    written = Written(time.time(), pid, began_at(pid) or "", [failed])
    place.store.replace(PARTS, protect_json(written))
    owner = Ownership(place)
    owner.take()
    try:
        run(str(tmp_path), "--engine", "live")
    finally:
        owner.stop()
    said = capsys.readouterr().out
    assert "where membership should be; start it, or look why it ended" in said
    assert "error    run           channel Reading: channel Reading ended the run: the disk is full" in said


def test_levels_have_an_order() -> None:
    assert finding.LEVELS == (ERROR, WARNING, WELL)
