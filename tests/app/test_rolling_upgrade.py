"""The last release and this one side by side: what each reads of the other, and a run whose hosts change one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.app.live_tree import readings
from tests.app.store_hosts import store_hosts
from tests.releases import ARCHIVE_BYTES_MAX, ROOT, importing, kept, last_release

SINCE = {"processes": {"Recall", "Recalled"}}
"""Messages that the last release does not know: a node sends them only after it has lost its disk."""
ADDED = {"unerring.app.backups.FORMAT"}
RAISED = {"unerring.audit.certificate.FORMAT": (1, 2)}
"""Formats with another number than in the last release, which this one reads, too. They do not pass between hosts."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return last_release(tmp_path_factory.mktemp("older"))


def samples(source: Path, *, read: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the release of a folder writes, or what it refuses of another's."""
    command = [sys.executable, "-m", "tests.app.wire_samples", *(["read"] if read is not None else [])]
    given = None if read is None else json.dumps(read)
    done = subprocess.run(
        command, env=importing(source), input=given, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_archive_is_small() -> None:
    assert kept().stat().st_size <= ARCHIVE_BYTES_MAX


def test_each_release_reads_every_message_of_the_other(older: Path) -> None:
    """A field is only ever appended, so a message is either read, or of a kind that the other does not know."""
    theirs, ours = samples(older), samples(ROOT / "src")
    assert theirs["from"] == str(older / "unerring" / "__init__.py")
    assert samples(ROOT / "src", read=theirs) == {}
    refused = samples(older, read=ours)
    assert {protocol: set(kinds) for protocol, kinds in refused.items()} == SINCE
    for protocol, kinds in SINCE.items():
        assert not kinds & set(theirs["messages"][protocol])


def test_each_release_writes_the_formats_that_the_other_reads(older: Path) -> None:
    theirs, ours = samples(older)["numbers"], samples(ROOT / "src")["numbers"]
    assert len(theirs) >= 10
    assert ours == {**theirs, **{name: ours[name] for name in {*ADDED, *RAISED}}}
    assert {name: (theirs[name], ours[name]) for name in RAISED} == RAISED


def test_a_host_gets_the_new_release_while_the_others_have_the_last_one(
    s3_bucket: str, older: Path, tmp_path: Path
) -> None:
    """tests/campaign has all hosts in turn, with certificates, processes and a service."""
    events = readings(400)
    with store_hosts(tmp_path, f"{s3_bucket}/{tmp_path.name}", events, sources=dict.fromkeys("abc", older)) as hosts:
        hosts.feed(0, 100)
        hosts.until(lambda: hosts.reached(events[50].stamp.time))
        before = hosts.on("a")
        hosts.take_down("a")
        hosts.feed(100, 200)
        hosts.until(lambda: hosts.reached(events[150].stamp.time))
        del hosts.sources["a"]
        hosts.start("a")
        hosts.feed(200, 300)
        hosts.until(lambda: hosts.is_back("a", before))
        hosts.lose("b")  # now whatever b led is the new release's
        hosts.feed(300, 400)
        hosts.end()
    assert hosts.violations() == []
