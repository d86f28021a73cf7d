"""A disk that is really full: a sentence, nothing lost, and the writer goes on once there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MOUNT = 'mount -t tmpfs -o size=512k tmpfs "$0" && exec "$@"'

WRITER = """
import sys
from pathlib import Path
from unerring.log import EventLog, LogWriter
from unerring.model import DiskError, Stamp, schema_of, stream

@stream(key="machine", strict=True)
class Reading:
    machine: str
    celsius: float

disk = Path(sys.argv[1])
(disk / "ballast").write_bytes(bytes(256 * 1024))
log = EventLog(disk / "log")
writer = LogWriter(log, schema_of(Reading), buckets=1)
time = 0
refused = None
while refused is None:
    for _ in range(50):
        time += 1
        writer.append("p", (1, time), Stamp(time), {"machine": f"m{time % 7}", "celsius": time / 2}, now=0)
    try:
        writer.seal()
    except DiskError as error:
        refused = error
print(refused)
there = log.chain("Reading")
there.check()
print("sealed then", there.through_us < time, len(there.read(0, time)) == there.through_us)
(disk / "ballast").unlink()
print("kept now", writer.seal() == {"p": (1, time)})
print("all there", log.chain("Reading").read(0, time).column("time").to_pylist() == list(range(1, time + 1)))
"""


def test_a_full_disk_loses_nothing_and_the_writer_goes_on_once_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    own_mounts = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    command = [*own_mounts, "sh", "-c", MOUNT, str(disk), sys.executable, "-c", WRITER, str(disk)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    said, *rest = ended.stdout.splitlines()
    assert said.startswith(f"no space left for {disk}/log/Reading/segments/")
    assert said.endswith("nothing sealed was lost: free some space and start again")
    assert rest == ["sealed then True True", "kept now True", "all there True"]
