"""A release of tomorrow raises the number of a format or of a protocol. It goes on with what this one wrote; this one
refuses what it wrote, in a sentence that says what to do, and loses nothing."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.app.format_samples import FORMATS
from tests.app.live_tree import readings
from tests.app.store_hosts import store_hosts
from tests.app.wire_samples import numbers
from tests.releases import ROOT, importing, next_release

DERIVED = {"unerring.pipeline.partition", "unerring.matching.kernel.snapshots"}
"""States that follow from the log: another release computes them again, and says so."""
ELSEWHERE = {"unerring.app.backups", "unerring.audit.certificate"}
"""tests/app/test_backup.py and tests/audit/test_certificate.py have these."""
PROTOCOLS = {"unerring.runtime.greeting", "unerring.runtime.transports.hello"}
MISMATCH = "of the node protocol"
REMEDY = re.compile("use the (version|release) that wrote it|begins again with the log")


def told(source: Path, module: str, *steps: tuple[str, Path]) -> list[Any]:
    """What a release finds in a folder after each step, or the sentence with which it refuses it."""
    entered = [str(word) for step in steps for word in step]
    command = [sys.executable, "-m", "tests.app.format_samples", module, *entered]
    done = subprocess.run(command, env=importing(source), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def bytes_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_number_is_tried() -> None:
    known = {name.rpartition(".")[0] for name in numbers()}
    assert known == {*FORMATS, *ELSEWHERE, *PROTOCOLS}


@pytest.mark.parametrize("module", FORMATS)
def test_a_raised_format_is_refused_and_whole_and_an_older_one_goes_on(module: str, tmp_path: Path) -> None:
    ours, theirs = ROOT / "src", next_release(tmp_path / "next", module)
    [now] = [value for name, value in numbers().items() if name.rpartition(".")[0] == module]
    newer, older = tmp_path / "newer", tmp_path / "older"
    newer.mkdir()
    older.mkdir()

    [wrote] = told(theirs, module, ("write", newer))
    before = bytes_in(newer)
    *refusals, kept = told(ours, module, ("read", newer), ("more", newer), ("write", older))
    for refused in refusals:
        assert isinstance(refused, str), "this release reads what it may not understand"
        assert f"{now + 1}" in refused
        assert re.search(rf"reads (up to )?(format )?{now}\b", refused)
        assert REMEDY.search(refused), refused
    assert bytes_in(newer) == before

    again, found, more = told(theirs, module, ("read", newer), ("read", older), ("more", older))
    assert again == wrote, "the release that wrote it goes on"
    if module in DERIVED:
        assert REMEDY.search(found)
        return
    assert found == kept
    assert more[: len(kept)] == kept
    if module != "unerring.app.folder":
        assert len(more) > len(kept)
    [half] = told(ours, module, ("read", older))
    assert isinstance(half, str), "this release reads a part of what is there"
    assert told(theirs, module, ("read", older)) == [more]


def said(folder: Path, words: str) -> bool:
    """Whether a process wrote this into its log, or onto the timeline."""
    told = (path for path in folder.rglob("*") if path.suffix in (".log", ".jsonl") and path.is_file())
    return any(words in path.read_text(errors="replace") for path in told)


@pytest.mark.long
def test_a_host_with_a_raised_protocol_is_refused_and_goes_back(s3_bucket: str, tmp_path: Path) -> None:
    """No host of a release that the others do not understand takes part; the run goes on without it."""
    events = readings(300)
    raised = next_release(tmp_path / "next", *sorted(PROTOCOLS))
    with store_hosts(tmp_path, f"{s3_bucket}/{tmp_path.name}", events) as hosts:
        hosts.feed(0, 100)
        hosts.until(lambda: hosts.reached(events[50].stamp.time))
        before = hosts.on("a")
        hosts.take_down("a")
        hosts.sources["a"] = raised
        hosts.start("a")
        hosts.until(lambda: all(said(hosts.scratch(host), MISMATCH) for host in "abc"))
        hosts.feed(100, 200)
        hosts.until(lambda: hosts.reached(events[150].stamp.time))
        hosts.take_down("a")
        del hosts.sources["a"]
        hosts.start("a")
        hosts.until(lambda: hosts.is_back("a", before))
        hosts.lose("b")  # now a has to lead
        hosts.feed(200, 300)
        hosts.end()
    assert hosts.violations() == []


@pytest.mark.parametrize("raised", ["producer", "consumer"])
def test_a_channel_between_two_versions_is_refused_and_loses_nothing(raised: str, tmp_path: Path) -> None:
    ours, theirs = ROOT / "src", next_release(tmp_path / "next", "unerring.runtime.transports.hello")
    producer, consumer = (theirs, ours) if raised == "producer" else (ours, theirs)
    ends = [sys.executable, "-m", "tests.app.channel_ends"]

    def received(source: Path, address: str) -> str:
        command = [*ends, "in", address]
        return subprocess.run(command, env=importing(source), stdout=PIPE, text=True, timeout=120, check=True).stdout

    out = subprocess.Popen([*ends, "out"], env=importing(producer), stdin=PIPE, stdout=PIPE, text=True)
    try:
        assert out.stdout is not None
        address = out.stdout.readline().strip()
        refused = received(consumer, address)
        versions = {"producer": (3, 2), "consumer": (2, 3)}[raised]
        assert f"speaks version {versions[0]} of the event service and this consumer {versions[1]}" in refused
        assert "use the same release on both sides" in refused
        assert received(producer, address) == "1, 2, 3", "all of them, once both have the same"
    finally:
        out.communicate("", timeout=60)
